/* SPDX-License-Identifier: MIT */
/* strait_device_prepare(): what the first transfer needs, made by a worker. */
#include <strait/prepare.h>

#include "common.h"

#define BYTES MIB(24)
#define SEED 9
#define TRIES 5000

static uint64_t pinned(struct strait_context *ctx)
{
	return stats_of(ctx).pool_bytes;
}

static void wait_pinned(struct strait_context *ctx)
{
	for (int i = 0; !pinned(ctx) && i < TRIES; i++)
		usleep(1000);
	ASSERT_GT(pinned(ctx), 0);
}

TEST(staging_memory_is_there_before_the_first_transfer)
{
	struct strait_context *ctx = context_new(NULL);
	const char *path = make_file("prepare", BYTES, SEED);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, 0);
	struct strait_device *dev = device_named(ctx, "emu:0");
	struct strait_region *r = region_new(dev, BYTES);
	char *file = pattern_new(0, BYTES, SEED);
	uint64_t before;

	ASSERT_EQ(pinned(ctx), 0);
	for (int i = 0; i < 3; i++)
		ASSERT_OK(strait_device_prepare(dev));
	wait_pinned(ctx);
	before = pinned(ctx);
	ASSERT_OK(strait_device_prepare(dev));
	ASSERT_EQ(strait_read(ep, 0, r, 0, BYTES), BYTES);
	ASSERT_GE(pinned(ctx), before);
	region_expect(r, 0, file, BYTES);
	free(file);
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
}

TEST(a_transfer_meanwhile)
{
	const char *path = make_file("prepare", BYTES, SEED);
	char *file = pattern_new(0, BYTES, SEED);

	for (int i = 0; i < 10; i++) {
		struct strait_context *ctx = context_new(NULL);
		struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, 0);
		struct strait_device *dev = device_named(ctx, "emu:0");
		struct strait_region *r = region_new(dev, BYTES);

		ASSERT_OK(strait_device_prepare(dev));
		ASSERT_EQ(strait_read(ep, 0, r, 0, BYTES), BYTES);
		region_expect(r, 0, file, BYTES);
		strait_region_close(r);
		strait_endpoint_close(ep);
		strait_context_close(ctx);
	}
	free(file);
}

/* The worker may not have begun, or be at work. */
TEST(the_context_is_closed_meanwhile)
{
	for (int i = 0; i < 50; i++) {
		struct strait_context *ctx = context_new(NULL);

		ASSERT_OK(strait_device_prepare(device_named(ctx, "emu:0")));
		if (i % 2)
			usleep((useconds_t)i * 20);
		strait_context_close(ctx);
	}
}

TEST(host_memory_needs_nothing)
{
	struct strait_context *ctx = context_new(NULL);

	ASSERT_OK(strait_device_prepare(device_named(ctx, "host")));
	usleep(20000);
	ASSERT_EQ(pinned(ctx), 0);
	ASSERT_EQ(strait_device_prepare(NULL), -EINVAL);
	strait_context_close(ctx);
}

static bool no_thread(enum os_call call, int64_t *ret)
{
	*ret = -EAGAIN;
	return call == OS_THREAD;
}

TEST(without_a_thread_a_later_call_tries_again)
{
	struct strait_context *ctx = context_new(NULL);
	struct strait_device *dev = device_named(ctx, "emu:0");
	struct strait_region *r = region_new(dev, MIB(1)); /* and with it the driver's context */

	os_inject = no_thread;
	ASSERT_EQ(strait_device_prepare(dev), -EAGAIN);
	os_inject = NULL;
	ASSERT_OK(strait_device_prepare(dev));
	wait_pinned(ctx);
	strait_region_close(r);
	strait_context_close(ctx);
}
