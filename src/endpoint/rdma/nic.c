/* SPDX-License-Identifier: MIT */
#include "endpoint/rdma/nic.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "os/dir.h"
#include "os/os.h"
#include "os/probe.h"

#define PATH 512

const char *nic_sysfs = "/sys";

/* Named as in enum ibv_wc_status, whose values never change. */
const char *wc_status_name(int32_t status)
{
	static const char *const names[] = {
		"IBV_WC_SUCCESS",
		"IBV_WC_LOC_LEN_ERR",
		"IBV_WC_LOC_QP_OP_ERR",
		"IBV_WC_LOC_EEC_OP_ERR",
		"IBV_WC_LOC_PROT_ERR",
		"IBV_WC_WR_FLUSH_ERR",
		"IBV_WC_MW_BIND_ERR",
		"IBV_WC_BAD_RESP_ERR",
		"IBV_WC_LOC_ACCESS_ERR",
		"IBV_WC_REM_INV_REQ_ERR",
		"IBV_WC_REM_ACCESS_ERR",
		"IBV_WC_REM_OP_ERR",
		"IBV_WC_RETRY_EXC_ERR",
		"IBV_WC_RNR_RETRY_EXC_ERR",
		"IBV_WC_LOC_RDD_VIOL_ERR",
		"IBV_WC_REM_INV_RD_REQ_ERR",
		"IBV_WC_REM_ABORT_ERR",
		"IBV_WC_INV_EECN_ERR",
		"IBV_WC_INV_EEC_STATE_ERR",
		"IBV_WC_FATAL_ERR",
		"IBV_WC_RESP_TIMEOUT_ERR",
		"IBV_WC_GENERAL_ERR",
		"IBV_WC_TM_ERR",
		"IBV_WC_TM_RNDV_INCOMPLETE",
	};

	return status >= 0 && status < (int32_t)ARRAY_SIZE(names) ? names[status] : "unknown";
}

/* The last part of the path that a link of sysfs leads to; empty if there is none. */
static void link_name(const char *path, char *name, size_t len)
{
	char target[PATH], *slash;

	name[0] = '\0';
	if (os_read_link(path, target, sizeof(target)))
		return;
	slash = strrchr(target, '/');
	str_copy(name, len, slash ? slash + 1 : target);
}

static void fill(const char *root, const char *name, struct strait_rdma_nic *nic)
{
	char path[PATH], text[64];

	*nic = (struct strait_rdma_nic){ .size = sizeof(*nic), .numa_node = -1 };
	str_copy(nic->name, sizeof(nic->name), name);
	str_format(path, sizeof(path), "%s/class/infiniband/%s/ports/1/state", root, name);
	nic->active = !os_read_line(path, text, sizeof(text)) && strstr(text, "ACTIVE");
	str_format(path, sizeof(path), "%s/class/infiniband/%s/ports/1/gid_attrs/ndevs/0", root, name);
	if (os_read_line(path, nic->netdev, sizeof(nic->netdev)))
		nic->netdev[0] = '\0';
	str_format(path, sizeof(path), "%s/class/infiniband/%s/device/numa_node", root, name);
	if (!os_read_line(path, text, sizeof(text)))
		nic->numa_node = atoi(text);
	str_format(path, sizeof(path), "%s/class/infiniband/%s/device", root, name);
	link_name(path, nic->pci, sizeof(nic->pci));
	str_format(path, sizeof(path), "%s/class/infiniband/%s/device/driver", root, name);
	link_name(path, nic->driver, sizeof(nic->driver));
	/* A software device has no parent; older kernels give it that of its network interface. */
	str_format(path, sizeof(path), "%s/class/infiniband/%s/parent", root, name);
	if (!os_access(path)) {
		str_copy(nic->driver, sizeof(nic->driver), "rxe");
		nic->pci[0] = '\0';
	} else if (!nic->pci[0]) {
		str_copy(nic->driver, sizeof(nic->driver), strncmp(name, "siw", 3) ? "software" : "siw");
	}
}

int nic_at(const char *root, unsigned int index, struct strait_rdma_nic *nic)
{
	char path[PATH], name[64];
	struct os_names names;
	bool found;
	int rc;

	str_format(path, sizeof(path), "%s/class/infiniband", root);
	rc = os_names_read(path, &names);
	if (rc)
		return rc == -ENOMEM ? rc : -ENOENT;
	found = index < names.n;
	if (found)
		str_copy(name, sizeof(name), names.name[index]);
	os_names_free(&names);
	if (!found)
		return -ENOENT;
	fill(root, name, nic);
	return 0;
}

/* The first network interface that is up and not the loopback one; "eth0" if there is none. */
static void find_netdev(const char *root, char *name, size_t len)
{
	char path[PATH], text[32];
	struct os_names names;

	str_copy(name, len, "eth0");
	str_format(path, sizeof(path), "%s/class/net", root);
	if (os_names_read(path, &names))
		return;
	for (unsigned int i = 0; i < names.n; i++) {
		str_format(path, sizeof(path), "%s/class/net/%s/operstate", root, names.name[i]);
		if (!strcmp(names.name[i], "lo") || os_read_line(path, text, sizeof(text)) || strcmp(text, "up"))
			continue;
		str_copy(name, len, names.name[i]);
		break;
	}
	os_names_free(&names);
}

/* Has this kernel a software RDMA device of the kind "rxe" or "siw": loaded, as a module, or built in? */
static bool has_software(const char *root, const char *modules, const char *kind)
{
	const char *name = strcmp(kind, "rxe") ? kind : "rdma_rxe";
	char path[PATH], word[80];
	char release[64];

	str_format(path, sizeof(path), "%s/module/%s", root, name);
	if (!os_access(path))
		return true;
	if (os_kernel_release(release, sizeof(release)) < 0)
		return false;
	str_format(path, sizeof(path), "%s/%s/modules.alias", modules, release);
	str_format(word, sizeof(word), "rdma-link-%s", kind);
	if (os_file_has_word(path, word) == 1)
		return true;
	str_format(path, sizeof(path), "%s/%s/modules.builtin", modules, release);
	str_format(word, sizeof(word), "kernel/drivers/infiniband/sw/%s/%s.ko", kind, name);
	return os_file_has_word(path, word) == 1;
}

int nic_missing_reason(const char *root, const char *modules, char *text, size_t len)
{
	char netdev[64], inactive[64] = "";
	struct strait_rdma_nic nic;
	const char *kind;

	for (unsigned int i = 0; !nic_at(root, i, &nic); i++) {
		if (nic.active) {
			str_copy(text, len, "");
			return -EEXIST;
		}
		str_copy(inactive, sizeof(inactive), nic.name);
	}
	if (inactive[0]) {
		str_format(text, len,
			   "the RDMA device %s has no active port: connect it, or set its network interface up",
			   inactive);
		return 0;
	}
	find_netdev(root, netdev, sizeof(netdev));
	kind = has_software(root, modules, "rxe") ? "rxe" : has_software(root, modules, "siw") ? "siw" : NULL;
	if (kind)
		str_format(text, len,
			   "this machine has no RDMA device. The kernel's software one, as root: modprobe %s; "
			   "modprobe rdma_ucm; rdma link add %s0 type %s netdev %s",
			   strcmp(kind, "rxe") ? kind : "rdma_rxe", kind, kind, netdev);
	else
		str_copy(text, len,
			 "this machine has no RDMA device, and its kernel has no software one (CONFIG_RDMA_RXE, "
			 "CONFIG_RDMA_SIW)");
	return 0;
}
