/* SPDX-License-Identifier: MIT */
#include "common.h"

const char *built_library(const char *name)
{
	static char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 64);

	ASSERT_GT(n, 0);
	path[n] = 0;
	/* The program is build/tests/x, the library build/y. */
	*strrchr(path, '/') = 0;
	snprintf(strrchr(path, '/'), 64, "/%s", name);
	return path;
}

void *open_library(const char *name)
{
	void *lib = dlopen(built_library(name), RTLD_NOW | RTLD_LOCAL);

	if (!lib)
		FAIL("%s", dlerror());
	return lib;
}

struct strait_context *context_new(const struct strait_context_opts *opts)
{
	struct strait_context *ctx;

	ASSERT_OK(strait_context_open(opts, &ctx));
	return ctx;
}

struct strait_context *context_for(const struct mode *m)
{
	struct strait_context_opts opts = { .size = sizeof(opts), .flags = m->context };

	return context_new(&opts);
}

static const char *other_device(void)
{
	const char *name = getenv("STRAIT_TEST_DEVICE");

	return name && *name ? name : NULL;
}

const char *device_under_test(void)
{
	return other_device() ? other_device() : "emu:0";
}

void emulated_only(void)
{
	if (other_device())
		FAIL("tells the emulated device what to do, but this is %s: the test needs TEST_WHERE()",
		     other_device());
}

bool where_emulated(__attribute__((unused)) const void *v)
{
	return !other_device();
}

bool where_host_once(const void *v)
{
	const struct mode *m = v;

	return !other_device() || strcmp(m->device, "host") != 0;
}

bool on_cuda(void)
{
	return !strncmp(device_under_test(), "cuda", 4);
}

bool where_not_cuda(__attribute__((unused)) const void *v)
{
	return !on_cuda();
}

struct strait_device *device_named(struct strait_context *ctx, const char *name)
{
	struct strait_device *dev;

	if (other_device() && (!strcmp(name, "emu") || !strcmp(name, "emu:0")))
		name = other_device();
	else if (!strncmp(name, "emu:", 4))
		emulated_only();
	ASSERT_OK(strait_device_find(ctx, name, &dev));
	return dev;
}

struct strait_region *region_new(struct strait_device *dev, size_t len)
{
	struct strait_region *r;

	ASSERT_OK(strait_region_alloc(dev, len, &r));
	return r;
}

struct strait_endpoint *file_new(struct strait_context *ctx, const char *path, int oflags, uint32_t flags)
{
	struct strait_endpoint *ep;

	ASSERT_OK(strait_file_open(ctx, path, oflags, 0600, flags, &ep));
	return ep;
}

struct strait_queue *queue_new(struct strait_context *ctx, uint32_t entries)
{
	struct strait_queue_opts opts = { .size = sizeof(opts), .entries = entries };
	struct strait_queue *q;

	ASSERT_OK(strait_queue_open(ctx, entries ? &opts : NULL, &q));
	return q;
}

struct strait_file_info file_info(struct strait_endpoint *ep)
{
	struct strait_file_info info = { .size = sizeof(info) };

	ASSERT_OK(strait_file_info(ep, &info));
	return info;
}

struct strait_stats stats_of(struct strait_context *ctx)
{
	struct strait_stats s = { .size = sizeof(s) };

	ASSERT_OK(strait_stats_get(ctx, &s));
	return s;
}

struct strait_result move(uint32_t op, uint32_t routes, struct strait_endpoint *ep, uint64_t ep_off,
			  struct strait_region *r, uint64_t off, uint64_t len)
{
	struct strait_transfer t = { .op = op,
				     .routes = routes,
				     .endpoint = ep,
				     .region = r,
				     .endpoint_offset = ep_off,
				     .region_offset = off,
				     .length = len,
				     .user_data = 42 };
	struct strait_result res;
	int rc = strait_transfer_run(&t, STRAIT_FOREVER, &res);

	ASSERT_EQ(rc, res.status);
	ASSERT_EQ(res.user_data, 42);
	ASSERT_LE(res.bytes, len);
	return res;
}

/* Threads of the library may read it while it changes. */
static struct {
	_Atomic enum os_call call;
	atomic_uint nth, more;
	_Atomic int64_t ret;
	atomic_uint calls;
} plan;

static bool planned(enum os_call call, int64_t *ret)
{
	unsigned int n;

	if (call != plan.call)
		return false;
	n = atomic_fetch_add_explicit(&plan.calls, 1, memory_order_relaxed) + 1;
	if (n < plan.nth || n - plan.nth > plan.more)
		return false;
	*ret = plan.ret;
	return true;
}

void inject(enum os_call call, unsigned int nth, unsigned int more, int64_t ret)
{
	plan.call = call;
	plan.nth = nth;
	plan.more = more;
	plan.ret = ret;
	atomic_store(&plan.calls, 0);
	os_inject = planned;
}

void inject_off(void)
{
	os_inject = NULL;
}

unsigned int inject_calls(void)
{
	return atomic_load(&plan.calls);
}
