/* SPDX-License-Identifier: MIT */
/* Starting the driver, devices, contexts, failures on request. */
#include <stdarg.h>
#include <stdatomic.h>
#include <unistd.h>

#include "fakecuda/internal.h"

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_changed = PTHREAD_COND_INITIALIZER;

struct fake_machine fake_machine = { .devices = 1, .driver_version = 13000, .memory = MIB(256) };
struct device devices[MAX_DEVICES];
struct list contexts = LIST_INIT(contexts);
struct fake_usage usage;

static atomic_bool started;
static unsigned int violations, flushes;
static __thread cu_context stack[MAX_STACK];
static __thread unsigned int depth;
static __thread int capture_mode;

static struct {
	const char *symbol;
	unsigned int nth, calls;
	cu_result result;
	bool failed;
	char call[64];
} fault;

/* For programs that were not written for the fake. */
__attribute__((constructor)) static void from_environment(void)
{
	const char *text = getenv("FAKECUDA_MEMORY");

	if (text)
		fake_machine.memory = strtoull(text, NULL, 10);
}

void violation(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fprintf(stderr, "fake libcuda: ");
	vfprintf(stderr, fmt, args);
	fprintf(stderr, "\n");
	va_end(args);
	__atomic_add_fetch(&violations, 1, __ATOMIC_RELAXED);
}

unsigned int fake_violations(void)
{
	return __atomic_load_n(&violations, __ATOMIC_RELAXED);
}

static pthread_mutex_t fault_lock = PTHREAD_MUTEX_INITIALIZER;

void fake_fail(const char *symbol, unsigned int nth, cu_result result)
{
	pthread_mutex_lock(&fault_lock);
	fault.symbol = symbol;
	fault.nth = nth;
	fault.result = result;
	fault.calls = 0;
	fault.failed = false;
	pthread_mutex_unlock(&fault_lock);
}

unsigned int fake_calls(void)
{
	unsigned int n;

	pthread_mutex_lock(&fault_lock);
	n = fault.calls;
	pthread_mutex_unlock(&fault_lock);
	return n;
}

bool fake_failed(void)
{
	bool yes;

	pthread_mutex_lock(&fault_lock);
	yes = fault.failed;
	pthread_mutex_unlock(&fault_lock);
	return yes;
}

const char *fake_failed_call(void)
{
	return fault.call;
}

/* Does "cuMemAlloc" name cuMemAlloc_v2? */
static bool names(const char *symbol, const char *call)
{
	size_t len = strlen(symbol);

	return !strncmp(symbol, call, len) && (!call[len] || !strcmp(call + len, "_v2"));
}

/* Results about a context or pointer that a driver returns only if they are true, and that then stay true. */
static bool would_lie(const char *call)
{
	return names("cuCtxPushCurrent", call) ||
	       (names("cuPointerGetAttribute", call) &&
		(fault.result == CU_INVALID_VALUE || fault.result == CU_CONTEXT_IS_DESTROYED));
}

pthread_mutex_t fake_loading = PTHREAD_MUTEX_INITIALIZER;

cu_result inject(const char *call)
{
	cu_result r = CU_OK;

	pthread_mutex_lock(&fake_loading);
	pthread_mutex_unlock(&fake_loading);
	pthread_mutex_lock(&fault_lock);
	if (fault.symbol ? names(fault.symbol, call) : !would_lie(call)) {
		fault.calls++;
		if (fault.nth && fault.calls == fault.nth) {
			fault.failed = true;
			snprintf(fault.call, sizeof(fault.call), "%s", call);
			r = fault.result;
		}
	}
	pthread_mutex_unlock(&fault_lock);
	return r;
}

cu_result cuGetProcAddress_v2(const char *symbol, void **fn, int version, uint64_t flags, int *status)
{
	static const struct {
		const char *name;
		void *fn;
	} table[] = {
#define FAKE_CALL(name, args) { #name, (void *)name },
		CUDA_ALL(FAKE_CALL)
#undef FAKE_CALL
	};
	bool missing = (fake_machine.no_wait_value &&
			(!strcmp(symbol, "cuStreamWaitValue32") || !strcmp(symbol, "cuStreamWriteValue32"))) ||
		       (fake_machine.no_handle_retain && !strcmp(symbol, "cuMemRetainAllocationHandle")) ||
		       version > fake_machine.driver_version;

	(void)flags;
	*fn = NULL;
	for (size_t i = 0; i < ARRAY_SIZE(table) && !missing; i++)
		if (names(symbol, table[i].name))
			*fn = table[i].fn;
	*status = *fn ? 0 : 1;
	return *fn ? CU_OK : CU_NOT_FOUND;
}

cu_result cuInit(unsigned int flags)
{
	if (flags)
		return CU_INVALID_VALUE;
	MAY_FAIL();
	if (fake_machine.in_init)
		fake_machine.in_init();
	if (!fake_machine.devices)
		return CU_NO_DEVICE;
	started = true;
	return CU_OK;
}

cu_result cuGetErrorName(cu_result r, const char **name)
{
	switch (r) {
	case CU_OUT_OF_MEMORY:
		*name = "CUDA_ERROR_OUT_OF_MEMORY";
		return CU_OK;
	case CU_NO_DEVICE:
		*name = "CUDA_ERROR_NO_DEVICE";
		return CU_OK;
	case CU_ILLEGAL_ADDRESS:
		*name = "CUDA_ERROR_ILLEGAL_ADDRESS";
		return CU_OK;
	default:
		*name = NULL;
		return CU_INVALID_VALUE;
	}
}

cu_result cuDeviceGetCount(int *n)
{
	MAY_FAIL();
	if (!started)
		return CU_NOT_INITIALIZED;
	*n = fake_machine.devices;
	return CU_OK;
}

cu_result cuDeviceGet(cu_device *dev, int ordinal)
{
	MAY_FAIL();
	if (ordinal < 0 || ordinal >= fake_machine.devices)
		return CU_INVALID_DEVICE;
	*dev = ordinal;
	return CU_OK;
}

cu_result cuDeviceGetName(char *name, int len, cu_device dev)
{
	MAY_FAIL();
	snprintf(name, (size_t)len, "Fake GPU %d", dev);
	return CU_OK;
}

/* Only the cuFile interface asks for it, by its full name. */
__attribute__((visibility("default"))) cu_result cuDeviceGetUuid_v2(char *uuid, cu_device dev);
cu_result cuDeviceGetUuid_v2(char *uuid, cu_device dev)
{
	memcpy(uuid, "fake GPU number ", 16);
	uuid[15] = (char)('0' + dev);
	return CU_OK;
}

cu_result cuDeviceTotalMem_v2(size_t *bytes, cu_device dev)
{
	(void)dev;
	MAY_FAIL();
	*bytes = fake_machine.memory;
	return CU_OK;
}

cu_result cuDeviceGetAttribute(int *value, int attribute, cu_device dev)
{
	MAY_FAIL();
	switch (attribute) {
	case CU_DEV_PCI_DOMAIN:
		*value = 0;
		return CU_OK;
	case CU_DEV_PCI_BUS:
		*value = 0x1a + dev;
		return CU_OK;
	case CU_DEV_PCI_DEVICE:
		*value = 0;
		return CU_OK;
	case CU_DEV_DMABUF:
		*value = !fake_machine.no_dmabuf;
		return CU_OK;
	case CU_DEV_READ_ONLY_HOST_REGISTER:
		*value = !fake_machine.no_read_only;
		return CU_OK;
	case CU_DEV_CONCURRENT_MANAGED:
	case CU_DEV_RDMA_FLUSH_OPTIONS:
		*value = 1;
		return CU_OK;
	case CU_DEV_RDMA_WRITES_ORDERING:
		*value = 0;
		return CU_OK;
	default:
		return CU_INVALID_VALUE;
	}
}

unsigned int fake_depth(void)
{
	return depth;
}

int fake_capture_mode(void)
{
	return capture_mode;
}

cu_context current_or_null(void)
{
	return depth ? stack[depth - 1] : NULL;
}

cu_result current(cu_context *ret)
{
	cu_context ctx = current_or_null();

	if (!ctx)
		return CU_INVALID_CONTEXT;
	if (!ctx->alive)
		return CU_CONTEXT_IS_DESTROYED;
	*ret = ctx;
	return ctx->sticky;
}

bool context_known(cu_context ctx)
{
	for (int i = 0; i < MAX_DEVICES; i++)
		if (ctx == &devices[i].primary)
			return true;
	list_for_each(it, &contexts)
		if (ctx == list_entry(it, struct cu_context_st, node))
			return true;
	return false;
}

cu_result cuDevicePrimaryCtxRetain(cu_context *ctx, cu_device dev)
{
	struct cu_context_st *p = &devices[dev].primary;

	MAY_FAIL();
	pthread_mutex_lock(&fake_lock);
	p->primary = true;
	p->device = dev;
	p->alive = true;
	devices[dev].primary_refs++;
	usage.primary_refs++;
	pthread_mutex_unlock(&fake_lock);
	*ctx = p;
	return CU_OK;
}

/* The lock is held. All objects of the context are destroyed. */
static void context_gone(cu_context ctx)
{
	ctx->alive = false;
	ctx->sticky = CU_OK;
	pthread_cond_broadcast(&fake_changed);
	streams_context_gone(ctx);
	modules_context_gone(ctx);
	memory_context_gone(ctx);
}

cu_result cuDevicePrimaryCtxRelease_v2(cu_device dev)
{
	cu_result r = inject(__func__);

	pthread_mutex_lock(&fake_lock);
	if (!devices[dev].primary_refs) {
		violation("a primary context is released that was not retained");
		r = CU_INVALID_CONTEXT;
	} else {
		usage.primary_refs--;
		if (!--devices[dev].primary_refs && devices[dev].primary.alive)
			context_gone(&devices[dev].primary);
	}
	pthread_mutex_unlock(&fake_lock);
	return r;
}

/* The real driver takes longer still to destroy a context. */
#define DESTROY_US 50

cu_result cuDevicePrimaryCtxReset_v2(cu_device dev)
{
	usleep(DESTROY_US);
	pthread_mutex_lock(&fake_lock);
	if (devices[dev].primary.alive)
		context_gone(&devices[dev].primary);
	pthread_mutex_unlock(&fake_lock);
	return CU_OK;
}

cu_result cuDevicePrimaryCtxGetState(cu_device dev, unsigned int *flags, int *active)
{
	MAY_FAIL();
	pthread_mutex_lock(&fake_lock);
	*flags = 0;
	*active = devices[dev].primary.alive;
	pthread_mutex_unlock(&fake_lock);
	return CU_OK;
}

cu_result cuCtxCreate_v2(cu_context *ctx, unsigned int flags, cu_device dev)
{
	struct cu_context_st *c = calloc(1, sizeof(*c));

	(void)flags;
	c->device = dev;
	c->alive = true;
	pthread_mutex_lock(&fake_lock);
	list_add_tail(&contexts, &c->node);
	usage.contexts++;
	pthread_mutex_unlock(&fake_lock);
	*ctx = c;
	stack[depth++] = c;
	return CU_OK;
}

cu_result cuCtxDestroy_v2(cu_context ctx)
{
	usleep(DESTROY_US);
	pthread_mutex_lock(&fake_lock);
	if (!context_known(ctx) || ctx->primary || !ctx->alive) {
		pthread_mutex_unlock(&fake_lock);
		return CU_INVALID_CONTEXT;
	}
	/* As the real driver does. */
	streams_wait(NULL, ctx->device);
	context_gone(ctx);
	usage.contexts--;
	pthread_mutex_unlock(&fake_lock);
	if (depth && stack[depth - 1] == ctx)
		depth--;
	return CU_OK;
}

cu_result cuCtxPushCurrent_v2(cu_context ctx)
{
	cu_result r = CU_OK;

	MAY_FAIL();
	pthread_mutex_lock(&fake_lock);
	if (!context_known(ctx)) {
		violation("%p is pushed, which is no context", (void *)ctx);
		r = CU_INVALID_CONTEXT;
	} else if (!ctx->alive && !ctx->primary) {
		/* A primary context that was reset can be pushed; the calls made in it fail. */
		violation("a context is pushed that was destroyed");
		r = CU_CONTEXT_IS_DESTROYED;
	}
	pthread_mutex_unlock(&fake_lock);
	if (!r && depth == MAX_STACK) {
		violation("too many contexts are pushed");
		r = CU_OUT_OF_MEMORY;
	}
	if (!r)
		stack[depth++] = ctx;
	return r;
}

cu_result cuCtxPopCurrent_v2(cu_context *ctx)
{
	if (!depth) {
		violation("a context is popped and there is none");
		return CU_INVALID_CONTEXT;
	}
	*ctx = stack[--depth];
	return CU_OK;
}

cu_result cuCtxSetCurrent(cu_context ctx)
{
	if (depth)
		depth--;
	if (ctx)
		stack[depth++] = ctx;
	return CU_OK;
}

cu_result cuCtxGetCurrent(cu_context *ctx)
{
	MAY_FAIL();
	*ctx = current_or_null();
	return CU_OK;
}

cu_result cuCtxGetDevice(cu_device *dev)
{
	cu_context ctx = current_or_null();

	MAY_FAIL();
	if (!ctx)
		return CU_INVALID_CONTEXT;
	*dev = ctx->device;
	return CU_OK;
}

cu_result cuCtxSynchronize(void)
{
	cu_context ctx;
	cu_result r;

	pthread_mutex_lock(&fake_lock);
	r = current(&ctx);
	if (!r) {
		streams_wait(ctx, -1);
		r = ctx->sticky;
	}
	pthread_mutex_unlock(&fake_lock);
	return r;
}

cu_result cuThreadExchangeStreamCaptureMode(int *mode)
{
	int was = capture_mode;

	if (*mode < 0 || *mode > 2)
		return CU_INVALID_VALUE;
	capture_mode = *mode;
	*mode = was;
	return CU_OK;
}

cu_result cuFlushGPUDirectRDMAWrites(int target, int scope)
{
	cu_context ctx;
	cu_result r;

	MAY_FAIL();
	if (target != CU_FLUSH_CURRENT || scope != CU_FLUSH_TO_OWNER)
		return CU_INVALID_VALUE;
	pthread_mutex_lock(&fake_lock);
	r = current(&ctx);
	flushes += !r;
	pthread_mutex_unlock(&fake_lock);
	return r;
}

unsigned int fake_flushes(void)
{
	return flushes;
}
