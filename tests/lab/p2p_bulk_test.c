/* SPDX-License-Identifier: MIT */
/*
 * Route p2p by the library, much of it: P2P_BULK_MIB in each direction, in windows of random offsets and sizes that
 * together cover the file, compared with what is on the drive and in the device's memory.
 */
#include "p2p.h"

#include <sys/resource.h>

#include <strait/strait.h>

#define P2P STRAIT_ROUTE_P2P
#define FILE_BYTES MIB(128)
#define REGION_BYTES MIB(64)
#define BLOCK 4096u

static const struct place places[] = PLACES;

static uint64_t state = 88172645463325252u;

static uint64_t any(uint64_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return n ? state % n : 0;
}

struct bulk {
	struct strait_context *ctx;
	struct strait_endpoint *ep;
	struct strait_region *r;
	unsigned char *cpu;
	uint64_t moved;
};

/* All of a half of the file, in windows of random length and in any order of places in the region. */
static void move(struct bulk *b, uint32_t op, uint64_t off, uint64_t len, bool odd)
{
	for (uint64_t done = 0; done < len;) {
		uint64_t n = min_u64((any(2048) + 1) * BLOCK, len - done);
		struct strait_transfer t = { .op = op,
					     .endpoint = b->ep,
					     .region = b->r,
					     .endpoint_offset = off + done,
					     .region_offset = done,
					     .length = n };
		struct strait_result res;

		/* Ends that are not aligned: those alone may go another way. */
		if (odd && n > 2 * BLOCK && done + n < len)
			t.length = n -= any(BLOCK);
		ASSERT_OK(strait_transfer_run(&t, STRAIT_FOREVER, &res));
		ASSERT_EQ(res.bytes, n);
		ASSERT_LE(n - res.route_bytes[P2P], odd ? 2 * BLOCK : 0);
		b->moved += res.route_bytes[P2P];
		done += n;
	}
}

/* The drive, as the machine's host sees it. */
static void expect_drive(uint64_t off, uint64_t len)
{
	char cmd[160], outside[128] = "", inside[128] = "";
	FILE *f;

	if (access("/lab/bin/host", X_OK))
		return;
	snprintf(cmd, sizeof(cmd), "/lab/bin/host drive %llu %llu sha256", (unsigned long long)off,
		 (unsigned long long)len);
	f = popen(cmd, "r");
	ASSERT_TRUE(f && fgets(outside, sizeof(outside), f));
	ASSERT_EQ(pclose(f), 0);
	snprintf(cmd, sizeof(cmd), "dd if=/dev/nvme0n1 bs=1M skip=%llu count=%llu 2>/dev/null | sha256sum",
		 (unsigned long long)(off >> 20), (unsigned long long)(len >> 20));
	f = popen(cmd, "r");
	ASSERT_TRUE(f && fgets(inside, sizeof(inside), f));
	pclose(f);
	ASSERT_EQ(strncmp(outside, inside, 64), 0);
}

TEST_VARIANTS_TIMEOUT(both_ways, struct place, places, 1200)
{
	uint64_t want = MIB(getenv("P2P_BULK_MIB") ? strtoull(getenv("P2P_BULK_MIB"), NULL, 0) : 256);
	struct strait_stats stats = { .size = sizeof(stats) };
	unsigned char *buf = malloc(MIB(1)), *pattern = malloc(MIB(1));
	struct strait_device *dev;
	struct bulk b = { 0 };
	uint64_t kernel;
	void *cpu;
	int fd;

	close(ko_open_p2p());
	ASSERT_TRUE(buf && pattern);
	ASSERT_OK(strait_context_open(NULL, &b.ctx));
	ASSERT_OK(strait_device_find(b.ctx, "vgpu:0", &dev));
	fd = place_file(v, FILE_BYTES, 1, 0);
	ASSERT_OK(strait_file_import(b.ctx, fd, STRAIT_FILE_DIRECT, &b.ep));
	ASSERT_OK(strait_region_alloc(dev, REGION_BYTES, &b.r));
	ASSERT_OK(strait_region_map(b.r, &cpu));
	b.cpu = cpu;
	kernel = ko_counter("read_bytes") + ko_counter("written_bytes");
	for (unsigned int round = 0; b.moved < 2 * want; round++) {
		uint64_t off = round % 2 * REGION_BYTES;

		for (uint64_t at = 0; at < REGION_BYTES; at += MIB(1))
			file_pattern(b.cpu + at, off + at, MIB(1), 100 + round);
		move(&b, STRAIT_WRITE, off, REGION_BYTES, round % 4 == 3);
		memset(b.cpu, 0xa5, REGION_BYTES);
		move(&b, STRAIT_READ, off, REGION_BYTES, round % 4 == 3);
		for (uint64_t at = 0; at < REGION_BYTES; at += MIB(1)) {
			file_pattern(pattern, off + at, MIB(1), 100 + round);
			ASSERT_MEMEQ(b.cpu + at, pattern, MIB(1));
			/* And by the ordinary way, of which neither route nor drive knows. */
			ASSERT_EQ(pread(fd, buf, MIB(1), (off_t)(off + at)), MIB(1));
			ASSERT_MEMEQ(buf, pattern, MIB(1));
		}
	}
	if (!v->mkfs)
		expect_drive(0, MIB(16));
	/* What the module counted is what the library says went by it, and nothing was staged but unaligned ends. */
	ASSERT_OK(strait_stats_get(b.ctx, &stats));
	ASSERT_EQ(stats.route[P2P].read_bytes + stats.route[P2P].write_bytes, b.moved);
	ASSERT_GE(ko_counter("read_bytes") + ko_counter("written_bytes") - kernel, b.moved);
	ASSERT_LE(stats.route[STRAIT_ROUTE_STAGED].read_bytes + stats.route[STRAIT_ROUTE_STAGED].write_bytes,
		  b.moved / 64);
	printf("# %llu MiB by p2p\n", (unsigned long long)(b.moved >> 20));
	strait_region_close(b.r);
	strait_endpoint_close(b.ep);
	strait_context_close(b.ctx);
	close(fd);
	place_unmount();
}
