/* SPDX-License-Identifier: MIT */
/* The public calls: what they refuse, and what they report about devices and the machine. */
#include <strait/interpose.h>

#include "common.h"

/* ---- context ---- */

TEST(version)
{
	char text[32];

	snprintf(text, sizeof(text), "%d.%d.%d", STRAIT_VERSION_MAJOR, STRAIT_VERSION_MINOR, STRAIT_VERSION_PATCH);
	ASSERT_EQ(strait_version_number(), STRAIT_VERSION);
	ASSERT_EQ(STRAIT_VERSION_NUMBER(1, 2, 3), 0x10203);
	ASSERT_STREQ(strait_version(), text);
}

TEST(context_options)
{
	struct strait_context *ctx = NULL;
	struct {
		struct strait_context_opts o;
		char tail[16];
	} longer = { .o = { .size = sizeof(longer) } };
	struct strait_context_opts o, zero = { .size = sizeof(zero) };

#define BAD(code, member, value)                                                                                       \
	do {                                                                                                           \
		o = zero;                                                                                              \
		o.member = value;                                                                                      \
		ASSERT_EQ(strait_context_open(&o, &ctx), code);                                                        \
		ASSERT_EQ(ctx, NULL);                                                                                  \
	} while (0)
	BAD(-EINVAL, size, 0);
	BAD(-EINVAL, size, sizeof(o) - 1);
	BAD(-EINVAL, flags, 2);
	BAD(-EINVAL, flags, 1u << 31);
	BAD(-EINVAL, threads, 65);
	BAD(-EINVAL, pool_bytes, (1ull << 40) + 1);
	BAD(-EINVAL, chunk_bytes, KIB(32));
	BAD(-EINVAL, chunk_bytes, KIB(96));
	BAD(-EINVAL, chunk_bytes, MIB(128));
	BAD(-EINVAL, queue_depth, 1025);
	BAD(-EINVAL, log_level, 5);
	ASSERT_EQ(strait_context_open(&zero, NULL), -EINVAL);
	longer.tail[15] = 1;
	ASSERT_EQ(strait_context_open(&longer.o, &ctx), -E2BIG);
	ASSERT_EQ(ctx, NULL);
	longer.tail[15] = 0;
	ASSERT_OK(strait_context_open(&longer.o, &ctx));
	strait_context_close(ctx);
	strait_context_close(NULL);
	/* The limits are accepted. */
	o = (struct strait_context_opts){ .size = sizeof(o),
					  .threads = 64,
					  .queue_depth = 1024,
					  .chunk_bytes = MIB(64),
					  .log_level = STRAIT_LOG_DEBUG,
					  .flags = STRAIT_CONTEXT_NO_URING };
	ASSERT_OK(strait_context_open(&o, &ctx));
	strait_context_close(ctx);
}

struct lines {
	unsigned int n[5];
	bool newline;
};

static void take_line(void *arg, enum strait_log_level level, const char *text)
{
	struct lines *l = arg;

	l->n[level]++;
	l->newline |= strchr(text, '\n') || !*text;
}

TEST(log_lines)
{
	struct lines l = { { 0 }, false };
	struct strait_context_opts o = { .size = sizeof(o), .log = take_line, .log_arg = &l };
	struct strait_context *ctx;
	struct strait_endpoint *ep;

	for (uint32_t level = 0; level <= STRAIT_LOG_DEBUG; level++) {
		memset(&l, 0, sizeof(l));
		o.log_level = level;
		ctx = context_new(&o);
		/* A warning. */
		ASSERT_EQ(strait_file_open(ctx, "/dev/null", O_RDONLY, 0, 0, &ep), -ENOTSUP);
		strait_context_close(ctx);
		ASSERT_EQ(l.n[STRAIT_LOG_WARN] > 0, !level || level >= STRAIT_LOG_WARN);
		ASSERT_EQ(l.n[STRAIT_LOG_INFO] > 0, level >= STRAIT_LOG_INFO);
		ASSERT_EQ(l.n[STRAIT_LOG_DEBUG] > 0, level >= STRAIT_LOG_DEBUG);
		ASSERT_FALSE(l.newline);
	}
	ASSERT_STREQ(strait_log_level_name(STRAIT_LOG_ERROR), "error");
	ASSERT_STREQ(strait_log_level_name(STRAIT_LOG_WARN), "warn");
	ASSERT_STREQ(strait_log_level_name(STRAIT_LOG_INFO), "info");
	ASSERT_STREQ(strait_log_level_name(STRAIT_LOG_DEBUG), "debug");
	ASSERT_STREQ(strait_log_level_name(0), "unknown");
	ASSERT_STREQ(strait_log_level_name(77), "unknown");
}

/* ---- devices ---- */

TEST(devices)
{
	struct strait_device_info info = { .size = sizeof(info) };
	struct strait_provider_info provider = { .size = sizeof(provider) };
	struct strait_device *dev, *same;
	struct strait_context *ctx;
	char text[256];
	unsigned int i, n = 0;

	setenv("STRAIT_EMU_DEVICES", "3", 1);
	ctx = context_new(NULL);
	ASSERT_GE(strait_device_count(ctx), 4);
	ASSERT_EQ(strait_device_count(NULL), -EINVAL);
	for (i = 0; i < (unsigned int)strait_device_count(ctx); i++) {
		ASSERT_OK(strait_device_at(ctx, i, &dev));
		ASSERT_OK(strait_device_info(dev, &info));
		ASSERT_OK(strait_device_find(ctx, info.name, &same));
		ASSERT_EQ(same, dev);
		ASSERT_EQ(strait_device_missing_reason(ctx, info.name, text, sizeof(text)), -EEXIST);
		ASSERT_NE(info.model[0], '\0');
		ASSERT_TRUE(is_pow2(info.page_size));
		ASSERT_LE(info.mem_free, info.mem_total);
		ASSERT_EQ(!strcmp(info.provider, "emu"), !!(info.caps & STRAIT_DEVICE_EMULATED));
		ASSERT_EQ(!strcmp(info.name, "host"), !!(info.caps & STRAIT_DEVICE_HOST));
		n += !!(info.caps & STRAIT_DEVICE_EMULATED);
	}
	ASSERT_EQ(n, 3);
	ASSERT_EQ(strait_device_at(ctx, i, &dev), -ENODEV);
	ASSERT_EQ(strait_device_at(ctx, UINT32_MAX, &dev), -ENODEV);
	ASSERT_EQ(strait_device_at(NULL, 0, &dev), -EINVAL);
	ASSERT_EQ(strait_device_at(ctx, 0, NULL), -EINVAL);
	ASSERT_EQ(strait_device_find(ctx, "emu:3", &dev), -ENODEV);
	ASSERT_OK(strait_device_missing_reason(ctx, "emu:3", text, sizeof(text)));
	ASSERT_NE(text[0], '\0');
	ASSERT_EQ(strait_device_find(ctx, "nonsense", &dev), -EINVAL);
	ASSERT_EQ(strait_device_missing_reason(ctx, "nonsense", text, sizeof(text)), -EINVAL);
	ASSERT_TRUE(strstr(text, "emu:0"));
	ASSERT_EQ(strait_device_find(NULL, "emu", &dev), -EINVAL);
	ASSERT_EQ(strait_device_find(ctx, NULL, &dev), -EINVAL);
	ASSERT_EQ(strait_device_find(ctx, "emu", NULL), -EINVAL);
	ASSERT_EQ(strait_device_missing_reason(ctx, "emu:9", NULL, 5), -EINVAL);
	ASSERT_EQ(strait_device_missing_reason(ctx, "emu:9", text, 0), -EINVAL);
	/* The text is terminated even if the buffer is too short. */
	memset(text, 'x', sizeof(text));
	ASSERT_OK(strait_device_missing_reason(ctx, "emu:9", text, 4));
	ASSERT_EQ(strlen(text), 3);
	for (i = 0; !strait_provider_info(ctx, i, &provider); i++) {
		ASSERT_NE(provider.name[0], '\0');
		ASSERT_EQ(strait_device_missing_reason(ctx, provider.name, text, sizeof(text)),
			  provider.devices ? -EEXIST : 0);
		ASSERT_TRUE(provider.devices || text[0]);
	}
	ASSERT_GE(i, 2);
	ASSERT_EQ(strait_provider_info(ctx, i, &provider), -ENOENT);
	provider.size = 3;
	ASSERT_EQ(strait_provider_info(ctx, 0, &provider), -EINVAL);
	ASSERT_EQ(strait_provider_info(ctx, 0, NULL), -EINVAL);
	ASSERT_EQ(strait_device_info(NULL, &info), -EINVAL);
	ASSERT_EQ(strait_device_info(device_named(ctx, "emu"), NULL), -EINVAL);
	info.size = sizeof(info) - 1;
	ASSERT_EQ(strait_device_info(device_named(ctx, "emu"), &info), -EINVAL);
	strait_context_close(ctx);
}

/* A struct of a later version is filled as far as the library knows it, and the rest with zeros. */
TEST(longer_structs_are_filled)
{
	struct strait_context *ctx = context_new(NULL);
	struct {
		struct strait_stats s;
		unsigned char tail[32];
	} longer;

	memset(&longer, 0x5a, sizeof(longer));
	longer.s.size = sizeof(longer);
	ASSERT_OK(strait_stats_get(ctx, &longer.s));
	ASSERT_EQ(longer.s.size, sizeof(longer));
	ASSERT_EQ(longer.s.transfers, 0);
	for (size_t i = 0; i < sizeof(longer.tail); i++)
		ASSERT_EQ(longer.tail[i], 0);
	longer.s.size = 8;
	ASSERT_EQ(strait_stats_get(ctx, &longer.s), -EINVAL);
	ASSERT_EQ(strait_stats_get(ctx, NULL), -EINVAL);
	strait_context_close(ctx);
}

/* ---- transfers ---- */

TEST(malformed_transfers)
{
	struct strait_context *ctx = context_new(NULL), *other = context_new(NULL);
	struct strait_region *r = region_new(device_named(ctx, "emu"), 1000);
	struct strait_region *foreign = region_new(device_named(other, "emu"), 1000);
	struct strait_endpoint *ep = file_new(ctx, make_file("file", 1000, 1), O_RDWR, 0);
	struct strait_endpoint *foreign_ep = file_new(other, test_path("file"), O_RDWR, 0);
	struct strait_transfer good = { .endpoint = ep, .region = r, .length = 1000, .user_data = 5 }, t;
	struct strait_route_report rep = { .size = sizeof(rep) };
	struct strait_queue_opts qo = { .size = sizeof(qo) };
	struct strait_queue *q;
	struct strait_result res;

#define MALFORMED(change)                                                                                              \
	do {                                                                                                           \
		t = good;                                                                                              \
		change;                                                                                                \
		ASSERT_EQ(strait_transfer_run(&t, STRAIT_FOREVER, &res), -EINVAL);                                     \
		ASSERT_EQ(strait_route_query(&t, &rep), -EINVAL);                                                      \
	} while (0)
	MALFORMED(t.op = 2);
	MALFORMED(t.op = UINT32_MAX);
	MALFORMED(t.routes = 1u << STRAIT_ROUTE_COUNT);
	MALFORMED(t.endpoint = NULL);
	MALFORMED(t.region = NULL);
	MALFORMED(t.endpoint = foreign_ep);
	MALFORMED(t.region = foreign);
	MALFORMED(t.flags = 1);
	MALFORMED(t.reserved = 1);
	MALFORMED(t.length = 1001);
	MALFORMED(t.length = UINT64_MAX);
	MALFORMED(t.region_offset = 1);
	MALFORMED(t.region_offset = UINT64_MAX);
	MALFORMED((t.region_offset = 1001, t.length = 0));
	MALFORMED(t.endpoint_offset = UINT64_MAX);
	MALFORMED(t.endpoint_offset = INT64_MAX - 999ll);
	MALFORMED(t.endpoint_offset = 1ull << 63);
	ASSERT_EQ(strait_transfer_run(NULL, STRAIT_FOREVER, &res), -EINVAL);
	ASSERT_EQ(strait_transfer_run(&good, STRAIT_FOREVER, NULL), -EINVAL);
	ASSERT_EQ(strait_transfer_run(&good, -1, &res), -EINVAL);
	ASSERT_EQ(strait_route_query(NULL, &rep), -EINVAL);
	ASSERT_EQ(strait_route_query(&good, NULL), -EINVAL);
	rep.size = 16;
	ASSERT_EQ(strait_route_query(&good, &rep), -EINVAL);
	ASSERT_EQ(strait_read(NULL, 0, r, 0, 1), -EINVAL);
	ASSERT_EQ(strait_read(ep, 0, NULL, 0, 1), -EINVAL);
	ASSERT_EQ(strait_write(NULL, 0, r, 0, 1), -EINVAL);
	ASSERT_EQ(strait_write(ep, INT64_MAX, r, 0, 1), -EINVAL);
	ASSERT_EQ(strait_read(ep, 0, r, 0, SIZE_MAX), -EINVAL);
	ASSERT_OK(strait_transfer_run(&good, STRAIT_FOREVER, &res));
	ASSERT_EQ(res.user_data, 5);
	ASSERT_EQ(res.reserved, 0);

	ASSERT_EQ(strait_queue_open(NULL, NULL, &q), -EINVAL);
	ASSERT_EQ(strait_queue_open(ctx, NULL, NULL), -EINVAL);
	qo.flags = 1;
	ASSERT_EQ(strait_queue_open(ctx, &qo, &q), -EINVAL);
	qo = (struct strait_queue_opts){ .size = 4 };
	ASSERT_EQ(strait_queue_open(ctx, &qo, &q), -EINVAL);
	qo = (struct strait_queue_opts){ .size = sizeof(qo), .entries = UINT32_MAX };
	ASSERT_EQ(strait_queue_open(ctx, &qo, &q), -EINVAL);
	ASSERT_EQ(strait_queue_submit(NULL, &good, 1), -EINVAL);

	ASSERT_EQ(strait_file_open(NULL, "/", O_RDONLY, 0, 0, &ep), -EINVAL);
	ASSERT_EQ(strait_file_open(ctx, NULL, O_RDONLY, 0, 0, &ep), -EINVAL);
	ASSERT_EQ(strait_file_open(ctx, "/", O_RDONLY, 0, 0, NULL), -EINVAL);
	ASSERT_EQ(strait_file_import(NULL, 0, 0, &ep), -EINVAL);
	ASSERT_EQ(strait_file_import(ctx, 0, 0, NULL), -EINVAL);
	ASSERT_EQ(strait_file_info(NULL, &(struct strait_file_info){ .size = sizeof(struct strait_file_info) }),
		  -EINVAL);
	ASSERT_EQ(strait_file_info(ep, NULL), -EINVAL);
	ASSERT_EQ(strait_file_info(ep, &(struct strait_file_info){ .size = 9 }), -EINVAL);
	ASSERT_EQ(strait_endpoint_sync(NULL), -EINVAL);
	ASSERT_OK(strait_endpoint_sync(ep));
	strait_endpoint_close(NULL);
	strait_endpoint_close(ep);
	strait_endpoint_close(foreign_ep);
	strait_region_close(r);
	strait_region_close(foreign);
	strait_context_close(ctx);
	strait_context_close(other);
}

/* At its deadline a long transfer stops after the present piece, and the bytes it reports are good. */
TEST_WHERE(a_deadline_that_passes, where_emulated)
TEST(a_deadline_that_passes)
{
	const uint64_t len = MIB(16);
	struct strait_emu_model slow = { .size = sizeof(slow), .bytes_per_second = MIB(64) };
	struct strait_context_opts opts = { .size = sizeof(opts), .pool_bytes = MIB(2) };
	struct strait_context *ctx = context_new(&opts);
	struct strait_device *dev = device_named(ctx, "emu");
	struct strait_region *r = region_new(dev, len);
	struct strait_endpoint *ep = file_new(ctx, make_file("file", len, 1), O_RDWR, 0);
	struct strait_transfer t = { .endpoint = ep, .region = r, .length = len, .routes = ROUTE(STAGED) };
	unsigned char *want = pattern_new(0, len, 1);
	struct strait_result res;

	ASSERT_EQ(strait_transfer_run(&t, 0, &res), -ETIMEDOUT);
	ASSERT_EQ(res.bytes, 0);
	ASSERT_OK(strait_region_fill(r, 0, 1, len));
	ASSERT_OK(strait_emu_set_model(dev, &slow));
	ASSERT_EQ(strait_transfer_run(&t, 30000000, &res), -ETIMEDOUT);
	ASSERT_EQ(res.status, -ETIMEDOUT);
	ASSERT_LT(res.bytes, len);
	region_expect(r, 0, want, res.bytes);
	region_expect_byte(r, res.bytes, 1, len - res.bytes);
	t.op = STRAIT_WRITE;
	ASSERT_EQ(strait_transfer_run(&t, 30000000, &res), -ETIMEDOUT);
	ASSERT_LT(res.bytes, len);
	/* With a deadline that is far away the transfer completes. */
	slow.bytes_per_second = 0;
	ASSERT_OK(strait_emu_set_model(dev, &slow));
	t.op = STRAIT_READ;
	ASSERT_OK(strait_transfer_run(&t, STRAIT_FOREVER - 1, &res));
	ASSERT_EQ(res.bytes, len);
	free(want);
	strait_endpoint_close(ep);
	strait_region_close(r);
	strait_context_close(ctx);
}

/* ---- the emulated device's own, and the machine ---- */

TEST_WHERE(the_emulated_device, where_emulated)
TEST(the_emulated_device)
{
	struct strait_context *ctx = context_new(NULL);
	struct strait_device *dev = device_named(ctx, "emu"), *host = device_named(ctx, "host");
	struct strait_emu_model m = { .size = sizeof(m) };
	void *p;

	ASSERT_EQ(strait_emu_set_model(host, &m), -EINVAL);
	ASSERT_EQ(strait_emu_set_model(NULL, &m), -EINVAL);
	ASSERT_EQ(strait_emu_set_model(dev, NULL), -EINVAL);
	m.size = 1;
	ASSERT_EQ(strait_emu_set_model(dev, &m), -EINVAL);
	ASSERT_EQ(strait_emu_malloc(host, 10, &p), -EINVAL);
	ASSERT_EQ(strait_emu_malloc(dev, 0, &p), -EINVAL);
	ASSERT_EQ(strait_emu_malloc(dev, 10, NULL), -EINVAL);
	ASSERT_OK(strait_emu_malloc(dev, 10, &p));
	ASSERT_EQ(strait_emu_free(dev, (char *)p + 1), -EINVAL);
	ASSERT_EQ(strait_emu_free(host, p), -EINVAL);
	ASSERT_OK(strait_emu_free(dev, NULL));
	ASSERT_OK(strait_emu_free(dev, p));
	ASSERT_EQ(strait_emu_remove(host), -EINVAL);
	ASSERT_EQ(strait_emu_remove(NULL), -EINVAL);
	strait_context_close(ctx);
}

TEST(the_machine)
{
	struct strait_topo_kernel k = { .size = sizeof(k) };
	struct strait_topo_node n = { .size = sizeof(n) };
	struct strait_topo *topo;
	unsigned int i;

	ASSERT_OK(strait_topo_kernel(&k));
	ASSERT_NE(k.release[0], '\0');
	ASSERT_GE(k.cpus, 1);
	ASSERT_OK(strait_topo_open(&topo));
	for (i = 0; !strait_topo_node(topo, i, &n); i++)
		ASSERT_EQ(strait_topo_link(topo, n.pci, n.pci, NULL), STRAIT_LINK_SAME);
	ASSERT_EQ(strait_topo_node(topo, i, &n), -ENOENT);
	ASSERT_EQ(strait_topo_link(topo, "ffff:ff:1f.7", "ffff:ff:1f.7", NULL), -ENODEV);
	strait_topo_close(topo);
	strait_topo_close(NULL);
}

/* One context that all parts of the process share. */
TEST(shared_context)
{
	struct strait_context *ctx = context_new(NULL), *other = context_new(NULL), *got;

	ASSERT_EQ(strait_context_shared(NULL), -EINVAL);
	ASSERT_EQ(strait_context_shared(&got), -ENOENT);
	ASSERT_OK(strait_context_share(ctx));
	ASSERT_OK(strait_context_shared(&got));
	ASSERT_EQ(got, ctx);
	strait_context_close(got);
	/* A process shares at most one context: a second one does not replace the first and cannot withdraw it. */
	ASSERT_EQ(strait_context_share(other), -EBUSY);
	ASSERT_EQ(strait_context_share(ctx), -EBUSY);
	ASSERT_EQ(strait_context_unshare(other), -ENOENT);
	ASSERT_EQ(strait_context_share(NULL), -EINVAL);
	ASSERT_EQ(strait_context_unshare(NULL), -EINVAL);
	ASSERT_OK(strait_context_unshare(ctx));
	ASSERT_EQ(strait_context_unshare(ctx), -ENOENT);
	ASSERT_OK(strait_context_share(other));
	ASSERT_OK(strait_context_shared(&got));
	ASSERT_EQ(got, other);
	/* References that were obtained stay valid after the context is withdrawn. */
	ASSERT_OK(strait_context_unshare(other));
	strait_context_close(other);
	ASSERT_EQ(strait_context_shared(&other), -ENOENT);
	ASSERT_GT(strait_device_count(got), 0);
	strait_context_close(got);
	strait_context_close(ctx);
}
