/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <strait/types.h>

#include "lib/cli.h"
#include "lib/size.h"
#include "lib/table.h"
#include "verbs/info/info.h"

static const char *caps_text(uint32_t caps, char *buf, size_t len)
{
	size_t n = 0;

	buf[0] = '\0';
	for (unsigned int bit = 0; info_cap(bit) && n < len; bit++)
		if (caps & 1u << bit)
			n += (size_t)snprintf(buf + n, len - n, "%s%s", n ? ", " : "", info_cap(bit));
	return buf;
}

static void print_devices(const struct info *in)
{
	char total[SIZE_TEXT], avail[SIZE_TEXT], caps[160];
	struct table t;

	puts("\nDevices");
	table_begin(&t, "NAME", "MODEL", ">MEMORY", ">FREE", "PCI", "CAN", NULL);
	for (unsigned int i = 0; i < in->devices; i++) {
		const struct strait_device_info *d = &in->device[i];

		table_cell(&t, "%s", d->name);
		table_cell(&t, "%s", d->model);
		table_cell(&t, "%s", size_format(d->mem_total, total));
		table_cell(&t, "%s", size_format(d->mem_free, avail));
		table_cell(&t, "%s", d->pci[0] ? d->pci : "-");
		table_cell(&t, "%s", caps_text(d->caps, caps, sizeof(caps)));
	}
	table_print(&t, stdout, 2);
	table_free(&t);
	for (unsigned int i = 0; i < in->providers; i++)
		if (!in->provider[i].info.devices)
			printf("  no %s device: %s\n", in->provider[i].info.name, in->provider[i].why);
}

static void print_drives(const struct info *in)
{
	char size[SIZE_TEXT];
	struct table t;

	puts("\nDrives");
	if (!in->drives) {
		puts("  none found");
		return;
	}
	table_begin(&t, "NAME", "KIND", ">SIZE", "PCI", "DRIVER", "MODEL", NULL);
	for (unsigned int i = 0; i < in->drives; i++) {
		const struct info_drive *d = &in->drive[i];

		table_cell(&t, "%s", d->name[0] ? d->name : "-");
		table_cell(&t, "%s", d->kind);
		table_cell(&t, "%s", d->bytes ? size_format(d->bytes, size) : "-");
		table_cell(&t, "%s", d->pci[0] ? d->pci : "-");
		table_cell(&t, "%s", d->driver[0] ? d->driver : "-");
		table_cell(&t, "%s", d->model);
	}
	table_print(&t, stdout, 2);
	table_free(&t);
}

static void print_filesystems(const struct info *in)
{
	static const char *const answers[] = { "unknown", "no", "yes" };
	char size[SIZE_TEXT], avail[SIZE_TEXT];
	struct table t;

	puts("\nFile systems");
	if (!in->filesystems) {
		puts("  none found");
		return;
	}
	table_begin(&t, "MOUNTED ON", "TYPE", "FROM", ">SIZE", ">FREE", "DIRECT I/O", NULL);
	for (unsigned int i = 0; i < in->filesystems; i++) {
		const struct info_fs *fs = &in->fs[i];

		table_cell(&t, "%s", fs->mount);
		table_cell(&t, "%s", fs->type);
		table_cell(&t, "%s", fs->source);
		table_cell(&t, "%s", fs->bytes ? size_format(fs->bytes, size) : "-");
		table_cell(&t, "%s", fs->bytes ? size_format(fs->free, avail) : "-");
		table_cell(&t, "%s%s%s", answers[fs->direct + 1], fs->direct_why[0] ? ": " : "", fs->direct_why);
	}
	table_print(&t, stdout, 2);
	table_free(&t);
}

static void print_iommu(const struct info *in)
{
	unsigned int translated = 0, identity = 0;

	for (unsigned int i = 0; i < in->nodes; i++) {
		translated += !strncmp(in->node[i].iommu_type, "DMA", 3);
		identity += !strcmp(in->node[i].iommu_type, "identity");
	}
	puts("\nIOMMU");
	if (!in->kernel.iommu[0])
		puts("  none active: devices use physical addresses");
	else
		printf("  %s: %u devices with translation, %u with identity mapping\n", in->kernel.iommu, translated,
		       identity);
}

static void print_feature(const char *name, int err)
{
	printf("  %-12s %s\n", name, err ? error_text(err) : "yes");
}

static void print_kernel(const struct info *in)
{
	const struct strait_topo_kernel *k = &in->kernel;
	char size[SIZE_TEXT];

	printf("\nKernel %s\n", k->release);
	print_feature("io_uring", k->io_uring);
	print_feature("cachestat", k->cachestat);
	print_feature("userfaultfd", k->userfaultfd);
	print_feature("udmabuf", k->udmabuf);
	printf("  %-12s %s\n", "P2PDMA", k->p2pdma > 0 ? "yes" : k->p2pdma ? "unknown" : "no");
	if (k->module_version[0] && !k->strait_module)
		printf("  %-12s %s: %s\n", "strait.ko", k->module_version, k->module_features);
	else
		print_feature("strait.ko", k->strait_module);
	printf("  %-12s %s\n", "memlock", k->memlock == UINT64_MAX ? "no limit" : size_format(k->memlock, size));
}

static void print_lines(const char *title, const struct info_lines *l)
{
	if (!l->n)
		return;
	printf("\n%s\n", title);
	for (unsigned int i = 0; i < l->n; i++)
		printf("  - %s\n", l->line[i]);
}

void info_print(const struct info *in, bool all)
{
	printf("Strait %s, %u CPU%s, %u NUMA node%s\n", strait_version(), in->kernel.cpus,
	       in->kernel.cpus == 1 ? "" : "s", in->kernel.numa_nodes, in->kernel.numa_nodes == 1 ? "" : "s");
	print_devices(in);
	print_drives(in);
	print_filesystems(in);
	info_print_pci(in, all);
	print_iommu(in);
	print_kernel(in);
	info_print_peers(in);
	print_lines("What Strait can do here", &in->can);
	print_lines("What is missing, and how to get it", &in->more);
}
