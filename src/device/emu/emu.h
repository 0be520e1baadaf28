/* SPDX-License-Identifier: MIT */
#ifndef DEVICE_EMU_EMU_H
#define DEVICE_EMU_EMU_H

/* The emulated device: memory in memfds, copied by the software engine. */

#include "device/soft/engine.h"

#define EMU_PAGE KIB(64)
#define EMU_MAX_DEVICES 8

extern const struct provider_ops emu_provider_ops;

/* Set in emu_alloc.users when the memory is being freed: the last user wakes the freeing thread. */
#define EMU_ALLOC_DEAD (1u << 31)

struct emu_alloc {
	struct range_node node; /* in emu_device.allocs; the requested length */
	struct emu_device *emu;
	atomic_uint refs;  /* of the struct: one for the memory, one for each import */
	atomic_uint users; /* ops that access the memory, and EMU_ALLOC_DEAD */
	atomic_bool stale; /* being freed: no new region is made over it */
	atomic_bool sync_memops;
	bool application; /* allocated with strait_emu_malloc() */
	uint64_t id;
	uint64_t mapped; /* length of the mapping in bytes */
	int fd;		 /* memfd, -1 if it cannot be exported */
};

struct emu_device {
	struct soft_engine eng; /* first, see soft/engine.h */
	unsigned int fork_generation;
	bool dmabuf;
	pthread_rwlock_t lock;	  /* protects @allocs */
	struct range_tree allocs; /* struct emu_alloc.node */
	pthread_mutex_t idle_lock;
	pthread_cond_t idle; /* an allocation being freed lost its last user */
	uint64_t total;
	_Atomic uint64_t used;
};

static inline struct emu_device *emu_device(const struct strait_device *dev)
{
	return dev->priv;
}

/* mem.c */
int emu_pin(struct soft_engine *eng, uint64_t addr, uint64_t len, struct soft_pin **ret);
void emu_unpin(struct soft_pin *pin);
int emu_alloc_new(struct strait_device *dev, uint64_t len, bool application, struct emu_alloc **ret);
/* Revokes the regions over @a, waits for its users and unmaps the memory. */
void emu_alloc_free(struct emu_alloc *a);
/* Marks the application's allocation at @addr as being freed. -EINVAL: there is none, or it is marked already. */
int emu_alloc_claim(struct emu_device *emu, uint64_t addr, struct emu_alloc **ret);
/* Unmaps all allocations when the device is closed. */
void emu_alloc_free_all(struct emu_device *emu);
int emu_mem_alloc(struct strait_device *dev, uint64_t len, struct provider_mem *m);
void emu_mem_free(struct strait_device *dev, struct provider_mem *m);
int emu_ptr_device(struct provider *p, uint64_t addr, struct strait_device **ret);
int emu_ptr_extent(struct strait_device *dev, uint64_t addr, uint64_t *len);
int emu_mem_import(struct strait_device *dev, uint64_t addr, uint64_t len, uint32_t flags, struct provider_mem *m);
void emu_mem_release(struct strait_device *dev, struct provider_mem *m);
int emu_mem_check(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len);
int emu_mem_dmabuf(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len, int *fd);
int emu_mem_map(struct strait_device *dev, const struct provider_mem *m, void **cpu);
int emu_mem_sync_memops(struct strait_device *dev, const struct provider_mem *m, bool on);

/*
 * For tests: after @after_copies more calls of copy_in, copy_out or copy_list, the next one fails with @err, a negative
 * errno. No copy may be running.
 */
void emu_inject_copy_error(struct strait_device *dev, int64_t after_copies, int err);

#endif
