/* SPDX-License-Identifier: MIT */
/* Streams, regions and devices that go away with transfers in flight on a stream. */
#include <strait/interpose.h>

#include "stream_rig.h"

static void *close_region(void *arg)
{
	strait_region_close(arg);
	return NULL;
}

/* Memory is not given back while a transfer on a stream may still write it. */
TEST(a_region_closed_while_its_transfer_waits)
{
	struct mode m = { "", "emu:0", 0, 0, 0 };
	struct params p = { 0, 0, LEN, 99 };
	struct stream_rig g;
	pthread_t t;

	stream_rig_open(&g, &m);
	atomic_store(&stream_blocked, true);
	ASSERT_OK(strait_stream_call(g.s, stream_block, NULL));
	stream_put(&g, STRAIT_READ, &p);
	strait_endpoint_close(g.ep);
	thread_start(&t, close_region, g.r);
	sleep_ms(30);
	ASSERT_EQ(pthread_tryjoin_np(t, NULL), EBUSY);
	atomic_store(&stream_blocked, false);
	thread_join(t);
	ASSERT_OK(strait_stream_wait(g.s, STRAIT_FOREVER));
	/* Its turn came after the region was revoked. */
	ASSERT_EQ(p.result, -ENODEV);
	strait_stream_close(g.s);
	strait_context_close(g.ctx);
	free(g.want);
}

TEST(closing_a_stream_waits_for_its_work)
{
	struct mode m = { "", "emu:0", 0, 0, 0 };
	struct params p[20];
	struct stream_rig g;

	stream_rig_open(&g, &m);
	for (int i = 0; i < 20; i++) {
		p[i] = (struct params){ 0, 0, LEN, 99 };
		stream_put(&g, STRAIT_READ, &p[i]);
	}
	strait_stream_close(g.s);
	for (int i = 0; i < 20; i++)
		ASSERT_EQ(p[i].result, (int64_t)LEN);
	ASSERT_OK(strait_stream_import(g.dev, NULL, &g.s));
	stream_put(&g, STRAIT_READ, &p[0]);
	stream_rig_close(&g);
	ASSERT_EQ(p[0].result, (int64_t)LEN);
}

static void *remove_device(void *arg)
{
	ASSERT_OK(strait_emu_remove(arg));
	return NULL;
}

/* When the device is removed, transfers that wait on a stream end. */
TEST_WHERE(a_device_removed_under_a_stream, where_emulated)
TEST(a_device_removed_under_a_stream)
{
	struct mode m = { "", "emu:0", 0, 0, 0 };
	struct params p[10], late = { 0, 0, 10, 0 };
	struct strait_stream_transfer t;
	struct strait_stream *s;
	struct stream_rig g;
	pthread_t th;

	stream_rig_open(&g, &m);
	atomic_store(&stream_blocked, true);
	ASSERT_OK(strait_stream_call(g.s, stream_block, NULL));
	for (int i = 0; i < 10; i++) {
		p[i] = (struct params){ 0, 0, i % 2 ? 100 : LEN, 99 };
		stream_put(&g, i % 3 ? STRAIT_READ : STRAIT_WRITE, &p[i]);
	}
	thread_start(&th, remove_device, g.dev);
	while (strait_region_check(g.r) != -ENODEV)
		sleep_ms(1);
	t = (struct strait_stream_transfer){ .size = sizeof(t),
					     .endpoint = g.ep,
					     .region = g.r,
					     .endpoint_offset = &late.off,
					     .region_offset = &late.region_off,
					     .length = &late.len };
	ASSERT_EQ(strait_stream_transfer(g.s, &t), -ENODEV);
	ASSERT_EQ(strait_stream_call(g.s, stream_block, NULL), -ENODEV);
	ASSERT_EQ(strait_stream_open(g.dev, &s), -ENODEV);
	atomic_store(&stream_blocked, false);
	strait_stream_wait(g.s, STRAIT_FOREVER);
	thread_join(th);
	for (int i = 0; i < 10; i++)
		ASSERT_EQ(p[i].result, -ENODEV);
	stream_rig_close(&g);
}

TEST(detaching)
{
	struct mode m = { "", "emu:0", 0, 0, 0 };
	struct params p[20];
	struct strait_stream *own;
	struct stream_rig g;

	strait_stream_detach(NULL);
	stream_rig_open(&g, &m);
	own = g.s;
	ASSERT_OK(strait_stream_import(g.dev, NULL, &g.s));
	for (int i = 0; i < 20; i++) {
		p[i] = (struct params){ 0, 0, MIB(1), 99 };
		stream_put(&g, STRAIT_READ, &p[i]);
	}
	strait_stream_detach(g.s);
	for (int i = 0; i < 20; i++)
		ASSERT_EQ(p[i].result, MIB(1));
	ASSERT_OK(strait_stream_import(g.dev, NULL, &g.s));
	strait_stream_detach(g.s);
	g.s = own;
	p[0].result = 99;
	stream_put(&g, STRAIT_READ, &p[0]);
	strait_stream_detach(g.s);
	ASSERT_EQ(p[0].result, MIB(1));
	g.s = NULL;
	stream_rig_close(&g);
}

static void *import_and_detach(void *arg)
{
	struct strait_device *dev = arg;
	struct strait_stream *s;

	for (int i = 0; i < 200; i++) {
		ASSERT_OK(strait_stream_import(dev, NULL, &s));
		strait_stream_detach(s);
	}
	return NULL;
}

TEST(a_stream_that_several_threads_imported_is_detached_by_each)
{
	struct mode m = { "", "emu:0", 0, 0, 0 };
	pthread_t id[4];
	struct stream_rig g;

	stream_rig_open(&g, &m);
	for (int i = 0; i < 4; i++)
		thread_start(&id[i], import_and_detach, g.dev);
	for (int i = 0; i < 4; i++)
		thread_join(id[i]);
	stream_rig_close(&g);
}
