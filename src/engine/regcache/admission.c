/* SPDX-License-Identifier: MIT */
#include "engine/regcache/admission.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define SETS (1u << 12)
#define WAYS 4
#define REQUEST_WEIGHT 5000 /* a request costs about as much as copying this many bytes */
/* Until they are measured: 30 GB/s to register, twice that to unregister. */
#define REGISTER_PS 33
#define UNREGISTER_PS 16
#define READ_PS 100    /* per weighted byte, until it is measured */
#define CAP_PS 2000    /* per weighted byte: 16 us for 4 KiB */
#define EVICT_FACTOR 2 /* a candidate's rate over that of the window it evicts */
#define SPEED_LOSS (100 - ADMISSION_SPEED_PART)

void admission_init(struct admission *a)
{
	memset(a, 0, sizeof(*a));
	for (unsigned int i = 0; i < ENDPOINT_DEVICES; i++)
		a->cost[i] = (struct admission_cost){ .register_ps = REGISTER_PS, .unregister_ps = UNREGISTER_PS };
}

void admission_fini(struct admission *a)
{
	free(a->credits);
	a->credits = NULL;
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 32)) * 0x9e3779b97f4a7c15u;
	return x ^ (x >> 29);
}

uint64_t admission_tag(uint64_t inode, unsigned int device, uint64_t off, uint64_t unit)
{
	uint64_t tag = mix(mix(mix(inode + device) + off / unit) + unit);

	return tag ? tag : 1;
}

uint64_t admission_weight(uint64_t len)
{
	return len + REQUEST_WEIGHT;
}

uint64_t admission_cap(uint64_t weight, uint64_t ns)
{
	return min_u64(ns, weight * CAP_PS / 1000);
}

uint64_t admission_price(const struct admission *a, unsigned int device, uint64_t bytes)
{
	const struct admission_cost *c = &a->cost[device];

	return max_u64(bytes * (c->register_ps + c->unregister_ps) / 1000, 1);
}

/* The entry of @tag, made in place of the one with the least rent if there is none. NULL: no memory. */
static struct admission_credit *credit_of(struct admission *a, uint64_t tag)
{
	struct admission_credit *set, *least;

	if (!a->credits)
		a->credits = calloc(SETS * WAYS, sizeof(*a->credits));
	if (!a->credits)
		return NULL;
	set = least = &a->credits[tag % SETS * WAYS];
	for (unsigned int i = 0; i < WAYS; i++) {
		if (set[i].tag == tag)
			return &set[i];
		if (set[i].ns < least->ns)
			least = &set[i];
	}
	*least = (struct admission_credit){ .tag = tag };
	return least;
}

bool admission_pay(struct admission *a, uint64_t tag, uint64_t ns, uint64_t price, uint64_t now,
		   struct admission_rate *rate)
{
	struct admission_credit *c = credit_of(a, tag);

	if (!c)
		return false;
	if (!c->ns) {
		c->since = now;
		c->first = ns;
	}
	c->ns += ns;
	/* Tags are hashes: their upper bits are evenly distributed. */
	price -= price / ADMISSION_DISCOUNT / 256 * (tag >> 56);
	if (c->ns < price)
		return false;
	*rate = (struct admission_rate){ .ns = c->ns - c->first, .since = c->since };
	c->ns = 0;
	return true;
}

bool admission_evicts(const struct admission_rate *candidate, const struct admission_rate *victim, uint64_t now)
{
	double own = (double)candidate->ns * (double)(now - victim->since + 1);
	double other = (double)victim->ns * (double)(now - candidate->since + 1);

	return own > EVICT_FACTOR * other;
}

void admission_age(const struct admission_rate *candidate, struct admission_rate *victim, uint64_t now)
{
	if (victim->ns < 2 * candidate->ns)
		return;
	victim->ns /= 2;
	victim->since += (now - victim->since) / 2;
}

uint64_t admission_rent(const struct admission *a, unsigned int device, uint64_t weight)
{
	uint64_t ps = a->cost[device].quiet_ps;

	return weight * (ps ? ps : READ_PS) / 1000;
}

static void average(uint64_t *ps, uint64_t bytes, uint64_t ns)
{
	uint64_t one = bytes ? max_u64(ns * 1000 / bytes, 1) : *ps;

	*ps = *ps ? (*ps * 7 + one) / 8 : one;
	*ps = max_u64(*ps, 1);
}

void admission_registered(struct admission *a, unsigned int device, uint64_t bytes, uint64_t ns)
{
	average(&a->cost[device].register_ps, bytes, ns);
}

void admission_unregistered(struct admission *a, unsigned int device, uint64_t bytes, uint64_t ns)
{
	average(&a->cost[device].unregister_ps, bytes, ns);
}

void admission_read(struct admission *a, unsigned int device, uint64_t weight, uint64_t ns, bool beside)
{
	average(beside ? &a->cost[device].beside_ps : &a->cost[device].quiet_ps, weight, ns);
}

/*
 * Readers have speed 1 while nothing is registered and quiet / beside while something is. With a part d of the time spent
 * registering their speed is 1 - d (1 - quiet / beside), which is to be at least ADMISSION_SPEED_PART.
 */
uint64_t admission_pause(const struct admission *a, unsigned int device, uint64_t ns)
{
	const struct admission_cost *c = &a->cost[device];
	double lost, part;

	if (!c->quiet_ps || !c->beside_ps || c->beside_ps <= c->quiet_ps)
		return 0;
	lost = 1.0 - (double)c->quiet_ps / (double)c->beside_ps;
	part = SPEED_LOSS / 100.0 / lost;
	return part >= 1.0 ? 0 : (uint64_t)((double)ns * (1.0 / part - 1.0));
}
