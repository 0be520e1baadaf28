/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "os/dir.h"
#include "os/os.h"
#include "topo/topo.h"

static struct topo_dev *find_path(struct strait_topo *topo, const char *path)
{
	for (unsigned int i = 0; i < topo->n; i++)
		if (!strcmp(topo->dev[i].path, path))
			return &topo->dev[i];
	return NULL;
}

/* The link of a disk in /sys/block contains the address of its PCI device. */
static void read_links(const char *root, struct strait_topo *topo)
{
	char file[TOPO_PATH], link[TOPO_PATH], path[TOPO_PATH];
	struct os_names names;

	str_format(file, sizeof(file), "%s/block", root);
	if (os_names_read(file, &names) < 0)
		return;
	for (unsigned int i = 0; i < names.n; i++) {
		struct topo_dev *dev;

		str_format(file, sizeof(file), "%s/block/%s", root, names.name[i]);
		if (os_read_link(file, link, sizeof(link)) < 0 || topo_pci_path(link, path, sizeof(path)) < 0)
			continue;
		dev = find_path(topo, path);
		if (dev && !dev->node.block[0])
			str_copy(dev->node.block, sizeof(dev->node.block), names.name[i]);
	}
	os_names_free(&names);
}

/*
 * With NVMe multipath the disk belongs to a virtual device, and the controller has only a path to it: "nvme0c3n1" of
 * controller 3 is a path to the disk "nvme0n1".
 */
static void read_multipath(const char *root, struct strait_topo_node *node)
{
	char dir[TOPO_PATH];
	struct os_names ctrl, paths;

	str_format(dir, sizeof(dir), "%s/bus/pci/devices/%s/nvme", root, node->pci);
	if (os_names_read(dir, &ctrl) < 0)
		return;
	for (unsigned int i = 0; i < ctrl.n && !node->block[0]; i++) {
		str_format(dir, sizeof(dir), "%s/bus/pci/devices/%s/nvme/%s", root, node->pci, ctrl.name[i]);
		if (os_names_read(dir, &paths) < 0)
			continue;
		for (unsigned int k = 0; k < paths.n && !node->block[0]; k++) {
			unsigned int subsys, path, ns;
			int end = 0;

			if (sscanf(paths.name[k], "nvme%uc%un%u%n", &subsys, &path, &ns, &end) == 3 &&
			    !paths.name[k][end])
				str_format(node->block, sizeof(node->block), "nvme%un%u", subsys, ns);
		}
		os_names_free(&paths);
	}
	os_names_free(&ctrl);
}

void topo_read_blocks(const char *sysfs_root, struct strait_topo *topo)
{
	read_links(sysfs_root, topo);
	for (unsigned int i = 0; i < topo->n; i++)
		if (topo->dev[i].node.kind == STRAIT_TOPO_NVME && !topo->dev[i].node.block[0])
			read_multipath(sysfs_root, &topo->dev[i].node);
}
