/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_PCI_H
#define STRAIT_PCI_H

/*
 * Which driver a PCI device has: what is driven from user space is taken from the kernel's.
 *
 * Experimental: not part of the stable interface (docs/abi.md), it may change with any version.
 */

#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Flags of strait_pci_bind(). */
#define STRAIT_PCI_FORCE (1u << 0) /* also what is in use, or has something on it */

/**
 * struct strait_pci_info - Who has a PCI device
 * @size: sizeof(struct strait_pci_info), set by the caller
 * @pci: "0000:17:00.0"
 * @driver: bound to it now, empty if none
 * @previous: the one strait_pci_unbind() would give it back to, empty if none
 * @saved: whether that is known: strait_pci_bind() has been called for it since the machine started
 * @iommu_group: -1 without an IOMMU
 * @node: the device node by which a program drives it, "/dev/strait-pci/0000:17:00.0" or "/dev/vfio/12": the
 *	permission to open it is the right to do so. Empty if it has none
 */
struct strait_pci_info {
	size_t size;
	char pci[16];
	char driver[32];
	char previous[32];
	int32_t saved;
	int32_t iommu_group;
	char node[48];
};

#define STRAIT_PCI_INFO_SIZE_V1 96

/**
 * strait_pci_bind() - Take a PCI device from its driver, to drive it from user space
 * @pci: "0000:17:00.0", or "17:00.0"
 * @driver: "strait" or "vfio-pci"
 * @flags: STRAIT_PCI_FORCE or 0
 * @why: on failure, what was wrong and what to do; on success empty, or what could not be checked; may be NULL
 * @why_len: its size
 *
 * The driver it has is remembered in /run/strait/bind. A drive is refused when it or a partition of it is mounted,
 * used as swap space, held by another driver (dm, md) or opened exclusively (ZFS), or when it has partitions or
 * the signature of a file system, volume or partition table. libblkid looks for signatures where libblkid.so.1 can
 * be loaded, and a built-in list of signatures in any case. A network card is refused while an interface is up.
 * Needs root.
 *
 * Return: 0, also when it was so before; -ENODEV for no such device; -EBUSY when it is in use; -ENOTEMPTY
 * when it has something on it; -ENOENT when that driver is not loaded; -EINVAL for another one, or a bridge;
 * -EIO when it is bound to nothing now, or to its previous driver again; otherwise what the kernel answers.
 */
STRAIT_API int strait_pci_bind(const char *pci, const char *driver, uint32_t flags, char *why, size_t why_len);

/**
 * strait_pci_unbind() - Give a PCI device back to the driver it had
 * @pci: as for strait_pci_bind()
 * @flags: STRAIT_PCI_FORCE: also from a process that has it open; or 0
 * @why: what was wrong and what to do, when it fails; may be NULL
 * @why_len: its size
 *
 * One that strait_pci_bind() was not called for goes to whichever driver takes it.
 *
 * Return: 0; -ENODEV for no such device; -EBUSY when it is open; -EINVAL when it is bound to neither of the
 * two; -EIO when its driver did not take it back; otherwise what the kernel answers.
 */
STRAIT_API int strait_pci_unbind(const char *pci, uint32_t flags, char *why, size_t why_len);

/**
 * strait_pci_info() - Which driver a PCI device has, and had
 * @pci: as for strait_pci_bind()
 * @info: filled in; its size is set by the caller
 *
 * Return: 0; -ENODEV for no such device.
 */
STRAIT_API int strait_pci_info(const char *pci, struct strait_pci_info *info);

#ifdef __cplusplus
}
#endif

#endif
