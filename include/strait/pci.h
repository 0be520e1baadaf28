/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_PCI_H
#define STRAIT_PCI_H

/*
 * Binding PCI devices to the drivers for user space, strait and vfio-pci, and back.
 *
 * Experimental: not part of the stable interface (docs/abi.md), it may change with any version.
 */

#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Flags of strait_pci_bind(). */
#define STRAIT_PCI_FORCE (1u << 0) /* even if the device is in use or holds data */

/**
 * struct strait_pci_info - The drivers of a PCI device
 * @size: sizeof(struct strait_pci_info), set by the caller
 * @pci: "0000:17:00.0"
 * @driver: the driver bound to it, empty if none
 * @previous: the driver that strait_pci_unbind() binds again, empty if none
 * @saved: 1 if @previous is known: strait_pci_bind() was called for the device since the machine was started
 * @iommu_group: -1 without an IOMMU
 * @node: the device node that a program opens to drive it, "/dev/strait-pci/0000:17:00.0" or "/dev/vfio/12"; its
 *	permissions control access to the device. Empty if it has none
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
 * strait_pci_bind() - Bind a PCI device to a driver for user space
 * @pci: "0000:17:00.0", or "17:00.0"
 * @driver: "strait" or "vfio-pci"
 * @flags: STRAIT_PCI_FORCE or 0
 * @why: set to what failed and what to do; on success empty, or what could not be checked; may be NULL
 * @why_len: size of @why
 *
 * The current driver is saved in /run/strait/bind. A drive is refused when it or a partition of it is mounted,
 * used as swap space, held by another driver (dm, md) or opened exclusively (ZFS), or when it has partitions or
 * the signature of a file system, volume or partition table. Signatures are searched by libblkid
 * if libblkid.so.1 can be loaded, and by a built-in list in any case. A network card is refused while an interface is
 * up.
 * Needs root.
 *
 * Return: 0, also when it was already bound to @driver; -ENODEV when there is no such device; -EBUSY when it is in
 * use; -ENOTEMPTY when it holds data; -ENOENT when @driver is not loaded; -EINVAL for another driver, or for a bridge;
 * -EIO when binding failed and the device has no driver, or its previous one; otherwise an error of the kernel.
 */
STRAIT_API int strait_pci_bind(const char *pci, const char *driver, uint32_t flags, char *why, size_t why_len);

/**
 * strait_pci_unbind() - Bind a PCI device to its previous driver
 * @pci: as for strait_pci_bind()
 * @flags: STRAIT_PCI_FORCE: even if a process has it open; or 0
 * @why: set to what failed and what to do; may be NULL
 * @why_len: size of @why
 *
 * If no previous driver was saved, the kernel probes all drivers for the device.
 *
 * Return: 0; -ENODEV when there is no such device; -EBUSY when it is open; -EINVAL when it is bound to neither strait
 * nor vfio-pci; -EIO when the previous driver did not bind; otherwise an error of the kernel.
 */
STRAIT_API int strait_pci_unbind(const char *pci, uint32_t flags, char *why, size_t why_len);

/**
 * strait_pci_info() - Get the drivers of a PCI device
 * @pci: as for strait_pci_bind()
 * @info: filled; @info->size must be set before
 *
 * Return: 0; -ENODEV when there is no such device.
 */
STRAIT_API int strait_pci_info(const char *pci, struct strait_pci_info *info);

#ifdef __cplusplus
}
#endif

#endif
