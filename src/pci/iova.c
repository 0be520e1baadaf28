/* SPDX-License-Identifier: MIT */
#include "pci/iova.h"

#include <stdlib.h>

#include "base/util.h"

static int by_start(const void *a, const void *b)
{
	const struct iova_range *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

int iova_init(struct iova *v, const struct iova_range *usable, size_t n)
{
	*v = (struct iova){ .limit = UINT64_MAX };
	v->usable = malloc((n + 1) * sizeof(*usable));
	if (!v->usable)
		return -ENOMEM;
	memcpy(v->usable, usable, n * sizeof(*usable));
	qsort(v->usable, n, sizeof(*usable), by_start);
	v->n_usable = n;
	return 0;
}

void iova_fini(struct iova *v)
{
	free(v->usable);
	free(v->used);
	*v = (struct iova){ 0 };
}

/* First fit in @in of an unused range; @at is its index in v->used. */
static bool find(const struct iova *v, struct iova_range in, uint64_t len, uint64_t align, uint64_t phase,
		 uint64_t *start, size_t *at)
{
	uint64_t from = in.start;

	for (*at = 0;; ++*at) {
		bool more = *at < v->n_used;
		uint64_t before = more ? v->used[*at].start : UINT64_MAX;

		if (more && v->used[*at].last < from)
			continue;
		/* The next address congruent to @phase modulo @align. */
		if (from > UINT64_MAX - 2 * align)
			return false;
		from += (phase - from) & (align - 1);
		if (from > in.last || len - 1 > in.last - from)
			return false;
		if (!more || (from < before && len <= before - from)) {
			*start = from;
			return true;
		}
		if (v->used[*at].last == UINT64_MAX)
			return false;
		from = max_u64(from, v->used[*at].last + 1);
	}
}

static int insert(struct iova *v, size_t at, uint64_t start, uint64_t len)
{
	if (v->n_used == v->room) {
		size_t room = v->room ? v->room * 2 : 16;
		struct iova_range *grown = realloc(v->used, room * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		v->used = grown;
		v->room = room;
	}
	memmove(v->used + at + 1, v->used + at, (v->n_used - at) * sizeof(*v->used));
	v->used[at] = (struct iova_range){ start, start + len - 1 };
	v->n_used++;
	return 0;
}

int iova_alloc(struct iova *v, uint64_t len, uint64_t align, uint64_t phase, uint64_t *ret)
{
	for (size_t i = 0; len && i < v->n_usable; i++) {
		struct iova_range in = v->usable[i];
		uint64_t start;
		size_t at;
		int rc;

		in.last = min_u64(in.last, v->limit);
		/* Many devices take address 0 as "no address". */
		in.start = max_u64(in.start, KIB(64));
		if (in.start > in.last || !find(v, in, len, align, phase & (align - 1), &start, &at))
			continue;
		rc = insert(v, at, start, len);
		if (!rc)
			*ret = start;
		return rc;
	}
	return -ENOSPC;
}

void iova_free(struct iova *v, uint64_t start)
{
	for (size_t i = 0; i < v->n_used; i++)
		if (v->used[i].start == start) {
			memmove(v->used + i, v->used + i + 1, (v->n_used - i - 1) * sizeof(*v->used));
			v->n_used--;
			return;
		}
}
