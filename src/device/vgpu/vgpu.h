/* SPDX-License-Identifier: MIT */
#ifndef DEVICE_VGPU_VGPU_H
#define DEVICE_VGPU_VGPU_H

/*
 * The GPU of Strait's lab: memory of a PCI device, through its driver strait_vgpu. It has no processor:
 * copies, streams and functions on them are the emulated device's engine, by the CPU, on memory that
 * lies behind the bus.
 */

#include "device/soft/engine.h"
#include "uapi/strait_vgpu.h"

#define VGPU_PAGE KIB(64)
#define VGPU_MAX_DEVICES 8

extern const struct provider_ops vgpu_provider_ops;

/* Added to vgpu_alloc.users when the memory is about to be given back. */
#define VGPU_ALLOC_DEAD (1u << 31)

/* Memory we allocated, of the length asked for; or a mapping of the application's, as it lies. */
struct vgpu_alloc {
	struct range_node node; /* in vgpu_device.allocs while @listed */
	struct vgpu_device *gpu;
	atomic_uint refs;     /* on the struct: the index, imports, work on it */
	atomic_uint users;    /* work that reads or writes the memory, and VGPU_ALLOC_DEAD */
	atomic_bool stale;    /* given back, or another's by now */
	bool owned;	      /* allocated here */
	bool pinnable;	      /* and of that kind */
	bool listed;	      /* under the device's lock, as is the next one */
	unsigned int imports; /* of a mapping of the application's */
	uint32_t handle;
	uint64_t id;
	uint64_t mapped; /* bytes, of memory that is owned, */
	uint64_t offset; /* and where in the device's file it is */
};

struct vgpu_device {
	struct soft_engine eng; /* first: see soft_engine.h */
	int fd;
	uint32_t caps;		  /* of the regions on it; those allocated here give notice too */
	pthread_rwlock_t lock;	  /* protects @allocs */
	struct range_tree allocs; /* struct vgpu_alloc.node */
	pthread_mutex_t idle_lock;
	pthread_cond_t idle; /* memory about to be given back lost its last user */
	char pci[16];
	uint64_t total[STRAIT_VGPU_MEM_KINDS];
	pthread_mutex_t watch_lock; /* the two below, until the device is closed */
	int stop_fd;		    /* -1: nobody watches */
	unsigned long watcher;
};

static inline struct vgpu_device *vgpu_device(const struct strait_device *dev)
{
	return dev->priv;
}

/* A call to the driver. -ENODEV means that the device is gone, for good, and is remembered. */
int vgpu_call(struct vgpu_device *gpu, unsigned long request, void *arg);

/* vgpu_watch.c. Somebody waits for the device to be taken away, from now on. */
int vgpu_watch(struct vgpu_device *gpu);
void vgpu_watch_stop(struct vgpu_device *gpu);

/* vgpu_mem.c */
int vgpu_pin(struct soft_engine *eng, uint64_t addr, uint64_t len, struct soft_pin **ret);
void vgpu_unpin(struct soft_pin *pinned);
/* All that is left when the device goes. */
void vgpu_alloc_free_all(struct vgpu_device *gpu);
int vgpu_mem_alloc(struct strait_device *dev, uint64_t len, struct provider_mem *m);
int vgpu_mem_alloc_pinnable(struct strait_device *dev, uint64_t len, struct provider_mem *m);
void vgpu_mem_free(struct strait_device *dev, struct provider_mem *m);
int vgpu_mem_map(struct strait_device *dev, const struct provider_mem *m, void **cpu);
int vgpu_mem_map_io(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len, void **io);
void vgpu_mem_unmap_io(struct strait_device *dev, void *io, uint64_t len);

/* vgpu_import.c */
int vgpu_ptr_device(struct provider *p, uint64_t addr, struct strait_device **ret);
int vgpu_ptr_extent(struct strait_device *dev, uint64_t addr, uint64_t *len);
int vgpu_mem_import(struct strait_device *dev, uint64_t addr, uint64_t len, struct provider_mem *m);
void vgpu_mem_release(struct strait_device *dev, struct provider_mem *m);
int vgpu_mem_check(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len);
int vgpu_mem_dmabuf(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len, int *fd);
int vgpu_mem_sync_memops(struct strait_device *dev, const struct provider_mem *m, bool on);

/* Shared by the two. */
void vgpu_alloc_unref(struct vgpu_alloc *a);
/* With the device's lock held: what holds all of [addr, addr + len). */
struct vgpu_alloc *vgpu_alloc_at_locked(struct vgpu_device *gpu, uint64_t addr, uint64_t len);
void vgpu_fill_mem(struct vgpu_alloc *a, uint64_t addr, uint64_t len, struct provider_mem *m);

#endif
