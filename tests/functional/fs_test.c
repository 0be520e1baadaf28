/* SPDX-License-Identifier: MIT */
/* The same data on every available file system, on a block device, and on a full disk. */
#include "common.h"

#include <sys/statfs.h>

static const struct fs {
	const char *name;
	const char *kind;
	const char *says; /* its name in strait_file_info() */
	bool direct;
} file_systems[] = {
	{ "ext4", "ext4", "ext4", true },
	{ "xfs", "xfs", "xfs", true },
	{ "tmpfs", "tmpfs", "tmpfs", false },
	{ "overlay", "overlay", "overlayfs", true },
};

static const struct mode modes[] = { READ_MODES };
static const struct mode write_modes[] = { WRITE_MODES };

static uint64_t fs_bytes(const char *kind)
{
	return !strcmp(kind, "xfs") ? MIB(320) : MIB(64);
}

/* Written by one route, read back by every other. */
TEST_VARIANTS(round_trips, struct fs, file_systems)
{
	const uint64_t len = MIB(9) + 1234;
	const char *folder = mount_new(v->kind, fs_bytes(v->kind));
	unsigned char *want = pattern_new(0, len, 4);
	char path[4200];

	snprintf(path, sizeof(path), "%s/file", folder);
	for (size_t i = 0; i < ARRAY_SIZE(write_modes); i++) {
		const struct mode *m = &write_modes[i];
		struct strait_context *ctx = context_for(m);
		struct strait_region *r = region_new(device_named(ctx, m->device), len);
		struct strait_endpoint *ep = file_new(ctx, path, O_RDWR | O_CREAT | O_TRUNC, m->file);
		struct strait_file_info info = file_info(ep);

		ASSERT_STREQ(info.fs, v->says);
		ASSERT_EQ(!!(info.caps & STRAIT_FILE_CAN_DIRECT), v->direct);
		ASSERT_EQ(!info.direct_reason, v->direct);
		pattern(want, i, len, 4);
		region_put_bytes(r, 0, want, len);
		/* First extend it, unaligned; then overwrite it, aligned. */
		ASSERT_EQ(move(STRAIT_WRITE, m->routes, ep, 0, r, 0, len - 777).status, 0);
		ASSERT_EQ(move(STRAIT_WRITE, m->routes, ep, MIB(1), r, MIB(1), len - MIB(1)).status, 0);
		ASSERT_OK(strait_endpoint_sync(ep));
		ASSERT_EQ(file_length(path), len);
		file_expect(path, 0, want, len);
		strait_endpoint_close(ep);
		strait_region_close(r);
		strait_context_close(ctx);
	}
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		const struct mode *m = &modes[i];
		struct strait_context *ctx = context_for(m);
		struct strait_region *r = region_new(device_named(ctx, m->device), len + 10);
		struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, m->file);
		uint64_t state = i;

		for (int k = 0; k < 6; k++) {
			uint64_t off = k < 2 ? 0 : prng_below(&state, len),
				 n = k < 2 ? len + 10 : prng_below(&state, len);

			if (k % 2)
				evict(path, 0, k % 4 == 1 ? 0 : len / 2);
			n = min_u64(n, len - off);
			ASSERT_EQ(move(STRAIT_READ, m->routes, ep, off, r, 0, n).bytes, n);
			region_expect(r, 0, want + off, n);
		}
		strait_endpoint_close(ep);
		strait_region_close(r);
		strait_context_close(ctx);
	}
	free(want);
}

static void use_block_device(const struct mode *v, uint64_t len, uint32_t sector)
{
	unsigned char *want = pattern_new(0, len, 4);
	struct strait_context *ctx = context_for(v);
	struct strait_region *r = region_new(device_named(ctx, v->device), len + KIB(64));
	struct strait_file_info info;
	struct strait_endpoint *ep;
	struct strait_result res;
	char path[64];

	loop_device(test_path("image"), len, sector, path, sizeof(path));
	ep = file_new(ctx, path, O_RDWR, v->file);
	info = file_info(ep);
	ASSERT_EQ(info.length, len);
	ASSERT_STREQ(info.fs, "block");
	ASSERT_TRUE(info.caps & STRAIT_FILE_IS_BLOCK);
	ASSERT_TRUE(info.caps & STRAIT_FILE_CAN_DIRECT);
	ASSERT_EQ(info.dio_align, sector);
	region_put_bytes(r, 0, want, len);
	ASSERT_EQ(move(STRAIT_WRITE, v->routes, ep, 0, r, 0, len).status, 0);
	ASSERT_OK(strait_endpoint_sync(ep));
	for (int k = 0; k < 3; k++) {
		ASSERT_OK(strait_region_fill(r, 0, 0, len));
		res = move(STRAIT_READ, v->routes, ep, k * 1000, r, 0, len);
		ASSERT_EQ(res.status, 0);
		ASSERT_EQ(res.bytes, len - (uint64_t)k * 1000);
		region_expect(r, 0, want + k * 1000, res.bytes);
	}
	/* Some bytes, unaligned. */
	ASSERT_EQ(strait_write(ep, MIB(3) + 1, r, 0, 1000), 1000);
	memcpy(want + MIB(3) + 1, want + 2000, 1000);
	ASSERT_EQ(strait_read(ep, 0, r, 0, len), (ssize_t)len);
	region_expect(r, 0, want, len);
	/* The device ends where its last sector ends. */
	ASSERT_EQ(strait_read(ep, len, r, 0, 4096), 0);
	res = move(STRAIT_WRITE, v->routes, ep, len - MIB(1), r, len - MIB(1), MIB(1) + KIB(64));
	ASSERT_EQ(res.status, -ENOSPC);
	ASSERT_EQ(res.bytes, MIB(1));
	ASSERT_EQ(strait_write(ep, len, r, 0, 4096), -ENOSPC);
	ASSERT_EQ(strait_read(ep, 0, r, 0, len), (ssize_t)len);
	region_expect(r, 0, want, len);
	strait_endpoint_close(ep);
	strait_region_close(r);
	strait_context_close(ctx);
	free(want);
}

TEST_VARIANTS(a_block_device, struct mode, write_modes)
{
	use_block_device(v, MIB(24), 512);
}

/* Sectors of a page, and a length that is not a multiple of a sector. */
TEST_VARIANTS(odd_block_devices, struct mode, write_modes)
{
	use_block_device(v, MIB(12), 4096);
	unlink(test_path("image"));
	use_block_device(v, MIB(12) + 3 * 512, 512);
}

static uint64_t room(const char *folder)
{
	struct statfs sf;

	ASSERT_EQ(statfs(folder, &sf), 0);
	return (uint64_t)sf.f_bavail * (uint64_t)sf.f_bsize;
}

static void fill_the_disk(const struct mode *m, const char *kind)
{
	const uint64_t len = MIB(40);
	const char *folder = mount_new(kind, MIB(20));
	/* A piece that does not fit is not written in part: use pieces of the same length on every device. */
	struct strait_context_opts opts = { .size = sizeof(opts), .flags = m->context, .chunk_bytes = MIB(1) };
	struct strait_context *ctx = context_new(&opts);
	struct strait_region *r = region_new(device_named(ctx, m->device), len);
	unsigned char *want = pattern_new(0, len, 4);
	char path[4200];

	region_put_bytes(r, 0, want, len);
	for (uint64_t start = 0; start <= 5000; start += 5000) {
		struct strait_endpoint *ep;
		struct strait_result res;

		snprintf(path, sizeof(path), "%s/file", folder);
		unlink(path);
		ep = file_new(ctx, path, O_RDWR | O_CREAT, m->file);
		ASSERT_LT(room(folder), MIB(21));
		res = move(STRAIT_WRITE, m->routes, ep, start, r, 0, len);
		ASSERT_EQ(res.status, -ENOSPC);
		ASSERT_GT(res.bytes, MIB(8));
		ASSERT_LT(room(folder), MIB(1));
		/* Exactly the reported bytes are in the file. */
		ASSERT_EQ(file_length(path), start + res.bytes);
		file_expect(path, start, want, res.bytes);
		/* Existing data can still be overwritten. */
		ASSERT_EQ(strait_write(ep, start, r, 1, MIB(1)), (ssize_t)MIB(1));
		file_expect(path, start, want + 1, MIB(1));
		ASSERT_EQ(strait_write(ep, len, r, 0, MIB(1)), -ENOSPC);
		/* The last blocks, by small writes. */
		for (int i = 0; i < 500; i++) {
			res = move(STRAIT_WRITE, m->routes, ep, len + MIB(1) + (uint64_t)i * 5000, r, 0, 5000);
			if (res.status)
				break;
		}
		ASSERT_EQ(res.status, -ENOSPC);
		strait_endpoint_close(ep);
	}
	free(want);
	strait_region_close(r);
	strait_context_close(ctx);
}

TEST_VARIANTS(a_full_ext4, struct mode, write_modes)
{
	fill_the_disk(v, "ext4");
}

TEST_VARIANTS(a_full_tmpfs, struct mode, write_modes)
{
	fill_the_disk(v, "tmpfs");
}

/* Files as in a container: the image in the lower layer, changes in the upper one. */
TEST(overlay_of_a_lower_file)
{
	const uint64_t len = MIB(5) + 5;
	unsigned char *want = pattern_new(0, len, 4);
	struct strait_context *ctx = context_new(NULL);
	struct strait_region *r = region_new(device_named(ctx, "emu"), len);
	struct strait_endpoint *ep;
	char path[4200];

	mkdir(test_path("lower"), 0755);
	write_at(test_path("lower/file"), want, len, 0);
	snprintf(path, sizeof(path), "%s/file", mount_new("overlay", 0));
	for (uint32_t routes = 0; routes <= ROUTE(STAGED); routes += ROUTE(PAGECACHE)) {
		ep = file_new(ctx, path, O_RDONLY, 0);
		ASSERT_EQ(move(STRAIT_READ, routes, ep, 0, r, 0, len).bytes, len);
		region_expect(r, 0, want, len);
		strait_endpoint_close(ep);
	}
	ep = file_new(ctx, path, O_RDWR, 0);
	ASSERT_EQ(strait_write(ep, 100, r, 0, len - 100), (ssize_t)len - 100);
	file_expect(path, 100, want, len - 100);
	file_expect(test_path("lower/file"), 0, want, len);
	strait_endpoint_close(ep);
	strait_region_close(r);
	strait_context_close(ctx);
	free(want);
}
