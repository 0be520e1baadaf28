/* SPDX-License-Identifier: MIT */
/*
 * Bytes of route p2p are moved by the drive, all of them, and none of the staged ones: counted by the module. What both
 * cost the machine's CPUs is printed, without judgement: the clock of an emulated machine says little.
 */
#include "p2p.h"

#include <strait/strait.h>

#define BYTES MIB(64)
#define ROUNDS 4

static int out;

/* Output of tests is captured; this is to be shown. */
__attribute__((constructor)) static void keep_output(void)
{
	out = dup(STDOUT_FILENO);
}

/* Milliseconds of work of all CPUs since the machine started. */
static uint64_t busy_ms(void)
{
	unsigned long long user, nice, system, idle, iowait, irq, softirq;
	FILE *f = fopen("/proc/stat", "re");

	ASSERT_TRUE(f);
	ASSERT_EQ(fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle, &iowait, &irq,
			 &softirq),
		  7);
	fclose(f);
	return (user + nice + system + irq + softirq) * 1000 / (uint64_t)sysconf(_SC_CLK_TCK);
}

static void cost(struct strait_endpoint *ep, struct strait_region *r, uint32_t op, int route)
{
	struct strait_transfer t = {
		.op = op, .routes = STRAIT_ROUTE_MASK(route), .endpoint = ep, .region = r, .length = BYTES
	};
	const char *counter = op == STRAIT_READ ? "read_bytes" : "written_bytes";
	uint64_t before = busy_ms(), start = now_ms(), moved = ko_counter(counter), ms;
	struct strait_result res;

	for (int i = 0; i < ROUNDS; i++) {
		ASSERT_OK(strait_transfer_run(&t, STRAIT_FOREVER, &res));
		ASSERT_EQ(res.bytes, BYTES);
		ASSERT_EQ(res.route_bytes[route], BYTES);
	}
	ASSERT_EQ(ko_counter(counter) - moved, route == STRAIT_ROUTE_P2P ? BYTES * ROUNDS : 0);
	ms = (busy_ms() - before) * (GIB(1) / (BYTES * ROUNDS));
	dprintf(out, "# %s by %s: %llu ms of CPU and %llu ms in all per GiB\n", op == STRAIT_READ ? "read" : "write",
		strait_route_name(route), (unsigned long long)ms,
		(unsigned long long)((now_ms() - start) * (GIB(1) / (BYTES * ROUNDS))));
}

TEST_TIMEOUT(moved_by_the_drive, 300)
{
	const struct place ext4 = PLACE_EXT4;
	struct strait_transfer t = { .op = STRAIT_READ,
				     .routes = STRAIT_ROUTE_MASK(STRAIT_ROUTE_P2P),
				     .length = BYTES };
	struct strait_context *ctx;
	struct strait_endpoint *ep;
	struct strait_device *dev;
	struct strait_region *r;
	struct strait_result res;
	int fd;

	close(ko_open_p2p());
	fd = place_file(&ext4, BYTES, 1, 0);
	ASSERT_OK(strait_context_open(NULL, &ctx));
	ASSERT_OK(strait_device_find(ctx, "vgpu:0", &dev));
	ASSERT_OK(strait_file_import(ctx, fd, STRAIT_FILE_DIRECT, &ep));
	ASSERT_OK(strait_region_alloc(dev, BYTES, &r));
	/* The first use of a route reads a block to verify it. */
	t.endpoint = ep;
	t.region = r;
	ASSERT_OK(strait_transfer_run(&t, STRAIT_FOREVER, &res));
	for (uint32_t op = STRAIT_READ; op <= STRAIT_WRITE; op++) {
		cost(ep, r, op, STRAIT_ROUTE_P2P);
		cost(ep, r, op, STRAIT_ROUTE_STAGED);
	}
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	close(fd);
	place_unmount();
}
