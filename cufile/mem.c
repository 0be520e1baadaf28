/* SPDX-License-Identifier: MIT */
/*
 * Imports memory of the application. Unregistered ranges are cached if their provider detects that memory was freed and
 * its address reused.
 */
#include "mem.h"

#include <stdlib.h>

#define CACHE_SIZE 32

static struct cf_mem *cache[CACHE_SIZE];
static uint64_t use_count;

void cf_mem_forked(void)
{
	memset(cache, 0, sizeof(cache));
	cf_buffers_forked();
}

void cf_mem_ref(struct cf_mem *m, unsigned int n)
{
	atomic_fetch_add_explicit(&m->refs, n, memory_order_relaxed);
}

void cf_mem_put(struct cf_mem *m, unsigned int n)
{
	if (atomic_fetch_sub_explicit(&m->refs, n, memory_order_acq_rel) != n)
		return;
	strait_region_close(m->region);
	free(m);
}

int cf_mem_import_on(struct strait_context *ctx, struct strait_device *on, const void *base, size_t len,
		     struct cf_mem **ret)
{
	struct strait_region_info info = { .size = sizeof(info) };
	struct strait_device_info dev = { .size = sizeof(dev) };
	struct cf_mem *m;
	int rc;

	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	rc = strait_region_import(ctx, on, (void *)(uintptr_t)base, len, &m->region);
	if (rc) {
		free(m);
		return rc;
	}
	strait_region_info(m->region, &info);
	strait_device_info(info.device, &dev);
	m->refs = 1;
	m->addr = (uintptr_t)base;
	m->len = len;
	m->dev = info.device;
	m->host = dev.caps & STRAIT_DEVICE_HOST;
	m->identity = info.caps & STRAIT_REGION_IDENTITY;
	m->remappable = info.caps & STRAIT_REGION_REMAPPABLE;
	m->gpu = strcmp(dev.provider, "cuda") ? -1 : (int)dev.index;
	*ret = m;
	return 0;
}

/* Memory that no provider knows is host memory. */
int cf_mem_import(struct strait_context *ctx, const void *base, size_t len, struct cf_mem **ret)
{
	struct strait_device *host;
	int rc = cf_mem_import_on(ctx, NULL, base, len, ret);

	if (rc != -ENOENT)
		return rc;
	rc = strait_device_find(ctx, "host", &host);
	return rc ? rc : cf_mem_import_on(ctx, host, base, len, ret);
}

int cf_mem_import_mapped(struct strait_context *ctx, const void *base, size_t len, struct cf_mem **ret)
{
	struct strait_device *dev;
	struct cf_mem *m;
	uint64_t extent;
	int rc = strait_region_extent(ctx, base, &dev, &extent);

	if (rc)
		return -EFAULT;
	rc = cf_mem_import_on(ctx, dev, base, extent < len ? extent : len, &m);
	if (rc)
		return rc;
	if (!m->remappable) {
		cf_mem_put(m, 1);
		return -EFAULT;
	}
	*ret = m;
	return 0;
}

/* All that can be imported from @base on. */
static int mem_import_to_end(struct strait_context *ctx, const void *base, struct cf_mem **ret)
{
	struct strait_device *dev;
	uint64_t len;
	int rc = strait_region_extent(ctx, base, &dev, &len);

	if (!rc)
		return cf_mem_import_on(ctx, dev, base, len, ret);
	/* The length of host memory is unknown: the kernel checks it when it copies. */
	return rc == -ENOENT ? cf_mem_import(ctx, base, INT64_MAX - (uintptr_t)base, ret) : rc;
}

/* Does the region of buffer @m cover all that the transfer may touch? */
static bool buffer_covers(const struct cf_mem *m, size_t end, unsigned int how)
{
	return how & CF_MEM_TO_END ? m->len == m->registered_len : end <= m->len;
}

/* @partial: a registered buffer whose region does not cover the range, until more of it is mapped. */
static int find_locked(uintptr_t base, off_t off, size_t size, unsigned int how, struct cf_mem **ret,
		       struct cf_mem **partial)
{
	struct cf_mem *m = cf_buffer_at_locked(base);
	size_t end = 0;

	if (m && !(how & CF_MEM_TO_END) && (__builtin_add_overflow((size_t)off, size, &end) || end > m->registered_len))
		return CU_FILE_INVALID_MAPPING_RANGE;
	if (m && !buffer_covers(m, end, how))
		*partial = m;
	if (m && (how & CF_MEM_TO_END || !*partial)) {
		*ret = m;
		return 0;
	}
	if (how & CF_MEM_TO_END) {
		for (int i = 0; i < CACHE_SIZE; i++)
			if (cache[i] && cache[i]->addr == base && cache[i]->to_end)
				*ret = cache[i];
		return 0;
	}
	*ret = cf_buffer_holding_locked(base, base + (uintptr_t)off, size);
	for (int i = 0; !*ret && i < CACHE_SIZE; i++)
		if (cache[i] && cf_mem_holds(cache[i], base + (uintptr_t)off, size))
			*ret = cache[i];
	return 0;
}

static void cache_add(struct cf_mem *m)
{
	struct cf_mem *old;
	int at = 0;

	pthread_mutex_lock(&cf.lock);
	for (int i = 0; i < CACHE_SIZE && cache[at]; i++)
		if (!cache[i] || cache[i]->last_use < cache[at]->last_use)
			at = i;
	old = cache[at];
	cache[at] = m;
	cf_mem_ref(m, 1);
	m->last_use = ++use_count;
	pthread_mutex_unlock(&cf.lock);
	if (old)
		cf_mem_put(old, 1);
}

/* Moves every cached range that overlaps [addr, addr + len) to @out, with its reference. */
static unsigned int cache_evict_locked(uintptr_t addr, size_t len, struct cf_mem **out)
{
	unsigned int n = 0;

	for (int i = 0; i < CACHE_SIZE; i++)
		if (cache[i] && cache[i]->addr < addr + len && addr < cache[i]->addr + cache[i]->len) {
			out[n++] = cache[i];
			cache[i] = NULL;
		}
	return n;
}

bool cf_mem_stale(struct cf_mem *m)
{
	struct cf_mem *out[CACHE_SIZE];
	bool listed;
	unsigned int n;

	if (!m->identity)
		return false;
	pthread_mutex_lock(&cf.lock);
	/* An application that allocates and frees in a loop leaves many stale ranges that cover one address. */
	n = cache_evict_locked(m->addr, m->len, out);
	listed = cf_buffer_is_listed_locked(m) && !m->stale;
	pthread_mutex_unlock(&cf.lock);
	for (unsigned int i = 0; i < n; i++)
		cf_mem_put(out[i], 1);
	if (listed)
		cf_buffer_reimport(m);
	/* What is neither cached nor registered was evicted or imported again by another thread. */
	return true;
}

/*
 * The application may have unmapped memory between @base and the range: imports the range alone. Both must be
 * remappable, so that an offset past the end of an allocation never reaches the next one.
 */
static int mem_import_behind_hole(struct strait_context *ctx, const char *base, off_t off, size_t size,
				  struct cf_mem **ret)
{
	struct cf_mem *m;
	int rc = cf_mem_import_mapped(ctx, base, 1, &m);

	if (rc)
		return rc;
	cf_mem_put(m, 1);
	rc = cf_mem_import_mapped(ctx, base + off, size, &m);
	if (rc)
		return rc;
	if (m->len < size) {
		cf_mem_put(m, 1);
		return -EFAULT;
	}
	*ret = m;
	return 0;
}

/* Imports unregistered memory, and caches it if it has identity. */
static int mem_import_unregistered(const void *base, off_t off, size_t size, unsigned int how, struct cf_mem **ret)
{
	struct strait_context *ctx;
	size_t len;
	int rc;

	if (__builtin_add_overflow((size_t)off, size, &len))
		return -EINVAL;
	rc = cf_enter_open(&ctx);
	if (rc)
		return rc;
	rc = how & CF_MEM_TO_END ? mem_import_to_end(ctx, base, ret) : cf_mem_import(ctx, base, len ? len : 1, ret);
	if (rc == -EFAULT && off && size)
		rc = mem_import_behind_hole(ctx, base, off, size, ret);
	if (!rc) {
		(*ret)->to_end = how & CF_MEM_TO_END;
		if ((*ret)->identity)
			cache_add(*ret);
	}
	cf_leave();
	return rc;
}

bool cf_mem_grew(const struct cf_mem *m)
{
	struct strait_device *dev = NULL;
	struct strait_context *ctx;
	uint64_t extent;

	if (!m->remappable || cf_enter_open(&ctx))
		return false;
	if (strait_region_extent(ctx, (void *)(m->addr + m->len), &dev, &extent))
		dev = NULL;
	cf_leave();
	return dev == m->dev;
}

/* Was the memory of @m freed or replaced, or was more mapped behind a range that is meant to go to the end? */
static bool mem_outdated(const struct cf_mem *m, unsigned int how)
{
	return (how & CF_MEM_CHECK && m->identity && strait_region_check(m->region)) ||
	       (how & CF_MEM_TO_END && m->to_end && cf_mem_grew(m));
}

int cf_mem_get(const void *base, off_t off, size_t size, unsigned int how, struct cf_mem **ret, uint64_t *offset)
{
	uintptr_t addr = (uintptr_t)base;
	bool grown = false;
	int rc;

	for (int tries = 0;; tries++) {
		struct cf_mem *m = NULL, *partial = NULL;

		pthread_mutex_lock(&cf.lock);
		rc = find_locked(addr, off, size, how, &m, &partial);
		if (m) {
			cf_mem_ref(m, 1);
			m->last_use = ++use_count;
		}
		if (partial)
			cf_mem_ref(partial, 1);
		pthread_mutex_unlock(&cf.lock);
		if (partial && !grown && cf_buffer_grow(partial)) {
			grown = true;
			cf_mem_put(partial, 1);
			if (m)
				cf_mem_put(m, 1);
			continue;
		}
		if (partial)
			cf_mem_put(partial, 1);
		if (!rc && !m)
			rc = mem_import_unregistered(base, off, size, how, &m);
		else if (!rc && tries < CF_MEM_TRIES && mem_outdated(m, how) && cf_mem_stale(m)) {
			cf_mem_put(m, 1);
			continue;
		}
		if (rc)
			return rc;
		*offset = addr - m->addr;
		*ret = m;
		return 0;
	}
}

void cf_mem_drop_all(void)
{
	struct cf_mem *cached[CACHE_SIZE];

	cf_buffers_drop_all();
	pthread_mutex_lock(&cf.lock);
	memcpy(cached, cache, sizeof(cached));
	memset(cache, 0, sizeof(cache));
	pthread_mutex_unlock(&cf.lock);
	for (int i = 0; i < CACHE_SIZE; i++)
		if (cached[i])
			cf_mem_put(cached[i], 1);
}
