/* SPDX-License-Identifier: MIT */
/* Batches. Each has a queue of its own and a slot for every transfer that can be in flight. */
#include "file.h"
#include "mem.h"
#include "params.h"
#include "stats.h"

#include <limits.h>
#include <stdlib.h>

#define MAX_ENTRIES 256 /* the largest io_batchsize */

struct slot {
	struct cf_file *file; /* NULL: the slot is free */
	struct cf_mem *mem;
	void *cookie;
	uint64_t start;
	uint64_t at; /* offsets and size or'ed together, for the statistics */
	uint32_t op;
};

struct batch {
	struct cf_node node;
	atomic_uint refs;
	unsigned int n;
	pthread_mutex_t lock; /* protects the slots */
	struct strait_queue *queue;
	struct slot slots[];
};

static struct cf_hash batches;

void cf_batches_forked(void)
{
	batches = (struct cf_hash){ 0 };
}

static struct batch *batch_get(CUfileBatchHandle_t id)
{
	struct batch *b = NULL;
	struct cf_node *n;

	pthread_mutex_lock(&cf.lock);
	n = cf_hash_find(&batches, (uintptr_t)id);
	if (n) {
		b = cf_object(n, struct batch, node);
		atomic_fetch_add(&b->refs, 1);
	}
	pthread_mutex_unlock(&cf.lock);
	return b;
}

static void batch_put(struct batch *b)
{
	if (atomic_fetch_sub(&b->refs, 1) != 1)
		return;
	strait_queue_close(b->queue);
	for (unsigned int i = 0; i < b->n; i++)
		if (b->slots[i].file) {
			cf_file_put(b->slots[i].file, 1);
			cf_mem_put(b->slots[i].mem, 1);
		}
	pthread_mutex_destroy(&b->lock);
	free(b);
}

static int batch_new(struct strait_context *ctx, unsigned int n, CUfileBatchHandle_t *ret)
{
	struct strait_queue_opts o = { .size = sizeof(o), .entries = n };
	struct batch *b = calloc(1, sizeof(*b) + n * sizeof(b->slots[0]));
	int rc;

	if (!b)
		return -ENOMEM;
	rc = strait_queue_open(ctx, &o, &b->queue);
	if (rc) {
		free(b);
		return rc;
	}
	b->refs = 1;
	b->n = n;
	pthread_mutex_init(&b->lock, NULL);
	pthread_mutex_lock(&cf.lock);
	rc = cf_hash_add(&batches, &b->node, (uintptr_t)b);
	pthread_mutex_unlock(&cf.lock);
	if (rc)
		batch_put(b);
	else
		*ret = b;
	return rc;
}

static int batch_set_up(CUfileBatchHandle_t *ret, unsigned int n)
{
	struct strait_context *ctx;
	int code;

	if (!ret || !n)
		return CU_FILE_INVALID_VALUE;
	code = cf_enter(&ctx);
	if (code)
		return code;
	if (n > cf_param_size(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE) || n > MAX_ENTRIES)
		code = CU_FILE_INVALID_VALUE;
	else if (batch_new(ctx, n, ret))
		code = CU_FILE_INTERNAL_BATCH_SETUP_ERROR;
	cf_leave();
	return code;
}

CF_API CUfileError_t cuFileBatchIOSetUp(CUfileBatchHandle_t *batch, unsigned int nr)
{
	int code = batch_set_up(batch, nr);

	cf_stat_op(CF_BATCH_SETUP, !code);
	return cf_error(code);
}

/*
 * The file and memory of the previous entry. Entries of one batch mostly share them: the first is looked up, and
 * references are taken once for all that follow.
 */
struct entry_lookup {
	CUfileHandle_t fh;
	const void *base;
	struct cf_file *file;
	struct cf_mem *mem;
	struct strait_endpoint *ep[2]; /* by STRAIT_READ and STRAIT_WRITE; NULL until the first use */
	uint32_t routes;
	uint64_t offset; /* of base in the memory */
	unsigned int n;	 /* references still to take */
};

static void lookup_take_refs(struct entry_lookup *r)
{
	if (r->n) {
		cf_file_ref(r->file, r->n);
		cf_mem_ref(r->mem, r->n);
	}
	r->n = 0;
}

/* Looks up file and memory of an entry, with a reference to each. */
static bool lookup_entry(struct entry_lookup *r, const CUfileIOParams_t *p)
{
	uintptr_t addr = (uintptr_t)p->u.batch.devPtr_base + (uintptr_t)p->u.batch.devPtr_offset;

	if (r->mem && r->fh == p->fh && r->base == p->u.batch.devPtr_base &&
	    cf_mem_holds(r->mem, addr, p->u.batch.size)) {
		r->n++;
		return true;
	}
	lookup_take_refs(r);
	*r = (struct entry_lookup){ .fh = p->fh, .base = p->u.batch.devPtr_base, .routes = cf.routes };
	r->file = cf_file_get(p->fh);
	if (!r->file)
		return false;
	if (!cf_mem_get(r->base, p->u.batch.devPtr_offset, p->u.batch.size, CF_MEM_CHECK, &r->mem, &r->offset))
		return true;
	cf_file_put(r->file, 1);
	r->mem = NULL;
	return false;
}

/* Fills a slot and its transfer. False if the entry is invalid. */
static bool slot_prepare(struct entry_lookup *r, struct slot *s, const CUfileIOParams_t *p, struct strait_transfer *t)
{
	uint32_t op = p->opcode == CUFILE_READ ? STRAIT_READ : STRAIT_WRITE;

	if (p->mode != CUFILE_BATCH || (p->opcode != CUFILE_READ && p->opcode != CUFILE_WRITE) ||
	    !p->u.batch.devPtr_base || p->u.batch.file_offset < 0 || p->u.batch.devPtr_offset < 0 ||
	    !lookup_entry(r, p))
		return false;
	if (!r->ep[op])
		r->ep[op] = cf_file_endpoint(r->file, op);
	s->file = r->file;
	s->mem = r->mem;
	s->cookie = p->cookie;
	s->op = op;
	s->at = (uint64_t)p->u.batch.file_offset | (uint64_t)p->u.batch.devPtr_offset | p->u.batch.size;
	*t = (struct strait_transfer){
		.op = op,
		.routes = r->routes,
		.endpoint = r->ep[op],
		.region = s->mem->region,
		.endpoint_offset = (uint64_t)p->u.batch.file_offset,
		.region_offset = r->offset + (uint64_t)p->u.batch.devPtr_offset,
		.length = p->u.batch.size,
	};
	return true;
}

/* Drops the references of the slots and frees them. */
static void slots_release_locked(struct batch *b, const unsigned int *slot, unsigned int n)
{
	unsigned int run;

	for (unsigned int i = 0; i < n; i += run) {
		struct slot *s = &b->slots[slot[i]];
		struct cf_file *file = s->file;
		struct cf_mem *mem = s->mem;

		for (run = 0; i + run < n; run++) {
			s = &b->slots[slot[i + run]];
			if (s->file != file || s->mem != mem)
				break;
			s->file = NULL;
		}
		cf_file_put(file, run);
		cf_mem_put(mem, run);
	}
}

/* Submits all entries or none. */
static int batch_submit(struct batch *b, unsigned int n, const CUfileIOParams_t *p)
{
	struct strait_transfer t[MAX_ENTRIES];
	unsigned int slot[MAX_ENTRIES], done = 0;
	uint64_t now = cf_now_ns();
	struct entry_lookup r = { 0 };
	int rc = -EINVAL;

	if (!n || n > b->n || !p)
		return -EINVAL;
	pthread_mutex_lock(&b->lock);
	for (unsigned int at = 0; done < n && at < b->n; at++) {
		if (b->slots[at].file)
			continue;
		if (!slot_prepare(&r, &b->slots[at], &p[done], &t[done]))
			break;
		b->slots[at].start = now;
		slot[done] = at;
		t[done++].user_data = at;
	}
	lookup_take_refs(&r);
	if (done == n)
		rc = strait_queue_submit(b->queue, t, n);
	if (rc)
		slots_release_locked(b, slot, done);
	pthread_mutex_unlock(&b->lock);
	return rc;
}

/* As in NVIDIA's library, @flags are ignored. */
CF_API CUfileError_t cuFileBatchIOSubmit(CUfileBatchHandle_t batch, unsigned int nr, CUfileIOParams_t *p,
					 unsigned int flags)
{
	uint64_t start = cf_now_ns();
	struct batch *b = batch_get(batch);
	int rc;

	if (!b)
		return cf_error(CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
	rc = batch_submit(b, nr, p);
	cf_stat_submit(p, nr, !rc, cf_now_ns() - start);
	batch_put(b);
	if (!rc)
		return CF_OK;
	cf_log(CF_WARN, "cuFileBatchIOSubmit: %u entries refused: %s", nr, strerror(-rc));
	return cf_error(CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
}

static bool timeout_ns(const struct timespec *t, int64_t *ns)
{
	*ns = STRAIT_FOREVER;
	if (!t)
		return true;
	if (t->tv_sec < 0 || t->tv_nsec < 0 || t->tv_nsec > 999999999)
		return false;
	if (t->tv_sec < INT64_MAX / 1000000000 - 1)
		*ns = (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
	return true;
}

static int64_t result_value(const struct strait_result *r)
{
	return r->status ? r->status : (int64_t)r->bytes;
}

static void fill_event(const struct slot *s, const struct strait_result *r, CUfileIOEvents_t *ev)
{
	*ev = (CUfileIOEvents_t){ .cookie = s->cookie, .ret = (size_t)result_value(r) };
	ev->status = !r->status ? CUFILE_COMPLETE : r->status == -ECANCELED ? CUFILE_CANCELED : CUFILE_FAILED;
}

static void count_completion(const struct slot *s, const struct strait_result *r, uint64_t now)
{
	int64_t result = result_value(r);

	cf_stat_batch(s->op, result, now - s->start);
	cf_run_stats_add(s->op, result, r->route_bytes);
	cf_stat_io(s->op, result, now - s->start, s->mem, r->routes, s->at);
}

/* Collects completions. @ev may be NULL. Return: their number, or a negative errno. */
static int batch_collect(struct batch *b, unsigned int min, unsigned int max, int64_t ns, CUfileIOEvents_t *ev)
{
	struct strait_result results[MAX_ENTRIES];
	bool wanted = cf_stats_wanted() || cf_run_stats_wanted();
	unsigned int slot[MAX_ENTRIES];
	uint64_t now;
	int n;

	n = strait_queue_wait(b->queue, min, max, ns, results);
	if (n < 0)
		return n;
	now = cf_now_ns();
	pthread_mutex_lock(&b->lock);
	for (int i = 0; i < n; i++) {
		slot[i] = (unsigned int)results[i].user_data;
		if (ev)
			fill_event(&b->slots[slot[i]], &results[i], &ev[i]);
		if (wanted)
			count_completion(&b->slots[slot[i]], &results[i], now);
	}
	slots_release_locked(b, slot, (unsigned int)n);
	pthread_mutex_unlock(&b->lock);
	return n;
}

static int batch_get_status(struct batch *b, unsigned int min, unsigned int *nr, CUfileIOEvents_t *ev,
			    const struct timespec *timeout)
{
	unsigned int max;
	int64_t ns;
	int n;

	if (!nr || min > *nr || (*nr && !ev) || !timeout_ns(timeout, &ns))
		return CU_FILE_INVALID_VALUE;
	max = *nr < b->n ? *nr : b->n;
	if (min > max)
		min = max;
	*nr = 0;
	if (!max)
		return CU_FILE_SUCCESS;
	n = batch_collect(b, min, max, ns, ev);
	if (n < 0)
		return CU_FILE_INTERNAL_BATCH_GETSTATUS_ERROR;
	*nr = (unsigned int)n;
	return CU_FILE_SUCCESS;
}

CF_API CUfileError_t cuFileBatchIOGetStatus(CUfileBatchHandle_t batch, unsigned int min_nr, unsigned int *nr,
					    CUfileIOEvents_t *ev, struct timespec *timeout)
{
	struct batch *b = batch_get(batch);
	int code;

	if (!b)
		return cf_error(CU_FILE_INVALID_VALUE);
	code = batch_get_status(b, min_nr, nr, ev, timeout);
	batch_put(b);
	return cf_error(code);
}

/*
 * Cancels what has not started and waits for the rest. Completions are discarded, as NVIDIA's library does: no event
 * is returned later, and every slot is free for the next submission.
 */
CF_API CUfileError_t cuFileBatchIOCancel(CUfileBatchHandle_t batch)
{
	struct batch *b = batch_get(batch);

	cf_stat_op(CF_BATCH_CANCEL, b != NULL);
	if (!b)
		return CF_OK;
	pthread_mutex_lock(&b->lock);
	for (unsigned int i = 0; i < b->n; i++)
		if (b->slots[i].file)
			strait_queue_cancel(b->queue, i);
	pthread_mutex_unlock(&b->lock);
	while (batch_collect(b, b->n, b->n, STRAIT_FOREVER, NULL) > 0)
		;
	batch_put(b);
	return CF_OK;
}

CF_API void cuFileBatchIODestroy(CUfileBatchHandle_t batch)
{
	struct cf_node *n;

	pthread_mutex_lock(&cf.lock);
	n = cf_hash_find(&batches, (uintptr_t)batch);
	if (n)
		cf_hash_del(&batches, n);
	pthread_mutex_unlock(&cf.lock);
	cf_stat_op(CF_BATCH_DESTROY, n != NULL);
	if (n)
		batch_put(cf_object(n, struct batch, node));
}
