/* SPDX-License-Identifier: MIT */
#ifndef OS_VFIO_H
#define OS_VFIO_H

/*
 * VFIO: a PCI device and its IOVA space, by one of two interfaces of the kernel: a group in a container ("type1"), or
 * the device's own node with an iommufd. All functions return a negative errno on failure.
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
	uint64_t offset, length; /* in the device's file; length 0: no such BAR */
	bool mappable;		 /* the whole BAR */
};

/* A usable range of IOVAs, @last included. */
struct os_vfio_range {
	uint64_t start, last;
};

/*
 * os_vfio_open_group(): type1, by the number of the group; -EPERM if another device of the group is bound to a kernel
 * driver. os_vfio_open_device(): iommufd, by the name of the device's node, "vfio0".
 */
int os_vfio_open_group(const char *pci, unsigned int group, struct os_vfio *v);
int os_vfio_open_device(const char *node, struct os_vfio *v);
/* Unmaps all memory and resets the device. */
void os_vfio_close(struct os_vfio *v);

int os_vfio_bar(const struct os_vfio *v, unsigned int bar, struct os_vfio_bar *ret);
/* Offset of configuration space in the device's file. */
int os_vfio_config(const struct os_vfio *v, uint64_t *offset);
int os_vfio_reset(const struct os_vfio *v);
/* Set the eventfds of all v->vectors interrupts. */
int os_vfio_irqs(const struct os_vfio *v, const int *fds);
/* IOVAs that the device may use: how many of @ranges were filled, at most OS_VFIO_RANGES. */
int os_vfio_ranges(const struct os_vfio *v, struct os_vfio_range *ranges);
int os_vfio_map(const struct os_vfio *v, const void *addr, uint64_t bus, uint64_t len, bool read, bool write);
int os_vfio_unmap(const struct os_vfio *v, uint64_t bus, uint64_t len);

#endif
