/* SPDX-License-Identifier: MIT */
/* The same jobs through NVIDIA's libcufile: the one that CUFILE_LIBRARY names, or the one that is installed. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "common/cufile_library.h"

struct cf_error {
	int err, cu_err;
};

struct cf_descr {
	int type;
	union {
		int fd;
		void *handle;
	} handle;
	const void *ops;
};

struct cf_params {
	int mode;
	void *base;
	off_t file_offset, base_offset;
	size_t size;
	void *fh;
	int opcode;
	void *cookie;
};

struct cf_event {
	void *cookie;
	int status;
	size_t ret;
};

static struct {
	struct cf_error (*open)(void);
	struct cf_error (*handle_register)(void **, struct cf_descr *);
	void (*handle_deregister)(void *);
	struct cf_error (*buf_register)(const void *, size_t, int);
	struct cf_error (*buf_deregister)(const void *);
	ssize_t (*read)(void *, void *, size_t, off_t, off_t);
	ssize_t (*write)(void *, const void *, size_t, off_t, off_t);
	struct cf_error (*batch_setup)(void **, unsigned int);
	struct cf_error (*batch_submit)(void *, unsigned int, struct cf_params *, unsigned int);
	struct cf_error (*batch_status)(void *, unsigned int, unsigned int *, struct cf_event *, struct timespec *);
	void (*batch_destroy)(void *);
} cf;

static int register_fd(const char *path, int flags, int *fd, void **fh)
{
	struct cf_descr d = { .type = 1 };
	struct cf_error e;

	*fd = open(path, flags, 0600);
	if (*fd < 0)
		return -errno;
	d.handle.fd = *fd;
	e = cf.handle_register(fh, &d);
	if (e.err) {
		close(*fd);
		return e.err;
	}
	return 0;
}

int cufile_load(struct bench *b, char *why, size_t len)
{
	void *lib = cufile_library_open(b->cufile_path, sizeof(b->cufile_path), why, len), *fh;
	int fd, rc;

	if (!lib)
		return -ENOENT;
	*(void **)&cf.open = dlsym(lib, "cuFileDriverOpen");
	*(void **)&cf.handle_register = dlsym(lib, "cuFileHandleRegister");
	*(void **)&cf.handle_deregister = dlsym(lib, "cuFileHandleDeregister");
	*(void **)&cf.buf_register = dlsym(lib, "cuFileBufRegister");
	*(void **)&cf.buf_deregister = dlsym(lib, "cuFileBufDeregister");
	*(void **)&cf.read = dlsym(lib, "cuFileRead");
	*(void **)&cf.write = dlsym(lib, "cuFileWrite");
	*(void **)&cf.batch_setup = dlsym(lib, "cuFileBatchIOSetUp");
	*(void **)&cf.batch_submit = dlsym(lib, "cuFileBatchIOSubmit");
	*(void **)&cf.batch_status = dlsym(lib, "cuFileBatchIOGetStatus");
	*(void **)&cf.batch_destroy = dlsym(lib, "cuFileBatchIODestroy");
	if (!cf.open || !cf.batch_destroy || cf.open().err) {
		snprintf(why, len, "cuFileDriverOpen failed");
		return -EIO;
	}
	rc = register_fd(b->path, O_RDONLY, &fd, &fh);
	if (rc) {
		snprintf(why, len, "it refuses the file with error %d", rc);
		return -EIO;
	}
	cf.handle_deregister(fh);
	close(fd);
	cf.buf_register((void *)(uintptr_t)b->addr, b->length, 0);
	return 0;
}

struct part {
	struct bench *b;
	void *fh;
	bool write;
	uint64_t from, to;
	size_t block;
	int err;
};

static void *move_part(void *arg)
{
	struct part *p = arg;
	void *base = (void *)(uintptr_t)p->b->addr;

	cuda_attach();
	for (uint64_t off = p->from; off < p->to && !p->err; off += p->block) {
		size_t len = p->to - off < p->block ? p->to - off : p->block;
		ssize_t n = p->write ? cf.write(p->fh, base, len, (off_t)off, (off_t)off) :
				       cf.read(p->fh, base, len, (off_t)off, (off_t)off);

		if (n != (ssize_t)len)
			p->err = 1;
	}
	return NULL;
}

/* Transfers the whole file in blocks. The rate is 0 if that failed. */
static struct sample move(struct bench *b, const char *path, int flags, bool write, unsigned int threads, size_t block)
{
	double cpu, start, t;
	struct part p[16];
	pthread_t th[16];
	void *fh;
	int fd, err = 0;

	if (register_fd(path, flags, &fd, &fh))
		return (struct sample){ 0 };
	cpu = cpu_seconds();
	start = now();
	for (unsigned int i = 0; i < threads; i++) {
		p[i] = (struct part){ b, fh, write, b->length / threads * i, b->length / threads * (i + 1), block, 0 };
		pthread_create(&th[i], NULL, move_part, &p[i]);
	}
	for (unsigned int i = 0; i < threads; i++) {
		pthread_join(th[i], NULL);
		err |= p[i].err;
	}
	t = now() - start;
	cpu = (cpu_seconds() - cpu) / t;
	cf.handle_deregister(fh);
	close(fd);
	return err ? (struct sample){ 0 } : (struct sample){ (double)b->length / t / GB, cpu, 0 };
}

struct sample cufile_read(struct bench *b, bool direct, unsigned int threads)
{
	struct sample best = { 0 };

	for (size_t block = 16u * MIB; block <= 1024u * MIB; block *= 64) {
		if (direct)
			plain_drop_cache(b->path);
		keep_best(&best, move(b, b->path, O_RDONLY | (direct ? O_DIRECT : 0), false, threads, block));
	}
	return best;
}

struct sample cufile_write(struct bench *b, bool direct)
{
	struct sample best = { 0 };

	for (unsigned int threads = 1; threads <= 4; threads += 3)
		keep_best(&best, move(b, b->written, O_RDWR | (direct ? O_DIRECT : 0), true, threads, 16u * MIB));
	return best;
}

struct sample cufile_random(struct bench *b, size_t block)
{
	const int ops = 4000;
	uint64_t seed = 7;
	double start;
	void *fh;
	int fd;

	if (register_fd(b->path, O_RDONLY, &fd, &fh))
		return (struct sample){ 0 };
	start = now();
	for (int i = 0; i < ops; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		cf.read(fh, (void *)(uintptr_t)b->addr, block, (off_t)((seed >> 20) % (b->length / block) * block), 0);
	}
	start = (now() - start) / ops;
	cf.handle_deregister(fh);
	close(fd);
	return (struct sample){ 1 / start, 0, start * 1e6 };
}

struct sample cufile_batch(struct bench *b)
{
	enum { N = 128 };
	const int rounds = 100;
	struct cf_params p[N];
	struct cf_event ev[N];
	uint64_t seed = 11;
	void *fh, *batch;
	double start;
	int fd;

	if (register_fd(b->path, O_RDONLY, &fd, &fh))
		return (struct sample){ 0 };
	if (cf.batch_setup(&batch, N).err)
		return (struct sample){ 0 };
	start = now();
	for (int r = 0; r < rounds; r++) {
		unsigned int done = 0;

		for (int i = 0; i < N; i++) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			p[i] = (struct cf_params){ 1,
						   (void *)(uintptr_t)b->addr,
						   (off_t)((seed >> 20) % (b->length / 4096) * 4096),
						   i * 4096,
						   4096,
						   fh,
						   0,
						   NULL };
		}
		if (cf.batch_submit(batch, N, p, 0).err)
			return (struct sample){ 0 };
		while (done < N) {
			unsigned int n = N;
			struct timespec ts = { 1, 0 };

			if (cf.batch_status(batch, 1, &n, ev, &ts).err)
				return (struct sample){ 0 };
			done += n;
		}
	}
	start = now() - start;
	cf.batch_destroy(batch);
	cf.handle_deregister(fh);
	close(fd);
	return (struct sample){ rounds * (double)N / start, 0, 0 };
}
