/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_TOPO_H
#define STRAIT_TOPO_H

#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum strait_topo_kind {
	STRAIT_TOPO_BRIDGE = 1, /* PCIe root port, switch port or bridge */
	STRAIT_TOPO_GPU = 2,
	STRAIT_TOPO_NVME = 3,
	STRAIT_TOPO_NIC = 4,
	STRAIT_TOPO_STORAGE = 5, /* other storage controllers */
	STRAIT_TOPO_OTHER = 6,
};

/* The path between two PCI devices, nearest first. */
enum strait_topo_link {
	STRAIT_LINK_SAME = 0,	/* the same device */
	STRAIT_LINK_SWITCH = 1, /* below one switch: peer-to-peer DMA can stay inside it */
	STRAIT_LINK_ROOT = 2,	/* through one host bridge */
	STRAIT_LINK_NODE = 3,	/* through several host bridges of one NUMA node */
	STRAIT_LINK_SYSTEM = 4, /* across NUMA nodes */
};

/**
 * struct strait_topo_node - One PCI device
 * @size: sizeof(struct strait_topo_node), set by the caller
 * @pci: "0000:17:00.0"
 * @parent: PCI address of the bridge above it, empty at the root
 * @driver: the driver bound to it, empty if none
 * @block: its block device ("nvme0n1"), empty if none
 * @vendor: PCI vendor id
 * @device: PCI device id
 * @class_code: PCI class, 24 bits
 * @kind: enum strait_topo_kind
 * @numa_node: -1 if unknown
 * @iommu_group: -1 without an IOMMU
 * @iommu_type: "DMA", "DMA-FQ", "identity", empty if unknown
 * @acs_redirect: 1 if ACS of the port above redirects peer-to-peer requests to the root, 0 if not, -1 if unknown
 * @link_gts: speed of the link in GT/s, 0 if unknown
 * @link_width: lanes, 0 if unknown
 * @bar_bytes: size of the largest memory BAR
 */
struct strait_topo_node {
	size_t size;
	char pci[16];
	char parent[16];
	char driver[32];
	char block[32];
	uint16_t vendor;
	uint16_t device;
	uint32_t class_code;
	uint32_t kind;
	int32_t numa_node;
	int32_t iommu_group;
	char iommu_type[16];
	int32_t acs_redirect;
	uint32_t link_gts;
	uint32_t link_width;
	uint64_t bar_bytes;
};

#define STRAIT_TOPO_NODE_SIZE_V1 160

/**
 * struct strait_topo_kernel - What the kernel and the machine support
 * @size: sizeof(struct strait_topo_kernel), set by the caller
 * @release: kernel release, as of uname(2)
 * @iommu: "intel", "amd", ... or empty when no IOMMU is active
 * @io_uring: 0, or the negative errno of io_uring_setup(2)
 * @cachestat: 0, or the negative errno of cachestat(2)
 * @userfaultfd: 0, or the negative errno of userfaultfd(2)
 * @udmabuf: 0, or the negative errno of opening /dev/udmabuf
 * @p2pdma: 1 if the kernel has PCI P2PDMA, 0 if not, -1 if unknown
 * @strait_module: 0, or the negative errno of opening /dev/strait; -EPROTO if the module's ABI does not fit
 * @memlock: RLIMIT_MEMLOCK in bytes, UINT64_MAX for no limit
 * @cpus: CPUs that this process may use
 * @numa_nodes: NUMA nodes
 * @module_version: version of strait.ko, empty if unknown
 * @module_features: features of strait.ko on this kernel, separated by spaces: p2pdma (the kernel has PCI P2PDMA);
 *	p2p, user, dmabuf, nvp2p (kinds of memory that it imports); uring (I/O as io_uring commands); attach (PCI
 *	devices driven from user space)
 */
struct strait_topo_kernel {
	size_t size;
	char release[64];
	char iommu[32];
	int32_t io_uring;
	int32_t cachestat;
	int32_t userfaultfd;
	int32_t udmabuf;
	int32_t p2pdma;
	int32_t strait_module;
	uint64_t memlock;
	uint32_t cpus;
	uint32_t numa_nodes;
	char module_version[24];
	char module_features[64];
};

#define STRAIT_TOPO_KERNEL_SIZE_V1 232

/**
 * strait_topo_open() - Read the PCI tree of this machine
 * @ret: a snapshot of the tree
 *
 * Needs neither a context nor privileges; properties that cannot be read are reported as unknown.
 *
 * Return: 0, also when there is no PCI bus; -ENOMEM.
 */
STRAIT_API int strait_topo_open(struct strait_topo **ret);

/**
 * strait_topo_close() - Free a tree
 * @topo: the tree, or NULL
 */
STRAIT_API void strait_topo_close(struct strait_topo *topo);

/**
 * strait_topo_node() - Get a device of the tree
 * @topo: the tree
 * @index: 0, 1, ... until -ENOENT, parents before their children
 * @node: filled; @node->size must be set before
 *
 * Return: 0; -ENOENT past the last device; -EINVAL.
 */
STRAIT_API int strait_topo_node(struct strait_topo *topo, unsigned int index, struct strait_topo_node *node);

/**
 * strait_topo_link() - Tell the path between two devices
 * @topo: the tree
 * @a: PCI address of one device
 * @b: PCI address of the other device
 * @hops: number of links between them; may be NULL
 *
 * Return: enum strait_topo_link; -ENODEV when a device is not in the tree.
 */
STRAIT_API int strait_topo_link(struct strait_topo *topo, const char *a, const char *b, unsigned int *hops);

/**
 * strait_topo_kernel() - Tell what the kernel and the machine support
 * @kernel: filled; @kernel->size must be set before
 *
 * Return: 0; -EINVAL.
 */
STRAIT_API int strait_topo_kernel(struct strait_topo_kernel *kernel);

#ifdef __cplusplus
}
#endif

#endif
