/* SPDX-License-Identifier: MIT */
/* RDMA into memory of the lab's GPU: as the machine's host sees it, and when it is freed behind the library's back. */
#include "functional/rdma.h"
#include "outside.h"
#include "vgpu.h"

#define SECOND 1000000000ll
#define LEN MIB(4)

static void expect_bar(const struct gpu_mem *m, const uint8_t *want)
{
	for (uint64_t at = 0, n, bar; at < LEN; at += n) {
		n = gpu_run(m, at, LEN - at, &bar);
		outside_expect("bar", bar, want + at, n);
	}
}

/* Random ranges of a file into the memory and back to another file on the drive. */
TEST_TIMEOUT(bytes_are_there_as_seen_from_outside, 300)
{
	struct strait_rdma_file f = { .size = sizeof(f) };
	struct strait_rdma_result res = { .size = sizeof(res) };
	uint8_t *file, *want = malloc(LEN), *back = calloc(1, LEN);
	struct strait_context *ctx;
	struct strait_rdma_server *server;
	struct strait_rdma_client *client;
	struct strait_device *dev;
	struct gpu_mem m;
	uint64_t state = 3;
	int fd;

	rdma_address();
	make_file("data", LEN, 5);
	file = pattern_new(0, LEN, 5);
	m = gpu_alloc(gpu_open(), PINNABLE, LEN);
	memset(m.p, 0xa5, LEN);
	memset(want, 0xa5, LEN);
	ctx = context_new(NULL);
	server = rdma_serve_dir(ctx, test_dir(), STRAIT_RDMA_SERVE_WRITE, 0);
	client = rdma_client_new(ctx);
	ASSERT_OK(strait_device_find(ctx, "vgpu:0", &dev));
	ASSERT_OK(strait_region_import(ctx, dev, m.p, LEN, &f.region));
	fd = open(test_path("back"), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	ASSERT_OK(fd);
	ASSERT_EQ(pwrite(fd, back, LEN, 0), (ssize_t)LEN);
	for (unsigned int i = 0; i < (very_slow() ? 3 : 8); i++) {
		f.length = 1 + prng_below(&state, i % 2 ? 5000 : LEN);
		f.file_offset = prng_below(&state, LEN - f.length + 1);
		f.region_offset = prng_below(&state, LEN - f.length + 1);
		f.path = "data";
		ASSERT_OK(strait_rdma_pull(client, &f, &res));
		ASSERT_EQ(res.bytes_direct, f.length);
		ASSERT_EQ(res.bytes_staged, 0);
		memcpy(want + f.region_offset, file + f.file_offset, f.length);
		expect_bar(&m, want);
		f.file_offset = prng_below(&state, LEN - f.length + 1);
		f.path = "back";
		ASSERT_OK(strait_rdma_push(client, &f, &res));
		ASSERT_EQ(res.bytes_direct, f.length);
		memcpy(back + f.file_offset, want + f.region_offset, f.length);
		ASSERT_OK(fsync(fd));
		outside_expect_file(fd, 0, back, LEN);
	}
	close(fd);
	strait_rdma_client_close(client);
	strait_rdma_server_close(server);
	strait_region_close(f.region);
	strait_context_close(ctx);
	free(file);
	free(want);
	free(back);
}

/* The registration pins it: the driver gives it to no other allocation before it is deregistered. */
TEST_TIMEOUT(memory_freed_behind_our_back_is_not_reused_before, 120)
{
	struct strait_rdma_request q = { .op = STRAIT_WRITE, .length = LEN };
	char text[STRAIT_RDMA_OFFER_TEXT];
	struct strait_region *far, *near;
	struct strait_rdma_offer *offer;
	struct strait_device *dev, *host;
	struct gpu_mem m, next;
	struct rdma_pair p;
	uint64_t ticket;
	int fd;

	rdma_pair_open(&p);
	fd = gpu_open();
	m = gpu_alloc(fd, PINNABLE, LEN);
	ASSERT_OK(strait_device_find(p.ctx, "vgpu:0", &dev));
	ASSERT_OK(strait_device_find(p.ctx, "host", &host));
	ASSERT_OK(strait_region_import(p.ctx, dev, m.p, LEN, &far));
	ASSERT_OK(strait_region_alloc(host, LEN, &near));
	ASSERT_OK(strait_region_fill(near, 0, 0x22, LEN));
	ASSERT_OK(strait_rdma_offer(p.offers, far, 0, LEN, STRAIT_RDMA_PEER_WRITES, STRAIT_FOREVER, &offer));
	ASSERT_OK(strait_rdma_offer_text(offer, text, NULL));
	q.region = near;
	q.offer = text;
	gpu_unmap(&m);
	ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(gpu_counters(fd).draining_bytes, LEN);
	next = gpu_alloc(fd, PINNABLE, LEN);
	memset(next.p, 0x77, LEN);
	/* The peer still has access, to memory without another user. */
	ASSERT_OK(strait_rdma_post(p.initiates, &q, 20 * SECOND, &ticket));
	ASSERT_OK(strait_rdma_wait(p.initiates, ticket, 60 * SECOND));
	ASSERT_EQ(gpu_counters(fd).draining_bytes, LEN);
	for (uint64_t i = 0; i < LEN; i++)
		ASSERT_EQ(next.p[i], 0x77);
	strait_region_close(far);
	for (unsigned int i = 0; i < 500 && gpu_counters(fd).draining_bytes; i++)
		usleep(10000);
	ASSERT_EQ(gpu_counters(fd).draining_bytes, 0);
	strait_rdma_offer_close(offer);
	rdma_pair_close(&p);
	strait_region_close(near);
}
