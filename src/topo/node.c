/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "os/dir.h"
#include "os/os.h"
#include "topo/topo.h"

enum {
	VENDOR_MATROX = 0x102b,
	VENDOR_ASPEED = 0x1a03,
	BARS = 6,
	RESOURCE_MEM = 0x200, /* the kernel's IORESOURCE_MEM */
};

static int read_attr(const char *dir, const char *name, char *buf, size_t len)
{
	char file[TOPO_PATH + 64];

	str_format(file, sizeof(file), "%s/%s", dir, name);
	return os_read_line(file, buf, len);
}

static long read_number(const char *dir, const char *name, long unknown)
{
	char text[64], *end;
	long v;

	if (read_attr(dir, name, text, sizeof(text)) < 0)
		return unknown;
	v = strtol(text, &end, 0);
	return end == text ? unknown : v;
}

/* The last component of a link: the name of a driver or group. */
static int read_link_name(const char *dir, const char *name, char *buf, size_t len)
{
	char file[TOPO_PATH + 64], link[TOPO_PATH];
	const char *base;
	int err;

	str_format(file, sizeof(file), "%s/%s", dir, name);
	err = os_read_link(file, link, sizeof(link));
	if (err < 0)
		return err;
	base = strrchr(link, '/');
	str_copy(buf, len, base ? base + 1 : link);
	return 0;
}

static uint32_t kind_of(const struct strait_topo_node *node)
{
	uint32_t class = node->class_code >> 8, base = class >> 8;

	/* The class of the lab's GPU is memory controller: identify it by its driver. */
	if (!strcmp(node->driver, "strait_vgpu"))
		return STRAIT_TOPO_GPU;
	switch (base) {
	case 0x01:
		return class == 0x0108 ? STRAIT_TOPO_NVME : STRAIT_TOPO_STORAGE;
	case 0x02:
		return STRAIT_TOPO_NIC;
	case 0x03:
		/* The VGA device of a management controller (BMC) is no GPU. */
		if (node->vendor == VENDOR_ASPEED || node->vendor == VENDOR_MATROX)
			return STRAIT_TOPO_OTHER;
		return STRAIT_TOPO_GPU;
	case 0x06:
		return STRAIT_TOPO_BRIDGE;
	case 0x12:
		return STRAIT_TOPO_GPU; /* processing accelerators: AMD's and Intel's compute GPUs */
	}
	return class == 0x0c06 ? STRAIT_TOPO_NIC : STRAIT_TOPO_OTHER;
}

static uint64_t largest_bar(const char *dir)
{
	char file[TOPO_PATH + 64], text[BARS * 64], *line = text, *save;
	uint64_t largest = 0;
	ssize_t n;

	str_format(file, sizeof(file), "%s/resource", dir);
	n = os_read_bytes(file, text, sizeof(text) - 1);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	for (int i = 0; i < BARS; i++, line = NULL) {
		unsigned long long start, end, flags;
		char *l = strtok_r(line, "\n", &save);

		if (!l || sscanf(l, "%llx %llx %llx", &start, &end, &flags) != 3)
			break;
		if (flags & RESOURCE_MEM && end > start)
			largest = max_u64(largest, end - start + 1);
	}
	return largest;
}

/* ACS is in the port above, whose config space is one directory up. */
static int acs_above(const char *dir)
{
	char file[TOPO_PATH + 64];
	uint8_t config[4096];
	ssize_t n;

	str_format(file, sizeof(file), "%s/../config", dir);
	n = os_read_bytes(file, config, sizeof(config));
	return n < 0 ? -1 : topo_acs_redirect(config, (size_t)n);
}

static void read_iommu(const char *dir, struct strait_topo_node *node)
{
	char name[32], *end;

	node->iommu_group = -1;
	if (read_link_name(dir, "iommu_group", name, sizeof(name)) < 0)
		return;
	node->iommu_group = (int32_t)strtol(name, &end, 10);
	if (end == name || *end)
		node->iommu_group = -1;
	else if (read_attr(dir, "iommu_group/type", node->iommu_type, sizeof(node->iommu_type)) < 0)
		node->iommu_type[0] = '\0';
}

void topo_read_node(const char *sysfs_root, const char *path, struct strait_topo_node *node)
{
	const char *name = strrchr(path, '/') + 1;
	char dir[TOPO_PATH], speed[32];

	memset(node, 0, sizeof(*node));
	node->size = sizeof(*node);
	node->numa_node = -1;
	node->acs_redirect = -1;
	str_copy(node->pci, sizeof(node->pci), name);
	str_format(dir, sizeof(dir), "%s/bus/pci/devices/%s", sysfs_root, name);

	if (strchr(path, '/') + 1 != name) {
		size_t above = (size_t)(name - 1 - path);
		const char *parent = memrchr(path, '/', above);

		str_format(node->parent, sizeof(node->parent), "%.*s", (int)(path + above - parent - 1), parent + 1);
		node->acs_redirect = acs_above(dir);
	}
	if (read_link_name(dir, "driver", node->driver, sizeof(node->driver)) < 0)
		node->driver[0] = '\0';
	node->vendor = (uint16_t)read_number(dir, "vendor", 0);
	node->device = (uint16_t)read_number(dir, "device", 0);
	node->class_code = (uint32_t)read_number(dir, "class", 0) & 0xffffff;
	node->kind = kind_of(node);
	node->numa_node = (int32_t)read_number(dir, "numa_node", -1);
	read_iommu(dir, node);
	/* "16.0 GT/s PCIe", or "Unknown" */
	if (!read_attr(dir, "current_link_speed", speed, sizeof(speed)))
		node->link_gts = (uint32_t)strtoul(speed, NULL, 10);
	node->link_width = (uint32_t)read_number(dir, "current_link_width", 0);
	if (node->link_width > 32)
		node->link_width = 0; /* 63 and 255 mean "no link" */
	node->bar_bytes = largest_bar(dir);
}
