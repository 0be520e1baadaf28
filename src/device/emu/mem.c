/* SPDX-License-Identifier: MIT */
/* Memory of the emulated device. */
#include <stdlib.h>

#include <strait/region.h>

#include "base/util.h"
#include "device/emu/emu.h"
#include "os/os.h"

/* Identity of the last allocation; unique in the process. */
static _Atomic uint64_t last_id;

static bool emu_alloc_is_stale(const struct emu_alloc *a)
{
	return atomic_load_explicit(&a->stale, memory_order_seq_cst);
}

static void emu_alloc_unref(struct emu_alloc *a)
{
	if (atomic_fetch_sub_explicit(&a->refs, 1, memory_order_acq_rel) == 1)
		free(a);
}

static struct emu_alloc *alloc_at_locked(struct emu_device *emu, uint64_t addr)
{
	struct range_node *n = range_tree_at(&emu->allocs, addr, NULL);

	return n ? container_of(n, struct emu_alloc, node) : NULL;
}

int emu_pin(struct soft_engine *eng, uint64_t addr, uint64_t len, struct soft_pin **ret)
{
	struct emu_device *emu = container_of(eng, struct emu_device, eng);
	struct emu_alloc *a;
	int rc = 0;

	pthread_rwlock_rdlock(&emu->lock);
	a = alloc_at_locked(emu, addr);
	if (!a)
		rc = -ENOENT;
	else if (len > a->node.end - addr)
		rc = -EFAULT;
	else
		atomic_fetch_add_explicit(&a->users, 1, memory_order_relaxed);
	pthread_rwlock_unlock(&emu->lock);
	if (!rc)
		*ret = (struct soft_pin *)a;
	return rc;
}

void emu_unpin(struct soft_pin *pin)
{
	struct emu_alloc *a = (struct emu_alloc *)pin;
	struct emu_device *emu = a->emu; /* the last user may let @a be freed */

	if (atomic_fetch_sub_explicit(&a->users, 1, memory_order_acq_rel) != (EMU_ALLOC_DEAD | 1))
		return;
	pthread_mutex_lock(&emu->idle_lock);
	pthread_cond_broadcast(&emu->idle);
	pthread_mutex_unlock(&emu->idle_lock);
}

static int emu_charge(struct emu_device *emu, uint64_t bytes)
{
	uint64_t used = atomic_load_explicit(&emu->used, memory_order_relaxed);

	do {
		if (bytes > emu->total || used > emu->total - bytes)
			return -ENOMEM;
	} while (!atomic_compare_exchange_weak_explicit(&emu->used, &used, used + bytes, memory_order_relaxed,
							memory_order_relaxed));
	return 0;
}

static void emu_uncharge(struct emu_device *emu, uint64_t bytes)
{
	atomic_fetch_sub_explicit(&emu->used, bytes, memory_order_relaxed);
}

int emu_alloc_new(struct strait_device *dev, uint64_t len, bool application, struct emu_alloc **ret)
{
	struct emu_device *emu = emu_device(dev);
	struct emu_alloc *a;
	void *p;
	int rc;

	if (soft_removed(&emu->eng))
		return -ENODEV;
	if (len > emu->total)
		return -ENOMEM;
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->mapped = align_up(len, EMU_PAGE);
	rc = emu_charge(emu, a->mapped);
	if (rc)
		goto free_alloc;
	rc = os_memfd("strait-emu", a->mapped, &a->fd);
	if (rc)
		goto uncharge;
	rc = os_map_shared(a->fd, a->mapped, &p);
	if (rc)
		goto close_fd;
	/* Only exports need the descriptor; without it allocations are not limited by RLIMIT_NOFILE. */
	if (!emu->dmabuf) {
		os_close(a->fd);
		a->fd = -1;
	}
	a->emu = emu;
	a->application = application;
	a->id = atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
	atomic_init(&a->refs, 1);
	a->node.start = (uint64_t)(uintptr_t)p;
	a->node.end = a->node.start + len;
	pthread_rwlock_wrlock(&emu->lock);
	range_tree_insert(&emu->allocs, &a->node);
	pthread_rwlock_unlock(&emu->lock);
	*ret = a;
	return 0;
close_fd:
	os_close(a->fd);
uncharge:
	emu_uncharge(emu, a->mapped);
free_alloc:
	free(a);
	return rc;
}

/* @a has no user and is not in the index. */
static void emu_alloc_unmap(struct emu_alloc *a)
{
	os_unmap((void *)(uintptr_t)a->node.start, a->mapped);
	if (a->fd >= 0)
		os_close(a->fd);
	emu_uncharge(a->emu, a->mapped);
	emu_alloc_unref(a);
}

/*
 * Marks the memory stale, so that no new region is made over it; revokes its regions, whose transfers in flight still
 * look it up in the index; then removes it from the index and waits for ops that were submitted without a region.
 */
void emu_alloc_free(struct emu_alloc *a)
{
	struct emu_device *emu = a->emu;

	atomic_store_explicit(&a->stale, true, memory_order_seq_cst);
	device_set_revoke_range(emu->eng.dev, a->node.start, a->node.end - a->node.start);
	pthread_rwlock_wrlock(&emu->lock);
	range_tree_remove(&emu->allocs, &a->node);
	pthread_rwlock_unlock(&emu->lock);

	atomic_fetch_or_explicit(&a->users, EMU_ALLOC_DEAD, memory_order_acq_rel);
	pthread_mutex_lock(&emu->idle_lock);
	while (atomic_load_explicit(&a->users, memory_order_acquire) != EMU_ALLOC_DEAD)
		pthread_cond_wait(&emu->idle, &emu->idle_lock);
	pthread_mutex_unlock(&emu->idle_lock);
	emu_alloc_unmap(a);
}

int emu_alloc_claim(struct emu_device *emu, uint64_t addr, struct emu_alloc **ret)
{
	struct emu_alloc *a;
	int rc = 0;

	pthread_rwlock_wrlock(&emu->lock);
	a = alloc_at_locked(emu, addr);
	if (!a || a->node.start != addr || !a->application || emu_alloc_is_stale(a))
		rc = -EINVAL;
	else
		atomic_store_explicit(&a->stale, true, memory_order_seq_cst);
	pthread_rwlock_unlock(&emu->lock);
	if (!rc)
		*ret = a;
	return rc;
}

void emu_alloc_free_all(struct emu_device *emu)
{
	struct range_node *n;

	while ((n = range_tree_overlap(&emu->allocs, 0, UINT64_MAX))) {
		range_tree_remove(&emu->allocs, n);
		emu_alloc_unmap(container_of(n, struct emu_alloc, node));
	}
}

static void emu_fill_mem(struct emu_alloc *a, uint64_t addr, uint64_t len, struct provider_mem *m)
{
	*m = (struct provider_mem){
		.addr = addr,
		.len = len,
		.id = a->id,
		.caps = STRAIT_REGION_CPU_MAP | STRAIT_REGION_NOTICE | STRAIT_REGION_IDENTITY | STRAIT_REGION_PINNABLE |
			(a->emu->dmabuf ? STRAIT_REGION_DMABUF : 0),
		.page_size = EMU_PAGE,
		.priv = a,
	};
}

int emu_mem_alloc(struct strait_device *dev, uint64_t len, struct provider_mem *m)
{
	struct emu_alloc *a;
	int rc;

	rc = emu_alloc_new(dev, len, false, &a);
	if (rc)
		return rc;
	emu_fill_mem(a, a->node.start, len, m);
	return 0;
}

void emu_mem_free(struct strait_device *dev, struct provider_mem *m)
{
	emu_alloc_free(m->priv);
}

int emu_ptr_device(struct provider *p, uint64_t addr, struct strait_device **ret)
{
	list_for_each(it, &p->devices) {
		struct strait_device *dev = list_entry(it, struct strait_device, node);
		struct emu_device *emu = emu_device(dev);
		bool found;

		pthread_rwlock_rdlock(&emu->lock);
		found = alloc_at_locked(emu, addr);
		pthread_rwlock_unlock(&emu->lock);
		if (found) {
			*ret = dev;
			return 0;
		}
	}
	return -ENOENT;
}

int emu_ptr_extent(struct strait_device *dev, uint64_t addr, uint64_t *len)
{
	struct emu_device *emu = emu_device(dev);
	struct emu_alloc *a;

	pthread_rwlock_rdlock(&emu->lock);
	a = alloc_at_locked(emu, addr);
	if (a)
		*len = a->node.end - addr;
	pthread_rwlock_unlock(&emu->lock);
	return a ? 0 : -EFAULT;
}

int emu_mem_import(struct strait_device *dev, uint64_t addr, uint64_t len, uint32_t flags, struct provider_mem *m)
{
	struct emu_device *emu = emu_device(dev);
	struct emu_alloc *a;
	int rc = 0;

	if (soft_removed(&emu->eng))
		return -ENODEV;
	pthread_rwlock_rdlock(&emu->lock);
	a = alloc_at_locked(emu, addr);
	if (!a || emu_alloc_is_stale(a) || len > a->node.end - addr)
		rc = -EFAULT;
	else
		atomic_fetch_add_explicit(&a->refs, 1, memory_order_relaxed);
	pthread_rwlock_unlock(&emu->lock);
	if (!rc)
		emu_fill_mem(a, addr, len, m);
	return rc;
}

void emu_mem_release(struct strait_device *dev, struct provider_mem *m)
{
	emu_alloc_unref(m->priv);
}

int emu_mem_check(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len)
{
	if (soft_removed(soft_engine(dev)))
		return -ENODEV;
	return emu_alloc_is_stale(m->priv) ? -ESTALE : 0;
}

int emu_mem_dmabuf(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len, int *fd)
{
	const struct emu_alloc *a = m->priv;
	uint64_t at = m->addr - a->node.start + off;
	int rc;

	if (a->fd < 0)
		return -EOPNOTSUPP;
	rc = emu_mem_check(dev, m, 0, m->len);
	if (rc)
		return rc;
	if (!len || !range_inside(off, len, m->len) || (at | len) % os_page_size())
		return -EINVAL;
	rc = os_udmabuf(a->fd, at, len, fd);
	/* The range is valid, so these errors mean that udmabuf is missing or refuses the size. */
	return rc == -EINVAL || rc == -ENOENT || rc == -ENOTTY ? -EOPNOTSUPP : rc;
}

int emu_mem_map(struct strait_device *dev, const struct provider_mem *m, void **cpu)
{
	int rc = emu_mem_check(dev, m, 0, m->len);

	if (rc)
		return rc;
	*cpu = (void *)(uintptr_t)m->addr;
	return 0;
}

int emu_mem_sync_memops(struct strait_device *dev, const struct provider_mem *m, bool on)
{
	struct emu_alloc *a = m->priv;
	int rc = emu_mem_check(dev, m, 0, m->len);

	/* Copies by the CPU are always synchronous; the flag is stored for tests. */
	if (!rc)
		atomic_store_explicit(&a->sync_memops, on, memory_order_relaxed);
	return rc;
}
