/* SPDX-License-Identifier: MIT */
/* Strait's own interface. libstrait is opened at run time, so the program also runs where it is not installed. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strait/strait.h>

#include "client.h"

#define CALLS(X)                                                                                                       \
	X(strait_version)                                                                                              \
	X(strait_context_open)                                                                                         \
	X(strait_context_close)                                                                                        \
	X(strait_device_find)                                                                                          \
	X(strait_file_open)                                                                                            \
	X(strait_endpoint_close)                                                                                       \
	X(strait_region_import)                                                                                        \
	X(strait_region_info)                                                                                          \
	X(strait_region_close)                                                                                         \
	X(strait_read)                                                                                                 \
	X(strait_write)                                                                                                \
	X(strait_queue_open)                                                                                           \
	X(strait_queue_submit)                                                                                         \
	X(strait_queue_wait)                                                                                           \
	X(strait_queue_close)                                                                                          \
	X(strait_stream_import)                                                                                        \
	X(strait_stream_transfer)                                                                                      \
	X(strait_stream_close)

static struct {
#define POINTER(name) __typeof__(name) *name;
	CALLS(POINTER)
	struct strait_context *ctx;
	struct strait_endpoint *ep;
	struct strait_region *region;
	struct strait_stream *stream;
} st;

static void *handle_open(struct client *c, const char *path, int flags)
{
	uint32_t how = flags & O_DIRECT ? STRAIT_FILE_DIRECT : 0;
	struct strait_endpoint *ep;
	int rc = st.strait_file_open(st.ctx, path, flags & ~O_DIRECT, 0, how, &ep);

	return rc ? say(path, -rc), NULL : ep;
}

static void handle_close(void *handle)
{
	st.strait_endpoint_close(handle);
}

static int use_file(struct client *c, const char *path, int flags)
{
	if (st.ep)
		st.strait_endpoint_close(st.ep);
	st.ep = handle_open(c, path, flags);
	return st.ep ? 0 : 1;
}

static ssize_t move(struct client *c, void *handle, bool write, uint64_t off, uint64_t at, size_t len)
{
	return write ? st.strait_write(handle, off, st.region, at, len) :
		       st.strait_read(handle, off, st.region, at, len);
}

/* Its memory is always a region. */
static int register_memory(struct client *c, bool on)
{
	return !on;
}

static int backend_open(struct client *c)
{
	void *lib = dlopen("libstrait.so.0", RTLD_NOW);
	struct strait_device *dev = NULL; /* the GPU's memory is found by its address */
	int rc;

	if (!lib) {
		fprintf(stderr, "client: %s\n", dlerror());
		return 1;
	}
#define LOOK_UP(name) *(void **)&st.name = symbol(lib, #name);
	CALLS(LOOK_UP)
	snprintf(c->version, sizeof(c->version), "libstrait %s", st.strait_version());
	rc = st.strait_context_open(NULL, &st.ctx);
	if (!rc && use_file(c, c->path, O_RDONLY))
		return 1;
	if (!rc && !c->cuda)
		rc = st.strait_device_find(st.ctx, "host", &dev);
	if (!rc)
		rc = st.strait_region_import(st.ctx, dev, c->memory, c->length, &st.region);
	return rc ? say("strait", -rc) : 0;
}

static void backend_close(struct client *c)
{
	st.strait_region_close(st.region);
	if (st.ep)
		st.strait_endpoint_close(st.ep);
	st.strait_context_close(st.ctx);
}

static ssize_t read_some(struct client *c, uint64_t off, uint64_t at, size_t len)
{
	return st.strait_read(st.ep, off, st.region, at, len);
}

static ssize_t write_some(struct client *c, uint64_t off, uint64_t at, size_t len)
{
	return st.strait_write(st.ep, off, st.region, at, len);
}

static void *batch_open(struct client *c, unsigned int n)
{
	struct strait_queue_opts o = { .size = sizeof(o), .entries = n };
	struct strait_queue *q;

	return st.strait_queue_open(st.ctx, &o, &q) ? NULL : q;
}

static int batch_run(struct client *c, void *batch, struct request *r, unsigned int n)
{
	struct strait_transfer t[BATCH_MAX];
	struct strait_result res[BATCH_MAX];
	int rc;

	for (unsigned int i = 0; i < n; i++)
		t[i] = (struct strait_transfer){ .op = STRAIT_READ,
						 .endpoint = r[i].handle ? r[i].handle : st.ep,
						 .region = st.region,
						 .endpoint_offset = r[i].off,
						 .region_offset = r[i].at,
						 .length = r[i].len,
						 .user_data = i };
	rc = st.strait_queue_submit(batch, t, n);
	if (rc)
		return say("strait_queue_submit", -rc);
	rc = st.strait_queue_wait(batch, n, n, STRAIT_FOREVER, res);
	for (int i = 0; i < rc; i++)
		r[res[i].user_data].done = res[i].status ? res[i].status : (ssize_t)res[i].bytes;
	return rc == (int)n ? 0 : 1;
}

static void batch_close(void *batch)
{
	st.strait_queue_close(batch);
}

static int stream_open(struct client *c, void *native, bool fixed)
{
	struct strait_region_info info = { .size = sizeof(info) };
	int rc = st.strait_region_info(st.region, &info);

	if (!rc)
		rc = st.strait_stream_import(info.device, native, &st.stream);
	return rc ? say("strait_stream_import", -rc) : 0;
}

static int stream_read(struct client *c, void *native, struct request *r)
{
	struct strait_stream_transfer t = { .size = sizeof(t),
					    .op = STRAIT_READ,
					    .endpoint = st.ep,
					    .region = st.region,
					    .endpoint_offset = &r->off,
					    .region_offset = &r->at,
					    .length = &r->len,
					    .result = (int64_t *)&r->done };
	int rc = st.strait_stream_transfer(st.stream, &t);

	return rc ? say("strait_stream_transfer", -rc) : 0;
}

static void stream_close(struct client *c, void *native)
{
	st.strait_stream_close(st.stream);
}

const struct backend backend_strait = {
	.name = "strait",
	.open = backend_open,
	.close = backend_close,
	.file = use_file,
	.read = read_some,
	.write = write_some,
	.handle_open = handle_open,
	.move = move,
	.handle_close = handle_close,
	.register_memory = register_memory,
	.batch_open = batch_open,
	.batch_run = batch_run,
	.batch_close = batch_close,
	.stream_open = stream_open,
	.stream_read = stream_read,
	.stream_close = stream_close,
};
