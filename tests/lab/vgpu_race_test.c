/* SPDX-License-Identifier: MIT */
/*
 * The lab's GPU: races. In each test one side is delayed at the critical place by a window of the driver, and the
 * driver counts that the other side passed meanwhile.
 */
#include "consumer.h"

#include <pthread.h>
#include <signal.h>

#define WIDE 60 /* milliseconds, times HARNESS_SLOW */

/*
 * What the IOMMU reports when it stops an engine that continues. Printed before the plan, because output of tests is
 * captured.
 */
__attribute__((constructor)) static void allow_faults(void)
{
	printf("# allow-log DMAR: (DRHD: handling fault|\\[DMA)\n");
	/* Of unmap_while_it_is_torn_down, on purpose. */
	printf("# allow-log BUG: DMA unmapping of a page table that was freed\n");
}

static void *free_thread(void *arg)
{
	return (void *)(intptr_t)gpu_free(arg);
}

static pthread_t begin_free(struct gpu_mem *m)
{
	pthread_t t;

	ASSERT_EQ(pthread_create(&t, NULL, free_thread, m), 0);
	return t;
}

static int end(pthread_t t)
{
	void *ret;

	ASSERT_EQ(pthread_join(t, &ret), 0);
	return (int)(intptr_t)ret;
}

/* Waits until a thread is in the window. */
static void await(const char *window, unsigned int entered)
{
	for (int i = 0; i < 20000 && window_entered(window) < entered; i++)
		sleep_ms(1);
	ASSERT_GE(window_entered(window), entered);
}

struct job {
	int c;
	uint32_t id;
	struct gpu_mem *m;
	struct vt_get get;
};

static void *put_thread(void *arg)
{
	struct job *j = arg;

	return (void *)(intptr_t)consumer_put(j->c, j->id, VT_PUT_KEEP);
}

static void *get_thread(void *arg)
{
	struct job *j = arg;

	j->get = (struct vt_get){ .va = (uintptr_t)j->m->p, .len = j->m->len, .cb_flags = VT_CB_FORGET };
	return (void *)(intptr_t)consumer_try_get(j->c, &j->get);
}

static void *touch_thread(void *arg)
{
	volatile unsigned char *p = arg;

	return (void *)(intptr_t)*p;
}

static void *map_thread(void *arg)
{
	struct job *j = arg;

	return (void *)(intptr_t)importer_map(j->c, j->id);
}

static pthread_t begin(void *(*fn)(void *), void *arg)
{
	pthread_t t;

	ASSERT_EQ(pthread_create(&t, NULL, fn, arg), 0);
	return t;
}

/* The memory is being freed, no callback was called yet, and the consumer puts its pages. */
TEST(put_while_the_callback_is_due)
{
	int fd = gpu_open(), c = consumer_open();
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 2 * PAGE);
	uint32_t id = consumer_get(c, &m, 0, VT_CB_UNMAP);
	pthread_t t;

	ASSERT_EQ(consumer_map(c, id), 0);
	window_open("callback", WIDE);
	t = begin_free(&m);
	await("callback", 1);
	/* Waits for the free, finds nothing, and returns 0. */
	ASSERT_EQ(consumer_put(c, id, VT_PUT_KEEP), 0);
	ASSERT_EQ(end(t), 0);
	window_close("callback");
	ASSERT_GE(window_met("callback"), 1);
	ASSERT_EQ(consumer_status(c, id).called, 1);
	ASSERT_EQ(gpu_counters(fd).peer_mapped_now, 0);
	close(c);
	close(fd);
}

/* The reverse: put_pages has begun when the memory is freed. */
TEST(free_while_a_put_has_begun)
{
	int fd = gpu_open(), c = consumer_open();
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 2 * PAGE);
	struct job j = { .c = c, .id = consumer_get(c, &m, 0, VT_CB_FORGET) };
	pthread_t t;

	window_open("put", WIDE);
	t = begin(put_thread, &j);
	await("put", 1);
	ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(end(t), 0);
	window_close("put");
	ASSERT_EQ(window_met("put"), 1);
	ASSERT_EQ(consumer_status(c, j.id).called, 1);
	close(c);
	close(fd);
}

/* Two threads put the same pages. */
TEST(two_puts_at_once)
{
	int fd = gpu_open(), c = consumer_open();
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 2 * PAGE);
	struct job j = { .c = c, .id = consumer_get(c, &m, 0, 0) };
	pthread_t a, b;

	ASSERT_EQ(consumer_map(c, j.id), 0);
	window_open("put", WIDE);
	a = begin(put_thread, &j);
	b = begin(put_thread, &j);
	await("put", 2);
	ASSERT_EQ(end(a), 0);
	ASSERT_EQ(end(b), 0);
	window_close("put");
	ASSERT_EQ(gpu_counters(fd).peer_mapped_now, 0);
	ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(consumer_status(c, j.id).called, 0);
	close(c);
	close(fd);
}

/* Pinned, with the callback not registered yet, when the memory is freed: get_pages fails, and nothing is called. */
TEST(free_before_the_callback_is_registered)
{
	int fd = gpu_open(), c = consumer_open();
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 2 * PAGE);
	struct job j = { .c = c, .m = &m };
	uint64_t calls = gpu_counters(fd).callbacks;
	pthread_t t;

	window_open("get", WIDE);
	t = begin(get_thread, &j);
	await("get", 1);
	ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(end(t), -EINVAL);
	window_close("get");
	ASSERT_EQ(window_met("get"), 1);
	ASSERT_EQ(gpu_counters(fd).callbacks, calls);
	close(c);
	close(fd);
}

/* A thread of the consumer unmaps between the callback and the driver's own teardown. */
TEST(unmap_while_it_is_torn_down)
{
	int fd = gpu_open(), c = consumer_open();
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 2 * PAGE);
	uint32_t id = consumer_get(c, &m, 0, VT_CB_KEEP);
	pthread_t t;

	ASSERT_EQ(consumer_map(c, id), 0);
	window_open("teardown", WIDE);
	t = begin_free(&m);
	await("teardown", 1);
	ASSERT_EQ(consumer_unmap(c, id, VT_PUT_KEEP), 0);
	ASSERT_EQ(gpu_counters(fd).peer_mapped_now, 0);
	ASSERT_EQ(end(t), 0);
	window_close("teardown");
	ASSERT_EQ(window_met("teardown"), 1);
	/* With stale pointers: put_pages is harmless, dma_unmap_pages is reported. */
	ASSERT_EQ(consumer_unmap(c, id, VT_PUT_KEEP), -EINVAL);
	ASSERT_EQ(consumer_put(c, id, VT_PUT_KEEP), 0);
	close(c);
	close(fd);
}

/* Returns how long the callback waited for the engine. */
static uint64_t free_under_dma(int fd, int c, unsigned char *data, uint32_t len)
{
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 2 * PAGE), next;
	uint32_t id = consumer_get(c, &m, 0, VT_CB_QUIESCE | VT_CB_UNMAP);
	uint64_t bar = m.bar;

	ASSERT_EQ(consumer_map(c, id), 0);
	ASSERT_EQ(consumer_dma(c, id, VT_DMA_WRITE | VT_DMA_START, PAGE, data, len), 0);
	ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(consumer_status(c, id).called, 1);
	next = gpu_alloc(fd, PLAIN, 2 * PAGE);
	ASSERT_EQ(next.bar, bar);
	sleep_ms(300);
	ASSERT_TRUE(all_zero(next.p, next.len));
	ASSERT_OK(gpu_free(&next));
	gpu_unmap(&next);
	gpu_unmap(&m);
	return consumer_status(c, id).quiesced_ms;
}

/*
 * The engine writes into the memory when it is freed: the callback waits for the engine, and the free for the callback.
 */
TEST(free_while_dma_runs)
{
	int fd = gpu_open(), c = consumer_open(), tries = 0;
	unsigned char data[512];

	fill(data, sizeof(data), 71);
	/* The engine takes 0.1 s and must still be running: on a busy machine it may not be. */
	while (free_under_dma(fd, c, data, sizeof(data)) <= 10)
		ASSERT_LT(++tries, 20);
	close(c);
	close(fd);
}

/* Was the engine's write still due when the memory had its next owner? */
static bool engine_is_late(int fd, int c, unsigned char *data, uint32_t len)
{
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 2 * PAGE), next;
	uint32_t id = consumer_get(c, &m, 0, 0);
	bool late;

	ASSERT_EQ(consumer_map(c, id), 0);
	ASSERT_EQ(consumer_dma(c, id, VT_DMA_WRITE | VT_DMA_START, PAGE, data, len), 0);
	ASSERT_OK(gpu_free(&m));
	next = gpu_alloc(fd, PLAIN, 2 * PAGE);
	ASSERT_EQ(next.bar, m.bar);
	late = consumer_dma_busy(c);
	consumer_dma_wait(c);
	/* An early write was cleared with the memory; a late one is stopped by the IOMMU. */
	ASSERT_TRUE(all_zero(next.p, next.len));
	ASSERT_OK(gpu_free(&next));
	gpu_unmap(&next);
	gpu_unmap(&m);
	return late;
}

/*
 * A consumer that does not wait. Its engine continues after the memory has a new owner, and must not reach it: the
 * translation was flushed before the free returned.
 */
TEST_TIMEOUT(a_bad_consumer_does_not_get_through, 60)
{
	int fd = gpu_open(), c = consumer_open(), late = 0;
	const char *none = getenv("LAB_NO_TRANSLATION");
	unsigned char data[512];

	if (none && *none)
		SKIP("%s", none);
	fill(data, sizeof(data), 72);
	/* The engine takes 0.1 s. On a busy machine that may pass before the free returns. */
	for (int tries = 0; tries < VT_SLOTS && late < 5; tries++)
		late += engine_is_late(fd, c, data, sizeof(data));
	ASSERT_EQ(late, 5);
	close(c);
	close(fd);
}

/* A fault has found the memory live, and has not inserted its page yet. */
TEST(free_while_a_fault_runs)
{
	int fd = gpu_open();
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 2 * PAGE), next;
	pthread_t t;

	window_open("fault", WIDE);
	t = begin(touch_thread, m.p);
	await("fault", 1);
	ASSERT_OK(gpu_free(&m));
	window_close("fault");
	ASSERT_EQ(end(t), 0);
	ASSERT_EQ(window_met("fault"), 1);
	/* The page that the fault inserted is not mapped any more. */
	next = gpu_alloc(fd, PLAIN, 2 * PAGE);
	ASSERT_EQ(next.bar, m.bar);
	fill(next.p, next.len, 5);
	ASSERT_TRUE(all_zero(m.p, m.len));
	close(fd);
}

/* An importer has found the dma-buf live, and has not mapped it yet. */
TEST(free_while_an_importer_maps)
{
	int fd = gpu_open(), c = consumer_open(), buf;
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 2 * PAGE);
	struct job j = { .c = c };
	pthread_t t;

	buf = (int)ASSERT_OK(gpu_dmabuf(&m, 0, m.len));
	j.id = importer_attach(c, buf, 0);
	window_open("dmabuf_map", WIDE);
	t = begin(map_thread, &j);
	await("dmabuf_map", 1);
	ASSERT_OK(gpu_free(&m));
	window_close("dmabuf_map");
	/* It was mapped, notified, and unmapped, in this order. */
	ASSERT_EQ(end(t), 0);
	ASSERT_EQ(window_met("dmabuf_map"), 1);
	ASSERT_EQ(importer_status(c, j.id).notified, 1);
	ASSERT_EQ(importer_status(c, j.id).mapped, 0);
	ASSERT_EQ(gpu_counters(fd).peer_mapped_now, 0);
	close(c);
	close(buf);
	close(fd);
}

/* An importer maps while the memory is being freed and no importer was notified yet. */
TEST(map_while_the_memory_goes)
{
	int fd = gpu_open(), c = consumer_open(), buf;
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 2 * PAGE);
	uint32_t id;
	pthread_t t;

	buf = (int)ASSERT_OK(gpu_dmabuf(&m, 0, m.len));
	id = importer_attach(c, buf, 0);
	window_open("invalidate", WIDE);
	t = begin_free(&m);
	await("invalidate", 1);
	/* Allowed, and notified right afterwards; a new export is refused already. */
	ASSERT_EQ(importer_map(c, id), 0);
	ASSERT_EQ(gpu_dmabuf(&m, 0, m.len), -ENOENT);
	ASSERT_EQ(end(t), 0);
	window_close("invalidate");
	ASSERT_EQ(window_met("invalidate"), 1);
	ASSERT_EQ(importer_status(c, id).notified, 1);
	ASSERT_EQ(gpu_counters(fd).peer_mapped_now, 0);
	ASSERT_EQ(importer_map(c, id), -ENODEV);
	close(c);
	close(buf);
	close(fd);
}

struct victim {
	int ready, consumer;
};

static int die_with_a_pin(void *arg)
{
	struct victim *k = arg;
	struct gpu_mem m;
	struct vt_get get = { .cb_flags = VT_CB_FORGET };
	int fd = open("/dev/strait_vgpu0", O_RDWR);

	if (fd < 0 || gpu_try_alloc(fd, PLAIN, 2 * PAGE, &m))
		return 1;
	gpu_map(&m);
	get.va = (uintptr_t)m.p;
	get.len = m.len;
	if (gpu_call(k->consumer, VT_GET, &get) || get.result)
		return 2;
	if (write(k->ready, "x", 1) != 1)
		return 3;
	for (;;)
		pause();
}

/* The owner is killed; its file is being closed when the consumer puts its pages. */
TEST(put_while_the_owner_dies)
{
	int fd = gpu_open(), pipe_[2];
	struct victim k = { .consumer = consumer_open() };
	uint64_t before[2], calls = gpu_counters(fd).callbacks;
	pid_t pid;
	char byte;

	gpu_all_free(fd, before);
	ASSERT_EQ(pipe(pipe_), 0);
	k.ready = pipe_[1];
	pid = start(die_with_a_pin, &k);
	ASSERT_EQ(read(pipe_[0], &byte, 1), 1);
	window_open("close", WIDE);
	ASSERT_EQ(kill(pid, SIGKILL), 0);
	await("close", 1);
	ASSERT_EQ(consumer_put(k.consumer, 1, 0), 0);
	wait_for(pid);
	window_close("close");
	ASSERT_GE(window_met("close"), 1);
	/* The put was first, so no callback was called. */
	ASSERT_EQ(gpu_counters(fd).callbacks, calls);
	gpu_expect_free(fd, before);
	close(k.consumer);
	close(fd);
}

static void *free_all_thread(void *arg)
{
	struct gpu_mem *m = arg;

	for (int i = 0; i < 200; i++) {
		struct gpu_mem n;

		if (!gpu_try_alloc(m->fd, (uint32_t)i & 1, PAGE, &n)) {
			gpu_map(&n);
			n.p[0] = 1;
			if (gpu_free(&n))
				return (void *)1;
			if (n.p[0])
				return (void *)2;
			gpu_unmap(&n);
		}
	}
	return NULL;
}

/* Without windows: four threads allocate, access and free on one file, two consumers pin the memory. */
TEST_TIMEOUT(many_at_once, 120)
{
	int fd = gpu_open(), c = consumer_open();
	struct gpu_mem m = { .fd = fd };
	uint64_t before[2];
	pthread_t t[4];

	gpu_all_free(fd, before);
	for (int i = 0; i < 4; i++)
		t[i] = begin(free_all_thread, &m);
	for (int i = 0; i < 100; i++) {
		struct gpu_mem n = gpu_alloc(fd, PLAIN, PAGE);
		uint32_t id = consumer_get(c, &n, 0, VT_CB_FORGET);

		ASSERT_EQ(consumer_map(c, id), 0);
		ASSERT_OK(gpu_free(&n));
		gpu_unmap(&n);
		if (id == VT_SLOTS) {
			close(c);
			c = consumer_open();
		}
	}
	for (int i = 0; i < 4; i++)
		ASSERT_EQ(end(t[i]), 0);
	gpu_expect_free(fd, before);
	ASSERT_EQ(gpu_counters(fd).peer_mapped_now, 0);
	close(c);
	close(fd);
}
