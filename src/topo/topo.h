/* SPDX-License-Identifier: MIT */
#ifndef TOPO_TOPO_H
#define TOPO_TOPO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <strait/topo.h>

#define TOPO_PATH 512

/*
 * One PCI device. @path is its path below the host bridge in sysfs, "pci0000:16/0000:16:01.0/0000:17:00.0". The shape
 * of the tree follows from the paths.
 */
struct topo_dev {
	struct strait_topo_node node;
	char *path;
};

struct strait_topo {
	struct topo_dev *dev; /* sorted by path, so that parents come before their children */
	unsigned int n;
	unsigned int numa_nodes;
};

/* strait_topo_open() with another root than /sys, for tests. */
int topo_open_at(const char *sysfs_root, struct strait_topo **ret);

/* Are the first @len bytes of @s a PCI address, "0000:17:00.0"? */
bool topo_is_address(const char *s, size_t len);

/*
 * The part of a sysfs path from the last host bridge to the last PCI device in it, copied to @path:
 * -ENODEV when there is no PCI device in it.
 */
int topo_pci_path(const char *link, char *path, size_t len);

/* Fill in a node from its directory in sysfs. Never fails: properties that cannot be read are unknown. */
void topo_read_node(const char *sysfs_root, const char *path, struct strait_topo_node *node);

/* Set @block of every device that has a disk. */
void topo_read_blocks(const char *sysfs_root, struct strait_topo *topo);

/*
 * Does the port whose config space is @config (@len bytes were readable) redirect peer-to-peer requests to
 * the root? 1, 0, or -1 if too little was readable.
 */
int topo_acs_redirect(const uint8_t *config, size_t len);

struct topo_dev *topo_find(struct strait_topo *topo, const char *pci);

/* The active IOMMU: "intel", "amd", ...; empty if there is none. */
void topo_iommu_name(const char *sysfs_root, char *buf, size_t len);

/* Number of NUMA nodes; 1 if sysfs does not list them. */
unsigned int topo_numa_nodes(const char *sysfs_root);

#endif
