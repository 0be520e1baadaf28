/* SPDX-License-Identifier: MIT */
/* Route p2p of the library: which transfers use it, what they leave in file and memory, and why others do not. */
#include "p2p.h"

#include <pthread.h>

#include <strait/strait.h>

#define P2P STRAIT_ROUTE_P2P
#define STAGED STRAIT_ROUTE_STAGED
#define SEED 99

static const struct place places[] = PLACES;

static struct strait_context *ctx;
static struct strait_device *dev;

static void open_all(void)
{
	close(ko_open());
	close(gpu_open());
	ASSERT_OK(strait_context_open(NULL, &ctx));
	ASSERT_OK(strait_device_find(ctx, "vgpu:0", &dev));
}

static struct strait_region *region(size_t len)
{
	struct strait_region *r;

	ASSERT_OK(strait_region_alloc(dev, len, &r));
	return r;
}

static struct strait_endpoint *endpoint(int fd, uint32_t flags)
{
	struct strait_endpoint *ep;

	ASSERT_OK(strait_file_import(ctx, fd, flags, &ep));
	return ep;
}

static struct strait_result run(uint32_t op, struct strait_endpoint *ep, uint64_t off, struct strait_region *r,
				uint64_t at, uint64_t len, uint32_t routes)
{
	struct strait_transfer t = { .op = op,
				     .routes = routes,
				     .endpoint = ep,
				     .region = r,
				     .endpoint_offset = off,
				     .region_offset = at,
				     .length = len };
	struct strait_result res;

	strait_transfer_run(&t, STRAIT_FOREVER, &res);
	return res;
}

/* Does the machine lose bytes between devices? Below a switch with a translating IOMMU this emulation does. */
static bool fabric_loses(void)
{
	const char *topology = getenv("LAB_TOPOLOGY"), *iommu = getenv("LAB_IOMMU");

	return topology && iommu && !strcmp(topology, "switch") && (!strcmp(iommu, "strict") || !strcmp(iommu, "lazy"));
}

static void need_fabric(void)
{
	close(ko_open_p2p());
}

/* The IOMMU's messages about it. Printed before the plan, because output of tests is captured. */
__attribute__((constructor)) static void allow_faults(void)
{
	if (fabric_loses())
		printf("# allow-log DMAR: (DRHD: handling fault|\\[DMA)\n");
}

static struct strait_route_report report(struct strait_endpoint *ep, uint32_t op)
{
	struct strait_route_report rep = { .size = sizeof(rep) };
	char why[256];

	ASSERT_OK(strait_route_query_device(ep, dev, op, &rep));
	strait_route_verdict_text(&rep.verdict[P2P], why, sizeof(why));
	printf("# p2p: %s; %s\n", why, strait_route_verdict_fix(&rep.verdict[P2P]));
	return rep;
}

static uint64_t any(uint64_t n)
{
	static uint64_t state = 1;

	return prng_below(&state, n);
}

/* Aligned transfers use p2p alone: no other route carries a byte, and no staging memory is allocated. */
TEST_VARIANTS_TIMEOUT(all_of_what_is_aligned, struct place, places, 300)
{
	const uint64_t size = MIB(32);
	struct strait_stats stats = { .size = sizeof(stats) };
	struct strait_endpoint *ep;
	struct strait_region *r;
	unsigned char *want = malloc(size);
	uint64_t sum = 0, before;
	void *cpu;
	int fd;

	need_fabric();
	ASSERT_TRUE(want);
	open_all();
	fd = place_file(v, size, SEED, 0);
	ep = endpoint(fd, 0);
	r = region(size);
	ASSERT_OK(strait_region_map(r, &cpu));
	ASSERT_EQ(report(ep, STRAIT_READ).route, P2P);
	before = ko_counter("read_bytes");
	for (int i = 0; i < 16; i++) {
		uint64_t len = (any(1024) + 1) * 4096, off = any((size - len) / 4096 + 1) * 4096,
			 at = any((size - len) / 512 + 1) * 512;
		struct strait_result res = run(STRAIT_READ, ep, off, r, at, len, 0);

		ASSERT_EQ(res.status, 0);
		ASSERT_EQ(res.bytes, len);
		ASSERT_EQ(res.route_bytes[P2P], len);
		ASSERT_EQ(res.routes, STRAIT_ROUTE_MASK(P2P));
		file_pattern(want, off, len, SEED);
		ASSERT_MEMEQ((char *)cpu + at, want, len);
		sum += len;
	}
	ASSERT_EQ(ko_counter("read_bytes") - before, sum);
	for (int i = 0; i < 8; i++) {
		uint64_t len = (any(1024) + 1) * 4096, off = any((size - len) / 4096 + 1) * 4096,
			 at = any((size - len) / 512 + 1) * 512;
		struct strait_result res = run(STRAIT_WRITE, ep, off, r, at, len, 0);

		ASSERT_EQ(res.route_bytes[P2P], len);
		ASSERT_EQ(pread(fd, want, len, (off_t)off), len);
		ASSERT_MEMEQ((char *)cpu + at, want, len);
		sum += len;
	}
	ASSERT_OK(strait_stats_get(ctx, &stats));
	ASSERT_EQ(stats.route[P2P].read_bytes + stats.route[P2P].write_bytes, sum);
	ASSERT_EQ(stats.route[STAGED].read_bytes + stats.route[STAGED].write_bytes, 0);
	strait_region_close(r);
	strait_endpoint_close(ep);
	ko_expect_counter("device_bytes", 0);
	strait_context_close(ctx);
	close(fd);
	place_unmount();
}

/* Any offset and length: the aligned middle by p2p, the ends by another route, nothing else changed. */
TEST_VARIANTS_TIMEOUT(unaligned_ends_use_another_route, struct place, places, 300)
{
	const uint64_t size = MIB(4);
	struct strait_endpoint *ep;
	struct strait_region *r;
	unsigned char *want = malloc(size), *have = malloc(size);
	uint64_t mixed = 0, whole = 0;
	int fd;

	need_fabric();
	ASSERT_TRUE(want && have);
	open_all();
	fd = place_file(v, size, SEED, 0);
	ep = endpoint(fd, 0);
	r = region(size);
	for (int i = 0; i < 40; i++) {
		uint64_t len = any(size / 4) + 1, off = any(size - len + 1), at = any(size - len + 1);
		struct strait_result res;

		/* Offsets that a drive can serve: equal modulo the block size. */
		if (i % 2)
			at = min_u64(at / 4096 * 4096 + off % 4096, size - len);
		memset(want, i, size);
		ASSERT_OK(strait_region_fill(r, 0, (uint8_t)i, size));
		res = run(STRAIT_READ, ep, off, r, at, len, 0);
		ASSERT_EQ(res.status, 0);
		ASSERT_EQ(res.bytes, len);
		file_pattern(want + at, off, len, SEED);
		ASSERT_OK(strait_region_copy_out(r, 0, have, size));
		ASSERT_MEMEQ(have, want, size);
		mixed += res.route_bytes[P2P] && res.route_bytes[P2P] < len;
		whole += !res.route_bytes[P2P];
	}
	ASSERT_GT(mixed, 0);
	ASSERT_GT(whole, 0);
	/* And writes. */
	file_pattern(want, 0, size, SEED);
	fill(have, size, 6);
	ASSERT_OK(strait_region_copy_in(r, 0, have, size));
	for (int i = 0; i < 20; i++) {
		uint64_t len = any(size / 4) + 1, off = any(size - len + 1),
			 at = min_u64(any(size - len + 1) / 4096 * 4096 + off % 4096, size - len);
		struct strait_result res = run(STRAIT_WRITE, ep, off, r, at, len, 0);

		ASSERT_EQ(res.status, 0);
		ASSERT_EQ(res.bytes, len);
		memcpy(want + off, have + at, len);
	}
	ASSERT_EQ(pread(fd, have, size, 0), size);
	ASSERT_MEMEQ(have, want, size);
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	close(fd);
	place_unmount();
}

static const struct place ext4[] = { PLACE_EXT4 };

/* Where a file ends, and how it grows. */
TEST(ends_of_files)
{
	struct strait_endpoint *ep;
	struct strait_region *r;
	unsigned char *have = malloc(KIB(128)), *want = malloc(KIB(128));
	struct strait_result res;
	int fd;

	need_fabric();
	ASSERT_TRUE(have && want);
	open_all();
	fd = place_file(&ext4[0], KIB(40) + 100, SEED, 0);
	ep = endpoint(fd, 0);
	r = region(KIB(128));
	ASSERT_OK(strait_region_fill(r, 0, 0xee, KIB(128)));
	res = run(STRAIT_READ, ep, 0, r, 0, KIB(128), 0);
	ASSERT_EQ(res.status, 0);
	ASSERT_EQ(res.bytes, KIB(40) + 100);
	ASSERT_EQ(res.route_bytes[P2P], KIB(40));
	file_pattern(want, 0, KIB(40) + 100, SEED);
	memset(want + KIB(40) + 100, 0xee, KIB(128) - KIB(40) - 100);
	ASSERT_OK(strait_region_copy_out(r, 0, have, KIB(128)));
	ASSERT_MEMEQ(have, want, KIB(128));
	ASSERT_EQ(run(STRAIT_READ, ep, KIB(64), r, 0, KIB(4), 0).bytes, 0);
	/* p2p alone: only transfers that it can carry whole. */
	ASSERT_EQ(run(STRAIT_READ, ep, 0, r, 0, KIB(128), STRAIT_ROUTE_MASK(P2P)).status, -EOPNOTSUPP);
	ASSERT_EQ(run(STRAIT_READ, ep, 0, r, 0, KIB(40), STRAIT_ROUTE_MASK(P2P)).bytes, KIB(40));
	ASSERT_EQ(run(STRAIT_READ, ep, 1, r, 0, KIB(4), STRAIT_ROUTE_MASK(P2P)).status, -EOPNOTSUPP);
	/* Growing past a hole. */
	res = run(STRAIT_WRITE, ep, KIB(256) + 10, r, 10, KIB(100), 0);
	ASSERT_EQ(res.bytes, KIB(100));
	ASSERT_EQ(res.route_bytes[P2P], KIB(96));
	ASSERT_EQ(lseek(fd, 0, SEEK_END), KIB(356) + 10);
	ASSERT_EQ(pread(fd, have, KIB(100), KIB(256) + 10), KIB(100));
	ASSERT_MEMEQ(have, want + 10, KIB(100));
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	close(fd);
	place_unmount();
}

/* Where p2p is not possible another route is used, and the reason is reported. */
TEST(says_why_not)
{
	struct strait_route_report rep;
	struct strait_endpoint *ep;
	struct strait_region *r;
	int fd;

	need_fabric();
	open_all();
	r = region(KIB(64));
	fd = open("/tmp/file", O_RDWR | O_CREAT, 0600);
	ASSERT_EQ(ftruncate(fd, KIB(64)), 0);
	ep = endpoint(fd, 0);
	rep = report(ep, STRAIT_READ);
	ASSERT_FALSE(rep.verdict[P2P].usable);
	ASSERT_EQ(rep.verdict[P2P].reason, STRAIT_WHY_NO_DIRECT);
	ASSERT_EQ(rep.verdict[P2P].because, STRAIT_WHY_FS_IN_MEMORY);
	ASSERT_EQ(run(STRAIT_READ, ep, 0, r, 0, KIB(64), STRAIT_ROUTE_MASK(P2P)).status, -EOPNOTSUPP);
	ASSERT_EQ(run(STRAIT_READ, ep, 0, r, 0, KIB(64), 0).bytes, KIB(64));
	strait_endpoint_close(ep);
	close(fd);
	/* A loop device: it has direct I/O, but no PCI device of its own. */
	place_mount(&ext4[0]);
	if (access("/dev/loop0", F_OK) && system("modprobe loop 2>/dev/null"))
		SKIP("this kernel has no loop devices");
	ASSERT_EQ(system("truncate -s 16M /mnt/image && losetup /dev/loop0 /mnt/image"), 0);
	fd = open("/dev/loop0", O_RDWR);
	ASSERT_GE(fd, 0);
	ep = endpoint(fd, 0);
	rep = report(ep, STRAIT_READ);
	ASSERT_FALSE(rep.verdict[P2P].usable);
	ASSERT_EQ(rep.verdict[P2P].reason, STRAIT_WHY_MODULE_REFUSES);
	ASSERT_EQ(rep.verdict[P2P].because, STRAIT_WHY_MODULE_NOT_PCI);
	ASSERT_EQ(run(STRAIT_READ, ep, 0, r, 0, KIB(64), 0).bytes, KIB(64));
	strait_endpoint_close(ep);
	close(fd);
	ASSERT_EQ(system("losetup -d /dev/loop0"), 0);
	/* A file without blocks on the drive: it cannot be used to verify the pair. */
	fd = open("/mnt/empty", O_RDWR | O_CREAT, 0600);
	ep = endpoint(fd, 0);
	rep = report(ep, STRAIT_WRITE);
	ASSERT_FALSE(rep.verdict[P2P].usable);
	ASSERT_EQ(rep.verdict[P2P].reason, STRAIT_WHY_UNVERIFIED);
	ASSERT_EQ(run(STRAIT_WRITE, ep, 0, r, 0, KIB(64), 0).bytes, KIB(64));
	ASSERT_EQ(fsync(fd), 0);
	/* Now it has blocks, and the pair is verified. */
	for (int i = 0; i < 4; i++)
		rep = report(ep, STRAIT_WRITE);
	ASSERT_TRUE(rep.verdict[P2P].usable);
	strait_endpoint_close(ep);
	close(fd);
	strait_region_close(r);
	strait_context_close(ctx);
	place_unmount();
}

/* Where bytes between devices are lost, verification finds out, and transfers are right by another route. */
TEST(a_fabric_that_loses_bytes)
{
	struct strait_endpoint *ep;
	struct strait_region *r;
	struct strait_route_report rep;
	unsigned char *have = malloc(MIB(1)), *want = malloc(MIB(1));
	struct strait_result res;
	int fd;

	if (!fabric_loses())
		SKIP("only below a switch with a translating IOMMU");
	ASSERT_TRUE(have && want);
	open_all();
	fd = place_file(&ext4[0], MIB(1), SEED, 0);
	ep = endpoint(fd, 0);
	r = region(MIB(1));
	rep = report(ep, STRAIT_READ);
	ASSERT_FALSE(rep.verdict[P2P].usable);
	ASSERT_EQ(rep.verdict[P2P].reason, STRAIT_WHY_NOT_ARRIVED);
	res = run(STRAIT_READ, ep, 0, r, 0, MIB(1), 0);
	ASSERT_EQ(res.bytes, MIB(1));
	ASSERT_EQ(res.route_bytes[P2P], 0);
	file_pattern(want, 0, MIB(1), SEED);
	ASSERT_OK(strait_region_copy_out(r, 0, have, MIB(1)));
	ASSERT_MEMEQ(have, want, MIB(1));
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	close(fd);
	place_unmount();
}

#define QUEUED 32

/* In a queue; p2p_queue_test has more. */
TEST(queued)
{
	struct strait_transfer t[QUEUED];
	struct strait_result res[QUEUED];
	unsigned char *have = malloc(MIB(4)), *want = malloc(MIB(4));
	struct strait_queue *q;
	struct strait_endpoint *ep;
	struct strait_region *r;
	uint64_t p2p = 0;
	int fd, n = 0;

	need_fabric();
	ASSERT_TRUE(have && want);
	open_all();
	fd = place_file(&places[2], MIB(4), SEED, 0);
	ep = endpoint(fd, 0);
	r = region(MIB(4));
	ASSERT_OK(strait_queue_open(ctx, NULL, &q));
	for (unsigned int i = 0; i < QUEUED; i++)
		t[i] = (struct strait_transfer){ .op = STRAIT_READ,
						 .endpoint = ep,
						 .region = r,
						 .endpoint_offset = i * KIB(128),
						 .region_offset = i * KIB(128),
						 .length = i % 2 ? KIB(128) : KIB(4),
						 .user_data = i };
	ASSERT_OK(strait_queue_submit(q, t, QUEUED));
	while (n < QUEUED)
		n += (int)ASSERT_OK(strait_queue_wait(q, 1, QUEUED - (unsigned int)n, STRAIT_FOREVER, res + n));
	for (int i = 0; i < QUEUED; i++) {
		ASSERT_EQ(res[i].status, 0);
		ASSERT_EQ(res[i].bytes, t[res[i].user_data].length);
		p2p += res[i].route_bytes[P2P];
	}
	ASSERT_EQ(p2p, QUEUED / 2 * (KIB(128) + KIB(4)));
	ASSERT_OK(strait_region_copy_out(r, 0, have, MIB(4)));
	file_pattern(want, 0, MIB(4), SEED);
	for (unsigned int i = 0; i < QUEUED; i++)
		ASSERT_MEMEQ(have + i * KIB(128), want + i * KIB(128), t[i].length);
	strait_queue_close(q);
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	close(fd);
	place_unmount();
}
