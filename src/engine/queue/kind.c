/* SPDX-License-Identifier: MIT */
/* How each request of a queue is run. */
#include "engine/queue/internal.h"

/* The answers for one endpoint, region, direction and set of routes: mostly those for the request before. */
struct kinds {
	const struct strait_transfer *last;
	bool coalesces, ring;
	uint64_t sure; /* requests up to this length are always coalesced */
};

static bool same_kind(const struct kinds *k, const struct strait_transfer *t)
{
	const struct strait_transfer *last = k->last;

	return last && last->endpoint == t->endpoint && last->region == t->region && last->op == t->op &&
	       last->routes == t->routes;
}

static bool is_sure(const struct kinds *k, const struct strait_transfer *t)
{
	return t->length && t->length <= k->sure;
}

static enum entry_kind find_kind(struct kinds *k, const struct strait_transfer *t)
{
	if (!same_kind(k, t)) {
		k->ring = p2p_commands(t);
		k->coalesces = coalesce_takes(t);
		k->sure = k->coalesces && !k->ring && !t->endpoint->facts.async_bytes ? coalesce_sure(t) : 0;
	}
	k->last = t;
	if (is_sure(k, t))
		return ENTRY_SMALL;
	if (t->endpoint->facts.async_bytes)
		return p2p_batch_takes(t) ? ENTRY_ASYNC : ENTRY_LARGE;
	if (k->ring) {
		if (p2p_ring_takes(t))
			return ENTRY_RING;
		/* Where p2p is possible the plan differs from request to request. */
		k->coalesces = coalesce_takes(t);
	}
	return k->coalesces && coalesce_fits(t) ? ENTRY_SMALL : ENTRY_LARGE;
}

static inline enum entry_kind kind_of(struct kinds *k, const struct strait_transfer *t)
{
	return same_kind(k, t) && is_sure(k, t) ? ENTRY_SMALL : find_kind(k, t);
}

void queue_classify(struct list *entries, const struct strait_transfer *t, bool fill, unsigned int n[ENTRY_KINDS])
{
	struct kinds k = { 0 };

	list_for_each(it, entries) {
		struct entry *e = list_entry(it, struct entry, node);

		e->kind = kind_of(&k, t);
		n[e->kind]++;
		if (fill)
			entry_fill(e, t);
		t++;
	}
}
