/* SPDX-License-Identifier: MIT */
/* Memory that goes away while transfers use it: revoked, freed, or removed with its device. */
#include "common.h"

#define LEN MIB(4)
#define USERS 4 /* each uses its own part of the region */
#define ALL (USERS * LEN)

static const struct mode modes[] = {
	{ "any", "emu:0", 0, 0, 0 },
	{ "staged", "emu:0", ROUTE(STAGED), 0, 0 },
	{ "pagecache", "emu:0", ROUTE(PAGECACHE), 0, 0 },
	{ "direct", "emu:0", 0, STRAIT_FILE_DIRECT, 0 },
	{ "immutable", "emu:0", 0, STRAIT_FILE_IMMUTABLE, 0 },
};

struct rig {
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_region *r;
	struct strait_endpoint *ep;
	void *mem;
	uint32_t routes;
	bool notifies;		 /* the device notifies when memory goes away */
	int expect, expect_also; /* what a transfer may end with, other than 0 */
	atomic_uint notices, good;
	atomic_uint ready, next;
	atomic_bool gone; /* the memory has been given back: no transfer may succeed after that */
};

static void notice(void *arg, struct strait_region *region)
{
	struct strait_region_info info = { .size = sizeof(info) };
	struct rig *g = arg;

	/* The only call that is allowed in a notice. */
	ASSERT_OK(strait_region_info(region, &info));
	ASSERT_EQ(info.length, ALL);
	atomic_fetch_add(&g->notices, 1);
}

static void rig_open(struct rig *g, const struct mode *m, bool import)
{
	struct strait_context_opts opts = { .size = sizeof(opts), .threads = 3 };
	int rc;

	memset(g, 0, sizeof(*g));
	g->ctx = context_new(&opts);
	g->dev = device_named(g->ctx, m->device);
	g->ep = file_new(g->ctx, make_file("file", LEN, 1), O_RDWR, m->file);
	g->routes = m->routes;
	if (import) {
		ASSERT_OK(strait_emu_malloc(g->dev, ALL, &g->mem));
		ASSERT_OK(strait_region_import(g->ctx, g->dev, g->mem, ALL, &g->r));
	} else {
		g->r = region_new(g->dev, ALL);
	}
	rc = strait_region_on_revoke(g->r, notice, g);
	if (rc)
		ASSERT_TRUE(rc == -EOPNOTSUPP && on_cuda());
	g->notifies = !rc;
}

static void rig_close(struct rig *g)
{
	strait_region_close(g->r);
	strait_endpoint_close(g->ep);
	strait_context_close(g->ctx);
}

/* Makes transfers until the memory is gone. */
static void *use(void *arg)
{
	struct rig *g = arg;
	uint64_t at = atomic_fetch_add(&g->next, 1) * LEN, state = at;

	for (;;) {
		bool gone = atomic_load(&g->gone);
		uint64_t n = 1 + prng_below(&state, prng_below(&state, 3) ? LEN : 9999);
		uint32_t op = g->routes == ROUTE(PAGECACHE) || prng_below(&state, 4) ? STRAIT_READ : STRAIT_WRITE;
		struct strait_result res = move(op, op ? 0 : g->routes, g->ep, 0, g->r, at, n);

		if (!res.status) {
			ASSERT_FALSE(gone);
			ASSERT_EQ(res.bytes, n);
			atomic_fetch_add(&g->good, 1);
			continue;
		}
		if (res.status != g->expect)
			ASSERT_EQ(res.status, g->expect_also);
		if (gone)
			break;
	}
	return NULL;
}

/* The same through a queue and a stream. */
static void *use_queue(void *arg)
{
	struct strait_queue *q;
	struct rig *g = arg;
	uint64_t at = atomic_fetch_add(&g->next, 1) * LEN;
	int rc = 0;

	ASSERT_OK(strait_queue_open(g->ctx, NULL, &q));
	for (;;) {
		bool gone = atomic_load(&g->gone);
		struct strait_transfer t[8];
		struct strait_result res[8];

		for (uint64_t i = 0; i < 8; i++)
			t[i] = (struct strait_transfer){ .routes = g->routes,
							 .endpoint = g->ep,
							 .region = g->r,
							 .region_offset = at + i * (LEN / 8),
							 .length = i % 4 ? 4000 : LEN / 8 };
		rc = strait_queue_submit(q, t, 8);
		if (rc) {
			ASSERT_TRUE(rc == g->expect || rc == g->expect_also);
			if (gone)
				break;
			continue;
		}
		ASSERT_EQ(strait_queue_wait(q, 8, 8, STRAIT_FOREVER, res), 8);
		for (int i = 0; i < 8; i++) {
			if (!res[i].status)
				ASSERT_FALSE(gone);
			else
				ASSERT_TRUE(res[i].status == g->expect || res[i].status == g->expect_also);
		}
	}
	strait_queue_close(q);
	return NULL;
}

static void *use_stream(void *arg)
{
	struct strait_stream *s;
	struct rig *g = arg;
	uint64_t off = 0, at = atomic_fetch_add(&g->next, 1) * LEN, len = LEN;
	int64_t result[4];

	ASSERT_OK(strait_stream_open(g->dev, &s));
	atomic_fetch_add(&g->ready, 1);
	for (;;) {
		bool gone = atomic_load(&g->gone);
		int rc = 0, n;

		for (n = 0; n < 4 && !rc; n++) {
			struct strait_stream_transfer t = { .size = sizeof(t),
							    .routes = g->routes,
							    .endpoint = g->ep,
							    .region = g->r,
							    .endpoint_offset = &off,
							    .region_offset = &at,
							    .length = &len,
							    .result = &result[n] };

			rc = strait_stream_transfer(s, &t);
		}
		strait_stream_wait(s, STRAIT_FOREVER);
		n -= rc != 0;
		for (int i = 0; i < n; i++)
			ASSERT_TRUE(result[i] == (int64_t)LEN || result[i] == g->expect || result[i] == g->expect_also);
		if (rc)
			ASSERT_TRUE(rc == g->expect || rc == g->expect_also);
		if (gone)
			break;
	}
	strait_stream_close(s);
	return NULL;
}

static void in_the_middle(struct rig *g, void (*end)(struct rig *g))
{
	static void *(*const users[USERS])(void *) = { use, use, use_queue, use_stream };
	pthread_t t[USERS];

	for (int i = 0; i < USERS; i++)
		thread_start(&t[i], users[i], g);
	while (atomic_load(&g->good) < 5 || !atomic_load(&g->ready))
		sleep_ms(1);
	end(g);
	/* New transfers are refused; transfers in flight have been waited for. */
	atomic_store(&g->gone, true);
	ASSERT_EQ(g->notices, g->notifies);
	for (int i = 0; i < USERS; i++)
		thread_join(t[i]);
	ASSERT_EQ(g->notices, g->notifies);
}

static void revoke_it(struct rig *g)
{
	ASSERT_OK(strait_region_revoke(g->r));
	ASSERT_EQ(strait_region_revoke(g->r), -EALREADY);
	ASSERT_EQ(strait_region_check(g->r), -ENODEV);
}

TEST_VARIANTS(revoked_in_mid_transfer, struct mode, modes)
{
	struct rig g;
	void *p;
	int fd;

	rig_open(&g, v, false);
	g.expect = g.expect_also = -ENODEV;
	in_the_middle(&g, revoke_it);
	ASSERT_EQ(strait_region_map(g.r, &p), -ENODEV);
	ASSERT_EQ(strait_region_copy_in(g.r, 0, &g, 8), -ENODEV);
	ASSERT_EQ(strait_region_copy_out(g.r, 0, &fd, 4), -ENODEV);
	ASSERT_EQ(strait_region_fill(g.r, 0, 0, 4), -ENODEV);
	ASSERT_EQ(strait_region_crc32c(g.r, 0, 4, &(uint32_t){ 0 }), -ENODEV);
	ASSERT_EQ(strait_region_compare(g.r, 0, g.r, 0, 4, &(uint64_t){ 0 }), -ENODEV);
	ASSERT_EQ(strait_region_export_dmabuf(g.r, 0, KIB(64), &fd), -ENODEV);
	ASSERT_EQ(strait_region_on_revoke(g.r, notice, &g), g.notifies ? -ENODEV : -EOPNOTSUPP);
	/* The endpoint and the device can still be used. */
	strait_region_close(g.r);
	g.r = region_new(g.dev, LEN);
	ASSERT_EQ(move(STRAIT_READ, v->routes, g.ep, 0, g.r, 0, LEN).bytes, LEN);
	rig_close(&g);
}

static void free_it(struct rig *g)
{
	ASSERT_OK(strait_emu_free(g->dev, g->mem));
	ASSERT_EQ(strait_emu_free(g->dev, g->mem), -EINVAL);
	ASSERT_EQ(strait_region_check(g->r), -ESTALE);
}

TEST_WHERE(freed_in_mid_transfer, where_emulated)
TEST_VARIANTS(freed_in_mid_transfer, struct mode, modes)
{
	struct rig g;
	void *again;

	rig_open(&g, v, true);
	/* A transfer that races with the free may end with either error. */
	g.expect = -ESTALE;
	g.expect_also = -ENODEV;
	in_the_middle(&g, free_it);
	ASSERT_EQ(move(STRAIT_READ, v->routes, g.ep, 0, g.r, 0, LEN).status, -ESTALE);
	/* Other memory, perhaps at the same address, is not taken for it. */
	ASSERT_OK(strait_emu_malloc(g.dev, LEN, &again));
	ASSERT_EQ(move(STRAIT_READ, v->routes, g.ep, 0, g.r, 0, LEN).status, -ESTALE);
	ASSERT_OK(strait_emu_free(g.dev, again));
	rig_close(&g);
}

static void remove_it(struct rig *g)
{
	ASSERT_OK(strait_emu_remove(g->dev));
	ASSERT_EQ(strait_emu_remove(g->dev), -EALREADY);
	ASSERT_EQ(strait_region_check(g->r), -ENODEV);
}

TEST_WHERE(removed_in_mid_transfer, where_emulated)
TEST_VARIANTS(removed_in_mid_transfer, struct mode, modes)
{
	struct strait_device_info info = { .size = sizeof(info) };
	struct strait_region *other;
	struct rig g;
	void *p;

	rig_open(&g, v, false);
	g.expect = g.expect_also = -ENODEV;
	in_the_middle(&g, remove_it);
	ASSERT_EQ(strait_device_info(g.dev, &info), -ENODEV);
	ASSERT_EQ(strait_region_alloc(g.dev, 4096, &other), -ENODEV);
	ASSERT_EQ(strait_emu_malloc(g.dev, 4096, &p), -ENODEV);
	ASSERT_EQ(strait_device_find(g.ctx, "emu:0", &g.dev), 0);
	/* The host device is still there. */
	other = region_new(device_named(g.ctx, "host"), LEN);
	ASSERT_EQ(move(STRAIT_READ, 0, g.ep, 0, other, 0, LEN).bytes, LEN);
	strait_region_close(other);
	rig_close(&g);
}

/* With a slow device, so that a copy is always in flight. */
TEST_WHERE(removed_in_mid_copy, where_emulated)
TEST(removed_in_mid_copy)
{
	struct strait_emu_model slow = { .size = sizeof(slow), .bytes_per_second = MIB(100) };

	for (unsigned int i = 0; i < ARRAY_SIZE(modes); i++) {
		struct rig g;

		rig_open(&g, &modes[i], i % 2);
		g.expect = -ENODEV;
		g.expect_also = -ESTALE;
		atomic_store(&g.good, 5);
		ASSERT_OK(strait_emu_set_model(g.dev, &slow));
		in_the_middle(&g, i % 2 ? free_it : remove_it);
		rig_close(&g);
	}
}

static void *close_it(void *arg)
{
	strait_region_close(arg);
	return NULL;
}

static atomic_bool hold;

static bool hold_writes(enum os_call call, int64_t *ret)
{
	(void)ret;
	while (call == OS_PWRITE && atomic_load(&hold))
		sleep_ms(1);
	return false;
}

/* Closing the last handle waits for transfers in flight; the notice comes once, before the memory is freed. */
TEST_WHERE(closing_waits, where_not_cuda) /* it does not notify when memory goes away */
TEST(closing_waits)
{
	struct strait_region *second;
	struct strait_queue *q;
	struct strait_transfer t;
	struct strait_result res;
	uint64_t off;
	struct rig g;
	pthread_t th;
	void *p;

	rig_open(&g, &modes[0], false);
	ASSERT_OK(strait_region_map(g.r, &p));
	ASSERT_OK(strait_region_lookup(g.ctx, (char *)p + 5, &off, &second));
	ASSERT_EQ(second, g.r);
	ASSERT_EQ(off, 5);
	ASSERT_OK(strait_queue_open(g.ctx, NULL, &q));
	t = (struct strait_transfer){ .op = STRAIT_WRITE, .endpoint = g.ep, .region = g.r, .length = LEN };
	atomic_store(&hold, true);
	os_inject = hold_writes;
	ASSERT_OK(strait_queue_submit(q, &t, 1));
	strait_region_close(second);
	thread_start(&th, close_it, g.r);
	while (!atomic_load(&g.notices))
		sleep_ms(1);
	sleep_ms(20);
	ASSERT_EQ(pthread_tryjoin_np(th, NULL), EBUSY);
	ASSERT_EQ(strait_region_lookup(g.ctx, p, NULL, &second), -ENOENT);
	atomic_store(&hold, false);
	thread_join(th);
	os_inject = NULL;
	ASSERT_EQ(strait_queue_wait(q, 1, 1, STRAIT_FOREVER, &res), 1);
	ASSERT_EQ(res.status, 0);
	ASSERT_EQ(g.notices, 1);
	strait_queue_close(q);
	strait_endpoint_close(g.ep);
	strait_context_close(g.ctx);
}

/* A notice that was canceled is not called; where notices are not possible the request is refused. */
TEST_WHERE(notices, where_not_cuda) /* it does not notify when memory goes away */
TEST(notices)
{
	struct strait_region *host;
	struct rig g;

	rig_open(&g, &modes[0], false);
	ASSERT_OK(strait_region_on_revoke(g.r, NULL, NULL));
	ASSERT_OK(strait_region_revoke(g.r));
	ASSERT_EQ(g.notices, 0);
	host = region_new(device_named(g.ctx, "host"), LEN);
	ASSERT_EQ(strait_region_on_revoke(host, notice, &g), -EOPNOTSUPP);
	ASSERT_EQ(move(STRAIT_READ, 0, g.ep, 0, host, 0, LEN).bytes, LEN);
	ASSERT_OK(strait_region_revoke(host));
	ASSERT_EQ(move(STRAIT_READ, 0, g.ep, 0, host, 0, LEN).status, -ENODEV);
	strait_region_close(host);
	rig_close(&g);
}
