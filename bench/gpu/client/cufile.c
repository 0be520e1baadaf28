/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STRAIT_CUFILE_NO_CUDA_H
#include <cufile.h>

#include "client.h"

#define CALLS(X)                                                                                                       \
	X(cuFileDriverOpen)                                                                                            \
	X(cuFileHandleRegister)                                                                                        \
	X(cuFileHandleDeregister)                                                                                      \
	X(cuFileBufRegister)                                                                                           \
	X(cuFileBufDeregister)                                                                                         \
	X(cuFileRead)                                                                                                  \
	X(cuFileWrite)                                                                                                 \
	X(cuFileBatchIOSetUp)                                                                                          \
	X(cuFileBatchIOSubmit)                                                                                         \
	X(cuFileBatchIOGetStatus)                                                                                      \
	X(cuFileBatchIODestroy)                                                                                        \
	X(cuFileReadAsync)                                                                                             \
	X(cuFileStreamRegister)                                                                                        \
	X(cuFileStreamDeregister)

struct handle {
	CUfileHandle_t fh;
	int fd;
};

static struct {
#define POINTER(name) __typeof__(name) *name;
	CALLS(POINTER)
	struct handle *file; /* the one that is selected */
	bool registered;
} cf;

static void handle_close(void *handle)
{
	struct handle *h = handle;

	cf.cuFileHandleDeregister(h->fh);
	close(h->fd);
	free(h);
}

static void *handle_open(struct client *c, const char *path, int flags)
{
	CUfileDescr_t d = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD };
	struct handle *h = calloc(1, sizeof(*h));
	CUfileError_t e;

	if (!h)
		return say("memory", ENOMEM), NULL;
	h->fd = d.handle.fd = open(path, flags);
	if (h->fd < 0) {
		say(path, errno);
		free(h);
		return NULL;
	}
	e = cf.cuFileHandleRegister(&h->fh, &d);
	if (!e.err)
		return h;
	say("cuFileHandleRegister", e.err);
	close(h->fd);
	free(h);
	return NULL;
}

static void close_file(void)
{
	if (cf.file)
		handle_close(cf.file);
	cf.file = NULL;
}

static int use_file(struct client *c, const char *path, int flags)
{
	close_file();
	cf.file = handle_open(c, path, flags);
	return cf.file ? 0 : 1;
}

static ssize_t move(struct client *c, void *handle, bool write, uint64_t off, uint64_t at, size_t len)
{
	struct handle *h = handle;
	ssize_t n = write ? cf.cuFileWrite(h->fh, c->memory, len, (off_t)off, (off_t)at) :
			    cf.cuFileRead(h->fh, c->memory, len, (off_t)off, (off_t)at);

	if (n < 0)
		say(write ? "cuFileWrite" : "cuFileRead", n == -1 ? errno : (int)-n);
	return n;
}

static int register_memory(struct client *c, bool on)
{
	CUfileError_t e = { 0 };

	if (on == cf.registered)
		return 0;
	e = on ? cf.cuFileBufRegister(c->memory, c->length, 0) : cf.cuFileBufDeregister(c->memory);
	if (!e.err)
		cf.registered = on;
	return e.err ? say("cuFileBufRegister", e.err) : 0;
}

static int backend_open(struct client *c)
{
	void *lib = dlopen("libcufile.so.0", RTLD_NOW);
	CUfileError_t (*get_version)(int *);
	CUfileError_t e;
	Dl_info info;
	int v = 0;

	if (!lib) {
		fprintf(stderr, "client: %s\n", dlerror());
		return 1;
	}
#define LOOK_UP(name) *(void **)&cf.name = symbol(lib, #name);
	CALLS(LOOK_UP)
	*(void **)&get_version = dlsym(lib, "cuFileGetVersion");
	if (get_version)
		get_version(&v);
	snprintf(c->version, sizeof(c->version), "libcufile %d.%d", v / 1000, v % 1000 / 10);
	if (dladdr(*(void **)&cf.cuFileRead, &info))
		fprintf(stderr, "client: %s, %s\n", c->version, info.dli_fname);
	e = cf.cuFileDriverOpen();
	if (e.err)
		return say("cuFileDriverOpen", e.err);
	if (use_file(c, c->path, O_RDONLY))
		return 1;
	register_memory(c, true); /* goes on without */
	return 0;
}

static void backend_close(struct client *c)
{
	register_memory(c, false);
	close_file();
}

static ssize_t read_some(struct client *c, uint64_t off, uint64_t at, size_t len)
{
	return move(c, cf.file, false, off, at, len);
}

static ssize_t write_some(struct client *c, uint64_t off, uint64_t at, size_t len)
{
	return move(c, cf.file, true, off, at, len);
}

static void *batch_open(struct client *c, unsigned int n)
{
	CUfileBatchHandle_t b = NULL;
	CUfileError_t e = cf.cuFileBatchIOSetUp(&b, n);

	if (e.err)
		say("cuFileBatchIOSetUp", e.err);
	return e.err ? NULL : b;
}

static int batch_run(struct client *c, void *batch, struct request *r, unsigned int n)
{
	CUfileIOParams_t p[BATCH_MAX];
	CUfileIOEvents_t ev[BATCH_MAX];
	unsigned int done = 0;
	CUfileError_t e;

	for (unsigned int i = 0; i < n; i++)
		p[i] = (CUfileIOParams_t){ .mode = CUFILE_BATCH,
					   .u.batch = { c->memory, (off_t)r[i].off, (off_t)r[i].at, r[i].len },
					   .fh = r[i].handle ? ((struct handle *)r[i].handle)->fh : cf.file->fh,
					   .opcode = CUFILE_READ,
					   .cookie = &r[i] };
	e = cf.cuFileBatchIOSubmit(batch, n, p, 0);
	if (e.err)
		return say("cuFileBatchIOSubmit", e.err);
	while (done < n) {
		struct timespec limit = { .tv_sec = 10 };
		unsigned int nr = n - done;

		e = cf.cuFileBatchIOGetStatus(batch, nr, &nr, ev, &limit);
		if (e.err || !nr)
			return say("cuFileBatchIOGetStatus", e.err);
		for (unsigned int i = 0; i < nr; i++)
			((struct request *)ev[i].cookie)->done = (ssize_t)ev[i].ret;
		done += nr;
	}
	return 0;
}

static void batch_close(void *batch)
{
	cf.cuFileBatchIODestroy(batch);
}

static int stream_open(struct client *c, void *native, bool fixed)
{
	CUfileError_t e = cf.cuFileStreamRegister((CUstream)native, fixed ? 0xf : 0);

	return e.err ? say("cuFileStreamRegister", e.err) : 0;
}

static int stream_read(struct client *c, void *native, struct request *r)
{
	CUfileError_t e = cf.cuFileReadAsync(cf.file->fh, c->memory, &r->len, (off_t *)&r->off, (off_t *)&r->at,
					     &r->done, (CUstream)native);

	return e.err ? say("cuFileReadAsync", e.err) : 0;
}

static void stream_close(struct client *c, void *native)
{
	cf.cuFileStreamDeregister((CUstream)native);
}

const struct backend backend_cufile = {
	.name = "cufile",
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
