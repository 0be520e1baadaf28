/* SPDX-License-Identifier: MIT */
#ifndef DEVICE_REGION_H
#define DEVICE_REGION_H

#include <strait/region.h>

#include "device/provider.h"

struct strait_region {
	struct strait_device *dev;
	struct provider_mem mem;
	bool imported;
	struct range_node node; /* in device_set.regions; under device_set.lock */
	bool indexed;		/* likewise */
	atomic_uint handles;	/* application's; the last one is given back under device_set.lock */
	atomic_uint refs;	/* on the struct: one for the handles together, one for each revoker */
	pthread_mutex_t lock;	/* protects what follows; nothing is locked under it */
	pthread_cond_t idle;
	unsigned int in_use; /* transfers in flight */
	_Atomic int32_t p2p; /* the engine's: handle of /dev/strait, 0: none, or why there is none */
	atomic_bool revoked; /* no new use; set once, under @lock */
	bool in_notice;	     /* @notice is being called */
	strait_revoke_fn *notice;
	void *notice_arg;
	struct list scratch; /* strait_device.scratch, under its lock */
};

/* What can be asked of memory before it is there. */
#define REGION_CAPS_ASKED                                                                                              \
	(STRAIT_REGION_CPU_MAP | STRAIT_REGION_DMABUF | STRAIT_REGION_NOTICE | STRAIT_REGION_IDENTITY |                \
	 STRAIT_REGION_PINNABLE)

int region_alloc(struct strait_device *dev, uint64_t len, struct strait_region **ret);
/* -EOPNOTSUPP where the device has no memory with all of @caps. */
int region_alloc_caps(struct strait_device *dev, uint64_t len, uint32_t caps, struct strait_region **ret);
int region_import(struct device_set *set, struct strait_device *dev, uint64_t addr, uint64_t len,
		  struct strait_region **ret);
/* @fd is taken for a dma-buf; len 0: to its end. */
int region_import_dmabuf(struct device_set *set, int fd, uint64_t off, uint64_t len, uint32_t flags,
			 struct strait_region **ret);
/* Whose memory is at @addr, and how many bytes from there on can be imported: -ENOENT if no provider knows it. */
int region_extent(struct device_set *set, uint64_t addr, struct strait_device **dev, uint64_t *len);
int region_lookup(struct device_set *set, uint64_t addr, uint64_t *off, struct strait_region **ret);

/* Drop one handle; the last one revokes, waits for use in flight and frees. */
void region_put(struct strait_region *r);

/*
 * Begin to use [off, off + len): -EINVAL outside the region, -ENODEV revoked or removed, -ESTALE
 * freed under us. Until region_unuse() the memory is not given back.
 */
int region_use(struct strait_region *r, uint64_t off, uint64_t len);
void region_unuse(struct strait_region *r);
/* The same @n times at once, for a caller that is using the region already. */
void region_use_more(struct strait_region *r, unsigned int n);
void region_unuse_many(struct strait_region *r, unsigned int n);

/* Revoke: no new use, notice given, use in flight waited for. -EALREADY the second time. */
int region_revoke(struct strait_region *r);
int region_check(struct strait_region *r);
int region_on_revoke(struct strait_region *r, strait_revoke_fn *fn, void *arg);

/* Keep the struct, not the memory; for who found it in the index under device_set.lock. */
void region_ref(struct strait_region *r);
void region_unref(struct strait_region *r);

#endif
