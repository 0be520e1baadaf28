/* SPDX-License-Identifier: MIT */
#include "engine/transfer/transfer.h"

#include <stdlib.h>

#include "base/util.h"
#include "engine/regcache/read.h"
#include "engine/transfer/job.h"
#include "os/os.h"

#define DIRECT_BYTES MIB(1)
#define BUFFERED_WRITE_BYTES MIB(2) /* two windows fit the CPU's cache */
#define OVERLAP_WINDOWS 8
#define OVERLAP_BYTES KIB(128) /* smaller windows cost more than the overlap gains */
#define ALL_ROUTES ((1u << STRAIT_ROUTE_COUNT) - 1)

/* Reserved members must be 0, so that a later version can give them a meaning. */
static bool reserved_set(const struct strait_transfer *t)
{
	return t->reserved || t->reserved_end[0] || t->reserved_end[1];
}

int transfer_check(const struct strait_context *ctx, const struct strait_transfer *t)
{
	if (!t->endpoint || !t->region || t->op > STRAIT_WRITE || t->flags || reserved_set(t) ||
	    t->routes & ~ALL_ROUTES)
		return -EINVAL;
	if (t->endpoint->owner != ctx || device_context(t->region->dev) != ctx)
		return -EINVAL;
	if (!range_fits_off_t(t->endpoint_offset, t->length))
		return -EINVAL;
	return 0;
}

int transfer_begin(const struct strait_transfer *t)
{
	int rc = region_use(t->region, t->region_offset, t->length);

	if (!rc)
		endpoint_ref(t->endpoint, 1);
	return rc;
}

void transfer_end(const struct strait_transfer *t, unsigned int n)
{
	region_unuse_many(t->region, n);
	endpoint_unref(t->endpoint, n);
}

/* Requests of a batch mostly differ in their offsets only. */
static bool alike(const struct strait_transfer *a, const struct strait_transfer *b)
{
	return a->op == b->op && a->routes == b->routes && a->flags == b->flags && !reserved_set(b) &&
	       range_fits_off_t(b->endpoint_offset, b->length);
}

/* The range of the region that @n transfers touch, from the first to the last byte. */
static void span(const struct strait_transfer *t, unsigned int n, uint64_t *start, uint64_t *end)
{
	for (unsigned int i = 0; i < n; i++) {
		*start = min_u64(*start, t[i].region_offset);
		*end = max_u64(*end, t[i].region_offset + t[i].length);
	}
}

/* Begins the first of @n transfers that share a region and an endpoint. @run: how many. */
static int begin_run(const struct strait_context *ctx, const struct strait_transfer *t, unsigned int n,
		     unsigned int *run)
{
	int rc = transfer_check(ctx, t);
	uint64_t room, start, end;
	unsigned int i = 0;

	if (rc)
		return rc;
	room = t->region->mem.len;
	start = t->region_offset;
	end = start + t->length;
	for (; !rc && i < n && t[i].region == t->region && t[i].endpoint == t->endpoint; i++) {
		if (!alike(t, &t[i]))
			rc = transfer_check(ctx, &t[i]);
		if (!rc && !range_inside(t[i].region_offset, t[i].length, room))
			rc = -EINVAL;
	}
	/* A region of one allocation is checked as a whole. */
	if (!rc && t->region->mem.pieces)
		span(t, i, &start, &end);
	if (!rc)
		rc = region_use(t->region, start, end - start);
	if (!rc) {
		if (i > 1)
			region_use_more(t->region, i - 1);
		endpoint_ref(t->endpoint, i);
	}
	*run = i;
	return rc;
}

int transfer_begin_all(const struct strait_context *ctx, const struct strait_transfer *t, unsigned int n)
{
	unsigned int i, run;
	int rc = 0;

	for (i = 0; i < n; i += run) {
		rc = begin_run(ctx, t + i, n - i, &run);
		if (rc)
			break;
	}
	for (unsigned int j = 0; rc && j < i; j++)
		transfer_end(&t[j], 1);
	return rc;
}

/* Does it fit into one staging chunk? A direct write must be aligned as well, to be one call. */
static bool fits_chunk(const struct strait_transfer *t)
{
	const struct endpoint_facts *ep = &t->endpoint->facts;

	if (t->length > device_engine(t->region->dev)->pool.chunk_bytes)
		return false;
	return t->op == STRAIT_READ || !ep->force_direct || !((t->endpoint_offset | t->length) % ep->dio_align);
}

void transfer_facts(const struct strait_transfer *t, bool ask, struct route_facts *f)
{
	struct strait_device *dev = t->region->dev;
	uint64_t len;

	memset(f, 0, sizeof(*f));
	f->host_memory = dev->caps & STRAIT_DEVICE_HOST;
	f->can_register_file = dev->caps & STRAIT_DEVICE_REGISTER_FILE;
	f->dma_only = t->region->mem.caps & STRAIT_REGION_DMA_ONLY;
	f->ep = &t->endpoint->facts;
	f->op = t->op;
	f->routes = t->routes;
	f->length = t->length;
	f->small = transfer_is_small(t);
	f->one_chunk = fits_chunk(t);
	f->brief = t->length < t->region->dev->tuning.register_bytes;
	f->cached = UINT64_MAX;
	p2p_facts(t, f);
	/* Costs a system call. For small transfers only strait_route_query() needs it. */
	if (ask || !f->small)
		f->unchanged = t->endpoint->ops->unchanged(t->endpoint);
	if (!ask)
		return;
	if (t->endpoint->ops->length(t->endpoint, &len))
		return;
	f->length = t->endpoint_offset < len ? min_u64(t->length, len - t->endpoint_offset) : 0;
	if (t->op == STRAIT_READ && t->endpoint->ops->cached(t->endpoint, t->endpoint_offset, f->length, &f->cached))
		f->cached = UINT64_MAX;
}

void transfer_decide(const struct strait_transfer *t, struct route_decision *d)
{
	struct route_facts facts;

	transfer_facts(t, false, &facts);
	route_decide(&facts, d);
}

bool transfer_is_small(const struct strait_transfer *t)
{
	return t->length <= t->region->dev->tuning.small_bytes;
}

static unsigned int lanes_for(const struct job *job)
{
	const struct device_tuning *tuning = &job->dev->tuning;
	unsigned int n = tuning->reader_lanes;

	/* The kernel serialises writes to one file anyway. */
	if (job->op == STRAIT_WRITE)
		return 1;
	/* Fewer readers suffice beside a lane that registers. */
	if (job->plan.mixed && tuning->mixed_readers && job->dev->ops->register_ready(job->dev, 0))
		n = tuning->mixed_readers + tuning->register_lanes;
	if (!n || n > job->ctx->threads)
		n = job->ctx->threads;
	return n > JOB_LANES ? JOB_LANES : n;
}

/* The caller's terms, for all parts of a request. */
struct terms {
	uint64_t deadline;
	const atomic_bool *cancel;
	bool isolated;
};

static void run_job(const struct strait_transfer *t, const struct route_plan *plan, const struct terms *terms,
		    struct strait_result *result)
{
	struct strait_device *dev = t->region->dev;
	struct strait_context *ctx = device_context(dev);
	struct device_engine *de = device_engine(dev);
	struct job *job = calloc(1, sizeof(*job));

	if (!job) {
		result->status = -ENOMEM;
		return;
	}
	job->ctx = ctx;
	job->ep = t->endpoint;
	job->region = t->region;
	job->dev = dev;
	job->pool = &de->pool;
	job->op = t->op;
	job->plan = *plan;
	job->host = dev->caps & STRAIT_DEVICE_HOST;
	job->start = t->endpoint_offset;
	job->stop = t->endpoint_offset + t->length;
	job->addr = t->region->mem.addr + t->region_offset;
	job->block = de->pool.chunk_bytes;
	job->deadline = terms->deadline;
	job->cancel = terms->cancel;
	job->isolated = terms->isolated;
	job->max_lanes = lanes_for(job);
	/* Several windows, so that one is read while another is copied. */
	if (!job->host && t->length < OVERLAP_WINDOWS * job->block)
		job->block = min_u64(job->block,
				     max_u64(align_up(t->length / OVERLAP_WINDOWS, os_page_size()), OVERLAP_BYTES));
	/* Drives are faster with more and smaller requests, copy engines with fewer and larger ones. */
	if (t->op == STRAIT_READ &&
	    (plan->io == ROUTE_IO_DIRECT || (plan->io == ROUTE_IO_BY_CACHE && !job_starts_cached(job))))
		job->block = min_u64(job->block, DIRECT_BYTES);
	/* Beside other jobs the device has enough to copy, and longer copies are better. */
	job->ramps = t->op == STRAIT_READ && !job->host && job->block == de->pool.chunk_bytes &&
		     plan->registers != ROUTE_REGISTER_ALL && !atomic_load_explicit(&de->lanes, memory_order_relaxed);
	if (t->op == STRAIT_WRITE && plan->io == ROUTE_IO_DIRECT)
		job->walign = (uint32_t)max_u64(t->endpoint->facts.dio_align, os_page_size());
	if (t->op == STRAIT_WRITE && job_write_buffered(job))
		job->block = min_u64(job->block, BUFFERED_WRITE_BYTES);
	if (!job->host) {
		result->status = staging_enter(job->pool, &job->user);
		if (result->status)
			goto free_job;
		staging_count(job->pool, t->length);
	}
	job_run(job, result);
	if (!job->host)
		staging_leave(job->pool, &job->user);
free_job:
	free(job);
}

/* By file I/O and copies. */
static void run_copies(const struct strait_transfer *t, const struct route_plan *plan, const struct terms *terms,
		       struct strait_result *result)
{
	struct regcache_miss miss;

	if (regcache_read(t, plan, terms->isolated, result, &miss))
		return;
	if ((!plan->small || small_run(t, plan->mask, terms->isolated, result) == -EAGAIN) &&
	    (!plan->one_chunk ||
	     chunk_read_run(t, plan, terms->deadline, terms->cancel, terms->isolated, result) == -EAGAIN))
		run_job(t, plan, terms, result);
	regcache_missed(t, &miss);
}

/* The part [start, end), in offsets of the endpoint. */
static struct strait_transfer part_of(const struct strait_transfer *t, uint64_t start, uint64_t end)
{
	struct strait_transfer part = *t;

	part.endpoint_offset = start;
	part.region_offset += start - t->endpoint_offset;
	part.length = end - start;
	return part;
}

static void add_result(struct strait_result *result, const struct strait_result *r)
{
	result->bytes += r->bytes;
	result->status = r->status;
	result->device_status = r->device_status;
	result->routes |= r->routes;
	for (int i = 0; i < STRAIT_ROUTE_COUNT; i++)
		result->route_bytes[i] += r->route_bytes[i];
}

/* Runs [start, end) of the endpoint by the routes of @mask and adds it to the result. False: nothing may follow. */
static bool run_part(const struct strait_transfer *t, const struct route_facts *facts, uint32_t mask, uint64_t start,
		     uint64_t end, const struct terms *terms, struct strait_result *result)
{
	struct strait_transfer part = part_of(t, start, end);
	struct route_facts part_facts = *facts;
	struct strait_result r = { 0 };
	struct route_plan plan;

	if (start >= end)
		return true;
	part_facts.small = transfer_is_small(&part);
	part_facts.one_chunk = fits_chunk(&part);
	route_plan(&part_facts, mask, &plan);
	run_copies(&part, &plan, terms, &r);
	add_result(result, &r);
	return !r.status && r.bytes == end - start;
}

/* The drive moves the aligned part itself; the ends are copied. All of it in order. */
static void run_self_dma(const struct strait_transfer *t, const struct route_facts *facts,
			 const struct route_plan *plan, const struct terms *terms, struct strait_result *result)
{
	/* The route is called host where the region is host memory. */
	const int route = plan->mask & STRAIT_ROUTE_MASK(STRAIT_ROUTE_P2P) ? STRAIT_ROUTE_P2P : STRAIT_ROUTE_HOST;
	const uint32_t mine = STRAIT_ROUTE_MASK(route), others = route == STRAIT_ROUTE_HOST ? mine : plan->mask & ~mine;
	uint64_t first = t->endpoint_offset, last = first + t->length, at, len;
	struct p2p_piece p = { .deadline = terms->deadline, .cancel = terms->cancel };

	if (t->op == STRAIT_READ && !t->endpoint->ops->length(t->endpoint, &len))
		last = max_u64(min_u64(last, len), first);
	if (!p2p_part(t, &p.start, &p.end)) /* the file was truncated since */
		p.start = p.end = last;
	if (!others && (p.start > first || p.end < last)) {
		result->status = -EOPNOTSUPP;
		return;
	}
	if (!run_part(t, facts, others, first, p.start, terms, result))
		return;
	if (transfer_is_small(t))
		stat_add(&device_context(t->region->dev)->stats.small, 1);
	at = p2p_run(t, &p);
	result->bytes += at - p.start;
	result->route_bytes[route] += at - p.start;
	if (at > p.start)
		result->routes |= mine;
	result->device_status = p.device_status;
	if (p.err && !(others && (p.err == -EOPNOTSUPP || p.err == -EAGAIN)))
		result->status = p.err == -EAGAIN ? (t->op == STRAIT_READ ? 0 : -EIO) : p.err;
	else if (at < last)
		run_part(t, facts, others, at, first + t->length, terms, result);
}

static void run(const struct strait_transfer *t, const struct terms *terms, struct strait_result *result)
{
	struct route_facts facts;
	struct route_decision decision;

	transfer_facts(t, false, &facts);
	route_decide(&facts, &decision);
	if (decision.code)
		result->status = decision.code;
	else if (t->length && decision.plan.self_dma)
		run_self_dma(t, &facts, &decision.plan, terms, result);
	else if (t->length)
		run_copies(t, &decision.plan, terms, result);
}

void transfer_execute(const struct strait_transfer *t, uint64_t deadline, const atomic_bool *cancel, bool isolated,
		      struct strait_result *result)
{
	const struct terms terms = { deadline, cancel, isolated };
	struct strait_context *ctx = t->endpoint->owner;

	memset(result, 0, sizeof(*result));
	result->user_data = t->user_data;
	run(t, &terms, result);
	stats_transfer(&ctx->stats, t->op, result);
}

void transfer_resume(const struct strait_transfer *t, uint64_t done, const atomic_bool *cancel,
		     struct strait_result *result)
{
	const struct terms terms = { UINT64_MAX, cancel, false };
	struct strait_transfer rest = part_of(t, t->endpoint_offset + done, t->endpoint_offset + t->length);
	struct strait_result r = { 0 };

	run(&rest, &terms, &r);
	add_result(result, &r);
}
