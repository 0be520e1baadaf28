/* SPDX-License-Identifier: MIT */
/*
 * The admission policy in simulated time: one reader, the registrar's thread, and the costs of a machine. Compared with
 * never registering, registering a window at its first read, and the best choice per window in hindsight.
 */
#include "engine/regcache/admission.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "harness/harness.h"

#define UNIT MIB(16)
#define READ 4096
#define WINDOWS_MAX 1024

struct machine {
	uint64_t staged_ns;	/* CPU time of a read by other routes */
	uint64_t registered_ns; /* and out of a registration */
	uint64_t register_ns;	/* of a window */
	uint64_t unregister_ns;
	unsigned int cores; /* that the reader's batches run on: elapsed time is CPU time divided by it */
	double blocked;	    /* how much slower reads are while a window is registered: 1: they stop */
};

/* As measured on an H200: 30 GB/s to register, 3 us of CPU time for a staged read of 4 KiB, at 1 M reads/s. */
static const struct machine h200 = { 3000, 300, 560000, 280000, 1, 0.0 };

struct window {
	bool registered, waits;
	uint64_t reads;
	struct admission_rate rate;
};

struct sim {
	const struct machine *m;
	struct admission a;
	struct window window[WINDOWS_MAX];
	unsigned int windows, budget, registered;
	unsigned int queue[64], queued;
	struct admission_rate wanted[WINDOWS_MAX];
	uint64_t now;	  /* of the reader */
	uint64_t free_at; /* when the registrar takes the next window */
	int current;	  /* the window being registered, or -1 */
	uint64_t done_at; /* when it is */
	uint64_t cpu;
	uint64_t purchases, hits;
};

static struct sim *sim_new(const struct machine *m, unsigned int windows, unsigned int budget)
{
	struct sim *s = calloc(1, sizeof(*s));

	ASSERT_TRUE(s);
	s->m = m;
	s->windows = windows;
	s->budget = budget;
	s->current = -1;
	admission_init(&s->a);
	return s;
}

static void sim_end(struct sim *s)
{
	admission_fini(&s->a);
	free(s);
}

static bool make_room(struct sim *s, unsigned int w)
{
	for (unsigned int v = 0; v < s->windows && s->registered >= s->budget; v++) {
		if (!s->window[v].registered)
			continue;
		if (!admission_evicts(&s->wanted[w], &s->window[v].rate, s->now)) {
			admission_age(&s->wanted[w], &s->window[v].rate, s->now);
			continue;
		}
		s->window[v].registered = false;
		s->registered--;
		admission_unregistered(&s->a, 0, UNIT, s->m->unregister_ns);
	}
	return s->registered < s->budget;
}

/* The registrar, up to the reader's time. */
static void registrar(struct sim *s)
{
	for (;;) {
		unsigned int w;

		if (s->current >= 0) {
			if (s->now < s->done_at)
				return;
			admission_registered(&s->a, 0, UNIT, s->m->register_ns);
			s->window[s->current].registered = true;
			s->window[s->current].waits = false;
			s->window[s->current].rate = s->wanted[s->current];
			s->free_at = s->done_at + admission_pause(&s->a, 0, s->m->register_ns);
			s->current = -1;
		}
		if (!s->queued || s->now < s->free_at)
			return;
		w = s->queue[0];
		memmove(s->queue, s->queue + 1, --s->queued * sizeof(*s->queue));
		if (!make_room(s, w)) {
			s->window[w].waits = false;
			continue;
		}
		s->registered++;
		s->purchases++;
		/* Unregistering is paid with the purchase. */
		s->cpu += s->m->register_ns + s->m->unregister_ns;
		s->current = (int)w;
		s->done_at = max_u64(s->free_at, s->now) + s->m->register_ns;
	}
}

static void read_one(struct sim *s, unsigned int w, uint64_t inode)
{
	struct window *win = &s->window[w];
	uint64_t cost = win->registered ? s->m->registered_ns : s->m->staged_ns, elapsed;
	bool beside;

	registrar(s);
	beside = s->current >= 0;
	elapsed = cost / s->m->cores;
	if (beside && s->m->blocked >= 1.0)
		elapsed += s->done_at - s->now;
	else if (beside)
		elapsed = (uint64_t)((double)elapsed / (1.0 - s->m->blocked));
	s->now += elapsed;
	s->cpu += cost;
	win->reads++;
	if (win->registered) {
		s->hits++;
		win->rate.ns += admission_rent(&s->a, 0, admission_weight(READ));
		return;
	}
	admission_read(&s->a, 0, admission_weight(READ), elapsed * s->m->cores, beside);
	if (!win->waits && s->queued < ARRAY_SIZE(s->queue) &&
	    admission_pay(&s->a, admission_tag(inode, 0, w * UNIT, UNIT),
			  admission_cap(admission_weight(READ), elapsed * s->m->cores), admission_price(&s->a, 0, UNIT),
			  s->now, &s->wanted[w])) {
		win->waits = true;
		s->queue[s->queued++] = w;
	}
}

/* The CPU time of the better one of two policies: never to register, and each window at its first read. */
static uint64_t pure_cpu(const struct sim *s, uint64_t reads)
{
	uint64_t price = s->m->register_ns + s->m->unregister_ns, always = reads * s->m->registered_ns;

	for (unsigned int w = 0; w < s->windows; w++)
		always += s->window[w].reads ? price : 0;
	return min_u64(reads * s->m->staged_ns, always);
}

static uint64_t most_percent(const struct machine *m)
{
	return m->cores == 1 ? 200 : 240;
}

static uint64_t never_ns(const struct sim *s, uint64_t reads)
{
	return reads * (s->m->staged_ns / s->m->cores);
}

typedef unsigned int pick_fn(uint64_t *state, unsigned int windows);

static unsigned int uniform(uint64_t *state, unsigned int windows)
{
	return (unsigned int)prng_below(state, windows);
}

/* Half of the reads go to 1/16 of the windows, half of those to 1/256. */
static unsigned int skewed(uint64_t *state, unsigned int windows)
{
	switch (prng_below(state, 4)) {
	case 0:
		return (unsigned int)prng_below(state, (windows + 255) / 256);
	case 1:
		return (unsigned int)prng_below(state, (windows + 15) / 16);
	default:
		return (unsigned int)prng_below(state, windows);
	}
}

static struct sim *sim_run(const struct machine *m, unsigned int windows, unsigned int budget, pick_fn *pick,
			   uint64_t reads)
{
	struct sim *s = sim_new(m, windows, budget);
	uint64_t state = reads + windows;

	for (uint64_t i = 0; i < reads; i++)
		read_one(s, pick(&state, windows), 7);
	return s;
}

static void run_length(const struct machine *m, unsigned int windows, pick_fn *pick, uint64_t reads)
{
	struct sim *s = sim_run(m, windows, windows, pick, reads);

	/* Rent is paid while a window waits and while it is registered: more of it, the more threads read. */
	ASSERT_LE(s->cpu * 100, pure_cpu(s, reads) * most_percent(m) + 100 * (m->register_ns + m->unregister_ns));
	ASSERT_LE(s->now * ADMISSION_SPEED_PART / 100, never_ns(s, reads) + 2 * m->register_ns);
	sim_end(s);
}

static const uint64_t lengths[] = { 1000, 3000, 10000, 30000, 100000, 200000, 500000, 1000000 };

TEST(every_run_length)
{
	static const unsigned int windows[] = { 1, 16, 512 };
	struct machine m = h200;

	for (m.cores = 1; m.cores <= 3; m.cores += 2)
		for (unsigned int w = 0; w < ARRAY_SIZE(windows); w++)
			for (unsigned int i = 0; i < ARRAY_SIZE(lengths); i++) {
				run_length(&m, windows[w], uniform, lengths[i]);
				run_length(&m, windows[w], skewed, lengths[i]);
			}
}

/* The driver slows or stops other calls while it registers. */
TEST(readers_keep_their_speed_beside_a_driver_that_blocks)
{
	struct machine m = h200;

	for (unsigned int b = 1; b <= 4; b++) {
		m.blocked = b / 4.0;
		for (unsigned int i = 0; i < ARRAY_SIZE(lengths); i++) {
			struct sim *s = sim_run(&m, 512, 512, b % 2 ? uniform : skewed, lengths[i]);

			ASSERT_LE(s->now * ADMISSION_SPEED_PART / 100, never_ns(s, lengths[i]) + 2 * m.register_ns);
			sim_end(s);
		}
	}
}

/* It reads until a window has been registered, and no more. */
TEST(a_reader_that_stops_right_after_the_purchase)
{
	uint64_t price = h200.register_ns + h200.unregister_ns;

	for (uint64_t inode = 1; inode <= 64; inode++) {
		struct sim *s = sim_new(&h200, 1, 1);

		while (!s->purchases)
			read_one(s, 0, inode);
		ASSERT_LE(s->cpu, s->window[0].reads * h200.staged_ns + price);
		/* Rent alone is what never registering costs: twice that, or a little more because of the discount. */
		ASSERT_GE(s->window[0].reads * h200.staged_ns * 10, price * 7);
		ASSERT_LE(s->window[0].reads * h200.staged_ns, price + 4 * h200.staged_ns);
		sim_end(s);
	}
}

/* Uniform reads of more than fits: windows do not evict each other. */
TEST(a_budget_smaller_than_the_file)
{
	struct sim *s = sim_run(&h200, 256, 32, uniform, 1000000);

	ASSERT_GE(s->purchases, 32);
	ASSERT_LE(s->purchases, 40);
	ASSERT_LE(s->cpu, 2 * 1000000 * h200.staged_ns);
	sim_end(s);
}

/* Other windows become popular: they replace those that are not read any more, and those that are read less. */
TEST(popularity_moves)
{
	struct sim *s = sim_new(&h200, 64, 16);
	uint64_t state = 1, hits;

	for (unsigned int base = 0; base < 64; base += 16) {
		for (unsigned int i = 0; i < 100000; i++) {
			/* One in ten goes anywhere. */
			bool any = prng_below(&state, 10) == 0;

			read_one(s, (unsigned int)(any ? prng_below(&state, 64) : base + prng_below(&state, 16)), 7);
		}
		hits = s->hits;
		for (unsigned int i = 0; i < 10000; i++)
			read_one(s, base + (unsigned int)prng_below(&state, 16), 7);
		ASSERT_GE(s->hits - hits, 9000);
	}
	sim_end(s);
}

/* Rent is the file's: a program that reopens it goes on where it was. Another file has its own. */
TEST(rent_belongs_to_the_inode)
{
	uint64_t price = 1000000, one = 100000, now = 0;
	struct admission_rate rate;
	struct admission a;
	unsigned int n = 0;

	admission_init(&a);
	for (; n < 5; n++) {
		ASSERT_FALSE(admission_pay(&a, admission_tag(1, 0, 0, UNIT), one, price, now++, &rate));
		ASSERT_FALSE(admission_pay(&a, admission_tag(2, 0, 0, UNIT), one / 10, price, now++, &rate));
	}
	while (!admission_pay(&a, admission_tag(1, 0, 0, UNIT), one, price, now++, &rate))
		n++;
	ASSERT_LE(n, 10);
	ASSERT_GE(n, 7);
	/* Spent: it earns anew. */
	ASSERT_FALSE(admission_pay(&a, admission_tag(1, 0, 0, UNIT), one, price, now++, &rate));
	ASSERT_FALSE(admission_pay(&a, admission_tag(2, 0, 0, UNIT), one / 10, price, now++, &rate));
	/* A device and a length have their own, too. */
	ASSERT_NE(admission_tag(1, 0, 0, UNIT), admission_tag(1, 1, 0, UNIT));
	ASSERT_NE(admission_tag(1, 0, 0, UNIT), admission_tag(1, 0, 0, 8 * UNIT));
	admission_fini(&a);
}

/* More windows than the table has room for: those with the most rent stay. */
TEST(a_bounded_table)
{
	struct admission_rate rate;
	struct admission a;
	unsigned int n = 0;

	admission_init(&a);
	for (unsigned int i = 0; i < 5; i++)
		admission_pay(&a, admission_tag(1, 0, 0, UNIT), 100000, 1000000, 1, &rate);
	for (uint64_t w = 1; w < 200000; w++)
		admission_pay(&a, admission_tag(1, 0, w * UNIT, UNIT), 100, 1000000, 2, &rate);
	while (!admission_pay(&a, admission_tag(1, 0, 0, UNIT), 100000, 1000000, 3, &rate))
		n++;
	ASSERT_LE(n, 5);
	admission_fini(&a);
}

/* Prices follow what is measured. */
TEST(prices_are_measured)
{
	struct admission a;

	admission_init(&a);
	for (int i = 0; i < 100; i++) {
		admission_registered(&a, 0, UNIT, 10000000);
		admission_unregistered(&a, 0, UNIT, 5000000);
	}
	ASSERT_GE(admission_price(&a, 0, UNIT), 14000000);
	ASSERT_LE(admission_price(&a, 0, UNIT), 16000000);
	/* Those of another device are its own. */
	ASSERT_LE(admission_price(&a, 1, UNIT), 1000000);
	admission_fini(&a);
}
