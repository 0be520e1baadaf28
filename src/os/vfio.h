/* SPDX-License-Identifier: MIT */
#ifndef OS_VFIO_H
#define OS_VFIO_H

/*
 * VFIO: a PCI device and the addresses it may use, by one of two interfaces of the kernel's: a group in a
 * container ("type1"), or the device itself with an iommufd. All return a negative errno on failure.
 */

#include <stdbool.h>
#include <stdint.h>

#define OS_VFIO_BARS 6
#define OS_VFIO_RANGES 16

struct os_vfio {
	int device;
	int group, container; /* type1; -1 otherwise */
	int iommufd;	      /* -1: type1 */
	uint32_t ioas;
	bool can_reset;
	uint32_t irq_index; /* MSI-X, or MSI */
	uint32_t vectors;
};

struct os_vfio_bar {
	uint64_t offset, length; /* in the device's file; length 0: there is none */
	bool mappable;		 /* all of it */
};

/* First and last address. */
struct os_vfio_range {
	uint64_t start, last;
};

/*
 * By type1, the group's number; -EPERM: another device of the group is in the kernel's hands. By iommufd,
 * the name of the device's own node, "vfio0".
 */
int os_vfio_open_group(const char *pci, unsigned int group, struct os_vfio *v);
int os_vfio_open_device(const char *node, struct os_vfio *v);
/* Everything that was mapped is unmapped, and the device reset. */
void os_vfio_close(struct os_vfio *v);

int os_vfio_bar(const struct os_vfio *v, unsigned int bar, struct os_vfio_bar *ret);
/* Where configuration space is in the device's file. */
int os_vfio_config(const struct os_vfio *v, uint64_t *offset);
int os_vfio_reset(const struct os_vfio *v);
/* All interrupts at once: @fds are v->vectors eventfds. */
int os_vfio_irqs(const struct os_vfio *v, const int *fds);
/* Addresses the device may use: how many of @ranges, which holds OS_VFIO_RANGES. */
int os_vfio_ranges(const struct os_vfio *v, struct os_vfio_range *ranges);
int os_vfio_map(const struct os_vfio *v, const void *addr, uint64_t bus, uint64_t len, bool read, bool write);
int os_vfio_unmap(const struct os_vfio *v, uint64_t bus, uint64_t len);

#endif
