/* SPDX-License-Identifier: MIT */
/*
 * Memory: what was registered, in the order of its addresses, and a few ranges that were used without.
 * Only ranges whose provider notices that memory was freed and given out again are kept by themselves.
 */
#include "core.h"

#include <stdlib.h>

#define KEPT 32

static struct cf_mem **bufs; /* by address */
static size_t nbufs, room;
static struct cf_mem *kept[KEPT];
static uint64_t uses;

void cf_mem_forked(void)
{
	bufs = NULL;
	nbufs = room = 0;
	memset(kept, 0, sizeof(kept));
}

void cf_mem_put(struct cf_mem *m)
{
	bool last;

	pthread_mutex_lock(&cf.lock);
	last = !--m->refs;
	pthread_mutex_unlock(&cf.lock);
	if (!last)
		return;
	strait_region_close(m->region);
	free(m);
}

static int mem_new(const void *base, size_t len, struct cf_mem **ret)
{
	struct strait_region_info info = { .size = sizeof(info) };
	struct strait_device_info dev = { .size = sizeof(dev) };
	struct strait_context *ctx = cf_context();
	struct cf_mem *m;
	int rc;

	if (!ctx)
		return CU_FILE_DRIVER_NOT_INITIALIZED;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	rc = strait_region_import(ctx, NULL, (void *)(uintptr_t)base, len, &m->region);
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

/* All that can be imported from @base on: found by halving, since only trying tells how far it goes. */
static int mem_whole(const void *base, struct cf_mem **ret)
{
	struct cf_mem *m, *more;
	size_t good = 1, bad;
	int rc;

	rc = mem_new(base, 1, &m);
	if (rc)
		return rc;
	if (m->host) {
		*ret = m;
		return 0;
	}
	for (bad = 2; !mem_new(base, bad, &more); bad *= 2) {
		cf_mem_put(m);
		m = more;
		good = bad;
	}
	while (bad - good > 1) {
		size_t mid = good + (bad - good) / 2;

		if (mem_new(base, mid, &more)) {
			bad = mid;
			continue;
		}
		cf_mem_put(m);
		m = more;
		good = mid;
	}
	*ret = m;
	return 0;
}

/* With the lock held, as are the next two. Where @addr is or would be. */
static size_t place(uintptr_t addr)
{
	size_t lo = 0, hi = nbufs;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (bufs[mid]->addr < addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static bool holds(const struct cf_mem *m, uintptr_t addr, size_t len)
{
	return addr >= m->addr && addr - m->addr <= m->len && len <= m->len - (addr - m->addr);
}

static int find(uintptr_t base, off_t off, size_t size, unsigned int how, struct cf_mem **ret)
{
	size_t at = place(base), end;

	if (at < nbufs && bufs[at]->addr == base) {
		if (!(how & CF_MEM_WHOLE) && (__builtin_add_overflow((size_t)off, size, &end) || end > bufs[at]->len))
			return CU_FILE_INVALID_MAPPING_RANGE;
		*ret = bufs[at];
		return 0;
	}
	if (how & CF_MEM_WHOLE) {
		for (int i = 0; i < KEPT; i++)
			if (kept[i] && kept[i]->addr == base && kept[i]->whole)
				*ret = kept[i];
		return 0;
	}
	if (at && holds(bufs[at - 1], base + (uintptr_t)off, size))
		*ret = bufs[at - 1];
	for (int i = 0; !*ret && i < KEPT; i++)
		if (kept[i] && holds(kept[i], base + (uintptr_t)off, size))
			*ret = kept[i];
	return 0;
}

static void keep(struct cf_mem *m)
{
	struct cf_mem *old;
	int at = 0;

	pthread_mutex_lock(&cf.lock);
	for (int i = 0; i < KEPT && kept[at]; i++)
		if (!kept[i] || kept[i]->used < kept[at]->used)
			at = i;
	old = kept[at];
	kept[at] = m;
	m->refs++;
	m->used = ++uses;
	pthread_mutex_unlock(&cf.lock);
	if (old)
		cf_mem_put(old);
}

bool cf_mem_stale(struct cf_mem *m)
{
	struct cf_mem *fresh = NULL;
	unsigned int drops = 0;
	size_t at;

	if (!m->identity)
		return false;
	pthread_mutex_lock(&cf.lock);
	for (int i = 0; i < KEPT; i++)
		if (kept[i] == m) {
			kept[i] = NULL;
			drops++;
		}
	at = place(m->addr);
	at = at < nbufs && bufs[at] == m ? at : SIZE_MAX;
	pthread_mutex_unlock(&cf.lock);
	/* Registered memory that was freed and given out again is what the program means now. */
	if (at != SIZE_MAX && !mem_new((void *)m->addr, m->len, &fresh)) {
		pthread_mutex_lock(&cf.lock);
		at = place(m->addr);
		if (at < nbufs && bufs[at] == m) {
			bufs[at] = fresh;
			fresh = NULL;
			drops++;
		}
		pthread_mutex_unlock(&cf.lock);
		if (fresh)
			cf_mem_put(fresh);
	}
	for (unsigned int i = 0; i < drops; i++)
		cf_mem_put(m);
	return drops > 0;
}

int cf_mem_get(const void *base, off_t off, size_t size, unsigned int how, struct cf_mem **ret, uint64_t *offset)
{
	uintptr_t addr = (uintptr_t)base;
	int rc;

	for (int tries = 0;; tries++) {
		struct cf_mem *m = NULL;
		size_t len;

		pthread_mutex_lock(&cf.lock);
		rc = find(addr, off, size, how, &m);
		if (m) {
			m->refs++;
			m->used = ++uses;
		}
		pthread_mutex_unlock(&cf.lock);
		if (rc)
			return rc;
		if (!m) {
			if (__builtin_add_overflow((size_t)off, size, &len))
				return -EINVAL;
			rc = how & CF_MEM_WHOLE ? mem_whole(base, &m) : mem_new(base, len ? len : 1, &m);
			if (rc)
				return rc;
			m->whole = how & CF_MEM_WHOLE;
			if (m->identity)
				keep(m);
		} else if ((how & CF_MEM_FRESH) && m->identity && strait_region_check(m->region) && tries < 4 &&
			   cf_mem_stale(m)) {
			cf_mem_put(m);
			continue;
		}
		*offset = addr - m->addr;
		*ret = m;
		return 0;
	}
}

void cf_mem_drop_all(void)
{
	struct cf_mem **all, *cache[KEPT];
	size_t n;

	pthread_mutex_lock(&cf.lock);
	all = bufs;
	n = nbufs;
	memcpy(cache, kept, sizeof(cache));
	cf_mem_forked();
	pthread_mutex_unlock(&cf.lock);
	for (size_t i = 0; i < n; i++)
		cf_mem_put(all[i]);
	for (int i = 0; i < KEPT; i++)
		if (cache[i])
			cf_mem_put(cache[i]);
	free(all);
}

uint64_t cf_mem_registered_bytes(int gpu)
{
	uint64_t sum = 0;

	pthread_mutex_lock(&cf.lock);
	for (size_t i = 0; i < nbufs; i++)
		if (bufs[i]->gpu == gpu)
			sum += bufs[i]->len;
	pthread_mutex_unlock(&cf.lock);
	return sum;
}

static int insert(struct cf_mem *m)
{
	size_t at = place(m->addr);

	if (at < nbufs && bufs[at]->addr == m->addr)
		return CU_FILE_MEMORY_ALREADY_REGISTERED;
	if (nbufs == room) {
		size_t more = room ? 2 * room : 64;
		struct cf_mem **grown = realloc(bufs, more * sizeof(*bufs));

		if (!grown)
			return CU_FILE_NOMEM_ERROR;
		bufs = grown;
		room = more;
	}
	memmove(bufs + at + 1, bufs + at, (nbufs - at) * sizeof(*bufs));
	bufs[at] = m;
	nbufs++;
	return CU_FILE_SUCCESS;
}

static int buf_register(const void *base, size_t len)
{
	struct cf_mem *m;
	int code, rc;

	if (!base || !len)
		return CU_FILE_INVALID_VALUE;
	code = cf_open_implicit();
	if (code)
		return code;
	rc = mem_new(base, len, &m);
	if (rc)
		return rc > 0 ? rc : cf_code(rc);
	pthread_mutex_lock(&cf.lock);
	code = insert(m);
	pthread_mutex_unlock(&cf.lock);
	if (code)
		cf_mem_put(m);
	return code;
}

CF_API CUfileError_t cuFileBufRegister(const void *base, size_t length, int flags)
{
	int code = buf_register(base, length);

	cf_stat_op(CF_BUF_REG, !code);
	return cf_error(code);
}

CF_API CUfileError_t cuFileBufDeregister(const void *base)
{
	struct cf_mem *m = NULL;
	size_t at;

	cf_streams_reap();
	pthread_mutex_lock(&cf.lock);
	at = place((uintptr_t)base);
	if (at < nbufs && bufs[at]->addr == (uintptr_t)base) {
		m = bufs[at];
		memmove(bufs + at, bufs + at + 1, (--nbufs - at) * sizeof(*bufs));
	}
	pthread_mutex_unlock(&cf.lock);
	cf_stat_op(CF_BUF_DEREG, m != NULL);
	if (!m)
		return cf_error(CU_FILE_MEMORY_NOT_REGISTERED);
	cf_mem_put(m);
	return CF_OK;
}
