/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/cli.h"
#include "verbs/info/info.h"

/* The names of all devices that have some of @any and none of @none: "cuda:0, cuda:1", or "". */
static const char *devices_with(const struct info *in, uint32_t any, uint32_t none, char *buf, size_t len)
{
	size_t n = 0;

	buf[0] = '\0';
	for (unsigned int i = 0; i < in->devices && n < len; i++)
		if ((!any || in->device[i].caps & any) && !(in->device[i].caps & none))
			n += (size_t)snprintf(buf + n, len - n, "%s%s", n ? ", " : "", in->device[i].name);
	return buf;
}

static void add_can(struct info *in)
{
	const struct strait_topo_kernel *k = &in->kernel;
	char names[512];

	if (*devices_with(in, STRAIT_DEVICE_REGISTER_FILE, 0, names, sizeof(names)))
		info_add(&in->can, "pagecache: copy engines read cached files in place: %s", names);
	if (*devices_with(in, 0, STRAIT_DEVICE_HOST, names, sizeof(names)))
		info_add(&in->can, "staged: any file, through a ring of pinned memory: %s", names);
	if (*devices_with(in, STRAIT_DEVICE_HOST, 0, names, sizeof(names)))
		info_add(&in->can, "host: any file, by plain I/O: %s", names);
	if (*devices_with(in, STRAIT_DEVICE_STREAMS, 0, names, sizeof(names)))
		info_add(&in->can, "stream-ordered transfers: %s", names);
	if (*devices_with(in, STRAIT_DEVICE_DMABUF, 0, names, sizeof(names)))
		info_add(&in->can, "device memory exported as dma-buf: %s", names);
	if (!k->io_uring)
		info_add(&in->can, "direct I/O through io_uring");
	if (!k->strait_module)
		info_add(&in->can,
			 "p2p: strait.ko is loaded; strait explain FILE DEVICE shows whether a file can use it");
}

/* Ports whose ACS redirect sends traffic between a GPU and a drive below one switch up to the root. */
static void add_acs(struct info *in)
{
	for (unsigned int i = 0; i < in->nodes; i++) {
		const struct strait_topo_node *gpu = &in->node[i];

		if (gpu->kind != STRAIT_TOPO_GPU)
			continue;
		for (unsigned int k = 0; k < in->nodes; k++) {
			const struct strait_topo_node *peer = &in->node[k];

			if ((peer->kind != STRAIT_TOPO_NVME && peer->kind != STRAIT_TOPO_NIC) ||
			    strait_topo_link(in->topo, gpu->pci, peer->pci, NULL) != STRAIT_LINK_SWITCH ||
			    (gpu->acs_redirect != 1 && peer->acs_redirect != 1))
				continue;
			info_add(&in->more,
				 "a shorter path between %s and %s: ACS redirects their traffic to the root port; "
				 "boot with pci=disable_acs_redir=%s",
				 info_label(in, gpu), info_label(in, peer),
				 gpu->acs_redirect == 1 ? gpu->parent : peer->parent);
		}
	}
}

static bool has_kind(const struct info *in, uint32_t kind)
{
	for (unsigned int i = 0; i < in->nodes; i++)
		if (in->node[i].kind == kind)
			return true;
	return false;
}

static void add_p2p(struct info *in)
{
	const struct strait_topo_kernel *k = &in->kernel;

	if (k->strait_module == -ENOENT)
		info_add(&in->more, "p2p, DMA between drives and device memory: load the kernel module strait.ko "
				    "(make -C kernel modules_install, or DKMS; modprobe strait)");
	else if (k->strait_module == -EPROTO)
		info_add(&in->more,
			 "p2p: strait.ko %s does not match the version of this library: install the matching module",
			 k->module_version);
	else if (k->strait_module)
		info_add(&in->more,
			 "p2p: /dev/strait cannot be opened (%s): as root, usermod -aG strait USER; then log in again",
			 error_text(k->strait_module));
	if (k->p2pdma == 0)
		info_add(&in->more, "p2p: use a kernel with CONFIG_PCI_P2PDMA=y");
	if (!has_kind(in, STRAIT_TOPO_NVME))
		info_add(&in->more, "p2p: needs an NVMe drive; the PCI bus has none");
}

static void add_kernel(struct info *in)
{
	const struct strait_topo_kernel *k = &in->kernel;

	if (k->io_uring == -EPERM || k->io_uring == -EACCES)
		info_add(&in->more, "io_uring instead of threads: sysctl kernel.io_uring_disabled=0, or a "
				    "container that allows io_uring_setup(2)");
	else if (k->io_uring)
		info_add(&in->more,
			 "io_uring instead of threads (%s): use a kernel with CONFIG_IO_URING, or a "
			 "container that allows io_uring_setup(2)",
			 error_text(k->io_uring));
	if (k->cachestat == -ENOSYS)
		info_add(&in->more, "fast queries of the page cache: use Linux 6.5 or newer, or a container that "
				    "allows cachestat(2)");
	else if (k->cachestat)
		info_add(&in->more, "fast queries of the page cache (%s): use a container that allows cachestat(2)",
			 error_text(k->cachestat));
	if (k->userfaultfd)
		info_add(&in->more,
			 "page faults of mapped files handled one by one: userfaultfd(2) fails (%s); sysctl "
			 "vm.unprivileged_userfaultfd=1, or a container that allows it",
			 error_text(k->userfaultfd));
	if (k->udmabuf == -ENOENT)
		info_add(&in->more, "memory of emulated devices as dma-buf: modprobe udmabuf");
	else if (k->udmabuf)
		info_add(&in->more, "memory of emulated devices as dma-buf: permission to open /dev/udmabuf (%s)",
			 error_text(k->udmabuf));
}

void info_make_advice(struct info *in)
{
	add_can(in);
	for (unsigned int i = 0; i < in->providers; i++)
		if (!in->provider[i].info.devices)
			info_add(&in->more, "%s devices: %s", in->provider[i].info.name, in->provider[i].why);
	add_p2p(in);
	add_acs(in);
	add_kernel(in);
}
