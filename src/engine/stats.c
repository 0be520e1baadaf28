/* SPDX-License-Identifier: MIT */
#include "engine/stats.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "os/os.h"

/*
 * Totals of the process: the counters of closed contexts plus those of open ones, so that a transfer touches only the
 * counters of its own context.
 */
static struct stats gone;
static struct list live = LIST_INIT(live);
OS_FORK_LOCK(lock, NULL)

/* Apart from their first and last members both structs are arrays of 64-bit counters. */
#define N_COUNTERS (offsetof(struct stats, node) / sizeof(uint64_t))
#define COUNTER_BYTES (offsetof(struct strait_stats, route[STRAIT_ROUTES_MAX]) - sizeof(size_t))
_Static_assert(COUNTER_BYTES == offsetof(struct stats, node), "counters must match");

static void add_counters(uint64_t *sum, struct stats *s)
{
	_Atomic uint64_t *c = (_Atomic uint64_t *)s;

	for (size_t i = 0; i < N_COUNTERS; i++)
		sum[i] += atomic_load_explicit(&c[i], memory_order_relaxed);
}

void stats_collect(struct stats_batch *b, const struct strait_result *r)
{
	b->transfers++;
	b->errors += r->status != 0;
	b->canceled += r->status == -ECANCELED;
	for (uint32_t left = r->routes; left; left &= left - 1) {
		int i = __builtin_ctz(left);

		b->bytes[i] += r->route_bytes[i];
		b->used[i] += r->route_bytes[i] != 0;
	}
}

void stats_transfers(struct stats *s, uint32_t op, const struct stats_batch *b)
{
	stat_add(&s->transfers, b->transfers);
	if (b->errors) {
		stat_add(&s->errors, b->errors);
		stat_add(&s->canceled, b->canceled);
	}
	for (int i = 0; i < STRAIT_ROUTE_COUNT; i++) {
		if (!b->used[i])
			continue;
		stat_add(op == STRAIT_READ ? &s->route[i].read_bytes : &s->route[i].write_bytes, b->bytes[i]);
		stat_add(&s->route[i].transfers, b->used[i]);
	}
}

void stats_transfer(struct stats *s, uint32_t op, const struct strait_result *r)
{
	struct stats_batch b = { 0 };

	stats_collect(&b, r);
	stats_transfers(s, op, &b);
}

void stats_attach(struct stats *s)
{
	pthread_mutex_lock(&lock);
	list_add_tail(&live, &s->node);
	pthread_mutex_unlock(&lock);
}

void stats_detach(struct stats *s)
{
	_Atomic uint64_t *total = (_Atomic uint64_t *)&gone;
	uint64_t sum[N_COUNTERS] = { 0 };

	add_counters(sum, s);
	pthread_mutex_lock(&lock);
	list_del(&s->node);
	for (size_t i = 0; i < N_COUNTERS; i++)
		stat_add(&total[i], sum[i]);
	pthread_mutex_unlock(&lock);
}

void stats_read(struct stats *s, struct strait_stats *out)
{
	uint64_t sum[N_COUNTERS] = { 0 };

	add_counters(sum, s);
	memcpy((char *)out + sizeof(size_t), sum, sizeof(sum));
}

void stats_read_process(struct strait_stats *out)
{
	uint64_t sum[N_COUNTERS] = { 0 };

	pthread_mutex_lock(&lock);
	add_counters(sum, &gone);
	list_for_each(it, &live)
		add_counters(sum, list_entry(it, struct stats, node));
	pthread_mutex_unlock(&lock);
	memcpy((char *)out + sizeof(size_t), sum, sizeof(sum));
}
