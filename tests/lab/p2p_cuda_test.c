/* SPDX-License-Identifier: MIT */
/*
 * Route p2p for the CUDA provider: through the bridge, which asks the GPU's driver for its memory. The CUDA driver is
 * the fake one, on memory of the lab's GPU, whose driver implements nvidia_p2p.
 */
#include "p2p.h"

#include <strait/strait.h>

#define P2P STRAIT_ROUTE_P2P
#define SEED 71
#define LEN MIB(8)

static const struct place places[] = PLACES;
static const struct place ext4 = PLACE_EXT4;

struct rig {
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_endpoint *ep;
	struct strait_region *r;
	unsigned char *want, *have;
	int fd;
};

static struct rig rig_open(const struct place *place)
{
	struct rig g = { .want = malloc(LEN), .have = malloc(LEN) };

	close(ko_open_p2p());
	ASSERT_TRUE(g.want && g.have);
	ASSERT_OK(strait_context_open(NULL, &g.ctx));
	if (strait_device_find(g.ctx, "cuda:0", &g.dev))
		SKIP("there is no CUDA driver");
	g.fd = place_file(place, LEN, SEED, 0);
	ASSERT_OK(strait_file_import(g.ctx, g.fd, STRAIT_FILE_DIRECT, &g.ep));
	ASSERT_OK(strait_region_alloc(g.dev, LEN, &g.r));
	file_pattern(g.want, 0, LEN, SEED);
	return g;
}

static void rig_close(struct rig *g)
{
	strait_region_close(g->r);
	strait_endpoint_close(g->ep);
	ko_expect_counter("in_flight", 0);
	ko_expect_counter("device_bytes", 0);
	strait_context_close(g->ctx);
	close(g->fd);
	place_unmount();
}

static struct strait_route_verdict verdict(struct rig *g)
{
	struct strait_route_report rep = { .size = sizeof(rep) };
	char why[256];

	ASSERT_OK(strait_route_query_device(g->ep, g->dev, STRAIT_READ, &rep));
	strait_route_verdict_text(&rep.verdict[P2P], why, sizeof(why));
	printf("# p2p: %s; %s\n", why, strait_route_verdict_fix(&rep.verdict[P2P]));
	return rep.verdict[P2P];
}

static struct strait_result move(struct rig *g, uint32_t op, uint64_t off, uint64_t at, uint64_t len)
{
	struct strait_transfer t = {
		.op = op, .endpoint = g->ep, .region = g->r, .endpoint_offset = off, .region_offset = at, .length = len
	};
	struct strait_result res;

	ASSERT_OK(strait_transfer_run(&t, STRAIT_FOREVER, &res));
	ASSERT_EQ(res.bytes, len);
	return res;
}

TEST_VARIANTS_TIMEOUT(by_the_bridge, struct place, places, 120)
{
	struct rig g = rig_open(v);
	uint64_t read, written;

	ASSERT_TRUE(verdict(&g).usable);
	ASSERT_EQ(verdict(&g).reason, STRAIT_WHY_DRIVE_DMA);
	ASSERT_EQ(verdict(&g).because, STRAIT_WHY_NONE);
	read = ko_counter("read_bytes");
	written = ko_counter("written_bytes");
	ASSERT_EQ(move(&g, STRAIT_READ, 0, 0, LEN).route_bytes[P2P], LEN);
	ASSERT_OK(strait_region_copy_out(g.r, 0, g.have, LEN));
	ASSERT_MEMEQ(g.have, g.want, LEN);
	ASSERT_EQ(ko_counter("read_bytes") - read, LEN);
	/* To another place, and back. */
	fill(g.want, MIB(1), 5);
	ASSERT_OK(strait_region_copy_in(g.r, MIB(3), g.want, MIB(1)));
	ASSERT_EQ(move(&g, STRAIT_WRITE, MIB(5), MIB(3), MIB(1)).route_bytes[P2P], MIB(1));
	ASSERT_EQ(ko_counter("written_bytes") - written, MIB(1));
	ASSERT_EQ(pread(g.fd, g.have, MIB(1), MIB(5)), MIB(1));
	ASSERT_MEMEQ(g.have, g.want, MIB(1));
	rig_close(&g);
}

/* A region that begins in the middle of a page of the GPU's driver. */
TEST(memory_in_the_middle_of_a_page)
{
	struct rig g = rig_open(&ext4);
	struct strait_region_info info = { .size = sizeof(info) };
	struct strait_region *all = g.r;

	ASSERT_OK(strait_region_info(all, &info));
	ASSERT_OK(strait_region_import(g.ctx, g.dev, (void *)(uintptr_t)(info.addr + 20480), MIB(1), &g.r));
	ASSERT_OK(strait_region_fill(all, 0, 0xee, LEN));
	ASSERT_EQ(move(&g, STRAIT_READ, MIB(1), 4096, KIB(512)).route_bytes[P2P], KIB(512));
	memset(g.have, 0xee, LEN);
	memcpy(g.have + 20480 + 4096, g.want + MIB(1), KIB(512));
	ASSERT_OK(strait_region_copy_out(all, 0, g.want, LEN));
	ASSERT_MEMEQ(g.want, g.have, LEN);
	strait_region_close(all);
	rig_close(&g);
}

/* Without the bridge the report says what is missing, and another route is used. */
TEST(without_the_bridge)
{
	struct strait_route_verdict v;
	struct rig g;

	close(ko_open_p2p());
	ASSERT_EQ(system("rmmod strait_nvp2p"), 0);
	g = rig_open(&ext4);
	v = verdict(&g);
	ASSERT_EQ(system("modprobe strait_nvp2p"), 0);
	ASSERT_FALSE(v.usable);
	ASSERT_EQ(v.reason, STRAIT_WHY_NO_BRIDGE);
	ASSERT_EQ(v.because, STRAIT_WHY_NOT_ON_HARDWARE);
	ASSERT_TRUE(strstr(strait_route_verdict_fix(&v), "strait_nvp2p"));
	ASSERT_EQ(move(&g, STRAIT_READ, 0, 0, LEN).route_bytes[P2P], 0);
	ASSERT_OK(strait_region_copy_out(g.r, 0, g.have, LEN));
	ASSERT_MEMEQ(g.have, g.want, LEN);
	rig_close(&g);
}

/*
 * A file without blocks on the drive cannot be used to verify the pair, so each transfer may try again: also one that a
 * stream waits for, which must not free device memory.
 */
TEST(a_stream_writes_an_empty_file)
{
	struct rig g = rig_open(&ext4);
	uint64_t at = 0, len = MIB(1);
	struct strait_stream_transfer t = { .size = sizeof(t),
					    .op = STRAIT_WRITE,
					    .region = g.r,
					    .endpoint_offset = &at,
					    .region_offset = &at,
					    .length = &len };
	struct strait_stream *s;
	int64_t result = 1;

	strait_endpoint_close(g.ep);
	ASSERT_EQ(ftruncate(g.fd, 0), 0);
	ASSERT_OK(strait_file_import(g.ctx, g.fd, STRAIT_FILE_DIRECT, &g.ep));
	t.endpoint = g.ep;
	t.result = &result;
	ASSERT_OK(strait_region_copy_in(g.r, 0, g.want, MIB(1)));
	ASSERT_OK(strait_stream_open(g.dev, &s));
	ASSERT_OK(strait_stream_transfer(s, &t));
	ASSERT_OK(strait_stream_wait(s, 30000000000));
	ASSERT_EQ(result, MIB(1));
	ASSERT_EQ(pread(g.fd, g.have, MIB(1), 0), MIB(1));
	ASSERT_MEMEQ(g.have, g.want, MIB(1));
	strait_stream_close(s);
	rig_close(&g);
}
