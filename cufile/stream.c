/* SPDX-License-Identifier: MIT */
/*
 * Transfers ordered on a stream. What one needs until the stream has passed it hangs on a node; the function that
 * is told of its end must not call Strait, so it puts the node on a list that the next call clears.
 *
 * Streams that the program never registered may be destroyed without a word: what Strait has of them is forgotten,
 * never closed.
 */
#include "core.h"

#include <stdlib.h>

#define FIXED (CU_FILE_STREAM_FIXED_BUF_OFFSET | CU_FILE_STREAM_FIXED_FILE_OFFSET | CU_FILE_STREAM_FIXED_FILE_SIZE)

_Static_assert(sizeof(off_t) == sizeof(uint64_t) && sizeof(size_t) == sizeof(uint64_t) &&
		       sizeof(ssize_t) == sizeof(int64_t),
	       "parameters are handed on by address");

#define ALL_FLAGS 0xfu
#define MAX_STREAMS 64	  /* that were never registered */
#define DEFAULT_STREAMS 2 /* handles up to this are no addresses */

/* One stream of the program on one device. */
struct stream {
	struct cf_node node; /* by the program's handle */
	CUstream native;
	struct strait_device *dev;
	struct strait_stream *stream;
	atomic_uint flying;
	uint64_t used;
};

struct registration {
	struct cf_node node; /* by the program's handle */
	unsigned int flags;
};

struct node {
	struct node *next;
	struct cf_file *file;
	struct cf_mem *mem;
	struct stream *stream;
	uint32_t op;
	uint64_t file_off, buf_off, size; /* those that are fixed */
	const uint64_t *at[3];		  /* where all of them are */
	uint64_t start;
};

static struct cf_hash streams;
static uint64_t uses;
static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static struct cf_hash registrations; /* cf.lock */
static _Atomic(struct node *) over;

void cf_streams_forked(void)
{
	streams = registrations = (struct cf_hash){ 0 };
	atomic_store(&over, NULL);
	pthread_mutex_init(&streams_lock, NULL);
}

static void node_free(struct node *n)
{
	cf_file_put(n->file, 1);
	cf_mem_put(n->mem, 1);
	free(n);
}

void cf_streams_reap(void)
{
	struct node *n = atomic_exchange(&over, NULL);

	while (n) {
		struct node *next = n->next;

		node_free(n);
		n = next;
	}
}

/* The transfer is over; what comes next on the stream waits for this. */
static void node_end(void *arg, const struct strait_result *r)
{
	int64_t result = r->status ? r->status : (int64_t)r->bytes;
	struct node *n = arg;

	cf_tally_add(n->op, result, r->route_bytes);
	cf_stat_io(n->op, result, cf_now_ns() - n->start, n->mem, r->routes, *n->at[0] | *n->at[1] | *n->at[2]);
	atomic_fetch_sub_explicit(&n->stream->flying, 1, memory_order_release);
	n->next = atomic_load(&over);
	while (!atomic_compare_exchange_weak(&over, &n->next, n))
		;
}

static struct registration *registration_of(CUstream native)
{
	struct cf_node *n = cf_hash_find(&registrations, (uintptr_t)native);

	return n ? cf_object(n, struct registration, node) : NULL;
}

static unsigned int flags_of(CUstream native, bool *registered)
{
	struct registration *r;
	unsigned int flags;

	pthread_mutex_lock(&cf.lock);
	r = registration_of(native);
	flags = r ? r->flags : 0;
	*registered = r != NULL;
	pthread_mutex_unlock(&cf.lock);
	return flags;
}

/* From here on with streams_lock held. */
static struct stream *find_stream(CUstream native, const struct strait_device *dev)
{
	struct cf_node *n = cf_hash_find(&streams, (uintptr_t)native);

	while (n && cf_object(n, struct stream, node)->dev != dev)
		n = cf_hash_again(n);
	return n ? cf_object(n, struct stream, node) : NULL;
}

/* It is in no table any more. */
static void forget(struct stream *s)
{
	strait_stream_forget(s->stream);
	/* Where that was given up, transfers may still end some day. */
	if (!atomic_load_explicit(&s->flying, memory_order_acquire))
		free(s);
}

static void drop_stream(struct stream *s, bool there)
{
	cf_hash_del(&streams, &s->node);
	if (!there) {
		forget(s);
		return;
	}
	strait_stream_close(s->stream);
	free(s);
}

/* Lets go of the one that has not been used for longest, if there are many. */
static void bound_streams(void)
{
	struct stream *oldest = NULL;
	bool registered;

	if (streams.n < MAX_STREAMS)
		return;
	for (size_t i = 0; i < streams.size; i++)
		for (struct cf_node *n = streams.buckets[i]; n; n = n->next) {
			struct stream *s = cf_object(n, struct stream, node);

			flags_of(s->native, &registered);
			if (!registered && !atomic_load_explicit(&s->flying, memory_order_acquire) &&
			    (!oldest || s->used < oldest->used))
				oldest = s;
		}
	if (oldest)
		drop_stream(oldest, false);
}

static int stream_for(CUstream native, struct strait_device *dev, struct stream **ret)
{
	struct stream *s = find_stream(native, dev);
	int rc;

	if (!s) {
		bound_streams();
		s = calloc(1, sizeof(*s));
		if (!s)
			return -ENOMEM;
		s->native = native;
		s->dev = dev;
		rc = strait_stream_import(dev, native, &s->stream);
		if (!rc && cf_hash_add(&streams, &s->node, (uintptr_t)native)) {
			strait_stream_forget(s->stream);
			rc = -ENOMEM;
		}
		if (rc) {
			free(s);
			return rc;
		}
	}
	s->used = ++uses;
	*ret = s;
	return 0;
}

/*
 * Host memory goes in order on any stream. The default stream is that of the first device; where there are more
 * of its kind, work on their default streams is waited for, since which of them the program means is not known.
 */
static int stream_for_host(struct strait_context *ctx, CUstream native, struct stream **ret)
{
	struct strait_device_info info;
	struct strait_device *dev;
	struct stream *s;
	char kind[sizeof(info.provider)] = "";
	int rc = -EINVAL;

	for (unsigned int i = 0; !strait_device_at(ctx, i, &dev); i++) {
		info = (struct strait_device_info){ .size = sizeof(info) };
		/* A handle of one provider means nothing to another. */
		if (strait_device_info(dev, &info) || !(info.caps & STRAIT_DEVICE_STREAMS) ||
		    (native && strcmp(info.provider, "cuda")) || (kind[0] && strcmp(info.provider, kind)) ||
		    stream_for(native, dev, &s))
			continue;
		if (native) {
			*ret = s;
			return 0;
		}
		if (rc)
			*ret = s;
		else
			strait_stream_wait(s->stream, STRAIT_FOREVER);
		memcpy(kind, info.provider, sizeof(kind));
		rc = 0;
	}
	return rc;
}

/*
 * Before its memory: what the library does when it first meets memory of a context could wait for work that is on the
 * stream, and that for the caller.
 */
static void meet_stream(struct strait_context *ctx, CUstream native)
{
	struct stream *s;

	pthread_mutex_lock(&streams_lock);
	if (!cf_hash_find(&streams, (uintptr_t)native))
		stream_for_host(ctx, native, &s);
	pthread_mutex_unlock(&streams_lock);
}

static int put_on(struct strait_context *ctx, struct node *n, CUstream native, struct strait_stream_transfer *t)
{
	int rc;

	rc = n->mem->host ? stream_for_host(ctx, native, &n->stream) : stream_for(native, n->mem->dev, &n->stream);
	if (rc)
		return rc;
	atomic_fetch_add(&n->stream->flying, 1);
	rc = strait_stream_transfer(n->stream->stream, t);
	if (rc)
		atomic_fetch_sub(&n->stream->flying, 1);
	return rc;
}

/* Takes the node over. */
static int enqueue(struct strait_context *ctx, struct node *n, CUstream native, bool registered,
		   struct strait_stream_transfer *t)
{
	bool stale;
	int rc;

	pthread_mutex_lock(&streams_lock);
	rc = put_on(ctx, n, native, t);
	stale = (rc == -EIO || rc == -ENODEV || rc == -EINVAL) && n->stream && !registered && !n->stream->flying;
	if (stale) {
		/* The program may have destroyed the stream and made another that has the same handle. */
		drop_stream(n->stream, false);
		n->stream = NULL;
		rc = put_on(ctx, n, native, t);
	}
	pthread_mutex_unlock(&streams_lock);
	if (rc)
		node_free(n);
	return rc;
}

static int transfer(struct strait_context *ctx, CUfileHandle_t fh, uint32_t op, void *base, size_t *size,
		    off_t *file_off, off_t *buf_off, ssize_t *done, CUstream native)
{
	struct strait_stream_transfer t = { .size = sizeof(t), .op = op, .routes = cf.routes };
	bool registered;
	unsigned int flags = flags_of(native, &registered);
	struct node *n = calloc(1, sizeof(*n));
	int rc;

	if (!n)
		return CU_FILE_NOMEM_ERROR;
	n->file = cf_file_get(fh);
	if (!n->file) {
		free(n);
		return CU_FILE_HANDLE_NOT_REGISTERED;
	}
	if ((uintptr_t)native > DEFAULT_STREAMS)
		meet_stream(ctx, native);
	rc = cf_mem_get(base, 0, 0, CF_MEM_WHOLE | CF_MEM_FRESH, &n->mem, &t.region_base);
	if (rc) {
		cf_file_put(n->file, 1);
		free(n);
		return rc > 0 ? rc : cf_code(rc);
	}
	n->op = op;
	n->start = cf_now_ns();
	t.endpoint = cf_file_endpoint(n->file, op);
	t.region = n->mem->region;
	t.endpoint_offset = (const uint64_t *)file_off;
	t.region_offset = (const uint64_t *)buf_off;
	t.length = (const uint64_t *)size;
	t.result = (int64_t *)done;
	t.done = node_end;
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
	rc = enqueue(ctx, n, native, registered, &t);
	if (rc == -EBADF) /* the file is not open for that */
		return CU_FILE_INVALID_FILE_OPEN_FLAG;
	return rc == -EOPNOTSUPP ? CU_FILE_ASYNC_NOT_SUPPORTED : cf_code(rc);
}

static CUfileError_t ordered(CUfileHandle_t fh, uint32_t op, void *base, size_t *size, off_t *file_off, off_t *buf_off,
			     ssize_t *done, CUstream native)
{
	struct strait_context *ctx;
	int code;

	cf_streams_reap();
	if (!fh || !base || !size || !file_off || !buf_off || !done)
		return cf_error(CU_FILE_INVALID_VALUE);
	if (cf_enter_open(&ctx))
		return cf_error(CU_FILE_HANDLE_NOT_REGISTERED);
	code = transfer(ctx, fh, op, base, size, file_off, buf_off, done, native);
	cf_leave();
	return cf_error(code);
}

CF_API CUfileError_t cuFileReadAsync(CUfileHandle_t fh, void *base, size_t *size, off_t *file_off, off_t *buf_off,
				     ssize_t *done, CUstream stream)
{
	return ordered(fh, STRAIT_READ, base, size, file_off, buf_off, done, stream);
}

CF_API CUfileError_t cuFileWriteAsync(CUfileHandle_t fh, void *base, size_t *size, off_t *file_off, off_t *buf_off,
				      ssize_t *done, CUstream stream)
{
	return ordered(fh, STRAIT_WRITE, base, size, file_off, buf_off, done, stream);
}

static int stream_register(CUstream stream, unsigned int flags)
{
	struct registration *r = calloc(1, sizeof(*r));
	int code = CU_FILE_SUCCESS;

	if (!r)
		return CU_FILE_NOMEM_ERROR;
	r->flags = flags;
	pthread_mutex_lock(&cf.lock);
	if (registration_of(stream))
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

/* The program says that the stream is still there: its work is waited for. */
static void close_native(CUstream native)
{
	struct cf_node *n;

	pthread_mutex_lock(&streams_lock);
	while ((n = cf_hash_find(&streams, (uintptr_t)native)))
		drop_stream(cf_object(n, struct stream, node), true);
	pthread_mutex_unlock(&streams_lock);
	cf_streams_reap();
}

CF_API CUfileError_t cuFileStreamDeregister(CUstream stream)
{
	struct registration *r;

	pthread_mutex_lock(&cf.lock);
	r = registration_of(stream);
	if (r)
		cf_hash_del(&registrations, &r->node);
	pthread_mutex_unlock(&cf.lock);
	if (!r)
		return cf_error(CU_FILE_INVALID_VALUE);
	free(r);
	close_native(stream);
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
		close_native((CUstream)n->key);
		free(cf_object(n, struct registration, node));
	}
	pthread_mutex_lock(&streams_lock);
	while ((n = cf_hash_take(&streams)))
		forget(cf_object(n, struct stream, node));
	pthread_mutex_unlock(&streams_lock);
	cf_streams_reap();
}
