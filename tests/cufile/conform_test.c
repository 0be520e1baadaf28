/* SPDX-License-Identifier: MIT */
/* cuFile's behaviour on host memory and on the emulated device. */
#include <strait/interpose.h>

#include "cufile/conform/memory.h"

static const struct memory memories[] = {
	{ "host", MEM_HOST, false },
	{ "host-registered", MEM_HOST, true },
	{ "emu", MEM_EMU, false },
	{ "emu-registered", MEM_EMU, true },
};

static void memory_begin(const struct memory *m)
{
}

static void memory_end(const struct memory *m)
{
}

/* The emulated device of the library's context, which is opened if it is not. */
static struct strait_device *emulated(struct strait_context **ctx)
{
	char any[16];

	if (!cuFileUseCount()) {
		OK(cuFileBufRegister(any, sizeof(any), 0));
		OK(cuFileBufDeregister(any));
	}
	ASSERT_OK(strait_context_shared(ctx));
	return device_named(*ctx, "emu:0");
}

static void *memory_alloc(const struct memory *m, size_t len)
{
	struct strait_context *ctx;
	void *p = NULL;

	if (m->kind == MEM_HOST)
		return calloc(1, len);
	ASSERT_OK(strait_emu_malloc(emulated(&ctx), len, &p));
	strait_context_close(ctx);
	return p;
}

static void memory_free(const struct memory *m, void *p)
{
	struct strait_context *ctx;

	if (m->kind == MEM_HOST) {
		free(p);
		return;
	}
	ASSERT_OK(strait_emu_free(emulated(&ctx), p));
	strait_context_close(ctx);
}

/* The CPU accesses the emulated device's memory at the same address. */
static void memory_put(const struct memory *m, void *p, const void *from, size_t len)
{
	memcpy(p, from, len);
}

static void memory_get(const struct memory *m, void *to, const void *p, size_t len)
{
	memcpy(to, p, len);
}

static CUstream stream_new(const struct memory *m)
{
	return NULL;
}

static void stream_free(const struct memory *m, CUstream s)
{
}

/* Closing a stream waits for its work, so one stream is used for as long as the context is the same. */
static struct strait_stream *default_stream(void)
{
	static struct strait_context *of;
	static struct strait_stream *s;
	struct strait_context *ctx;
	struct strait_device *dev = emulated(&ctx);

	if (of != ctx) {
		of = ctx;
		ASSERT_OK(strait_stream_import(dev, NULL, &s));
	}
	strait_context_close(ctx);
	return s;
}

static void stream_sync(const struct memory *m, CUstream s)
{
	ASSERT_OK(strait_stream_wait(default_stream(), STRAIT_FOREVER));
}

static void stream_call(const struct memory *m, CUstream s, void (*fn)(void *arg), void *arg)
{
	ASSERT_OK(strait_stream_call(default_stream(), fn, arg));
}

#include "cufile/conform/all.h"
