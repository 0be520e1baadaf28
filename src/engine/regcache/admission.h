/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_REGCACHE_ADMISSION_H
#define ENGINE_REGCACHE_ADMISSION_H

/*
 * The admission policy of the registration cache: when is a window of a file worth registering?
 *
 * Registering a window and unregistering it later costs its price P. Until then every read of it costs more than it
 * would out of the registration. How often the window will be read again is not known. This is the ski-rental problem:
 * the reads' cost is the rent, P the price of the skis. The policy buys when the rent paid for a window has reached P.
 *
 * Bound. Let a read cost r by other routes and q <= r out of the registration, and let n reads come in all. The best
 * choice in hindsight costs min(n r, P + n q). The policy buys after m reads, the first m with m r >= P, and costs n r
 * until then. Afterwards it has cost m r + P + (n - m) q. That is at most 2 m r + (n - m) r <= 2 n r, and because of
 * m r < P + r less than 2 P + r + n q <= 2 (P + n q) + r: at every length of a run at most twice the best choice, and
 * one read. A reader that stops right after the purchase is the worst case.
 *
 * The windows of a file that is read uniformly would all have paid at the same time, and then wait for each other, as
 * drivers register one window at a time; rent is paid meanwhile. So the price of a window is discounted by up to
 * 1/ADMISSION_DISCOUNT, by how much depends on its identity. Purchases spread over time, and the discount makes up for
 * the rent during registration: the total stays about twice the best choice, see tests/unit/admission_test.c.
 *
 * Elapsed time has a bound of its own. Windows are registered by a background thread, so a reader does not wait for one.
 * But the driver may hold up other calls while it registers. How much is measured: the cost of reads during a
 * registration against that of reads beside none. The thread pauses between registrations so that readers keep
 * ADMISSION_SPEED_PART of their speed, also if the driver stops them altogether meanwhile.
 *
 * A full budget. Each window has a rate, the rent its reads save per time. A window that has earned its price evicts
 * another only if its own rate is twice the other's. So under uniform reads of a file that exceeds the budget windows
 * stay, and when other parts of a file become popular their windows move in. An evicted window earns its price anew.
 *
 * Rent is kept per inode, device and window, not per endpoint, because programs reopen files. The table is bounded: when
 * a set of it is full the least rent is forgotten.
 *
 * Prices are measured per device at each registration. Nothing here takes a lock, reads a clock or registers anything:
 * regcache.c and registrar.c do, with reg_cache.lock held around every call.
 */

#include <stdbool.h>
#include <stdint.h>

#include "endpoint/endpoint.h"

/* Readers keep this part of their speed, in percent, while windows are registered. */
#define ADMISSION_SPEED_PART 80
/* The largest discount on the price of a window, as a part of it. */
#define ADMISSION_DISCOUNT 4

struct admission_credit {
	uint64_t tag;	/* hash of inode, device and window; 0: unused */
	uint64_t ns;	/* rent paid since @since */
	uint64_t first; /* the first of it, which the rate leaves out: one read has no rate */
	uint64_t since; /* its time */
};

/* Measured costs of one device. Averages move by 1/8 of each new measurement. */
struct admission_cost {
	uint64_t register_ps;	/* per byte registered */
	uint64_t unregister_ps; /* per byte unregistered */
	uint64_t quiet_ps;	/* per weighted byte read while no window was being registered, 0: not measured */
	uint64_t beside_ps;	/* per weighted byte read while one was */
};

struct admission {
	struct admission_credit *credits; /* NULL until the first rent */
	struct admission_cost cost[ENDPOINT_DEVICES];
};

/* Rent per time: of a window that is not registered, or saved by one that is. */
struct admission_rate {
	uint64_t ns;
	uint64_t since;
};

void admission_init(struct admission *a);
void admission_fini(struct admission *a);

/* The identity of a window of @unit bytes at @off, for credits. @inode identifies the file. */
uint64_t admission_tag(uint64_t inode, unsigned int device, uint64_t off, uint64_t unit);
/* A read's weight: its bytes, and a constant for the cost of a request. The rent of a batch is divided by weight. */
uint64_t admission_weight(uint64_t len);
/* The most that @weight may cost: a thread that was preempted, or that waited for a drive, paid no such rent. */
uint64_t admission_cap(uint64_t weight, uint64_t ns);

/* What registering and unregistering @bytes costs. */
uint64_t admission_price(const struct admission *a, unsigned int device, uint64_t bytes);
/*
 * Adds @ns of rent to a window. True: it has paid @price less its discount, and the credit is spent. @rate is the
 * window's then.
 */
bool admission_pay(struct admission *a, uint64_t tag, uint64_t ns, uint64_t price, uint64_t now,
		   struct admission_rate *rate);
/* May a window with rate @candidate evict one with rate @victim? */
bool admission_evicts(const struct admission_rate *candidate, const struct admission_rate *victim, uint64_t now);
/*
 * The window with rate @victim stays. Forgets half of what its rate is made of, so that it follows changes, unless it is
 * made of less than the candidate's.
 */
void admission_age(const struct admission_rate *candidate, struct admission_rate *victim, uint64_t now);

/* What a read of @weight costs by other routes: what it saves if a window holds it. */
uint64_t admission_rent(const struct admission *a, unsigned int device, uint64_t weight);

/* Measurements. */
void admission_registered(struct admission *a, unsigned int device, uint64_t bytes, uint64_t ns);
void admission_unregistered(struct admission *a, unsigned int device, uint64_t bytes, uint64_t ns);
/* @beside: a window was being registered for part of the time. */
void admission_read(struct admission *a, unsigned int device, uint64_t weight, uint64_t ns, bool beside);

/* How long to pause after registering for @ns. */
uint64_t admission_pause(const struct admission *a, unsigned int device, uint64_t ns);

#endif
