/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cli.h"
#include "lib/table.h"
#include "verbs/info/info.h"

const char *info_label(const struct info *in, const struct strait_topo_node *node)
{
	for (unsigned int i = 0; i < in->devices; i++)
		if (in->device[i].pci[0] && !strcasecmp(in->device[i].pci, node->pci))
			return in->device[i].name;
	return node->block[0] ? node->block : node->pci;
}

static int find_node(const struct info *in, const char *pci)
{
	for (unsigned int i = 0; i < in->nodes; i++)
		if (!strcmp(in->node[i].pci, pci))
			return (int)i;
	return -1;
}

static bool is_interesting(const struct strait_topo_node *node)
{
	return node->kind == STRAIT_TOPO_GPU || node->kind == STRAIT_TOPO_NVME || node->kind == STRAIT_TOPO_NIC ||
	       node->kind == STRAIT_TOPO_STORAGE;
}

/* The devices to list, and the bridges above them. */
static bool *choose(const struct info *in, bool all)
{
	bool *show = xcalloc(in->nodes, sizeof(*show));

	for (unsigned int i = 0; i < in->nodes; i++) {
		if (!all && !is_interesting(&in->node[i]))
			continue;
		for (int k = (int)i; k >= 0 && !show[k]; k = find_node(in, in->node[k].parent))
			show[k] = true;
	}
	return show;
}

static void print_node(const struct info *in, const struct strait_topo_node *node)
{
	const char *label = info_label(in, node), *vendor = info_vendor(node->vendor);
	unsigned int depth = 0;

	for (int k = find_node(in, node->parent); k >= 0; k = find_node(in, in->node[k].parent))
		depth++;
	printf("  %*s%s  %s", (int)(2 * depth), "", node->pci, info_kind(node->kind));
	if (strcmp(label, node->pci))
		printf(" %s", label);
	printf("  %s%s%04x:%04x", vendor, *vendor ? " " : "", node->vendor, node->device);
	if (node->driver[0])
		printf("  %s", node->driver);
	if (node->link_gts && node->link_width)
		/* The library reports whole GT/s; generation 1 has 2.5. */
		printf("  x%u at %u%s GT/s", node->link_width, node->link_gts, node->link_gts == 2 ? ".5" : "");
	if (node->kind != STRAIT_TOPO_BRIDGE) {
		if (node->numa_node >= 0)
			printf("  node %d", node->numa_node);
		if (node->iommu_group >= 0)
			printf("  IOMMU group %d%s%s", node->iommu_group, node->iommu_type[0] ? " " : "",
			       node->iommu_type);
		if (node->acs_redirect == 1)
			printf("  ACS redirects");
	}
	putchar('\n');
}

static void print_matrix(const struct info *in)
{
	const struct strait_topo_node *peer[TABLE_COLS - 1];
	unsigned int n = 0, gpus = 0;
	struct table t;

	for (unsigned int i = 0; i < in->nodes; i++) {
		const struct strait_topo_node *node = &in->node[i];

		gpus += node->kind == STRAIT_TOPO_GPU;
		if (node->kind >= STRAIT_TOPO_GPU && node->kind <= STRAIT_TOPO_NIC && n < ARRAY_SIZE(peer))
			peer[n++] = node;
	}
	if (!gpus) {
		puts("  no GPU on the PCI bus: no paths to show");
		return;
	}
	puts("\nPCIe paths (number of links)");
	table_begin(&t, "", NULL);
	for (unsigned int i = 0; i < n; i++)
		table_column(&t, info_label(in, peer[i]));
	for (unsigned int i = 0; i < n; i++) {
		if (peer[i]->kind != STRAIT_TOPO_GPU)
			continue;
		table_cell(&t, "%s", info_label(in, peer[i]));
		for (unsigned int k = 0; k < n; k++) {
			unsigned int hops = 0;
			int link = strait_topo_link(in->topo, peer[i]->pci, peer[k]->pci, &hops);

			if (link == STRAIT_LINK_SAME)
				table_cell(&t, "-");
			else
				table_cell(&t, "%s (%u)", info_link(link), hops);
		}
	}
	table_print(&t, stdout, 2);
	table_free(&t);
	puts("  switch: below one switch   root: through one host bridge   node: through host bridges of one NUMA node\n"
	     "  system: between NUMA nodes");
}

void info_print_pci(const struct info *in, bool all)
{
	bool *show;

	puts("\nPCIe");
	if (!in->nodes) {
		puts("  no PCI devices found in /sys");
		return;
	}
	show = choose(in, all);
	for (unsigned int i = 0; i < in->nodes; i++)
		if (show[i])
			print_node(in, &in->node[i]);
	free(show);
	print_matrix(in);
}
