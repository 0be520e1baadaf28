/* SPDX-License-Identifier: MIT */
#ifndef DEVICE_REGION_H
#define DEVICE_REGION_H

#include <strait/region.h>

#include "device/provider.h"

struct strait_region {
	struct strait_device *dev;
	struct provider_mem mem;
	bool imported;
	bool ordered;		/* imported with STRAIT_REGION_IMPORT_ORDERED */
	struct range_node node; /* in device_set.regions; under device_set.lock */
	bool indexed;		/* @node is in the tree; under device_set.lock */
	atomic_uint handles;	/* references of the application; the last is dropped under device_set.lock */
	atomic_uint refs;	/* of the struct: one for all handles together, one for each revoker */
	pthread_mutex_t lock;	/* protects the members below; innermost */
	pthread_cond_t idle;	/* @in_use is 0 after revocation, or @in_notice ended */
	unsigned int in_use;	/* transfers in flight */
	_Atomic int32_t engine; /* the engine's state of it, 0 at first */
	atomic_bool revoked;	/* no new transfers; set once, under @lock */
	bool in_notice;		/* the application's notice is running */
	strait_revoke_fn *notice;
	void *notice_arg;
	struct list scratch; /* in strait_device.scratch; under strait_device.scratch_lock */
};

/* The capabilities that a caller can request from region_alloc_caps(). */
#define REGION_CAPS_ASKED                                                                                              \
	(STRAIT_REGION_CPU_MAP | STRAIT_REGION_DMABUF | STRAIT_REGION_NOTICE | STRAIT_REGION_IDENTITY |                \
	 STRAIT_REGION_PINNABLE)

int region_alloc(struct strait_device *dev, uint64_t len, struct strait_region **ret);
/* -EOPNOTSUPP: the device has no memory with all of @caps. */
int region_alloc_caps(struct strait_device *dev, uint64_t len, uint32_t caps, struct strait_region **ret);
int region_import(struct device_set *set, struct strait_device *dev, uint64_t addr, uint64_t len, uint32_t flags,
		  struct strait_region **ret);
/* @fd is a dma-buf, which the caller keeps; len 0: to its end. */
int region_import_dmabuf(struct device_set *set, int fd, uint64_t off, uint64_t len, uint32_t flags,
			 struct strait_region **ret);
/* The device that owns @addr and the number of bytes from there that can be imported. -ENOENT: no device does. */
int region_extent(struct device_set *set, uint64_t addr, struct strait_device **dev, uint64_t *len);
/* Takes a handle on the live region that contains @addr. -ENOENT: there is none. */
int region_lookup(struct device_set *set, uint64_t addr, uint64_t *off, struct strait_region **ret);

/* Drops one handle; the last one revokes the region, waits for transfers in flight and frees the memory. */
void region_put(struct strait_region *r);

/*
 * Begins a transfer on [off, off + len). -EINVAL: outside the region, -ENODEV: revoked or removed, -ESTALE: the
 * application freed the memory. Revocation waits for region_unuse().
 */
int region_use(struct strait_region *r, uint64_t off, uint64_t len);
void region_unuse(struct strait_region *r);
/* Count @n transfers at once. region_use_more() is for a caller that is already using the region. */
void region_use_more(struct strait_region *r, unsigned int n);
void region_unuse_many(struct strait_region *r, unsigned int n);

/* Refuses new transfers, calls the notice and waits for transfers in flight. -EALREADY if already revoked. */
int region_revoke(struct strait_region *r);
/* 0 if the memory is still there, -ESTALE or -ENODEV as for region_use(). */
int region_check(struct strait_region *r);
/* Sets the notice; NULL removes it. On return a previous notice is not running and will not be called. */
int region_on_revoke(struct strait_region *r, strait_revoke_fn *fn, void *arg);

/* A reference on the struct, not on the memory; taken by a revoker under device_set.lock. */
void region_ref(struct strait_region *r);
void region_unref(struct strait_region *r);

#endif
