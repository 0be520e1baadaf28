/* SPDX-License-Identifier: MIT */
/*
 * Memory that another driver exports as a dma-buf. One import-only device represents all such memory.
 *
 * If the exporter supports mmap, the software engine copies, and brackets CPU access with DMA_BUF_IOCTL_SYNC.
 * Otherwise only devices access the memory: its address is a reserved range of addresses without a mapping, and
 * copies fail with -EOPNOTSUPP.
 */
#include "device/dmabuf.h"

#include <stdlib.h>

#include <strait/region.h>

#include "base/lock.h"
#include "base/util.h"
#include "device/soft/engine.h"
#include "os/os.h"

struct dmabuf_device {
	struct soft_engine eng;
	pthread_rwlock_t lock;
	struct range_tree bufs; /* struct dmabuf.node; under @lock */
};

struct dmabuf {
	struct range_node node;
	atomic_uint refs; /* one for the region, one for each pin */
	int fd;
	uint64_t offset; /* of the region in the dma-buf */
	uint64_t total;	 /* bytes of the dma-buf */
	bool cpu;	 /* mapped for the CPU, not only reserved */
	/* Serializes the start of CPU access: udmabuf maps its pages then, without a lock, and leaks a concurrent mapping. */
	pthread_mutex_t begin_lock;
};

static struct dmabuf_device *dmabuf_device(const struct strait_device *dev)
{
	return dev->priv;
}

static void dmabuf_unref(struct dmabuf *b)
{
	if (atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1)
		return;
	os_unmap((void *)(uintptr_t)b->node.start, b->node.end - b->node.start);
	os_close(b->fd);
	pthread_mutex_destroy(&b->begin_lock);
	free(b);
}

/* The pin of an operation begins CPU access, its unpin ends it. */
static int dmabuf_pin(struct soft_engine *eng, uint64_t addr, uint64_t len, struct soft_pin **ret)
{
	struct dmabuf_device *d = container_of(eng, struct dmabuf_device, eng);
	struct range_node *n;
	struct dmabuf *b = NULL;
	int rc = 0;

	pthread_rwlock_rdlock(&d->lock);
	n = range_tree_at(&d->bufs, addr, NULL);
	if (!n) {
		rc = -ENOENT;
	} else {
		b = container_of(n, struct dmabuf, node);
		if (len > n->end - addr)
			rc = -EFAULT;
		else if (!b->cpu)
			rc = -EOPNOTSUPP;
		else
			atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
	}
	pthread_rwlock_unlock(&d->lock);
	if (rc)
		return rc;
	pthread_mutex_lock(&b->begin_lock);
	rc = os_dmabuf_sync(b->fd, true);
	pthread_mutex_unlock(&b->begin_lock);
	if (rc) {
		dmabuf_unref(b);
		return rc;
	}
	*ret = (struct soft_pin *)b; /* the engine only gives it back */
	return 0;
}

static void dmabuf_unpin(struct soft_pin *pinned)
{
	struct dmabuf *b = (struct dmabuf *)pinned;

	os_dmabuf_sync(b->fd, false);
	dmabuf_unref(b);
}

static int dmabuf_open(struct provider *p)
{
	struct dmabuf_device *d = calloc(1, sizeof(*d));
	struct strait_device *dev = d ? provider_add_device(p) : NULL;

	if (!dev) {
		free(d);
		return -ENOMEM;
	}
	soft_engine_init(&d->eng, dev);
	d->eng.pin = dmabuf_pin;
	d->eng.unpin = dmabuf_unpin;
	rwlock_init(&d->lock);
	dev->priv = d;
	dev->caps = STRAIT_DEVICE_IMPORT_ONLY | STRAIT_DEVICE_CPU_MAP | STRAIT_DEVICE_DMABUF | STRAIT_DEVICE_REGISTER |
		    STRAIT_DEVICE_STREAMS | (soft_have_vm_read() ? STRAIT_DEVICE_REGISTER_FILE : 0);
	dev->tuning.chunk_bytes = KIB(512); /* the CPU copies */
	return 0;
}

static void dmabuf_close(struct provider *p)
{
	list_for_each(it, &p->devices) {
		struct dmabuf_device *d = dmabuf_device(list_entry(it, struct strait_device, node));

		soft_engine_fini(&d->eng);
		pthread_rwlock_destroy(&d->lock);
		free(d);
	}
}

static int dmabuf_info(struct strait_device *dev, struct strait_device_info *info)
{
	device_info_common(dev, info);
	str_copy(info->model, sizeof(info->model), "Imported dma-bufs");
	info->pci[0] = '\0';
	info->page_size = (uint32_t)os_page_size();
	return 0;
}

/* Memory without a CPU mapping gets a reserved address range, so that its region has a unique address. */
static int map_or_reserve(struct dmabuf *b, uint64_t len, uint32_t flags, void **ret)
{
	b->cpu = !(flags & STRAIT_DMABUF_NO_CPU_MAP) && !os_map_device(b->fd, b->offset, len, os_page_size(), ret);
	return b->cpu ? 0 : os_reserve(len, ret);
}

static int dmabuf_import(struct strait_device *dev, int fd, uint64_t off, uint64_t len, uint32_t flags,
			 struct provider_mem *m)
{
	struct dmabuf_device *d = dmabuf_device(dev);
	struct dmabuf *b = calloc(1, sizeof(*b));
	void *at;
	int rc;

	if (!b)
		return -ENOMEM;
	atomic_init(&b->refs, 1);
	pthread_mutex_init(&b->begin_lock, NULL);
	b->fd = os_dup(fd);
	if (b->fd < 0) {
		rc = b->fd;
		goto free_buf;
	}
	rc = os_seek_end(b->fd, &b->total);
	if (rc)
		goto close_fd;
	if (!len && off < b->total)
		len = b->total - off;
	rc = -EINVAL;
	if (!len || (off | len) % os_page_size() || !range_inside(off, len, b->total))
		goto close_fd;
	b->offset = off;
	rc = map_or_reserve(b, len, flags, &at);
	if (rc)
		goto close_fd;
	b->node.start = (uint64_t)(uintptr_t)at;
	b->node.end = b->node.start + len;
	pthread_rwlock_wrlock(&d->lock);
	range_tree_insert(&d->bufs, &b->node);
	pthread_rwlock_unlock(&d->lock);
	*m = (struct provider_mem){
		.addr = b->node.start,
		.len = len,
		.caps = STRAIT_REGION_DMABUF | (b->cpu ? STRAIT_REGION_CPU_MAP : STRAIT_REGION_DMA_ONLY),
		.page_size = (uint32_t)os_page_size(),
		.priv = b,
	};
	return 0;
close_fd:
	os_close(b->fd);
free_buf:
	pthread_mutex_destroy(&b->begin_lock);
	free(b);
	return rc;
}

static void dmabuf_release(struct strait_device *dev, struct provider_mem *m)
{
	struct dmabuf_device *d = dmabuf_device(dev);
	struct dmabuf *b = m->priv;

	pthread_rwlock_wrlock(&d->lock);
	range_tree_remove(&d->bufs, &b->node);
	pthread_rwlock_unlock(&d->lock);
	dmabuf_unref(b);
}

static int dmabuf_mem_map(struct strait_device *dev, const struct provider_mem *m, void **cpu)
{
	if (!(m->caps & STRAIT_REGION_CPU_MAP))
		return -EOPNOTSUPP;
	*cpu = (void *)(uintptr_t)m->addr;
	return 0;
}

static int dmabuf_export_part(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len,
			      int *fd, uint64_t *at)
{
	const struct dmabuf *b = m->priv;
	int copy = os_dup(b->fd);

	if (copy < 0)
		return copy;
	*fd = copy;
	*at = b->offset + off;
	return 0;
}

/* Only a whole dma-buf can be exported again: there is no operation that makes one of a part. */
static int dmabuf_export_whole(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len,
			       int *fd)
{
	const struct dmabuf *b = m->priv;
	uint64_t at;

	return b->offset + off || len != b->total ? -EOPNOTSUPP : dmabuf_export_part(dev, m, off, len, fd, &at);
}

const struct provider_ops dmabuf_provider_ops = {
	.name = "dmabuf",
	.open = dmabuf_open,
	.close = dmabuf_close,
	.info = dmabuf_info,
	.mem_import_dmabuf = dmabuf_import,
	.mem_release = dmabuf_release,
	.mem_map = dmabuf_mem_map,
	.mem_dmabuf = dmabuf_export_whole,
	.mem_dmabuf_part = dmabuf_export_part,
	SOFT_ENGINE_OPS,
};
