/* SPDX-License-Identifier: MIT */
/* Reads that reach past the end of the file: memory past the bytes that were read stays as it was. */
#include "common.h"

#define FILLED 0x5d
#define MAX_BYTES (MIB(3) + 1111)
#define ROOM (MAX_BYTES + MIB(2))

static const struct mode modes[] = { READ_MODES };

static const uint64_t lengths[] = { 0, 1, 511, 512, 513, 4095, 4096, 4097, 66000, MIB(1), MIB(2) + 512, MAX_BYTES };

struct rig {
	struct strait_context *ctx;
	struct strait_region *r;
	struct strait_queue *q;
	struct strait_stream *s;
	unsigned char *want;
	uint32_t routes;
};

static void rig_open(struct rig *g, const struct mode *m)
{
	struct strait_device *dev;

	g->ctx = context_for(m);
	dev = device_named(g->ctx, m->device);
	g->r = region_new(dev, ROOM);
	g->q = queue_new(g->ctx, 0);
	ASSERT_OK(strait_stream_open(dev, &g->s));
	g->want = pattern_new(0, MAX_BYTES, 3);
	g->routes = m->routes;
}

static void rig_close(struct rig *g)
{
	free(g->want);
	strait_stream_close(g->s);
	strait_queue_close(g->q);
	strait_region_close(g->r);
	strait_context_close(g->ctx);
}

static uint64_t by_call(struct rig *g, struct strait_endpoint *ep, uint64_t off, uint64_t at, uint64_t len)
{
	struct strait_result res = move(STRAIT_READ, g->routes, ep, off, g->r, at, len);

	ASSERT_EQ(res.status, 0);
	return res.bytes;
}

/* Submits two at once, so that short ones are coalesced; the second goes to memory that is not compared. */
static uint64_t by_queue(struct rig *g, struct strait_endpoint *ep, uint64_t off, uint64_t at, uint64_t len)
{
	struct strait_transfer t[2] = { { .routes = g->routes,
					  .endpoint = ep,
					  .region = g->r,
					  .endpoint_offset = off,
					  .region_offset = at,
					  .length = len,
					  .user_data = 1 } };
	struct strait_result res[2];

	t[1] = t[0];
	t[1].user_data = 2;
	t[1].region_offset = ROOM - 64;
	t[1].length = min_u64(len, 64);
	ASSERT_OK(strait_queue_submit(g->q, t, 2));
	ASSERT_EQ(strait_queue_wait(g->q, 2, 2, STRAIT_FOREVER, res), 2);
	ASSERT_EQ(res[0].status, 0);
	ASSERT_EQ(res[1].status, 0);
	return res[res[0].user_data == 1 ? 0 : 1].bytes;
}

static uint64_t by_stream(struct rig *g, struct strait_endpoint *ep, uint64_t off, uint64_t at, uint64_t len)
{
	int64_t result = -1;
	struct strait_stream_transfer t = { .size = sizeof(t),
					    .routes = g->routes,
					    .endpoint = ep,
					    .region = g->r,
					    .endpoint_offset = &off,
					    .region_offset = &at,
					    .length = &len,
					    .result = &result };

	ASSERT_OK(strait_stream_transfer(g->s, &t));
	ASSERT_OK(strait_stream_wait(g->s, STRAIT_FOREVER));
	ASSERT_GE(result, 0);
	return (uint64_t)result;
}

static void read_and_look(struct rig *g, struct strait_endpoint *ep, uint64_t in_file, uint64_t off, uint64_t at,
			  uint64_t len)
{
	static uint64_t (*const methods[])(struct rig *, struct strait_endpoint *, uint64_t, uint64_t,
					   uint64_t) = { by_call, by_queue, by_stream };

	for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
		uint64_t want = off < in_file ? min_u64(len, in_file - off) : 0;

		/* Fill only what is compared, and some more: filling all of it each time takes long. */
		ASSERT_OK(strait_region_fill(g->r, 0, FILLED, min_u64(at + len + KIB(64), ROOM)));
		ASSERT_EQ(methods[i](g, ep, off, at, len), want);
		region_expect_byte(g->r, 0, FILLED, at);
		region_expect(g->r, at, g->want + off, want);
		region_expect_byte(g->r, at + want, FILLED, min_u64(len - want + KIB(60), ROOM - 64 - at - want));
	}
}

/* Aligned and unaligned, in file and memory, starting long before the end, near it and past it. */
static void read_past_the_end(struct rig *g, const char *path, struct strait_endpoint *ep, uint64_t in_file)
{
	const uint64_t last = align_down(in_file, 4096);
	const struct {
		uint64_t off, at, len;
	} reads[] = {
		{ 0, 0, in_file + MIB(1) },
		{ 0, 4096, align_up(in_file + 1, 4096) },
		{ last, 0, 4096 },
		{ last, 8192, KIB(512) },
		{ last, 8192 + 1, 8192 },
		{ in_file, 4096, 4096 },
		{ in_file / 2, 77, in_file },
		{ align_up(in_file, 4096), 0, 8192 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(reads); i++) {
		if (i % 2)
			warm(path);
		else
			evict(path, 0, 0);
		read_and_look(g, ep, in_file, reads[i].off, reads[i].at, reads[i].len);
	}
}

static void all_lengths(const struct mode *m, const char *folder)
{
	struct rig g;
	char path[4200];

	rig_open(&g, m);
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		struct strait_endpoint *ep;
		int fd;

		/* At least one short and one long read, where reads take long. */
		if (test_slow() > 4 && i % 4 != 3)
			continue;
		snprintf(path, sizeof(path), "%s/file", folder);
		unlink(path);
		write_at(path, g.want, lengths[i], 0);
		/* Every second file has blocks past its end, which file systems return as zeros. */
		fd = open(path, O_RDWR | O_CLOEXEC);
		ASSERT_GE(fd, 0);
		if (i % 2)
			fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)(lengths[i] + MIB(2)));
		ASSERT_EQ(fsync(fd), 0);
		close(fd);
		ep = file_new(g.ctx, path, O_RDONLY, m->file);
		read_past_the_end(&g, path, ep, lengths[i]);
		strait_endpoint_close(ep);
	}
	rig_close(&g);
}

TEST_WHERE(past_the_end, where_host_once)
TEST_VARIANTS_TIMEOUT(past_the_end, struct mode, modes, 120)
{
	all_lengths(v, test_dir());
}

static const struct mode direct_modes[] = {
	{ "emu", "emu:0", 0, STRAIT_FILE_DIRECT, 0 },
	{ "host", "host", 0, STRAIT_FILE_DIRECT, 0 },
	{ "host-threads", "host", 0, STRAIT_FILE_DIRECT, STRAIT_CONTEXT_NO_URING },
};

/* Guests of the lab have no loop devices, and their files are on ext4 on a drive already. */
static bool where_loop_devices(const void *v)
{
	return where_host_once(v) && !getenv("LAB_KERNEL");
}

TEST_WHERE(past_the_end_on_ext4, where_loop_devices)
TEST_VARIANTS_TIMEOUT(past_the_end_on_ext4, struct mode, direct_modes, 120)
{
	all_lengths(v, mount_new("ext4", MIB(64)));
}

TEST_WHERE(past_the_end_on_xfs, where_loop_devices)
TEST_VARIANTS_TIMEOUT(past_the_end_on_xfs, struct mode, direct_modes, 120)
{
	all_lengths(v, mount_new("xfs", MIB(320)));
}

TEST_WHERE(past_the_end_of_a_block_device, where_loop_devices)
TEST_VARIANTS(past_the_end_of_a_block_device, struct mode, direct_modes)
{
	const uint64_t len = MIB(2) + 3 * 512;
	struct strait_endpoint *ep;
	struct rig g;
	char path[64];

	rig_open(&g, v);
	write_at(test_path("image"), g.want, len, 0);
	loop_device(test_path("image"), len, 512, path, sizeof(path));
	ep = file_new(g.ctx, path, O_RDONLY, v->file);
	read_and_look(&g, ep, len, 0, 0, len + MIB(1));
	read_and_look(&g, ep, len, align_down(len, 4096), 4096, KIB(512));
	read_and_look(&g, ep, len, len - 512, 512, 4096);
	read_and_look(&g, ep, len, len - 512 - 7, 3, 8192);
	strait_endpoint_close(ep);
	rig_close(&g);
}

/* An O_DIRECT descriptor that cannot be reopened: no buffered read finds the end of the file. */
TEST_WHERE(past_the_end_by_direct_io_alone, where_host_once)
TEST_VARIANTS(past_the_end_by_direct_io_alone, struct mode, direct_modes)
{
	struct rig g;

	rig_open(&g, v);
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		const char *path = make_file("file", lengths[i], 3);
		int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
		struct strait_endpoint *ep;
		int rc;

		if (fd < 0)
			SKIP("no O_DIRECT in %s", test_dir());
		inject(OS_OPEN, 1, UINT32_MAX, -EPERM);
		rc = strait_file_import(g.ctx, fd, 0, &ep);
		inject_off();
		ASSERT_OK(rc);
		close(fd);
		read_past_the_end(&g, path, ep, lengths[i]);
		strait_endpoint_close(ep);
	}
	rig_close(&g);
}

/* Such files have no pages to map. */
static const struct mode read_modes[] = {
	{ "emu", "emu:0", 0, 0, 0 },
	{ "emu-direct", "emu:0", 0, STRAIT_FILE_DIRECT, 0 },
	{ "host", "host", 0, 0, 0 },
	{ "host-direct", "host", 0, STRAIT_FILE_DIRECT, 0 },
};

/* The kernel reports length 0 for these files; they are read to their end nevertheless. */
TEST_WHERE(files_that_hide_their_length, where_host_once)
TEST_VARIANTS(files_that_hide_their_length, struct mode, read_modes)
{
	static const char *const paths[] = { "/proc/cpuinfo", "/proc/self/mountinfo", "/sys/kernel/notes" };
	struct rig g;

	rig_open(&g, v);
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		struct strait_endpoint *ep;
		uint64_t len = 0, got;
		ssize_t n;
		int fd;

		fd = open(paths[i], O_RDONLY | O_CLOEXEC);
		ASSERT_GE(fd, 0);
		while ((n = read(fd, g.want + len, MAX_BYTES - len)) > 0)
			len += (uint64_t)n;
		ASSERT_EQ(n, 0);
		ASSERT_GT(len, 0);
		close(fd);
		ep = file_new(g.ctx, paths[i], O_RDONLY, v->file);
		for (uint64_t ask = KIB(32); ask <= MIB(1); ask *= 32) {
			ASSERT_OK(strait_region_fill(g.r, 0, FILLED, ROOM));
			got = by_call(&g, ep, 0, 0, ask);
			ASSERT_EQ(got, min_u64(ask, len));
			/* The clock rate of a CPU changes between two reads. */
			if (i)
				region_expect(g.r, 0, g.want, got);
			region_expect_byte(g.r, got, FILLED, ROOM - got);
		}
		strait_endpoint_close(ep);
	}
	rig_close(&g);
}

struct resizer {
	int fd;
	uint64_t low, high;
	atomic_bool stop;
};

static void *resize(void *arg)
{
	struct resizer *z = arg;
	uint64_t state = 5;

	while (!atomic_load(&z->stop))
		ASSERT_EQ(ftruncate(z->fd, (off_t)(z->low + prng_below(&state, z->high - z->low + 1))), 0);
	return NULL;
}

/* If the length changes during a read, nothing is written past the greatest length that the file had. */
TEST_WHERE(resized_while_read, where_host_once)
TEST_VARIANTS(resized_while_read, struct mode, modes)
{
	struct resizer z = { .low = MIB(1) + 300, .high = MAX_BYTES };
	const char *path = make_file("file", MAX_BYTES, 3);
	struct strait_endpoint *ep;
	struct rig g;
	pthread_t t;

	rig_open(&g, v);
	/* The promise of an immutable file does not matter here: only the length is checked. */
	ep = file_new(g.ctx, path, O_RDONLY, v->file & ~STRAIT_FILE_IMMUTABLE);
	z.fd = open(path, O_RDWR | O_CLOEXEC);
	ASSERT_GE(z.fd, 0);
	thread_start(&t, resize, &z);
	for (int i = 0; i < (test_slow() > 4 ? 10 : 40); i++) {
		uint64_t off = i % 2 ? 0 : MIB(1), got;

		ASSERT_OK(strait_region_fill(g.r, 0, FILLED, ROOM));
		got = by_call(&g, ep, off, 0, ROOM);
		ASSERT_GE(got, z.low - off);
		ASSERT_LE(got, z.high - off);
		/* The part that existed all the time. */
		region_expect(g.r, 0, g.want + off, z.low - off);
		region_expect_byte(g.r, z.high - off, FILLED, ROOM - (z.high - off));
	}
	atomic_store(&z.stop, true);
	thread_join(t);
	close(z.fd);
	strait_endpoint_close(ep);
	rig_close(&g);
}
