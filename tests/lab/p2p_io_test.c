/* SPDX-License-Identifier: MIT */
/* /dev/strait: bytes between files on the drive and the GPU's memory, by its calls. */
#include "p2p.h"

#define LEN MIB(8)
#define SEED 77

static const struct place places[] = PLACES;

TEST(says_what_it_is)
{
	int fd = ko_open();
	struct strait_ioc_info info = ko_info(fd);

	ASSERT_EQ(info.abi, STRAIT_ABI);
	ASSERT_STREQ(info.version, "0.1.0");
	ASSERT_TRUE(info.features & STRAIT_FEATURE_IMPORT_USER);
	ASSERT_GT(info.device_bytes_max, 0);
	if (!getenv("LAB_NO_P2PDMA") || !*getenv("LAB_NO_P2PDMA"))
		ASSERT_TRUE(info.features & STRAIT_FEATURE_P2PDMA);
	close(fd);
}

/*
 * Memory of the GPU is not imported as memory of the process: neither with struct pages, nor on kernels without P2PDMA.
 */
TEST(device_memory_is_not_host_memory)
{
	int ko = ko_open(), gpu = gpu_open();
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, KIB(64));
	struct strait_ioc_import imp;

	/* Faulted in by the import, and mapped before. */
	ASSERT_EQ(ko_try_import(ko, STRAIT_IMPORT_USER, m.p, m.len, &imp), -EOPNOTSUPP);
	fill(m.p, m.len, 1);
	ASSERT_EQ(ko_try_import(ko, STRAIT_IMPORT_USER, m.p, m.len, &imp), -EOPNOTSUPP);
	ASSERT_OK(gpu_free(&m));
	close(gpu);
	close(ko);
}

static uint64_t any(uint64_t n)
{
	static uint64_t state = 1;

	return prng_below(&state, n);
}

/* Random windows, each compared; the memory around them stays unchanged. */
TEST_VARIANTS_TIMEOUT(reads_what_is_on_the_drive, struct place, places, 120)
{
	int ko = ko_open_p2p(), gpu = gpu_open(), file = place_file(v, LEN, SEED, 0);
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN);
	uint32_t handle = ko_import(ko, STRAIT_IMPORT_P2P, m.p, m.len);
	unsigned char *want = malloc(LEN);
	uint64_t before = ko_counter("read_bytes"), sum = 0;

	ASSERT_TRUE(want);
	fill(m.p, LEN, 1);
	fill(want, LEN, 1);
	ASSERT_EQ(ko_check(ko, STRAIT_OP_READ, handle, file).reason, 0);
	for (int i = 0; i < 40; i++) {
		uint64_t len = (any(i % 4 ? 64 : 4096) + 1) * 512;
		uint64_t off = any((LEN - len) / 512 + 1) * 512, at = any((LEN - len) / 4 + 1) * 4;

		ASSERT_EQ(ko_io(ko, STRAIT_OP_READ, handle, file, off, at, len, NULL), len);
		file_pattern(want + at, off, len, SEED);
		sum += len;
	}
	ASSERT_MEMEQ(m.p, want, LEN);
	expect_outside(&m, 0, MIB(1));
	ASSERT_EQ(ko_counter("read_bytes") - before, sum);
	ASSERT_EQ(ko_counter("in_flight"), 0);
	place_unmount();
}

TEST_VARIANTS_TIMEOUT(writes_what_is_in_the_memory, struct place, places, 120)
{
	int ko = ko_open_p2p(), gpu = gpu_open(), file = place_file(v, LEN, SEED, 0);
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN);
	uint32_t handle = ko_import(ko, STRAIT_IMPORT_P2P, m.p, m.len);
	unsigned char *want = malloc(LEN), *have = malloc(LEN), *mem = malloc(LEN);

	ASSERT_TRUE(want && have && mem);
	fill(mem, LEN, 2);
	memcpy(m.p, mem, LEN);
	file_pattern(want, 0, LEN, SEED);
	for (int i = 0; i < 40; i++) {
		uint64_t len = (any(i % 4 ? 64 : 4096) + 1) * 512;
		uint64_t off = any((LEN - len) / 512 + 1) * 512, at = any((LEN - len) / 4 + 1) * 4;

		ASSERT_EQ(ko_io(ko, STRAIT_OP_WRITE, handle, file, off, at, len, NULL), len);
		memcpy(want + off, mem + at, len);
	}
	ASSERT_EQ(pread(file, have, LEN, 0), LEN);
	ASSERT_MEMEQ(have, want, LEN);
	/* The memory itself is only read. */
	ASSERT_MEMEQ(m.p, mem, LEN);
	place_unmount();
}

static const struct place systems[] = { PLACE_EXT4, PLACE_XFS };

/* Ends of files, holes, unwritten blocks, growing files, and dirty pages in the page cache. */
TEST_VARIANTS_TIMEOUT(files_are_read_as_they_are, struct place, systems, 120)
{
	int ko = ko_open_p2p(), gpu = gpu_open(), file = place_file(v, KIB(64) + 1000, SEED, 0);
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, MIB(1));
	uint32_t handle = ko_import(ko, STRAIT_IMPORT_P2P, m.p, m.len);
	unsigned char *want = malloc(MIB(1)), buf[4096];

	ASSERT_TRUE(want);
	file_pattern(want, 0, KIB(64) + 1000, SEED);
	ASSERT_EQ(ko_io(ko, STRAIT_OP_READ, handle, file, 0, 0, MIB(1), NULL), KIB(64) + 1000);
	ASSERT_MEMEQ(m.p, want, KIB(64) + 1000);
	ASSERT_EQ(ko_io(ko, STRAIT_OP_READ, handle, file, KIB(128), 0, 4096, NULL), 0);
	/* Past the end of the file memory may be written, but not past the requested length. */
	fill(m.p, MIB(1), 3);
	fill(want, MIB(1), 3);
	ASSERT_EQ(ko_io(ko, STRAIT_OP_READ, handle, file, KIB(64), 0, KIB(512), NULL), 1000);
	file_pattern(want, KIB(64), 1000, SEED);
	ASSERT_MEMEQ(m.p, want, 1000);
	ASSERT_MEMEQ(m.p + KIB(512), want + KIB(512), KIB(512));
	/* A hole, and preallocated space. */
	ASSERT_EQ(ftruncate(file, MIB(1)), 0);
	ASSERT_EQ(fallocate(file, 0, KIB(256), KIB(64)), 0);
	fill(m.p, MIB(1), 3);
	ASSERT_EQ(ko_io(ko, STRAIT_OP_READ, handle, file, KIB(128), KIB(128), KIB(512), NULL), KIB(512));
	ASSERT_TRUE(all_zero(m.p + KIB(128), KIB(512)));
	/* Dirty in the page cache. */
	fill(buf, sizeof(buf), 4);
	ASSERT_EQ(pwrite(file, buf, sizeof(buf), KIB(260)), sizeof(buf));
	ASSERT_EQ(ko_io(ko, STRAIT_OP_READ, handle, file, KIB(256), 0, KIB(64), NULL), KIB(64));
	ASSERT_TRUE(all_zero(m.p, KIB(4)));
	ASSERT_MEMEQ(m.p + KIB(4), buf, sizeof(buf));
	/* The reverse: pages in the cache are stale after a direct write. */
	ASSERT_EQ(pread(file, buf, sizeof(buf), KIB(512)), sizeof(buf));
	fill(m.p, KIB(64), 5);
	fill(want, KIB(64), 5);
	ASSERT_EQ(ko_io(ko, STRAIT_OP_WRITE, handle, file, KIB(512), 0, KIB(64), NULL), KIB(64));
	ASSERT_EQ(pread(file, buf, sizeof(buf), KIB(512)), sizeof(buf));
	ASSERT_MEMEQ(buf, want, sizeof(buf));
	/* Growing. */
	ASSERT_EQ(ko_io(ko, STRAIT_OP_WRITE, handle, file, MIB(2), 0, KIB(64), NULL), KIB(64));
	ASSERT_EQ(lseek(file, 0, SEEK_END), MIB(2) + KIB(64));
	place_unmount();
}

/* Ordinary memory of a process, by the same calls. */
TEST_VARIANTS_TIMEOUT(memory_of_the_process, struct place, places, 120)
{
	int ko = ko_open(), file = place_file(v, MIB(1), SEED, 0);
	unsigned char *p = mmap(NULL, MIB(1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *want = malloc(MIB(1));
	uint32_t handle;

	ASSERT_TRUE(p != MAP_FAILED && want);
	handle = ko_import(ko, STRAIT_IMPORT_USER, p, MIB(1));
	ASSERT_EQ(ko_counter("pinned_bytes"), MIB(1));
	ASSERT_EQ(ko_io(ko, STRAIT_OP_READ, handle, file, KIB(64), KIB(4), KIB(512), NULL), KIB(512));
	file_pattern(want, KIB(64), KIB(512), SEED);
	ASSERT_MEMEQ(p + KIB(4), want, KIB(512));
	ASSERT_OK(ko_release(ko, handle));
	ko_expect_counter("pinned_bytes", 0);
	place_unmount();
}
