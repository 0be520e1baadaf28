/* SPDX-License-Identifier: MIT */
/* The NVMe drives of the machine, and which of them are bound for user space. */
#include <stdio.h>
#include <string.h>

#include <strait/topo.h>

#include "lib/cli.h"
#include "lib/json.h"
#include "lib/table.h"
#include "verbs/nvme/nvme.h"

static bool is_bound(const struct strait_topo_node *node)
{
	return !strcmp(node->driver, "strait") || !strcmp(node->driver, "vfio-pci");
}

/* Calls @fn for each NVMe controller of the machine until it returns true. */
static int each_drive(bool (*fn)(const struct strait_topo_node *node, void *arg), void *arg)
{
	struct strait_topo_node node = { .size = sizeof(node) };
	struct strait_topo *topo;
	int err = strait_topo_open(&topo);

	if (err)
		return fail(CLI_FAILED, "check that /sys is mounted", "cannot list PCI devices: %s", error_text(err));
	for (unsigned int i = 0; !strait_topo_node(topo, i, &node); i++)
		if (node.kind == STRAIT_TOPO_NVME && fn(&node, arg))
			break;
	strait_topo_close(topo);
	return CLI_OK;
}

struct found {
	char bound[16], any[16];
	unsigned int n_bound, n_any;
};

static bool note_drive(const struct strait_topo_node *node, void *arg)
{
	struct found *f = arg;

	if (is_bound(node) && !f->n_bound++)
		snprintf(f->bound, sizeof(f->bound), "%s", node->pci);
	if (!f->n_any++)
		snprintf(f->any, sizeof(f->any), "%s", node->pci);
	return false;
}

int nvme_find_drive(struct nvme_cmd *c, const char *name)
{
	struct found f = { 0 };
	char hint[64];
	int code;

	if (name) {
		snprintf(c->name, sizeof(c->name), "%s", name);
		return CLI_OK;
	}
	code = each_drive(note_drive, &f);
	if (code)
		return code;
	if (f.n_bound > 1)
		return fail(CLI_USAGE, "see: strait nvme list", "%u drives are bound for user space: name one",
			    f.n_bound);
	if (!f.n_bound && f.n_any) {
		snprintf(hint, sizeof(hint), "strait bind %s", f.any);
		return fail(CLI_NO_ROUTE, hint, "no NVMe drive is bound for user space");
	}
	if (!f.n_bound)
		return fail(CLI_NO_ROUTE, "see: strait info --all", "this machine has no NVMe drive");
	memcpy(c->name, f.bound, sizeof(c->name));
	return CLI_OK;
}

struct listing {
	struct table table;
	struct json json;
	unsigned int n;
};

static bool list_drive(const struct strait_topo_node *node, void *arg)
{
	struct listing *l = arg;

	l->n++;
	if (cli.json) {
		json_object(&l->json, NULL);
		json_string(&l->json, "pci", node->pci);
		json_string(&l->json, "driver", node->driver);
		json_string(&l->json, "block", node->block);
		json_int(&l->json, "iommu_group", node->iommu_group);
		json_string(&l->json, "iommu_type", node->iommu_type);
		json_int(&l->json, "numa_node", node->numa_node);
		json_bool(&l->json, "user_space", is_bound(node));
		json_close(&l->json);
		return false;
	}
	table_cell(&l->table, "%s", node->pci);
	table_cell(&l->table, "%04x:%04x", node->vendor, node->device);
	table_cell(&l->table, "%s", *node->driver ? node->driver : "-");
	table_cell(&l->table, "%s", *node->block ? node->block : "-");
	table_cell(&l->table, "%s", *node->iommu_type ? node->iommu_type : "-");
	table_cell(&l->table, "%s", is_bound(node) ? "yes" : "no (strait bind)");
	return false;
}

int nvme_cmd_list(void)
{
	struct listing l = { 0 };
	int code;

	if (cli.json) {
		json_begin(&l.json, stdout);
		json_array(&l.json, "drives");
	} else {
		table_begin(&l.table, "drive", "id", "driver", "block", "IOMMU", "user space", NULL);
	}
	code = each_drive(list_drive, &l);
	if (cli.json) {
		json_close(&l.json);
		json_finish(&l.json);
		return code;
	}
	if (!code && !l.n)
		puts("this machine has no NVMe drive");
	else if (!code)
		table_print(&l.table, stdout, 0);
	table_free(&l.table);
	return code;
}
