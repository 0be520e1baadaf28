/* SPDX-License-Identifier: MIT */
#include "engine/regcache/internal.h"

/* A sequential reader has read 1/16 of a window in order before the window evicts another. */
#define SEQUENTIAL_PART 16
/* After a window could not be registered, 1/32 of its bytes are missed before the next attempt. */
#define RETRY_PART 32

bool regcache_should_admit(struct reg_cache *k, const struct reg_ref *p, uint64_t need)
{
	uint64_t window = regcache_key(p->ep, p->dev, align_down(p->off, p->dev->tuning.window_bytes));
	struct admission_hint *hint = &k->hint[regcache_hash(window) >> (64 - REGCACHE_HINT_BITS)];
	bool admit;

	pthread_mutex_lock(&k->lock);
	if (hint->window != window || p->off + need / SEQUENTIAL_PART < hint->off ||
	    p->off > hint->off + need / SEQUENTIAL_PART)
		*hint = (struct admission_hint){ .window = window };
	hint->off = p->off;
	hint->bytes += p->len;
	k->missed += p->len;
	if (k->bytes + need <= k->budget)
		admit = k->missed >= k->retry_bytes;
	else
		admit = hint->bytes >= need / SEQUENTIAL_PART || k->missed >= need;
	admit = admit && !k->admitting;
	if (admit) {
		hint->bytes = k->missed = 0;
		k->admitting = true;
	}
	pthread_mutex_unlock(&k->lock);
	return admit;
}

void regcache_admitted(struct reg_cache *k, uint64_t need, bool got)
{
	pthread_mutex_lock(&k->lock);
	k->admitting = false;
	k->retry_bytes = got ? 0 : need / RETRY_PART;
	pthread_mutex_unlock(&k->lock);
}
