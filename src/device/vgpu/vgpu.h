/* SPDX-License-Identifier: MIT */
#ifndef DEVICE_VGPU_VGPU_H
#define DEVICE_VGPU_VGPU_H

/*
 * The GPU of Strait's lab: PCI device memory, managed by the driver strait_vgpu. It has no processor: the software
 * engine runs copies and streams on the CPU, on memory behind the bus.
 */

#include "device/soft/engine.h"
#include "uapi/strait_vgpu.h"

#define VGPU_PAGE KIB(64)
#define VGPU_MAX_DEVICES 8

extern const struct provider_ops vgpu_provider_ops;

/* Set in vgpu_alloc.users when the memory is being freed: the last user wakes the freeing thread. */
#define VGPU_ALLOC_DEAD (1u << 31)

/* Memory allocated by this provider, with the requested length; or a mapping that the application made. */
struct vgpu_alloc {
	struct range_node node; /* in vgpu_device.allocs while @listed */
	struct vgpu_device *gpu;
	atomic_uint refs;     /* of the struct: the index, imports, pins */
	atomic_uint users;    /* ops that access the memory, and VGPU_ALLOC_DEAD */
	atomic_bool stale;    /* freed, or its address maps other memory now */
	bool owned;	      /* allocated by this provider */
	bool pinnable;	      /* owned, and of kind STRAIT_VGPU_MEM_PINNABLE */
	bool listed;	      /* in vgpu_device.allocs; under vgpu_device.lock */
	unsigned int imports; /* of a mapping that is not owned; under vgpu_device.lock */
	uint32_t handle;
	uint64_t id;
	uint64_t mapped; /* length of the mapping of owned memory in bytes */
	uint64_t offset; /* mmap offset of owned memory */
};

struct vgpu_device {
	struct soft_engine eng; /* first, see soft/engine.h */
	int fd;
	uint32_t caps;		  /* STRAIT_REGION_* of all its regions; owned ones add NOTICE */
	pthread_rwlock_t lock;	  /* protects @allocs */
	struct range_tree allocs; /* struct vgpu_alloc.node */
	pthread_mutex_t idle_lock;
	pthread_cond_t idle; /* an allocation being freed lost its last user */
	char pci[16];
	uint64_t total[STRAIT_VGPU_MEM_KINDS];
	pthread_mutex_t watch_lock; /* protects @stop_fd and @watcher until the device is closed */
	int stop_fd;		    /* stops the watcher thread; -1: it was not started */
	unsigned long watcher;
};

static inline struct vgpu_device *vgpu_device(const struct strait_device *dev)
{
	return dev->priv;
}

/* Calls the driver. On -ENODEV the device is marked as removed. */
int vgpu_call(struct vgpu_device *gpu, unsigned long request, void *arg);

/* watch.c. vgpu_watch() starts the thread that waits for removal of the device, once. */
int vgpu_watch(struct vgpu_device *gpu);
void vgpu_watch_stop(struct vgpu_device *gpu);

/* mem.c */
int vgpu_pin(struct soft_engine *eng, uint64_t addr, uint64_t len, struct soft_pin **ret);
void vgpu_unpin(struct soft_pin *pinned);
/* Frees all allocations when the device is closed. */
void vgpu_alloc_free_all(struct vgpu_device *gpu);
int vgpu_mem_alloc(struct strait_device *dev, uint64_t len, struct provider_mem *m);
int vgpu_mem_alloc_pinnable(struct strait_device *dev, uint64_t len, struct provider_mem *m);
void vgpu_mem_free(struct strait_device *dev, struct provider_mem *m);
int vgpu_mem_map(struct strait_device *dev, const struct provider_mem *m, void **cpu);
int vgpu_mem_map_io(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len, void **io);
void vgpu_mem_unmap_io(struct strait_device *dev, void *io, uint64_t len);

/* import.c */
int vgpu_ptr_device(struct provider *p, uint64_t addr, struct strait_device **ret);
int vgpu_ptr_extent(struct strait_device *dev, uint64_t addr, uint64_t *len);
int vgpu_mem_import(struct strait_device *dev, uint64_t addr, uint64_t len, uint32_t flags, struct provider_mem *m);
void vgpu_mem_release(struct strait_device *dev, struct provider_mem *m);
int vgpu_mem_check(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len);
int vgpu_mem_dmabuf(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len, int *fd);
int vgpu_mem_sync_memops(struct strait_device *dev, const struct provider_mem *m, bool on);

/* Shared by mem.c and import.c. */
void vgpu_alloc_unref(struct vgpu_alloc *a);
/* The allocation or mapping that contains all of [addr, addr + len), NULL if none does. */
struct vgpu_alloc *vgpu_alloc_at_locked(struct vgpu_device *gpu, uint64_t addr, uint64_t len);
void vgpu_fill_mem(struct vgpu_alloc *a, uint64_t addr, uint64_t len, struct provider_mem *m);

#endif
