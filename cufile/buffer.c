/* SPDX-License-Identifier: MIT */
/* Registered buffers, in the order of their addresses. */
#include "mem.h"
#include "stats.h"

#include <stdlib.h>

static struct cf_mem **registered;
static size_t nregistered, capacity;

void cf_buffers_forked(void)
{
	registered = NULL;
	nregistered = capacity = 0;
}

void cf_buffers_drop_all(void)
{
	struct cf_mem **all;
	size_t n;

	pthread_mutex_lock(&cf.lock);
	all = registered;
	n = nregistered;
	cf_buffers_forked();
	pthread_mutex_unlock(&cf.lock);
	for (size_t i = 0; i < n; i++)
		cf_mem_put(all[i], 1);
	free(all);
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

struct cf_mem *cf_buffer_at_locked(uintptr_t addr)
{
	size_t at = buffer_index_locked(addr);

	return at < nregistered && registered[at]->addr == addr && !registered[at]->stale ? registered[at] : NULL;
}

struct cf_mem *cf_buffer_holding_locked(uintptr_t base, uintptr_t addr, size_t len)
{
	size_t at = buffer_index_locked(base);

	return at && !registered[at - 1]->stale && cf_mem_holds(registered[at - 1], addr, len) ? registered[at - 1] :
												 NULL;
}

bool cf_buffer_is_listed_locked(const struct cf_mem *m)
{
	size_t at = buffer_index_locked(m->addr);

	return at < nregistered && registered[at] == m;
}

/* Replaces @m in the table by @fresh. False if @m is no longer registered; @fresh is freed then. */
static bool buffer_replace(struct cf_mem *m, struct cf_mem *fresh)
{
	struct cf_mem *unused = fresh;
	bool found;

	pthread_mutex_lock(&cf.lock);
	found = cf_buffer_is_listed_locked(m);
	if (found) {
		fresh->registered_len = m->registered_len;
		registered[buffer_index_locked(m->addr)] = fresh;
		unused = m; /* the table had a reference */
	}
	pthread_mutex_unlock(&cf.lock);
	cf_mem_put(unused, 1);
	return found;
}

void cf_buffer_reimport(struct cf_mem *m)
{
	void *base = (void *)m->addr;
	struct strait_context *ctx;
	struct cf_mem *fresh = NULL;
	int rc;

	if (cf_enter_open(&ctx))
		return;
	rc = cf_mem_import_on(ctx, m->dev, base, m->registered_len, &fresh);
	if (rc == -EFAULT && m->remappable)
		rc = cf_mem_import_mapped(ctx, base, m->registered_len, &fresh);
	cf_leave();
	if (!rc) {
		buffer_replace(m, fresh);
		return;
	}
	pthread_mutex_lock(&cf.lock);
	m->stale = true;
	pthread_mutex_unlock(&cf.lock);
}

bool cf_buffer_grow(struct cf_mem *m)
{
	struct strait_context *ctx;
	struct cf_mem *fresh;
	int rc;

	if (!cf_mem_grew(m) || cf_enter_open(&ctx))
		return false;
	rc = cf_mem_import_mapped(ctx, (void *)m->addr, m->registered_len, &fresh);
	cf_leave();
	return !rc && buffer_replace(m, fresh);
}

uint64_t cf_buffers_registered_bytes(int gpu)
{
	uint64_t sum = 0;

	pthread_mutex_lock(&cf.lock);
	for (size_t i = 0; i < nregistered; i++)
		if (registered[i]->gpu == gpu)
			sum += registered[i]->registered_len;
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
	int code, rc;

	if (!base || !len)
		return CU_FILE_INVALID_VALUE;
	code = cf_enter(&ctx);
	if (code)
		return code;
	rc = cf_mem_import(ctx, base, len, &m);
	if (rc == -EFAULT)
		rc = cf_mem_import_mapped(ctx, base, len, &m);
	code = cf_code_of_errno(rc);
	if (!code) {
		m->registered_len = len;
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
		return cf_error(base ? CU_FILE_MEMORY_NOT_REGISTERED : CU_FILE_INVALID_VALUE);
	cf_stat_buffer(m, false);
	cf_mem_put(m, 1);
	return CF_OK;
}
