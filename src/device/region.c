/* SPDX-License-Identifier: MIT */
#include "device/region.h"

#include <stdlib.h>

#include "base/lock.h"

/*
 * Life of a region. It is in device_set.regions from its creation until it is revoked and its transfers in flight
 * have completed, so a provider that frees memory finds the regions over it there and waits for them. The handles
 * together hold one reference on the struct, so an indexed region is never freed.
 *
 * Lock order: device_set.lock, then strait_region.lock. Neither is held while the application's notice, a provider
 * or a watcher is called, or while transfers are waited for.
 */

static struct device_set *region_set(const struct strait_region *r)
{
	return r->dev->provider->set;
}

void region_ref(struct strait_region *r)
{
	atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
}

void region_unref(struct strait_region *r)
{
	if (atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1)
		return;
	pthread_cond_destroy(&r->idle);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

static struct strait_region *region_new(struct strait_device *dev, bool imported)
{
	struct strait_region *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->dev = dev;
	r->imported = imported;
	list_init(&r->scratch);
	atomic_init(&r->handles, 1);
	atomic_init(&r->refs, 1);
	atomic_init(&r->revoked, false);
	mutex_init_brief(&r->lock);
	pthread_cond_init(&r->idle, NULL);
	return r;
}

/* Indexes @r. A free that ran before found no region to revoke, so the memory is checked afterwards: -EFAULT. */
static int region_publish(struct strait_region *r)
{
	struct device_set *set = region_set(r);
	int rc;

	r->node.start = r->mem.addr;
	r->node.end = r->mem.addr + r->mem.len;
	pthread_rwlock_wrlock(&set->lock);
	range_tree_insert(&set->regions, &r->node);
	r->indexed = true;
	pthread_rwlock_unlock(&set->lock);

	rc = r->dev->ops->mem_check(r->dev, &r->mem, 0, r->mem.len);
	return rc == -ESTALE ? -EFAULT : rc;
}

static int check_range(uint64_t addr, uint64_t len)
{
	if (!len)
		return -EINVAL;
	if (len > INT64_MAX || addr > UINT64_MAX - len)
		return -EOVERFLOW;
	return 0;
}

int region_alloc_caps(struct strait_device *dev, uint64_t len, uint32_t caps, struct strait_region **ret)
{
	struct strait_region *r;
	int rc;

	rc = check_range(0, len);
	if (rc)
		return rc;
	r = region_new(dev, false);
	if (!r)
		return -ENOMEM;
	if (caps & STRAIT_REGION_PINNABLE)
		rc = dev->ops->mem_alloc_pinnable(dev, len, &r->mem);
	else
		rc = dev->ops->mem_alloc(dev, len, &r->mem);
	if (!rc && caps & ~r->mem.caps) {
		dev->ops->mem_free(dev, &r->mem);
		rc = -EOPNOTSUPP;
	}
	if (rc) {
		region_unref(r);
		return rc;
	}
	r->mem.caps |= STRAIT_REGION_OWNED;
	rc = region_publish(r);
	if (rc) {
		region_put(r);
		return rc;
	}
	*ret = r;
	return 0;
}

int region_alloc(struct strait_device *dev, uint64_t len, struct strait_region **ret)
{
	return region_alloc_caps(dev, len, 0, ret);
}

/* -ENOENT: no provider owns @addr. */
static int find_owner_device(struct device_set *set, uint64_t addr, struct strait_device **ret)
{
	for (unsigned int i = 0; i < set->n_providers; i++) {
		struct provider *p = &set->providers[i];
		int rc = p->ops->ptr_device(p, addr, ret);

		if (rc != -ENOENT)
			return rc;
	}
	return -ENOENT;
}

int region_extent(struct device_set *set, uint64_t addr, struct strait_device **dev, uint64_t *len)
{
	int rc = find_owner_device(set, addr, dev);

	if (rc)
		return rc == -ENODEV ? -EFAULT : rc;
	return (*dev)->ops->ptr_extent(*dev, addr, len);
}

/* Ends an import: publishes @r if the provider returned @rc 0, else frees it. */
static int region_import_finish(struct strait_region *r, int rc, struct strait_region **ret)
{
	if (rc) {
		region_unref(r);
		return rc;
	}
	rc = region_publish(r);
	if (rc) {
		region_put(r);
		return rc;
	}
	*ret = r;
	return 0;
}

int region_import(struct device_set *set, struct strait_device *dev, uint64_t addr, uint64_t len, uint32_t flags,
		  struct strait_region **ret)
{
	struct strait_region *r;
	int rc;

	rc = check_range(addr, len);
	if (rc)
		return rc;
	if (!addr)
		return -EINVAL;
	if (!dev) {
		rc = find_owner_device(set, addr, &dev);
		if (rc)
			return rc;
	}
	r = region_new(dev, true);
	if (!r)
		return -ENOMEM;
	r->ordered = flags & STRAIT_REGION_IMPORT_ORDERED;
	return region_import_finish(r, dev->ops->mem_import(dev, addr, len, flags, &r->mem), ret);
}

int region_import_dmabuf(struct device_set *set, int fd, uint64_t off, uint64_t len, uint32_t flags,
			 struct strait_region **ret)
{
	struct strait_device *dev;
	struct strait_region *r;
	int rc;

	rc = device_set_find(set, "dmabuf", &dev);
	if (rc)
		return rc;
	r = region_new(dev, true);
	if (!r)
		return -ENOMEM;
	return region_import_finish(r, dev->ops->mem_import_dmabuf(dev, fd, off, len, flags, &r->mem), ret);
}

/* Neither being closed nor revoked. */
static bool region_is_live(const struct range_node *n)
{
	const struct strait_region *r = container_of(n, struct strait_region, node);

	return atomic_load_explicit(&r->handles, memory_order_relaxed) &&
	       !atomic_load_explicit(&r->revoked, memory_order_relaxed);
}

int region_lookup(struct device_set *set, uint64_t addr, uint64_t *off, struct strait_region **ret)
{
	struct strait_region *r = NULL;
	struct range_node *n;

	pthread_rwlock_rdlock(&set->lock);
	n = range_tree_at(&set->regions, addr, region_is_live);
	if (n) {
		r = container_of(n, struct strait_region, node);
		/* The last handle is dropped under the write lock, so the count is not 0 here. */
		atomic_fetch_add_explicit(&r->handles, 1, memory_order_relaxed);
	}
	pthread_rwlock_unlock(&set->lock);
	if (!n)
		return -ENOENT;
	if (off)
		*off = addr - r->mem.addr;
	*ret = r;
	return 0;
}

/* True if it was the last handle. It is dropped under the lock, so that region_lookup() cannot revive @r. */
static bool region_drop_handle(struct strait_region *r)
{
	struct device_set *set = region_set(r);
	unsigned int n = atomic_load_explicit(&r->handles, memory_order_relaxed);
	bool last;

	while (n > 1)
		if (atomic_compare_exchange_weak_explicit(&r->handles, &n, n - 1, memory_order_acq_rel,
							  memory_order_relaxed))
			return false;
	pthread_rwlock_wrlock(&set->lock);
	last = atomic_fetch_sub_explicit(&r->handles, 1, memory_order_acq_rel) == 1;
	pthread_rwlock_unlock(&set->lock);
	return last;
}

void region_put(struct strait_region *r)
{
	if (!r || !region_drop_handle(r))
		return;
	region_revoke(r);
	if (r->imported)
		r->dev->ops->mem_release(r->dev, &r->mem);
	else
		r->dev->ops->mem_free(r->dev, &r->mem);
	region_unref(r);
}

/* The error for a revoked region: -ESTALE if its memory was freed, else -ENODEV. */
static int region_gone_errno(struct strait_region *r)
{
	return r->dev->ops->mem_check(r->dev, &r->mem, 0, r->mem.len) == -ESTALE ? -ESTALE : -ENODEV;
}

int region_use(struct strait_region *r, uint64_t off, uint64_t len)
{
	bool revoked;
	int rc;

	if (!range_inside(off, len, r->mem.len))
		return -EINVAL;
	pthread_mutex_lock(&r->lock);
	revoked = atomic_load_explicit(&r->revoked, memory_order_relaxed);
	if (!revoked)
		r->in_use++;
	pthread_mutex_unlock(&r->lock);
	if (revoked)
		return region_gone_errno(r);
	/*
	 * Checked after in_use is counted: a free that starts later waits for this transfer, a free that
	 * started earlier is detected here.
	 */
	rc = r->dev->ops->mem_check(r->dev, &r->mem, off, len);
	if (rc)
		region_unuse(r);
	return rc;
}

void region_unuse(struct strait_region *r)
{
	region_unuse_many(r, 1);
}

void region_use_more(struct strait_region *r, unsigned int n)
{
	pthread_mutex_lock(&r->lock);
	r->in_use += n;
	pthread_mutex_unlock(&r->lock);
}

void region_unuse_many(struct strait_region *r, unsigned int n)
{
	pthread_mutex_lock(&r->lock);
	r->in_use -= n;
	if (!r->in_use && atomic_load_explicit(&r->revoked, memory_order_relaxed))
		pthread_cond_broadcast(&r->idle);
	pthread_mutex_unlock(&r->lock);
}

static void region_call_notice(struct strait_region *r, strait_revoke_fn *fn, void *arg)
{
	fn(arg, r);
	pthread_mutex_lock(&r->lock);
	r->in_notice = false;
	pthread_cond_broadcast(&r->idle);
	pthread_mutex_unlock(&r->lock);
}

/* Removes what the engine and the endpoints mapped of a region without transfers in flight. */
static void region_drop_mappings(struct strait_region *r)
{
	struct device_set *set = region_set(r);

	if (set->drop_mappings)
		set->drop_mappings(r);
	pthread_mutex_lock(&set->watch_lock);
	list_for_each(it, &set->watchers) {
		struct region_watcher *w = list_entry(it, struct region_watcher, node);

		w->drop_mappings(w, r);
	}
	pthread_mutex_unlock(&set->watch_lock);
}

int region_revoke(struct strait_region *r)
{
	struct device_set *set = region_set(r);
	strait_revoke_fn *fn = NULL;
	void *arg = NULL;
	bool first;

	pthread_mutex_lock(&r->lock);
	first = !atomic_exchange_explicit(&r->revoked, true, memory_order_relaxed);
	if (first && r->notice) {
		fn = r->notice;
		arg = r->notice_arg;
		r->notice = NULL;
		r->in_notice = true;
	}
	pthread_mutex_unlock(&r->lock);
	if (fn)
		region_call_notice(r, fn, arg);

	/* A second revoker waits too: its caller may free the memory, or the argument of the notice, on return. */
	pthread_mutex_lock(&r->lock);
	while (r->in_use || r->in_notice)
		pthread_cond_wait(&r->idle, &r->lock);
	pthread_mutex_unlock(&r->lock);
	region_drop_mappings(r);

	pthread_rwlock_wrlock(&set->lock);
	if (r->indexed) {
		range_tree_remove(&set->regions, &r->node);
		r->indexed = false;
	}
	pthread_rwlock_unlock(&set->lock);
	return first ? 0 : -EALREADY;
}

int region_check(struct strait_region *r)
{
	if (atomic_load_explicit(&r->revoked, memory_order_acquire))
		return region_gone_errno(r);
	return r->dev->ops->mem_check(r->dev, &r->mem, 0, r->mem.len);
}

int region_on_revoke(struct strait_region *r, strait_revoke_fn *fn, void *arg)
{
	int rc = 0;

	if (!(r->mem.caps & STRAIT_REGION_NOTICE))
		return -EOPNOTSUPP;
	pthread_mutex_lock(&r->lock);
	if (atomic_load_explicit(&r->revoked, memory_order_relaxed)) {
		/* The caller may free the old argument on return, so wait for a running notice. */
		while (r->in_notice)
			pthread_cond_wait(&r->idle, &r->lock);
		rc = -ENODEV;
	} else {
		r->notice = fn;
		r->notice_arg = arg;
	}
	pthread_mutex_unlock(&r->lock);
	return rc;
}
