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
static int mem_new(struct strait_context *ctx, struct strait_device *on, const void *base, size_t len,
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
static int mem_any(struct strait_context *ctx, const void *base, size_t len, struct cf_mem **ret)
{
	struct strait_device *host;
	int rc = mem_new(ctx, NULL, base, len, ret);

	if (rc != -ENOENT)
		return rc;
	rc = strait_device_find(ctx, "host", &host);
	return rc ? rc : mem_new(ctx, host, base, len, ret);
}

/* All that can be imported from @base on. */
static int mem_whole(struct strait_context *ctx, const void *base, struct cf_mem **ret)
{
	struct strait_device *dev;
	uint64_t len;
	int rc = strait_region_extent(ctx, base, &dev, &len);

	if (!rc)
		return mem_new(ctx, dev, base, len, ret);
	/* Of host memory the kernel knows how far it goes, and says so to a read into it. */
	return rc == -ENOENT ? mem_any(ctx, base, INT64_MAX - (uintptr_t)base, ret) : rc;
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

static int find(uintptr_t base, off_t off, size_t size, unsigned int how, struct cf_mem **ret)
{
	size_t at = place(base), end;

	if (at < nbufs && bufs[at]->addr == base && !bufs[at]->gone) {
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
	if (at && !bufs[at - 1]->gone && cf_mem_holds(bufs[at - 1], base + (uintptr_t)off, size))
		*ret = bufs[at - 1];
	for (int i = 0; !*ret && i < KEPT; i++)
		if (kept[i] && cf_mem_holds(kept[i], base + (uintptr_t)off, size))
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
	cf_mem_ref(m, 1);
	m->used = ++uses;
	pthread_mutex_unlock(&cf.lock);
	if (old)
		cf_mem_put(old, 1);
}

/* Takes every cached range that overlaps [addr, addr + len) out of the cache, with its reference. cf.lock is held. */
static unsigned int evict_locked(uintptr_t addr, size_t len, struct cf_mem **out)
{
	unsigned int n = 0;

	for (int i = 0; i < KEPT; i++)
		if (kept[i] && kept[i]->addr < addr + len && addr < kept[i]->addr + kept[i]->len) {
			out[n++] = kept[i];
			kept[i] = NULL;
		}
	return n;
}

static bool is_registered_locked(const struct cf_mem *m)
{
	size_t at = place(m->addr);

	return at < nbufs && bufs[at] == m;
}

/*
 * The registered memory of @m was freed. Where all of its range is memory again, the registration is of that from now
 * on; otherwise it stands for nothing until it is deregistered. False if it is no registration (any more).
 */
static bool renew(struct cf_mem *m)
{
	struct strait_context *ctx;
	struct cf_mem *fresh = NULL;
	bool found;

	if (cf_enter_open(&ctx))
		return false;
	if (mem_new(ctx, m->dev, (void *)m->addr, m->len, &fresh))
		fresh = NULL;
	cf_leave();
	pthread_mutex_lock(&cf.lock);
	found = is_registered_locked(m);
	if (found && fresh) {
		bufs[place(m->addr)] = fresh;
		fresh = m; /* whose reference the table had */
	} else if (found) {
		m->gone = true;
	}
	pthread_mutex_unlock(&cf.lock);
	if (fresh)
		cf_mem_put(fresh, 1);
	return found;
}

bool cf_mem_stale(struct cf_mem *m)
{
	struct cf_mem *out[KEPT];
	bool registered;
	unsigned int n;

	if (!m->identity)
		return false;
	pthread_mutex_lock(&cf.lock);
	/* Memory that is allocated and freed over and over leaves many ranges behind that cover one address. */
	n = evict_locked(m->addr, m->len, out);
	registered = is_registered_locked(m) && !m->gone;
	pthread_mutex_unlock(&cf.lock);
	for (unsigned int i = 0; i < n; i++)
		cf_mem_put(out[i], 1);
	return (registered && renew(m)) || n;
}

/* What nobody has registered, kept for the next time where that is safe. */
static int mem_unregistered(const void *base, off_t off, size_t size, unsigned int how, struct cf_mem **ret)
{
	struct strait_context *ctx;
	size_t len;
	int rc;

	if (__builtin_add_overflow((size_t)off, size, &len))
		return -EINVAL;
	rc = cf_enter_open(&ctx);
	if (rc)
		return rc;
	rc = how & CF_MEM_WHOLE ? mem_whole(ctx, base, ret) : mem_any(ctx, base, len ? len : 1, ret);
	if (!rc) {
		(*ret)->whole = how & CF_MEM_WHOLE;
		if ((*ret)->identity)
			keep(*ret);
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
		rc = find(addr, off, size, how, &m);
		if (m) {
			cf_mem_ref(m, 1);
			m->used = ++uses;
		}
		pthread_mutex_unlock(&cf.lock);
		if (!rc && !m)
			rc = mem_unregistered(base, off, size, how, &m);
		else if (!rc && (how & CF_MEM_FRESH) && m->identity && strait_region_check(m->region) &&
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
	struct cf_mem **all, *cache[KEPT];
	size_t n;

	pthread_mutex_lock(&cf.lock);
	all = bufs;
	n = nbufs;
	memcpy(cache, kept, sizeof(cache));
	cf_mem_forked();
	pthread_mutex_unlock(&cf.lock);
	for (size_t i = 0; i < n; i++)
		cf_mem_put(all[i], 1);
	for (int i = 0; i < KEPT; i++)
		if (cache[i])
			cf_mem_put(cache[i], 1);
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
	struct strait_context *ctx;
	struct cf_mem *m;
	int code;

	if (!base || !len)
		return CU_FILE_INVALID_VALUE;
	code = cf_enter(&ctx);
	if (code)
		return code;
	code = cf_code(mem_any(ctx, base, len, &m));
	if (!code) {
		pthread_mutex_lock(&cf.lock);
		code = insert(m);
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
	int code = buf_register(base, length);

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
	at = place((uintptr_t)base);
	if (at < nbufs && bufs[at]->addr == (uintptr_t)base) {
		m = bufs[at];
		memmove(bufs + at, bufs + at + 1, (--nbufs - at) * sizeof(*bufs));
	}
	pthread_mutex_unlock(&cf.lock);
	cf_stat_op(CF_BUF_DEREG, m != NULL);
	if (!m)
		return cf_error(CU_FILE_MEMORY_NOT_REGISTERED);
	cf_stat_buffer(m, false);
	cf_mem_put(m, 1);
	return CF_OK;
}
