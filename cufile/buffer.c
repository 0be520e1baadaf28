/* SPDX-License-Identifier: MIT */
/*
 * Memory: what was registered, in the order of its addresses, and a few ranges that were used without.
 * Only ranges whose provider notices that memory was freed and given out again are cached by themselves.
 */
#include "core.h"

#include <stdlib.h>

#define CACHE_SIZE 32

static struct cf_mem **registered; /* by address */
static size_t nregistered, capacity;
static struct cf_mem *cache[CACHE_SIZE];
static uint64_t use_count;

void cf_mem_forked(void)
{
	registered = NULL;
	nregistered = capacity = 0;
	memset(cache, 0, sizeof(cache));
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

/* These and what calls them are for those who have entered. @on: where it is known to be, or NULL. */
static int mem_import_on(struct strait_context *ctx, struct strait_device *on, const void *base, size_t len,
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
	m->gpu = strcmp(dev.provider, "cuda") ? -1 : (int)dev.index;
	*ret = m;
	return 0;
}

/* Memory that no provider knows is the host's. */
static int mem_import(struct strait_context *ctx, const void *base, size_t len, struct cf_mem **ret)
{
	struct strait_device *host;
	int rc = mem_import_on(ctx, NULL, base, len, ret);

	if (rc != -ENOENT)
		return rc;
	rc = strait_device_find(ctx, "host", &host);
	return rc ? rc : mem_import_on(ctx, host, base, len, ret);
}

/* All that can be imported from @base on. */
static int mem_import_to_end(struct strait_context *ctx, const void *base, struct cf_mem **ret)
{
	struct strait_device *dev;
	uint64_t len;
	int rc = strait_region_extent(ctx, base, &dev, &len);

	if (!rc)
		return mem_import_on(ctx, dev, base, len, ret);
	/* Of host memory the kernel knows how far it goes, and says so to a read into it. */
	return rc == -ENOENT ? mem_import(ctx, base, INT64_MAX - (uintptr_t)base, ret) : rc;
}

/* The index of the buffer at @addr, or where it would be inserted. */
static size_t buffer_index_locked(uintptr_t addr)
{
	size_t lo = 0, hi = nregistered;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (registered[mid]->addr < addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static int find_locked(uintptr_t base, off_t off, size_t size, unsigned int how, struct cf_mem **ret)
{
	size_t at = buffer_index_locked(base), end;

	if (at < nregistered && registered[at]->addr == base && !registered[at]->stale) {
		if (!(how & CF_MEM_TO_END) &&
		    (__builtin_add_overflow((size_t)off, size, &end) || end > registered[at]->len))
			return CU_FILE_INVALID_MAPPING_RANGE;
		*ret = registered[at];
		return 0;
	}
	if (how & CF_MEM_TO_END) {
		for (int i = 0; i < CACHE_SIZE; i++)
			if (cache[i] && cache[i]->addr == base && cache[i]->to_end)
				*ret = cache[i];
		return 0;
	}
	if (at && !registered[at - 1]->stale && cf_mem_holds(registered[at - 1], base + (uintptr_t)off, size))
		*ret = registered[at - 1];
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

/* Takes every cached range that overlaps [addr, addr + len) out of the cache, with its reference. cf.lock is held. */
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

static bool buffer_is_listed_locked(const struct cf_mem *m)
{
	size_t at = buffer_index_locked(m->addr);

	return at < nregistered && registered[at] == m;
}

/*
 * The registered memory of @m was freed. Where all of its range is memory again, the registration is of that from now
 * on; otherwise it stands for nothing until it is deregistered. False if it is no registration (any more).
 */
static bool buffer_reimport(struct cf_mem *m)
{
	struct strait_context *ctx;
	struct cf_mem *fresh = NULL;
	bool found;

	if (cf_enter_open(&ctx))
		return false;
	if (mem_import_on(ctx, m->dev, (void *)m->addr, m->len, &fresh))
		fresh = NULL;
	cf_leave();
	pthread_mutex_lock(&cf.lock);
	found = buffer_is_listed_locked(m);
	if (found && fresh) {
		registered[buffer_index_locked(m->addr)] = fresh;
		fresh = m; /* whose reference the table had */
	} else if (found) {
		m->stale = true;
	}
	pthread_mutex_unlock(&cf.lock);
	if (fresh)
		cf_mem_put(fresh, 1);
	return found;
}

bool cf_mem_stale(struct cf_mem *m)
{
	struct cf_mem *out[CACHE_SIZE];
	bool listed;
	unsigned int n;

	if (!m->identity)
		return false;
	pthread_mutex_lock(&cf.lock);
	/* Memory that is allocated and freed over and over leaves many ranges behind that cover one address. */
	n = cache_evict_locked(m->addr, m->len, out);
	listed = buffer_is_listed_locked(m) && !m->stale;
	pthread_mutex_unlock(&cf.lock);
	for (unsigned int i = 0; i < n; i++)
		cf_mem_put(out[i], 1);
	return (listed && buffer_reimport(m)) || n;
}

/* What nobody has registered, cached for the next time where that is safe. */
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
	rc = how & CF_MEM_TO_END ? mem_import_to_end(ctx, base, ret) : mem_import(ctx, base, len ? len : 1, ret);
	if (!rc) {
		(*ret)->to_end = how & CF_MEM_TO_END;
		if ((*ret)->identity)
			cache_add(*ret);
	}
	cf_leave();
	return rc;
}

int cf_mem_get(const void *base, off_t off, size_t size, unsigned int how, struct cf_mem **ret, uint64_t *offset)
{
	uintptr_t addr = (uintptr_t)base;
	int rc;

	for (int tries = 0;; tries++) {
		struct cf_mem *m = NULL;

		pthread_mutex_lock(&cf.lock);
		rc = find_locked(addr, off, size, how, &m);
		if (m) {
			cf_mem_ref(m, 1);
			m->last_use = ++use_count;
		}
		pthread_mutex_unlock(&cf.lock);
		if (!rc && !m)
			rc = mem_import_unregistered(base, off, size, how, &m);
		else if (!rc && (how & CF_MEM_CHECK) && m->identity && strait_region_check(m->region) &&
			 tries < CF_MEM_TRIES && cf_mem_stale(m)) {
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
	struct cf_mem **all, *cached[CACHE_SIZE];
	size_t n;

	pthread_mutex_lock(&cf.lock);
	all = registered;
	n = nregistered;
	memcpy(cached, cache, sizeof(cached));
	cf_mem_forked();
	pthread_mutex_unlock(&cf.lock);
	for (size_t i = 0; i < n; i++)
		cf_mem_put(all[i], 1);
	for (int i = 0; i < CACHE_SIZE; i++)
		if (cached[i])
			cf_mem_put(cached[i], 1);
	free(all);
}

uint64_t cf_mem_registered_bytes(int gpu)
{
	uint64_t sum = 0;

	pthread_mutex_lock(&cf.lock);
	for (size_t i = 0; i < nregistered; i++)
		if (registered[i]->gpu == gpu)
			sum += registered[i]->len;
	pthread_mutex_unlock(&cf.lock);
	return sum;
}

static int buffer_insert_locked(struct cf_mem *m)
{
	size_t at = buffer_index_locked(m->addr);

	if (at < nregistered && registered[at]->addr == m->addr)
		return CU_FILE_MEMORY_ALREADY_REGISTERED;
	if (nregistered == capacity) {
		size_t more = capacity ? 2 * capacity : 64;
		struct cf_mem **grown = realloc(registered, more * sizeof(*registered));

		if (!grown)
			return CU_FILE_NOMEM_ERROR;
		registered = grown;
		capacity = more;
	}
	memmove(registered + at + 1, registered + at, (nregistered - at) * sizeof(*registered));
	registered[at] = m;
	nregistered++;
	return CU_FILE_SUCCESS;
}

static int buffer_register(const void *base, size_t len)
{
	struct strait_context *ctx;
	struct cf_mem *m;
	int code;

	if (!base || !len)
		return CU_FILE_INVALID_VALUE;
	code = cf_enter(&ctx);
	if (code)
		return code;
	code = cf_code_of_errno(mem_import(ctx, base, len, &m));
	if (!code) {
		pthread_mutex_lock(&cf.lock);
		code = buffer_insert_locked(m);
		pthread_mutex_unlock(&cf.lock);
		if (code)
			cf_mem_put(m, 1);
		else
			cf_stat_buffer(m, true);
	}
	cf_leave();
	return code;
}

CF_API CUfileError_t cuFileBufRegister(const void *base, size_t length, int flags)
{
	int code = buffer_register(base, length);

	cf_stat_op(CF_BUF_REG, !code);
	if (code)
		cf_stat_buffer(NULL, true);
	return cf_error(code);
}

CF_API CUfileError_t cuFileBufDeregister(const void *base)
{
	struct cf_mem *m = NULL;
	size_t at;

	cf_streams_reap();
	pthread_mutex_lock(&cf.lock);
	at = buffer_index_locked((uintptr_t)base);
	if (at < nregistered && registered[at]->addr == (uintptr_t)base) {
		m = registered[at];
		memmove(registered + at, registered + at + 1, (--nregistered - at) * sizeof(*registered));
	}
	pthread_mutex_unlock(&cf.lock);
	cf_stat_op(CF_BUF_DEREG, m != NULL);
	if (!m)
		return cf_error(CU_FILE_MEMORY_NOT_REGISTERED);
	cf_stat_buffer(m, false);
	cf_mem_put(m, 1);
	return CF_OK;
}
