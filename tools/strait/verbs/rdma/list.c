/* SPDX-License-Identifier: MIT */
/* Every RDMA device with every device: how far, how memory is registered, and why no better way. */
#include <errno.h>
#include <stdio.h>

#include "lib/cli.h"
#include "lib/json.h"
#include "lib/table.h"
#include "verbs/rdma/rdma.h"

#define TRY_BYTES (2 * MIB)

static const char *distance(struct strait_topo *topo, const struct strait_rdma_nic *nic,
			    const struct strait_device_info *dev)
{
	static const char *const names[] = { "same device", "one switch", "one host bridge", "one NUMA node",
					     "across NUMA nodes" };
	int link;

	if (!*nic->pci || !*dev->pci)
		return "-";
	link = strait_topo_link(topo, nic->pci, dev->pci, NULL);
	return link >= 0 && link < (int)ARRAY_SIZE(names) ? names[link] : "unknown";
}

/* Memory of the device as "strait rdma pull" allocates it. */
int rdma_try_device(const char *nic, struct strait_device *dev, struct strait_rdma_reach *reach)
{
	struct strait_region *region;
	int err = strait_region_alloc_caps(dev, TRY_BYTES, STRAIT_REGION_PINNABLE, &region);

	if (err)
		err = strait_region_alloc(dev, TRY_BYTES, &region);
	if (err)
		return err;
	err = strait_rdma_probe(nic, region, reach);
	strait_region_close(region);
	return err;
}

struct listing {
	struct table t;
	struct json j;
	struct strait_topo *topo;
};

static void print_pair(struct listing *l, const struct strait_rdma_nic *nic, struct strait_device *dev)
{
	struct strait_device_info info = { .size = sizeof(info) };
	struct strait_rdma_reach reach = { .size = sizeof(reach) };
	int err = strait_device_info(dev, &info);

	if (err || info.caps & STRAIT_DEVICE_IMPORT_ONLY)
		return;
	err = rdma_try_device(nic->name, dev, &reach);
	if (err)
		snprintf(reach.reason, sizeof(reach.reason), "%s", error_text(err));
	if (cli.json) {
		json_object(&l->j, NULL);
		json_string(&l->j, "nic", nic->name);
		json_string(&l->j, "driver", nic->driver);
		json_string(&l->j, "netdev", nic->netdev);
		json_bool(&l->j, "active", nic->active);
		json_string(&l->j, "device", info.name);
		json_string(&l->j, "distance", distance(l->topo, nic, &info));
		json_string(&l->j, "kind", err ? "" : strait_rdma_kind_name(reach.kind));
		json_string(&l->j, "reason", reach.reason);
		json_close(&l->j);
		return;
	}
	table_cell(&l->t, "%s", nic->name);
	table_cell(&l->t, "%s", *nic->driver ? nic->driver : "-");
	table_cell(&l->t, "%s", *nic->netdev ? nic->netdev : "-");
	table_cell(&l->t, "%s", nic->active ? "active" : "down");
	table_cell(&l->t, "%s", info.name);
	table_cell(&l->t, "%s", distance(l->topo, nic, &info));
	table_cell(&l->t, "%s", err ? "failed" : strait_rdma_kind_name(reach.kind));
	table_cell(&l->t, "%s", reach.reason);
}

int rdma_list(void)
{
	struct strait_rdma_nic nic = { .size = sizeof(nic) };
	struct strait_context *ctx;
	struct strait_device *dev;
	struct listing l = { .topo = NULL };
	unsigned int n = 0;
	char why[512];
	int code, missing;

	missing = strait_rdma_missing_reason(why, sizeof(why)) == 0;
	code = context_open(false, &ctx);
	if (code)
		return code;
	if (strait_topo_open(&l.topo))
		l.topo = NULL;
	if (cli.json) {
		json_begin(&l.j, stdout);
		json_string(&l.j, "missing", missing ? why : "");
		json_array(&l.j, "pairs");
	} else {
		table_begin(&l.t, "NIC", "driver", "network", "port", "device", "distance", "registered",
			    "why not better", NULL);
	}
	for (; !strait_rdma_nic(n, &nic); n++)
		for (unsigned int i = 0; !strait_device_at(ctx, i, &dev); i++)
			print_pair(&l, &nic, dev);
	if (cli.json) {
		json_close(&l.j);
		json_finish(&l.j);
	} else if (n) {
		table_print(&l.t, stdout, 0);
	}
	if (missing && !cli.json)
		printf("%s\n", why);
	table_free(&l.t);
	strait_topo_close(l.topo);
	strait_context_close(ctx);
	return CLI_OK;
}
