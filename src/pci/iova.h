/* SPDX-License-Identifier: MIT */
#ifndef PCI_IOVA_H
#define PCI_IOVA_H

/* Allocator of IO virtual addresses (IOVA) for a device whose IOMMU mappings are made by the caller. */

#include <stddef.h>
#include <stdint.h>

struct iova_range {
	uint64_t start, last;
};

struct iova {
	struct iova_range *usable; /* sorted */
	size_t n_usable;
	struct iova_range *used; /* sorted */
	size_t n_used, room;
	uint64_t limit; /* the last address that the device can drive */
};

/* @usable is copied. */
int iova_init(struct iova *v, const struct iova_range *usable, size_t n);
void iova_fini(struct iova *v);

/* Allocate @len bytes, whole pages, at an address congruent to @phase modulo @align, a power of two. 0 or -ENOSPC. */
int iova_alloc(struct iova *v, uint64_t len, uint64_t align, uint64_t phase, uint64_t *ret);
void iova_free(struct iova *v, uint64_t start);

#endif
