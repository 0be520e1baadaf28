/* SPDX-License-Identifier: MIT */
/*
 * Transfers ordered on a stream. What one needs until the stream has passed it hangs on a node: a function
 * at the end of it, which must not call Strait, puts the node on a list that the next call clears.
 *
 * Host memory has no stream of its own: the call waits for the stream and moves the bytes itself.
 */
#include "core.h"

#include <stdlib.h>

_Static_assert(sizeof(off_t) == sizeof(uint64_t) && sizeof(size_t) == sizeof(uint64_t) &&
		       sizeof(ssize_t) == sizeof(int64_t),
	       "parameters are handed on by address");

#define ALL_FLAGS 0xfu

/* One stream of the program on one device. */
struct stream {
	struct stream *next;
	CUstream native;
	struct strait_device *dev;
	struct strait_stream *stream;
};

struct registration {
	struct registration *next;
	CUstream native;
	unsigned int flags;
};

struct node {
	struct node *next;
	struct cf_file *file;
	struct cf_mem *mem;
	uint32_t op;
	uint64_t delta; /* from the start of the memory to the program's pointer */
	const uint64_t *file_off_at, *buf_off_at, *size_at;
	uint64_t file_off, buf_off, size;
	int64_t *result;
	uint64_t start;
	bool dead; /* refused after all: the program's pointers may be gone */
};

static struct stream *streams;
static struct stream *left; /* by earlier opens of the driver */
static struct registration *registrations;
static struct node *over;
static pthread_mutex_t over_lock = PTHREAD_MUTEX_INITIALIZER; /* and node.dead */
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;     /* keeps the parts of one transfer together */

void cf_streams_forked(void)
{
	streams = NULL;
	registrations = NULL;
	over = NULL;
	pthread_mutex_init(&over_lock, NULL);
	pthread_mutex_init(&order, NULL);
}

static void node_free(struct node *n)
{
	cf_file_put(n->file);
	cf_mem_put(n->mem);
	free(n);
}

void cf_streams_reap(void)
{
	struct node *n;

	pthread_mutex_lock(&over_lock);
	n = over;
	over = NULL;
	pthread_mutex_unlock(&over_lock);
	while (n) {
		struct node *next = n->next;

		node_free(n);
		n = next;
	}
}

/* The parameters are there now. */
static void node_fill(struct node *n)
{
	n->start = cf_now_ns();
	if (n->file_off_at)
		n->file_off = *n->file_off_at;
	if (n->size_at)
		n->size = *n->size_at;
	if (n->buf_off_at)
		n->buf_off = *n->buf_off_at;
	/* Below zero is above every region: refused there. */
	if ((int64_t)n->buf_off < 0)
		n->buf_off = INT64_MAX;
	else
		n->buf_off += n->delta;
}

/* These two run on the stream. */
static void node_begin(void *arg)
{
	struct node *n = arg;

	pthread_mutex_lock(&over_lock);
	if (!n->dead)
		node_fill(n);
	pthread_mutex_unlock(&over_lock);
}

static void node_end(void *arg)
{
	struct node *n = arg;

	pthread_mutex_lock(&over_lock);
	if (!n->dead)
		cf_stat_io(n->op, *n->result, cf_now_ns() - n->start, n->mem, 0);
	n->next = over;
	over = n;
	pthread_mutex_unlock(&over_lock);
}

static unsigned int flags_of(CUstream native)
{
	struct registration *r;
	unsigned int flags;

	pthread_mutex_lock(&cf.lock);
	for (r = registrations; r && r->native != native; r = r->next)
		;
	flags = r ? r->flags : 0;
	pthread_mutex_unlock(&cf.lock);
	return flags;
}

/* With `order` held. */
static int stream_for(CUstream native, struct strait_device *dev, struct strait_stream **ret)
{
	struct stream *s;
	int rc;

	for (s = streams; s && (s->native != native || s->dev != dev); s = s->next)
		;
	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s)
			return -ENOMEM;
		rc = strait_stream_import(dev, native, &s->stream);
		if (rc) {
			free(s);
			return rc;
		}
		s->native = native;
		s->dev = dev;
		s->next = streams;
		streams = s;
	}
	*ret = s->stream;
	return 0;
}

/* Takes the node over. */
static int enqueue(struct node *n, CUstream native)
{
	struct strait_stream_transfer t = {
		.size = sizeof(t),
		.op = n->op,
		.routes = cf.routes,
		.endpoint = n->file->ep,
		.region = n->mem->region,
		.endpoint_offset = &n->file_off,
		.region_offset = &n->buf_off,
		.length = &n->size,
		.result = n->result,
	};
	struct strait_stream *s;
	int rc;

	pthread_mutex_lock(&order);
	rc = stream_for(native, n->mem->dev, &s);
	if (!rc)
		rc = strait_stream_call(s, node_begin, n);
	if (rc) {
		pthread_mutex_unlock(&order);
		node_free(n);
		return rc;
	}
	/* From here on the stream has the node, whatever happens. */
	rc = strait_stream_transfer(s, &t);
	if (rc) {
		pthread_mutex_lock(&over_lock);
		n->dead = true;
		pthread_mutex_unlock(&over_lock);
	}
	if (strait_stream_call(s, node_end, n)) {
		strait_stream_wait(s, STRAIT_FOREVER);
		node_end(n);
	}
	pthread_mutex_unlock(&order);
	return rc;
}

/* Waits for earlier work on the stream, whichever device it is of; then the parameters are there too. */
static int run_on_host(struct node *n, const void *base, CUstream native)
{
	struct strait_device_info info;
	struct strait_stream *s;
	struct strait_device *dev;
	bool found = !native;
	ssize_t bytes;

	pthread_mutex_lock(&order);
	for (unsigned int i = 0; !strait_device_at(cf_context(), i, &dev); i++) {
		info = (struct strait_device_info){ .size = sizeof(info) };
		/* A handle of one provider means nothing to another. */
		if (strait_device_info(dev, &info) || (native && strcmp(info.provider, "cuda")) ||
		    stream_for(native, dev, &s))
			continue;
		strait_stream_wait(s, STRAIT_FOREVER);
		found = true;
	}
	pthread_mutex_unlock(&order);
	if (!found)
		return -EINVAL;
	n->delta = 0;
	node_fill(n);
	if ((int64_t)n->file_off < 0 || n->buf_off >= INT64_MAX || n->size > INT64_MAX)
		bytes = -EINVAL;
	else
		bytes = n->size ? cf_run(n->file, n->op, base, n->size, (off_t)n->file_off, (off_t)n->buf_off) : 0;
	*n->result = bytes;
	return 0;
}

static int transfer(CUfileHandle_t fh, uint32_t op, void *base, size_t *size, off_t *file_off, off_t *buf_off,
		    ssize_t *done, CUstream native)
{
	unsigned int flags = flags_of(native);
	struct node *n;
	int rc;

	cf_streams_reap();
	if (!fh || !base || !size || !file_off || !buf_off || !done)
		return CU_FILE_INVALID_VALUE;
	n = calloc(1, sizeof(*n));
	if (!n)
		return CU_FILE_NOMEM_ERROR;
	n->file = cf_file_get(fh);
	if (!n->file) {
		free(n);
		return CU_FILE_HANDLE_NOT_REGISTERED;
	}
	rc = cf_mem_get(base, 0, 0, CF_MEM_WHOLE | CF_MEM_FRESH, &n->mem, &n->delta);
	if (rc) {
		cf_file_put(n->file);
		free(n);
		return rc > 0 ? rc : cf_code(rc);
	}
	n->op = op;
	n->result = (int64_t *)done;
	n->file_off_at = (const uint64_t *)file_off;
	n->buf_off_at = (const uint64_t *)buf_off;
	n->size_at = (const uint64_t *)size;
	if (flags & CU_FILE_STREAM_FIXED_FILE_OFFSET) {
		n->file_off = (uint64_t)*file_off;
		n->file_off_at = NULL;
	}
	if (flags & CU_FILE_STREAM_FIXED_BUF_OFFSET) {
		n->buf_off = (uint64_t)*buf_off;
		n->buf_off_at = NULL;
	}
	if (flags & CU_FILE_STREAM_FIXED_FILE_SIZE) {
		n->size = *size;
		n->size_at = NULL;
	}
	if (n->mem->host) {
		rc = run_on_host(n, base, native);
		node_free(n);
	} else {
		rc = enqueue(n, native);
	}
	return rc == -EOPNOTSUPP ? CU_FILE_ASYNC_NOT_SUPPORTED : cf_code(rc);
}

CF_API CUfileError_t cuFileReadAsync(CUfileHandle_t fh, void *base, size_t *size, off_t *file_off, off_t *buf_off,
				     ssize_t *done, CUstream stream)
{
	return cf_error(transfer(fh, STRAIT_READ, base, size, file_off, buf_off, done, stream));
}

CF_API CUfileError_t cuFileWriteAsync(CUfileHandle_t fh, void *base, size_t *size, off_t *file_off, off_t *buf_off,
				      ssize_t *done, CUstream stream)
{
	return cf_error(transfer(fh, STRAIT_WRITE, base, size, file_off, buf_off, done, stream));
}

CF_API CUfileError_t cuFileStreamRegister(CUstream stream, unsigned int flags)
{
	struct registration *r, *new;
	int code = flags & ~ALL_FLAGS ? CU_FILE_INVALID_VALUE : cf_open_implicit();

	if (code)
		return cf_error(code);
	new = calloc(1, sizeof(*new));
	if (!new)
		return cf_error(CU_FILE_NOMEM_ERROR);
	new->native = stream;
	new->flags = flags;
	pthread_mutex_lock(&cf.lock);
	for (r = registrations; r && r->native != stream; r = r->next)
		;
	if (!r) {
		new->next = registrations;
		registrations = new;
	}
	pthread_mutex_unlock(&cf.lock);
	if (!r)
		return CF_OK;
	free(new);
	return cf_error(CU_FILE_INVALID_VALUE);
}

/* Takes what was imported for @native out of the list and waits for its work. */
static void close_native(CUstream native)
{
	struct stream *s, **at;

	pthread_mutex_lock(&order);
	for (at = &streams; *at;) {
		s = *at;
		if (s->native != native) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		strait_stream_close(s->stream);
		free(s);
	}
	pthread_mutex_unlock(&order);
	cf_streams_reap();
}

CF_API CUfileError_t cuFileStreamDeregister(CUstream stream)
{
	struct registration *r = NULL, **at;

	pthread_mutex_lock(&cf.lock);
	for (at = &registrations; *at && (*at)->native != stream; at = &(*at)->next)
		;
	if (*at) {
		r = *at;
		*at = r->next;
	}
	pthread_mutex_unlock(&cf.lock);
	if (!r)
		return cf_error(CU_FILE_INVALID_VALUE);
	free(r);
	close_native(stream);
	return CF_OK;
}

/*
 * Streams that were never registered may have been destroyed by the program since, and must not be
 * touched again: what Strait has of them stays.
 */
void cf_streams_close_all(void)
{
	struct registration *r;

	for (;;) {
		pthread_mutex_lock(&cf.lock);
		r = registrations;
		if (r)
			registrations = r->next;
		pthread_mutex_unlock(&cf.lock);
		if (!r)
			break;
		close_native(r->native);
		free(r);
	}
	close_native(NULL);
	pthread_mutex_lock(&order);
	while (streams) {
		struct stream *s = streams;

		streams = s->next;
		s->next = left;
		left = s;
	}
	pthread_mutex_unlock(&order);
	cf_streams_reap();
}
