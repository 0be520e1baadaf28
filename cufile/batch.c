/* SPDX-License-Identifier: MIT */
/* Batches: each a queue of its own, with a slot for every transfer it may hold. */
#include "core.h"

#include <limits.h>
#include <stdlib.h>

struct slot {
	struct cf_file *file; /* NULL: free */
	struct cf_mem *mem;
	void *cookie;
	uint64_t start;
	uint32_t op;
};

struct batch {
	struct batch *next;
	unsigned int refs;
	unsigned int n;
	pthread_mutex_t lock; /* the slots */
	struct strait_queue *queue;
	struct slot *slots;
};

static struct batch *batches;

void cf_batches_forked(void)
{
	batches = NULL;
}

static struct batch *batch_get(CUfileBatchHandle_t id)
{
	struct batch *b;

	pthread_mutex_lock(&cf.lock);
	for (b = batches; b && b != id; b = b->next)
		;
	if (b)
		b->refs++;
	pthread_mutex_unlock(&cf.lock);
	return b;
}

static void slot_clear(struct slot *s)
{
	cf_file_put(s->file);
	cf_mem_put(s->mem);
	s->file = NULL;
}

static void batch_put(struct batch *b)
{
	bool last;

	pthread_mutex_lock(&cf.lock);
	last = !--b->refs;
	pthread_mutex_unlock(&cf.lock);
	if (!last)
		return;
	strait_queue_close(b->queue);
	for (unsigned int i = 0; i < b->n; i++)
		if (b->slots[i].file)
			slot_clear(&b->slots[i]);
	pthread_mutex_destroy(&b->lock);
	free(b->slots);
	free(b);
}

static int set_up(CUfileBatchHandle_t *ret, unsigned int n)
{
	struct strait_queue_opts o = { .size = sizeof(o), .entries = n };
	struct strait_context *ctx;
	struct batch *b;
	int code;

	if (!ret || !n)
		return CU_FILE_INVALID_VALUE;
	code = cf_open_implicit();
	if (code)
		return code;
	if (n > cf_size(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE))
		return CU_FILE_INVALID_VALUE;
	ctx = cf_context();
	b = calloc(1, sizeof(*b));
	if (!b || !ctx)
		goto fail;
	b->slots = calloc(n, sizeof(*b->slots));
	if (!b->slots || strait_queue_open(ctx, &o, &b->queue))
		goto fail;
	b->refs = 1;
	b->n = n;
	pthread_mutex_init(&b->lock, NULL);
	pthread_mutex_lock(&cf.lock);
	b->next = batches;
	batches = b;
	pthread_mutex_unlock(&cf.lock);
	*ret = b;
	return CU_FILE_SUCCESS;
fail:
	if (b)
		free(b->slots);
	free(b);
	return CU_FILE_INTERNAL_BATCH_SETUP_ERROR;
}

CF_API CUfileError_t cuFileBatchIOSetUp(CUfileBatchHandle_t *batch, unsigned int nr)
{
	int code = set_up(batch, nr);

	cf_stat_op(CF_BATCH_SETUP, !code);
	return cf_error(code);
}

/* Fills a slot and the request for it. False if the entry is not one that can be submitted. */
static bool prepare(struct slot *s, const CUfileIOParams_t *p, struct strait_transfer *t)
{
	uint64_t offset;

	if (p->mode != CUFILE_BATCH || (p->opcode != CUFILE_READ && p->opcode != CUFILE_WRITE) ||
	    !p->u.batch.devPtr_base || p->u.batch.file_offset < 0 || p->u.batch.devPtr_offset < 0)
		return false;
	s->file = cf_file_get(p->fh);
	if (!s->file)
		return false;
	if (cf_mem_get(p->u.batch.devPtr_base, p->u.batch.devPtr_offset, p->u.batch.size, CF_MEM_FRESH, &s->mem,
		       &offset)) {
		cf_file_put(s->file);
		s->file = NULL;
		return false;
	}
	s->cookie = p->cookie;
	s->op = p->opcode == CUFILE_READ ? STRAIT_READ : STRAIT_WRITE;
	s->start = cf_now_ns();
	*t = (struct strait_transfer){
		.op = s->op,
		.routes = cf.routes,
		.endpoint = s->file->ep,
		.region = s->mem->region,
		.endpoint_offset = (uint64_t)p->u.batch.file_offset,
		.region_offset = offset + (uint64_t)p->u.batch.devPtr_offset,
		.length = p->u.batch.size,
	};
	return true;
}

/* All or nothing. */
static int submit(struct batch *b, unsigned int n, const CUfileIOParams_t *p)
{
	struct strait_transfer *t;
	unsigned int done = 0;
	int rc = -EINVAL;

	if (!n || n > b->n || !p)
		return -EINVAL;
	t = calloc(n, sizeof(*t));
	if (!t)
		return -ENOMEM;
	pthread_mutex_lock(&b->lock);
	for (unsigned int at = 0; done < n && at < b->n; at++) {
		if (b->slots[at].file)
			continue;
		if (!prepare(&b->slots[at], &p[done], &t[done]))
			break;
		t[done++].user_data = at;
	}
	if (done == n)
		rc = strait_queue_submit(b->queue, t, n);
	if (rc)
		while (done--)
			slot_clear(&b->slots[t[done].user_data]);
	pthread_mutex_unlock(&b->lock);
	free(t);
	return rc;
}

CF_API CUfileError_t cuFileBatchIOSubmit(CUfileBatchHandle_t batch, unsigned int nr, CUfileIOParams_t *p,
					 unsigned int flags)
{
	uint64_t start = cf_now_ns();
	struct batch *b = batch_get(batch);
	bool mixed = false;
	int rc;

	if (!b)
		return cf_error(CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
	rc = flags ? -EINVAL : submit(b, nr, p);
	for (unsigned int i = 1; !rc && i < nr; i++)
		mixed = mixed || p[i].opcode != p[0].opcode;
	cf_stat_submit(nr, mixed, !rc, cf_now_ns() - start);
	batch_put(b);
	if (!rc)
		return CF_OK;
	cf_log(CF_WARN, "a batch of %u is refused: %s", nr, strerror(-rc));
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

static void deliver(struct batch *b, const struct strait_result *r, CUfileIOEvents_t *ev)
{
	struct slot *s = &b->slots[r->user_data];
	int64_t result = r->status ? r->status : (int64_t)r->bytes;

	*ev = (CUfileIOEvents_t){ .cookie = s->cookie, .ret = (size_t)result };
	ev->status = !r->status ? CUFILE_COMPLETE : r->status == -ECANCELED ? CUFILE_CANCELED : CUFILE_FAILED;
	cf_stat_batch(s->op, result, cf_now_ns() - s->start);
	cf_tally_add(s->op, result, r->route_bytes);
	cf_stat_io(s->op, result, cf_now_ns() - s->start, s->mem, r->routes);
	slot_clear(s);
}

static int get_status(struct batch *b, unsigned int min, unsigned int *nr, CUfileIOEvents_t *ev,
		      const struct timespec *timeout)
{
	struct strait_result *results;
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
	results = calloc(max, sizeof(*results));
	if (!results)
		return CU_FILE_NOMEM_ERROR;
	n = strait_queue_wait(b->queue, min, max, ns, results);
	pthread_mutex_lock(&b->lock);
	for (int i = 0; i < n; i++)
		deliver(b, &results[i], &ev[i]);
	pthread_mutex_unlock(&b->lock);
	free(results);
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
	code = get_status(b, min_nr, nr, ev, timeout);
	batch_put(b);
	return cf_error(code);
}

/* Every transfer still delivers its event. */
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
	batch_put(b);
	return CF_OK;
}

CF_API void cuFileBatchIODestroy(CUfileBatchHandle_t batch)
{
	struct batch *b = NULL, **at;

	pthread_mutex_lock(&cf.lock);
	for (at = &batches; *at && *at != batch; at = &(*at)->next)
		;
	if (*at) {
		b = *at;
		*at = b->next;
	}
	pthread_mutex_unlock(&cf.lock);
	cf_stat_op(CF_BATCH_DESTROY, b != NULL);
	if (b)
		batch_put(b);
}
