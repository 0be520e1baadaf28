/* SPDX-License-Identifier: MIT */
#ifndef CONFORM_MEMORY_H
#define CONFORM_MEMORY_H

/*
 * What the tests of cuFile's behaviour run on: the same bodies over host memory, the emulated device, and CUDA's kinds
 * of memory on the fake driver and on a real one. A program defines `memories` and the functions below, then includes
 * all.h. Nothing here uses the library's internals.
 */

#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cufile.h>

#include "functional/common.h"

#define OK(call) ASSERT_EQ((int)(call).err, CU_FILE_SUCCESS)
#define ERR(call, code) ASSERT_EQ((int)(call).err, code)
/* A read or write that fails with -1 and this errno. */
#define FAILS(call, code)                                                                                              \
	do {                                                                                                           \
		errno = 0;                                                                                             \
		ASSERT_EQ(call, -1);                                                                                   \
		ASSERT_EQ(errno, code);                                                                                \
	} while (0)

enum memory_kind { MEM_HOST, MEM_EMU, MEM_CUDA, MEM_MANAGED, MEM_PINNED };

struct memory {
	const char *name;
	enum memory_kind kind;
	bool registered;
};

/* Lengths of allocations are known: past the end is an error. */
static inline bool bounded(const struct memory *m)
{
	return m->kind != MEM_HOST;
}

/* Prepares the driver for this kind of memory. */
static void memory_begin(const struct memory *m);
static void memory_end(const struct memory *m);
static void *memory_alloc(const struct memory *m, size_t len);
static void memory_free(const struct memory *m, void *p);
static void memory_put(const struct memory *m, void *p, const void *from, size_t len);
static void memory_get(const struct memory *m, void *to, const void *p, size_t len);
/* A stream on which transfers of this memory are in order; some kinds have only the default one. */
static CUstream stream_new(const struct memory *m);
static void stream_free(const struct memory *m, CUstream s);
static void stream_sync(const struct memory *m, CUstream s);
static void stream_call(const struct memory *m, CUstream s, void (*fn)(void *arg), void *arg);

/* A buffer as the variant wants it. */
struct buf {
	const struct memory *m;
	char *p;
	size_t len;
};

static inline struct buf buf_new(const struct memory *m, size_t len)
{
	struct buf b = { m, memory_alloc(m, len), len };

	ASSERT_TRUE(b.p != NULL);
	if (m->registered)
		OK(cuFileBufRegister(b.p, len, 0));
	return b;
}

static inline void buf_free(struct buf *b)
{
	if (b->m->registered)
		OK(cuFileBufDeregister(b->p));
	memory_free(b->m, b->p);
}

static inline void buf_fill(const struct buf *b, unsigned char value)
{
	char *tmp = malloc(b->len);

	memset(tmp, value, b->len);
	memory_put(b->m, b->p, tmp, b->len);
	free(tmp);
}

static inline void buf_expect(const struct buf *b, size_t off, const void *want, size_t len)
{
	char *tmp = malloc(len ? len : 1);

	memory_get(b->m, tmp, b->p + off, len);
	ASSERT_MEMEQ(tmp, want, len);
	free(tmp);
}

/* All of [off, off + len) has that value. */
static inline void buf_expect_byte(const struct buf *b, size_t off, unsigned char value, size_t len)
{
	char *want = malloc(len ? len : 1);

	memset(want, value, len);
	buf_expect(b, off, want, len);
	free(want);
}

static inline CUfileError_t try_register(int fd, CUfileHandle_t *fh)
{
	CUfileDescr_t d = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd };

	return cuFileHandleRegister(fh, &d);
}

struct handle {
	int fd;
	CUfileHandle_t fh;
};

static inline struct handle handle_open(const char *path, int flags)
{
	struct handle h = { .fd = open(path, flags | O_CLOEXEC, 0644) };

	ASSERT_GE(h.fd, 0);
	OK(try_register(h.fd, &h.fh));
	return h;
}

static inline void handle_close(struct handle *h)
{
	cuFileHandleDeregister(h->fh);
	close(h->fd);
}

#endif
