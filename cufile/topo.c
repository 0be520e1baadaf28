/* SPDX-License-Identifier: MIT */
/* BAR sizes and the PCIe topology. */
#include "core.h"

#include <stdio.h>

static const char *kind_name(uint32_t kind)
{
	static const char *const names[] = { "other", "bridge", "gpu", "nvme", "nic", "storage", "other" };

	return kind < sizeof(names) / sizeof(names[0]) ? names[kind] : "other";
}

CF_API CUfileError_t cuFileGetBARSizeInKB(int gpu, size_t *kb)
{
	struct strait_topo_node node = { .size = sizeof(node) };
	struct strait_device_info info = { .size = sizeof(info) };
	struct strait_device *dev;
	struct strait_topo *topo;
	char name[32];
	int code = cf_open_implicit();

	if (!kb || gpu < 0)
		return cf_error(CU_FILE_INVALID_VALUE);
	if (code)
		return cf_error(code);
	snprintf(name, sizeof(name), "cuda:%d", gpu);
	if (strait_device_find(cf_context(), name, &dev) || strait_device_info(dev, &info))
		return cf_error(CU_FILE_DEVICE_NOT_FOUND);
	if (strait_topo_open(&topo))
		return cf_error(CU_FILE_NOMEM_ERROR);
	code = CU_FILE_DEVICE_NOT_FOUND;
	for (unsigned int i = 0; code && !strait_topo_node(topo, i, &node); i++)
		if (!strcmp(node.pci, info.pci)) {
			*kb = node.bar_bytes / 1024;
			code = CU_FILE_SUCCESS;
		}
	strait_topo_close(topo);
	return cf_error(code);
}

static void print_node(FILE *f, const struct strait_topo_node *n, bool first)
{
	fprintf(f,
		"%s\n    { \"pci\": \"%s\", \"kind\": \"%s\", \"parent\": \"%s\", \"vendor\": %u, \"device\": %u, "
		"\"numa_node\": %d, \"iommu_group\": %d, \"link_gts\": %u, \"link_width\": %u, \"bar_bytes\": %llu }",
		first ? "" : ",", n->pci, kind_name(n->kind), n->parent, n->vendor, n->device, n->numa_node,
		n->iommu_group, n->link_gts, n->link_width, (unsigned long long)n->bar_bytes);
}

CF_API CUfileError_t cuFileExportPCIeTopology(const char *filename)
{
	struct strait_topo_node node = { .size = sizeof(node) };
	struct strait_topo *topo;
	bool good;
	FILE *f;

	if (!filename || !filename[0])
		return cf_error(CU_FILE_INVALID_VALUE);
	if (strait_topo_open(&topo))
		return cf_error(CU_FILE_NOMEM_ERROR);
	f = fopen(filename, "we");
	if (!f) {
		strait_topo_close(topo);
		return cf_error(errno == EACCES ? CU_FILE_PERMISSION_DENIED : CU_FILE_IO_ERROR);
	}
	fprintf(f, "{\n  \"version\": 1,\n  \"nodes\": [");
	for (unsigned int i = 0; !strait_topo_node(topo, i, &node); i++)
		print_node(f, &node, i == 0);
	fprintf(f, "\n  ]\n}\n");
	strait_topo_close(topo);
	good = !ferror(f);
	good = !fclose(f) && good;
	return cf_error(good ? CU_FILE_SUCCESS : CU_FILE_IO_ERROR);
}
