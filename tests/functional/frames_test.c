/* SPDX-License-Identifier: MIT */
/*
 * Frames: threads of a device load from and store to a mapping (strait/view.h), and the CPU and another device see it. Kernels
 * are functions here, each of which runs several threads.
 */
#include <strait/frames.h>
#include <strait/view.h>
#include <sys/mman.h>

#include "base/util.h"
#include "mapping_rig.h"
#include "os/inject.h"

#define WARPS 4u
#define LEN MIB(2)

static const struct mapping_mode modes[] = { MAPPING_MODES };

struct frames_rig {
	struct mapping_rig map;
	struct strait_frames *frames;
	struct strait_stream *stream;
	struct strait_view view;
};

static struct strait_frames_info info_of(struct strait_frames *f)
{
	struct strait_frames_info info = { .size = sizeof(info) };

	ASSERT_OK(strait_frames_info(f, &info));
	return info;
}

static void frames_add(struct frames_rig *r, const struct strait_frames_opts *o)
{
	ASSERT_OK(strait_frames_open(r->map.m, r->map.dev, o, &r->frames));
	ASSERT_OK(strait_stream_open(r->map.dev, &r->stream));
}

static void rig_open(struct frames_rig *r, const struct mapping_mode *v, uint64_t len, uint32_t frame_bytes,
		     uint64_t budget)
{
	struct strait_frames_opts o = { .size = sizeof(o), .frame_bytes = frame_bytes, .device_budget = budget };

	mapping_rig_open(&r->map, v, len, NULL);
	frames_add(r, &o);
}

static void rig_close(struct frames_rig *r)
{
	strait_stream_close(r->stream);
	strait_frames_close(r->frames);
	mapping_rig_close(&r->map);
}

/* ---- kernels ---- */

struct kernel;
typedef void warp_fn(struct kernel *k, unsigned int warp);

struct kernel {
	struct strait_view view;
	warp_fn *fn;
	const unsigned char *want; /* all bytes */
	uint64_t seed, steps;
	unsigned char *model;
	int error[WARPS];
};

struct warp {
	struct kernel *k;
	unsigned int number;
};

static void *warp_main(void *arg)
{
	struct warp *w = arg;

	w->k->fn(w->k, w->number);
	return NULL;
}

static void kernel_main(void *arg)
{
	struct warp warp[WARPS];
	pthread_t thread[WARPS];

	for (unsigned int i = 0; i < WARPS; i++) {
		warp[i] = (struct warp){ arg, i };
		ASSERT_EQ(pthread_create(&thread[i], NULL, warp_main, &warp[i]), 0);
	}
	for (unsigned int i = 0; i < WARPS; i++)
		pthread_join(thread[i], NULL);
}

/* Begin, the kernel and end on the stream. Returns what the stream reported. */
static int run(struct frames_rig *r, uint32_t intent, struct kernel *k)
{
	int begun = 1, ended = 1;

	k->view.abi = STRAIT_VIEW_ABI;
	ASSERT_OK(strait_view_begin(r->frames, r->stream, intent, &k->view, &begun));
	ASSERT_OK(strait_stream_call(r->stream, kernel_main, k));
	ASSERT_OK(strait_view_end(r->frames, r->stream, &ended));
	ASSERT_OK(strait_stream_wait(r->stream, STRAIT_FOREVER));
	return begun ? begun : ended;
}

static void run_ok(struct frames_rig *r, uint32_t intent, struct kernel *k)
{
	ASSERT_EQ(run(r, intent, k), 0);
	for (unsigned int i = 0; i < WARPS; i++)
		ASSERT_EQ(k->error[i], 0);
}

static void compare_all(struct kernel *k, unsigned int warp)
{
	uint64_t part = 3 * 4096 + 77;
	unsigned char *buf = malloc(part);

	for (uint64_t off = warp * part; off < k->view.length && !k->error[warp]; off += WARPS * part) {
		uint64_t n = min_u64(part, k->view.length - off);
		int rc = strait_view_read(&k->view, off, buf, n);

		k->error[warp] = rc ? rc : memcmp(buf, k->want + off, n) != 0;
	}
	free(buf);
}

static void expect_by_device(struct frames_rig *r, const void *want)
{
	struct kernel k = { .fn = compare_all, .want = want };

	run_ok(r, STRAIT_INTENT_READ, &k);
}

/* ---- tests ---- */

static const struct size {
	const char *name;
	uint32_t bytes;
} sizes[] = { { "4k", KIB(4) }, { "16k", KIB(16) }, { "64k", 0 }, { "2m", MIB(2) } };

TEST_VARIANTS(loads_of_all_sizes, struct size, sizes)
{
	static const struct mapping_mode emu = { "emu", "emu:0", 0, false };
	uint64_t len = MIB(5) + 1234;
	unsigned char *want = pattern_new(0, len, 1);
	struct strait_frames_info info;
	struct frames_rig r;

	rig_open(&r, &emu, len, v->bytes, v->bytes == MIB(2) ? MIB(4) : MIB(1));
	expect_by_device(&r, want);
	expect_by_device(&r, want);
	info = info_of(r.frames);
	ASSERT_EQ(info.frame_bytes, v->bytes ? v->bytes : KIB(64));
	ASSERT_GT(info.evictions, 0);
	ASSERT_GT(info.fetched, (len >> 12));
	ASSERT_EQ(info.stored, 0);
	ASSERT_EQ(info.begun, 0);
	ASSERT_EQ(info.error, 0);
	rig_close(&r);
	free(want);
}

static void store_some(struct kernel *k, unsigned int warp)
{
	struct strait_cursor c = STRAIT_CURSOR_INIT;
	uint64_t seed = k->seed * WARPS + warp + 1, words = k->view.length / 8 / WARPS;

	/* Each warp has its words, in all granules. */
	for (uint64_t i = 0; i < k->steps; i++) {
		uint64_t w = prng_below(&seed, words) * WARPS + warp, x = prng_next(&seed),
			 *model = (uint64_t *)(void *)k->model;

		if (x % 4 == 0) {
			if (strait_load_u64(&k->view, &c, w * 8) != model[w])
				c.error = c.error ? c.error : 1;
		} else if (x % 4 == 1) {
			strait_atomic_xor_u64(&k->view, &c, w * 8, x);
			model[w] ^= x;
		} else {
			strait_store_u64(&k->view, &c, w * 8, x);
			model[w] = x;
		}
	}
	k->error[warp] = c.error;
}

/* On another device than the emulated one two modes are enough, and only root has it. */
static bool mode_applies(const void *variant)
{
	const struct mapping_mode *v = variant;

	return !getenv("STRAIT_TEST_DEVICE") || !strcmp(v->name, "emu") || !strcmp(v->name, "emu-copy");
}
TEST_WHERE(turns, mode_applies)

/* The CPU, the frames and a flat copy on the device take turns; each sees what the others published. */
TEST_VARIANTS_TIMEOUT(turns, struct mapping_mode, modes, 120)
{
	unsigned char *model = pattern_new(0, LEN, 1), byte;
	unsigned int turns = very_slow() ? 4 : 24 / test_slow() + 4;
	uint64_t seed = 11;
	struct frames_rig r;

	/* A quarter of it fits. */
	rig_open(&r, v, LEN, KIB(16), LEN / 4);
	for (unsigned int i = 0; i < turns; i++) {
		struct kernel k = { .fn = store_some, .model = model, .seed = i, .steps = 800 };

		for (unsigned int n = 0; n < 5; n++) {
			uint64_t off = prng_below(&seed, LEN);

			byte = (unsigned char)prng_next(&seed);
			side_write(&r.map, i % 2 ? NULL : r.map.dev, off, &byte, 1);
			model[off] = byte;
		}
		run_ok(&r, STRAIT_INTENT_WRITE, &k);
		if (i % 3 == 0)
			side_expect(&r.map, NULL, 0, model, LEN);
		if (i % 3 == 1)
			side_expect(&r.map, r.map.dev, 0, model, LEN);
		if (i % 3 == 2)
			expect_by_device(&r, model);
	}
	ASSERT_OK(strait_mapping_sync(r.map.m, 0, LEN));
	ASSERT_GT(info_of(r.frames).dropped, 0);
	ASSERT_GT(info_of(r.frames).stored, 0);
	ASSERT_EQ(mapping_info_of(r.map.m).conflicts, 0);
	strait_stream_close(r.stream);
	strait_frames_close(r.frames);
	file_expect(r.map.path, 0, model, LEN);
	mapping_rig_close(&r.map);
	free(model);
}

static void add_one(struct kernel *k, unsigned int warp)
{
	struct strait_cursor c = STRAIT_CURSOR_INIT;

	for (uint64_t i = 0; i < k->steps; i++)
		strait_atomic_add_u64(&k->view, &c, i % 1000 * 4096, 1);
	k->error[warp] = c.error;
}

/* Anonymous memory, more of it than frames. */
TEST(anonymous)
{
	struct strait_frames_opts o = { .size = sizeof(o), .frame_bytes = KIB(4), .device_budget = KIB(64) };
	struct kernel k = { .fn = add_one, .steps = 5000 };
	struct strait_frames_info info;
	struct frames_rig r = { 0 };
	uint64_t sum = 0;
	void *at;

	r.map.ctx = context_new(NULL);
	r.map.dev = device_named(r.map.ctx, "emu:0");
	ASSERT_OK(strait_mapping_open(r.map.ctx, NULL, 0, MIB(4), NULL, &r.map.m));
	frames_add(&r, &o);
	run_ok(&r, STRAIT_INTENT_WRITE, &k);
	ASSERT_OK(strait_mapping_acquire(r.map.m, NULL, 0, MIB(4), STRAIT_INTENT_READ, &at));
	for (unsigned int i = 0; i < 1024; i++)
		sum += ((uint64_t *)at)[i * 512];
	ASSERT_EQ(sum, WARPS * 5000);
	info = info_of(r.frames);
	ASSERT_GT(info.evictions, 0);
	ASSERT_EQ(info.frames, 16);
	ASSERT_OK(strait_mapping_release(r.map.m, NULL, 0, MIB(4), STRAIT_INTENT_READ));
	strait_stream_close(r.stream);
	strait_frames_close(r.frames);
	strait_mapping_close(r.map.m);
	strait_context_close(r.map.ctx);
}

static const struct window_case {
	const char *name;
	uint32_t mapping_flags, flags;
	bool windows;
} window_cases[] = {
	{ "read-only", STRAIT_MAPPING_READ_ONLY, 0, true },
	{ "refused", STRAIT_MAPPING_READ_ONLY, STRAIT_FRAMES_NO_WINDOWS, false },
	{ "shared-file", 0, 0, false },
	{ "sole-writer", 0, STRAIT_FRAMES_SOLE_WRITER, true },
	{ "private", STRAIT_MAPPING_PRIVATE, STRAIT_FRAMES_SOLE_WRITER, false },
};

/* Files that do not change are read in place, where the device can. */
TEST_VARIANTS(windows, struct window_case, window_cases)
{
	struct mapping_mode mode = { "emu", "emu:0", v->mapping_flags, false };
	struct strait_frames_opts o = { .size = sizeof(o), .flags = v->flags, .device_budget = KIB(256) };
	unsigned char *want = pattern_new(0, LEN, 1);
	struct frames_rig r;

	mapping_rig_open(&r.map, &mode, LEN, NULL);
	frames_add(&r, &o);
	if (v->flags & STRAIT_FRAMES_SOLE_WRITER) {
		struct kernel k = { .fn = store_some, .model = want, .seed = 5, .steps = 3000 };

		run_ok(&r, STRAIT_INTENT_WRITE, &k);
	}
	expect_by_device(&r, want);
	ASSERT_EQ(info_of(r.frames).window_bytes, v->windows ? LEN : 0);
	ASSERT_EQ(info_of(r.frames).pulled > 0, v->windows);
	ASSERT_EQ(info_of(r.frames).fetched > 0, !v->windows);
	rig_close(&r);
	free(want);
}

/* A file whose last window is a whole one: closing looks at no other. */
TEST(whole_windows)
{
	static const struct mapping_mode emu = { "emu", "emu:0", STRAIT_MAPPING_READ_ONLY, false };
	struct strait_frames_opts o = { .size = sizeof(o), .device_budget = MIB(1) };
	const char *path = make_file("whole", 4096, 1);
	struct frames_rig r;

	ASSERT_EQ(truncate(path, (off_t)MIB(256)), 0);
	mapping_rig_map(&r.map, &emu, path);
	frames_add(&r, &o);
	ASSERT_EQ(info_of(r.frames).window_bytes, MIB(256));
	rig_close(&r);
}

static void load_one_each(struct kernel *k, unsigned int warp)
{
	for (uint64_t g = warp; g * 4096 < k->view.length; g += WARPS) {
		struct strait_cursor c = STRAIT_CURSOR_INIT;
		unsigned char x = strait_load_u8(&k->view, &c, g * 4096);
		int want = g * 4096 < k->steps ? 0 : -EFAULT;

		if (c.error != want || (!c.error && x != k->want[g * 4096]))
			k->error[warp] = c.error ? c.error : 1;
	}
}

/* A truncated file: an error to the threads that touch what is gone, and to no other. When it is there again, it is read. */
TEST(truncated)
{
	static const struct mapping_mode emu = { "emu", "emu:0", 0, false };
	unsigned char *want = pattern_new(0, LEN, 1);
	struct kernel k = { .fn = load_one_each, .want = want, .steps = LEN / 2 + 100 };
	struct frames_rig r;

	rig_open(&r, &emu, LEN, KIB(16), KIB(256));
	ASSERT_EQ(truncate(r.map.path, LEN / 2 + 100), 0);
	run_ok(&r, STRAIT_INTENT_READ, &k);
	ASSERT_EQ(info_of(r.frames).error, -EFAULT);
	ASSERT_GE(info_of(r.frames).error_offset, LEN / 2);
	ASSERT_GE(info_of(r.frames).failures, LEN / 2 / 4096 - 1);
	write_at(r.map.path, want, LEN, 0);
	k.steps = LEN;
	run_ok(&r, STRAIT_INTENT_READ, &k);
	ASSERT_EQ(info_of(r.frames).error, 0);
	rig_close(&r);
	free(want);
}

/* The file system is full: what is dirty stays in its frames, and is written once there is room. */
TEST(no_space)
{
	static const struct mapping_mode emu = { "emu", "emu:0", 0, false };
	unsigned char *model = pattern_new(0, LEN, 1);
	struct kernel k = { .fn = store_some, .model = model, .seed = 1, .steps = 400 };
	struct kernel none = { .fn = compare_all, .want = model };
	struct frames_rig r;

	rig_open(&r, &emu, LEN, KIB(64), LEN);
	inject(OS_PWRITE, 1, 1000000, -ENOSPC);
	ASSERT_EQ(run(&r, STRAIT_INTENT_WRITE, &k), -ENOSPC);
	ASSERT_EQ(info_of(r.frames).error, -ENOSPC);
	ASSERT_EQ(mapping_info_of(r.map.m).error, -ENOSPC);
	inject_off();
	run_ok(&r, STRAIT_INTENT_READ, &none);
	side_expect(&r.map, NULL, 0, model, LEN);
	rig_close(&r);
	free(model);
}

static void store_first(struct kernel *k, unsigned int warp)
{
	struct strait_cursor c = STRAIT_CURSOR_INIT;

	strait_store_u64(&k->view, &c, warp * 4096, k->seed);
	((uint64_t *)(void *)k->model)[warp * 512] = k->seed;
	k->error[warp] = c.error;
}

/* What could not be written is dirty in a view that only reads, too: it is written before its frame is taken. */
TEST(no_space_then_reads)
{
	static const struct mapping_mode emu = { "emu", "emu:0", 0, false };
	unsigned char *model = pattern_new(0, LEN, 1);
	struct kernel k = { .fn = store_first, .model = model, .seed = 77 };
	struct frames_rig r;

	rig_open(&r, &emu, LEN, KIB(16), LEN / 8);
	inject(OS_PWRITE, 1, 1000000, -ENOSPC);
	ASSERT_EQ(run(&r, STRAIT_INTENT_WRITE, &k), -ENOSPC);
	inject_off();
	expect_by_device(&r, model);
	ASSERT_GT(info_of(r.frames).evictions, 0);
	expect_by_device(&r, model);
	side_expect(&r.map, NULL, 0, model, LEN);
	rig_close(&r);
	free(model);
}

TEST(calls_in_the_wrong_order)
{
	static const struct mapping_mode emu = { "emu", "emu:0", 0, false };
	struct strait_view view = { .abi = STRAIT_VIEW_ABI };
	struct frames_rig r;

	rig_open(&r, &emu, LEN, 0, 0);
	ASSERT_EQ(strait_view_end(r.frames, r.stream, NULL), -EINVAL);
	view.abi = STRAIT_VIEW_ABI + 1;
	ASSERT_EQ(strait_view_begin(r.frames, r.stream, STRAIT_INTENT_READ, &view, NULL), -EPROTO);
	view.abi = STRAIT_VIEW_ABI;
	ASSERT_EQ(strait_view_begin(r.frames, r.stream, STRAIT_INTENT_OVERWRITE, &view, NULL), -EINVAL);
	ASSERT_OK(strait_view_begin(r.frames, r.stream, STRAIT_INTENT_WRITE, &view, NULL));
	ASSERT_EQ(strait_view_begin(r.frames, r.stream, STRAIT_INTENT_READ, &view, NULL), -EBUSY);
	/* Device threads may have newer bytes than the file. */
	ASSERT_EQ(strait_mapping_refresh(r.map.m, 0, LEN), -EBUSY);
	ASSERT_OK(strait_view_end(r.frames, r.stream, NULL));
	ASSERT_EQ(strait_view_end(r.frames, r.stream, NULL), -EINVAL);
	ASSERT_OK(strait_stream_wait(r.stream, STRAIT_FOREVER));
	ASSERT_OK(strait_mapping_refresh(r.map.m, 0, LEN));
	/* Begun and not ended: closing ends it. */
	ASSERT_OK(strait_view_begin(r.frames, r.stream, STRAIT_INTENT_WRITE, &view, NULL));
	ASSERT_OK(strait_stream_wait(r.stream, STRAIT_FOREVER));
	rig_close(&r);
}

TEST(options)
{
	static const struct mapping_mode emu = { "emu", "emu:0", STRAIT_MAPPING_READ_ONLY, false };
	struct strait_frames_opts o = { .size = sizeof(o) };
	struct strait_view view = { .abi = STRAIT_VIEW_ABI };
	struct frames_rig r;

	rig_open(&r, &emu, LEN, 0, 0);
	ASSERT_EQ(strait_view_begin(r.frames, r.stream, STRAIT_INTENT_WRITE, &view, NULL), -EACCES);
	strait_frames_close(r.frames);
	o.frame_bytes = 8192;
	ASSERT_EQ(strait_frames_open(r.map.m, r.map.dev, &o, &r.frames), -EINVAL);
	o.frame_bytes = KIB(64);
	o.device_budget = KIB(64) - 1;
	ASSERT_EQ(strait_frames_open(r.map.m, r.map.dev, &o, &r.frames), -ENOSPC);
	o.device_budget = KIB(256);
	o.pins = 4;
	ASSERT_EQ(strait_frames_open(r.map.m, r.map.dev, &o, &r.frames), -ENOSPC);
	o.pins = 3;
	o.slots = 1025;
	ASSERT_EQ(strait_frames_open(r.map.m, r.map.dev, &o, &r.frames), -EINVAL);
	o.slots = 1;
	o.threads = 1;
	ASSERT_OK(strait_frames_open(r.map.m, r.map.dev, &o, &r.frames));
	rig_close(&r);
}

/* Other processes write to the file. */
TEST(refresh)
{
	static const struct mapping_mode emu = { "emu", "emu:0", 0, false };
	unsigned char *want = pattern_new(0, LEN, 1);
	struct frames_rig r;

	rig_open(&r, &emu, LEN, 0, LEN);
	expect_by_device(&r, want);
	memset(want + 12345, 7, 5000);
	write_at(r.map.path, want + 12345, 5000, 12345);
	ASSERT_OK(strait_mapping_refresh(r.map.m, 12345, 5000));
	expect_by_device(&r, want);
	ASSERT_EQ(info_of(r.frames).dropped, 2);
	rig_close(&r);
	free(want);
}

static void touch_some(struct kernel *k, unsigned int warp)
{
	struct strait_cursor c = STRAIT_CURSOR_INIT;
	uint64_t seed = 1;

	for (unsigned int i = 0; i < 200; i++) {
		uint64_t g = prng_below(&seed, k->view.length / 4096);

		strait_atomic_add_u64(&k->view, &c, g * 4096 + warp * 8, g + 1);
	}
	k->error[warp] = c.error;
}

/* Far more than there is memory, on the device or the host: only what is touched takes any. */
TEST(a_large_sparse_file)
{
	static const struct mapping_mode emu = { "emu", "emu:0", 0, false };
	struct strait_frames_opts o = { .size = sizeof(o), .device_budget = MIB(1) };
	struct kernel k = { .fn = touch_some };
	uint64_t len = GIB(64), seed = 1;
	struct frames_rig r;
	const char *path;

	path = make_file("sparse", 4096, 1);
	if (truncate(path, (off_t)len))
		SKIP("the file system has no files of 64 GiB");
	mapping_rig_map(&r.map, &emu, path);
	frames_add(&r, &o);
	run_ok(&r, STRAIT_INTENT_WRITE, &k);
	ASSERT_GT(info_of(r.frames).evictions, 0);
	for (unsigned int i = 0; i < 200; i++) {
		uint64_t g = prng_below(&seed, len / 4096), has[WARPS];

		read_at(path, has, sizeof(has), g * 4096);
		for (unsigned int w = 0; w < WARPS; w++)
			ASSERT_EQ(has[w], g + 1);
	}
	rig_close(&r);
}

/* A mapping that begins in the middle of a file, of pages and of what is tracked together, and two sets of frames for it. */
TEST(a_part_of_a_file)
{
	static const uint64_t start = 515 * 4096, len = MIB(3) + 5;
	struct strait_frames_opts o = { .size = sizeof(o), .device_budget = KIB(256) };
	unsigned char *model = pattern_new(0, MIB(8), 1), byte = 77;
	struct kernel k = { .fn = store_some, .model = model + start, .seed = 3, .steps = 1000 };
	struct frames_rig r = { 0 }, other;

	r.map.path = strdup(make_file("mapped", MIB(8), 1));
	r.map.ctx = context_new(NULL);
	r.map.dev = device_named(r.map.ctx, "emu:0");
	r.map.ep = file_new(r.map.ctx, r.map.path, O_RDWR, 0);
	ASSERT_OK(strait_mapping_open(r.map.ctx, r.map.ep, start, len, NULL, &r.map.m));
	frames_add(&r, &o);
	other = r;
	frames_add(&other, &o);
	expect_by_device(&other, model + start);
	run_ok(&r, STRAIT_INTENT_WRITE, &k);
	side_write(&r.map, NULL, len - 1, &byte, 1);
	model[start + len - 1] = byte;
	expect_by_device(&other, model + start);
	expect_by_device(&r, model + start);
	ASSERT_GT(info_of(other.frames).dropped, 0);
	strait_stream_close(other.stream);
	strait_frames_close(other.frames);
	ASSERT_OK(strait_mapping_sync(r.map.m, 0, len));
	file_expect(r.map.path, 0, model, MIB(8));
	rig_close(&r);
	free(model);
}
