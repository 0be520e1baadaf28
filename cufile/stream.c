/* SPDX-License-Identifier: MIT */
/*
 * Transfers in stream order. A pending_op holds the references of a transfer until the stream has executed it. The
 * completion callback must not call Strait, so it puts the pending_op on done_list, which the next call frees.
 */
#include "file.h"
#include "stats.h"
#include "stream_table.h"

#include <stdlib.h>

#define FIXED (CU_FILE_STREAM_FIXED_BUF_OFFSET | CU_FILE_STREAM_FIXED_FILE_OFFSET | CU_FILE_STREAM_FIXED_FILE_SIZE)

_Static_assert(sizeof(off_t) == sizeof(uint64_t) && sizeof(size_t) == sizeof(uint64_t) &&
		       sizeof(ssize_t) == sizeof(int64_t),
	       "parameters are handed on by address");

#define ALL_FLAGS 0xfu
#define DEFAULT_STREAMS 2 /* CUDA's handles for default streams, 0 to 2, are not addresses */

struct registration {
	struct cf_node node; /* by the application's handle */
	unsigned int flags;
};

struct pending_op {
	struct pending_op *next;
	struct cf_file *file;
	struct cf_mem *mem;
	struct stream *stream;
	uint32_t op;
	uint64_t file_off, buf_off, size; /* copies of the parameters that are fixed */
	const uint64_t *at[3];		  /* addresses of all parameters, for the statistics */
	uint64_t start;
};

static struct cf_hash registrations; /* protected by cf.lock */
static _Atomic(struct pending_op *) done_list;

void cf_streams_forked(void)
{
	registrations = (struct cf_hash){ 0 };
	atomic_store(&done_list, NULL);
	stream_table_forked();
}

static void pending_op_free(struct pending_op *n)
{
	cf_file_put(n->file, 1);
	cf_mem_put(n->mem, 1);
	free(n);
}

void cf_streams_reap(void)
{
	struct pending_op *n = atomic_exchange(&done_list, NULL);

	while (n) {
		struct pending_op *next = n->next;

		pending_op_free(n);
		n = next;
	}
}

/* Completion callback. The stream waits for it. */
static void pending_op_complete(void *arg, const struct strait_result *r)
{
	int64_t result = r->status ? r->status : (int64_t)r->bytes;
	struct pending_op *n = arg;

	cf_run_stats_add(n->op, result, r->route_bytes);
	cf_stat_io(n->op, result, cf_now_ns() - n->start, n->mem, r->routes, *n->at[0] | *n->at[1] | *n->at[2]);
	atomic_fetch_sub_explicit(&n->stream->in_flight, 1, memory_order_release);
	n->next = atomic_load(&done_list);
	while (!atomic_compare_exchange_weak(&done_list, &n->next, n))
		;
}

static struct registration *registration_find_locked(CUstream native)
{
	struct cf_node *n = cf_hash_find(&registrations, (uintptr_t)native);

	return n ? cf_object(n, struct registration, node) : NULL;
}

unsigned int stream_flags(CUstream native, bool *registered)
{
	struct registration *r;
	unsigned int flags;

	pthread_mutex_lock(&cf.lock);
	r = registration_find_locked(native);
	flags = r ? r->flags : 0;
	*registered = r != NULL;
	pthread_mutex_unlock(&cf.lock);
	return flags;
}

/*
 * Importing memory of a context for the first time can wait for work on the stream, and that work for the caller.
 * Streams are imported before memory.
 */
static void import_unknown_stream(struct strait_context *ctx, CUstream native)
{
	struct stream *s;

	if (!stream_known(native) && !stream_get_for_host(ctx, native, &s))
		stream_put(s);
}

/* Takes ownership of @n, also on failure. */
static int pending_op_enqueue(struct strait_context *ctx, struct pending_op *n, CUstream native, bool registered,
			      struct strait_stream_transfer *t)
{
	struct stream *s;
	bool again;
	int rc;

	for (int i = 0;; i++) {
		rc = n->mem->host ? stream_get_for_host(ctx, native, &s) : stream_get(native, n->mem->dev, &s);
		if (rc)
			break;
		n->stream = s;
		atomic_fetch_add(&s->in_flight, 1);
		/* On success @n may be freed by now. */
		rc = strait_stream_transfer(s->stream, t);
		if (rc)
			atomic_fetch_sub(&s->in_flight, 1);
		/* The application may have destroyed the stream, and another one has its handle: import it again. */
		again = !i && !registered && (rc == -EIO || rc == -ENODEV || rc == -EINVAL) && stream_unlist_idle(s);
		stream_put(s);
		if (!again)
			break;
	}
	if (rc)
		pending_op_free(n);
	return rc;
}

static int stream_transfer(struct strait_context *ctx, CUfileHandle_t fh, uint32_t op, void *base, size_t *size,
			   off_t *file_off, off_t *buf_off, ssize_t *done, CUstream native)
{
	struct strait_stream_transfer t = { .size = sizeof(t), .op = op, .routes = cf.routes };
	bool registered;
	unsigned int flags = stream_flags(native, &registered);
	struct pending_op *n = calloc(1, sizeof(*n));
	int rc;

	if (!n)
		return CU_FILE_NOMEM_ERROR;
	n->file = cf_file_get(fh);
	if (!n->file) {
		free(n);
		return CU_FILE_HANDLE_NOT_REGISTERED;
	}
	if ((uintptr_t)native > DEFAULT_STREAMS)
		import_unknown_stream(ctx, native);
	rc = cf_mem_get(base, 0, 0, CF_MEM_TO_END | CF_MEM_CHECK, &n->mem, &t.region_base);
	if (rc) {
		cf_file_put(n->file, 1);
		free(n);
		return rc > 0 ? rc : cf_code_of_errno(rc);
	}
	n->op = op;
	n->start = cf_now_ns();
	t.endpoint = cf_file_endpoint(n->file, op);
	t.region = n->mem->region;
	t.endpoint_offset = (const uint64_t *)file_off;
	t.region_offset = (const uint64_t *)buf_off;
	t.length = (const uint64_t *)size;
	t.result = (int64_t *)done;
	t.done = pending_op_complete;
	t.done_arg = n;
	if (flags & CU_FILE_STREAM_FIXED_FILE_OFFSET) {
		n->file_off = (uint64_t)*file_off;
		t.endpoint_offset = &n->file_off;
	}
	if (flags & CU_FILE_STREAM_FIXED_BUF_OFFSET) {
		n->buf_off = (uint64_t)*buf_off;
		t.region_offset = &n->buf_off;
	}
	if (flags & CU_FILE_STREAM_FIXED_FILE_SIZE) {
		n->size = *size;
		t.length = &n->size;
	}
	if ((flags & FIXED) == FIXED)
		t.flags = STRAIT_STREAM_FIXED;
	n->at[0] = t.endpoint_offset;
	n->at[1] = t.region_offset;
	n->at[2] = t.length;
	rc = pending_op_enqueue(ctx, n, native, registered, &t);
	if (rc == -EBADF) /* not open for this kind of access */
		return CU_FILE_INVALID_FILE_OPEN_FLAG;
	return rc == -EOPNOTSUPP ? CU_FILE_ASYNC_NOT_SUPPORTED : cf_code_of_errno(rc);
}

static CUfileError_t stream_io(CUfileHandle_t fh, uint32_t op, void *base, size_t *size, off_t *file_off,
			       off_t *buf_off, ssize_t *done, CUstream native)
{
	struct strait_context *ctx;
	int code;

	cf_streams_reap();
	if (!fh || !base || !size || !file_off || !buf_off || !done)
		return cf_error(CU_FILE_INVALID_VALUE);
	if (cf_enter_open(&ctx))
		return cf_error(CU_FILE_HANDLE_NOT_REGISTERED);
	code = stream_transfer(ctx, fh, op, base, size, file_off, buf_off, done, native);
	cf_leave();
	return cf_error(code);
}

CF_API CUfileError_t cuFileReadAsync(CUfileHandle_t fh, void *base, size_t *size, off_t *file_off, off_t *buf_off,
				     ssize_t *done, CUstream stream)
{
	return stream_io(fh, STRAIT_READ, base, size, file_off, buf_off, done, stream);
}

CF_API CUfileError_t cuFileWriteAsync(CUfileHandle_t fh, void *base, size_t *size, off_t *file_off, off_t *buf_off,
				      ssize_t *done, CUstream stream)
{
	return stream_io(fh, STRAIT_WRITE, base, size, file_off, buf_off, done, stream);
}

static int stream_register(CUstream stream, unsigned int flags)
{
	struct registration *r = calloc(1, sizeof(*r));
	int code = CU_FILE_SUCCESS;

	if (!r)
		return CU_FILE_NOMEM_ERROR;
	r->flags = flags;
	pthread_mutex_lock(&cf.lock);
	if (registration_find_locked(stream))
		code = CU_FILE_INVALID_VALUE;
	else if (cf_hash_add(&registrations, &r->node, (uintptr_t)stream))
		code = CU_FILE_NOMEM_ERROR;
	pthread_mutex_unlock(&cf.lock);
	if (code)
		free(r);
	return code;
}

CF_API CUfileError_t cuFileStreamRegister(CUstream stream, unsigned int flags)
{
	struct strait_context *ctx;
	int code;

	if (flags & ~ALL_FLAGS)
		return cf_error(CU_FILE_INVALID_VALUE);
	code = cf_enter(&ctx);
	if (code)
		return cf_error(code);
	code = stream_register(stream, flags);
	cf_leave();
	return cf_error(code);
}

CF_API CUfileError_t cuFileStreamDeregister(CUstream stream)
{
	struct registration *r;

	pthread_mutex_lock(&cf.lock);
	r = registration_find_locked(stream);
	if (r)
		cf_hash_del(&registrations, &r->node);
	pthread_mutex_unlock(&cf.lock);
	if (!r)
		return cf_error(CU_FILE_INVALID_VALUE);
	free(r);
	streams_close(stream);
	cf_streams_reap();
	return CF_OK;
}

void cf_streams_close_all(void)
{
	struct cf_node *n;

	for (;;) {
		pthread_mutex_lock(&cf.lock);
		n = cf_hash_take(&registrations);
		pthread_mutex_unlock(&cf.lock);
		if (!n)
			break;
		streams_close((CUstream)n->key);
		free(cf_object(n, struct registration, node));
	}
	streams_detach_all();
	cf_streams_reap();
}
