/* SPDX-License-Identifier: MIT */
/* Loading the tensors of a model file into a region. */
#include <strait/region.h>
#include <time.h>

#include "base/util.h"
#include "service/safetensors.h"

/*
 * One transfer for tensor @i and those behind it that have the same distances in the region as in the file. @i becomes
 * the first tensor that it does not load.
 */
static struct strait_transfer next_run(const struct strait_safetensors *st, unsigned int *i)
{
	const struct tensor *first = &st->tensors[*i], *last = first;

	while (++*i < st->n &&
	       st->tensors[*i].region_offset - first->region_offset == st->tensors[*i].begin - first->begin)
		last = &st->tensors[*i];
	return (struct strait_transfer){ .op = STRAIT_READ,
					 .endpoint = st->ep,
					 .endpoint_offset = st->data + first->begin,
					 .region_offset = first->region_offset,
					 .length = last->end - first->begin };
}

static void add_result(struct strait_result *sum, const struct strait_result *r, uint64_t want)
{
	sum->bytes += r->bytes;
	sum->routes |= r->routes;
	for (int k = 0; k < STRAIT_ROUTE_COUNT; k++)
		sum->route_bytes[k] += r->route_bytes[k];
	if (!sum->status) {
		sum->status = r->status ? r->status : r->bytes != want ? -ENODATA : 0;
		sum->device_status = r->device_status;
	}
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A deadline that overflows is STRAIT_FOREVER. */
static int64_t deadline_of(int64_t timeout_ns)
{
	int64_t deadline;

	return __builtin_add_overflow(now_ns(), timeout_ns, &deadline) ? STRAIT_FOREVER : deadline;
}

static int64_t time_left(int64_t deadline)
{
	int64_t left = deadline == STRAIT_FOREVER ? STRAIT_FOREVER : deadline - now_ns();

	return left > 0 ? left : 0;
}

/* All runs are submitted to one queue, so that the next is in flight while one completes. */
static int load_runs(struct strait_safetensors *st, struct strait_queue *q, struct strait_region *region,
		     uint32_t routes, int64_t deadline, struct strait_result *sum)
{
	struct strait_result r;
	unsigned int in_flight = 0, i = 0;
	int rc;

	while (i < st->n || in_flight) {
		if (i < st->n && !sum->status) {
			unsigned int at = i;
			struct strait_transfer t = next_run(st, &i);

			t.region = region;
			t.routes = routes;
			t.user_data = t.length;
			rc = strait_queue_submit(q, &t, 1);
			if (!rc) {
				in_flight++;
				continue;
			}
			i = at;
			if (rc != -EAGAIN)
				return rc;
		} else if (sum->status && !in_flight) {
			break;
		}
		rc = strait_queue_wait(q, 1, 1, time_left(deadline), &r);
		if (rc < 0)
			return rc;
		if (!rc)
			return -ETIMEDOUT;
		in_flight--;
		add_result(sum, &r, r.user_data);
	}
	return sum->status;
}

STRAIT_API int strait_safetensors_load(struct strait_safetensors *st, struct strait_region *region, uint32_t routes,
				       int64_t timeout_ns, struct strait_result *result)
{
	struct strait_queue_opts opts = { .size = sizeof(opts), .entries = 256 };
	struct strait_region_info info = { .size = sizeof(info) };
	struct strait_queue *q;
	struct strait_transfer t;
	struct strait_result r;
	unsigned int i = 0;
	int64_t deadline;
	int rc;

	if (!st || !region || !result || timeout_ns < 0)
		return -EINVAL;
	deadline = deadline_of(timeout_ns);
	memset(result, 0, sizeof(*result));
	rc = strait_region_info(region, &info);
	if (rc)
		return rc;
	if (info.length < st->bytes)
		return -EINVAL;
	if (!st->n)
		return 0;
	t = next_run(st, &i);
	if (i == st->n) {
		/* The common case: one transfer, on the calling thread. */
		t.region = region;
		t.routes = routes;
		rc = strait_transfer_run(&t, timeout_ns, &r);
		add_result(result, &r, t.length);
		return rc ? rc : result->status;
	}
	rc = strait_queue_open(st->ctx, &opts, &q);
	if (rc)
		return rc;
	rc = load_runs(st, q, region, routes, deadline, result);
	strait_queue_close(q);
	if (rc)
		result->status = rc;
	return rc;
}
