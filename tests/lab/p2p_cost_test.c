/* SPDX-License-Identifier: MIT */
/* What moving bytes costs the machine's CPUs: by p2p, where they move none, and staged, where they copy. */
#include "p2p.h"

#include <strait/strait.h>

#define BYTES MIB(64)
#define ROUNDS 4

static int out;

/* What tests print is kept back; this is to be seen. */
__attribute__((constructor)) static void keep_output(void)
{
	out = dup(STDOUT_FILENO);
}

/* Milliseconds that all CPUs have worked since the machine started. */
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

static uint64_t cost(struct strait_endpoint *ep, struct strait_region *r, uint32_t op, int route)
{
	struct strait_transfer t = {
		.op = op, .routes = STRAIT_ROUTE_MASK(route), .endpoint = ep, .region = r, .length = BYTES
	};
	uint64_t before = busy_ms(), start = now_ms(), ms;
	struct strait_result res;

	for (int i = 0; i < ROUNDS; i++) {
		ASSERT_OK(strait_transfer_run(&t, STRAIT_FOREVER, &res));
		ASSERT_EQ(res.bytes, BYTES);
		ASSERT_EQ(res.route_bytes[route], BYTES);
	}
	ms = (busy_ms() - before) * (GIB(1) / (BYTES * ROUNDS));
	dprintf(out, "# %s by %s: %llu ms of CPU and %llu ms in all per GiB\n", op == STRAIT_READ ? "read" : "write",
		strait_route_name(route), (unsigned long long)ms,
		(unsigned long long)((now_ms() - start) * (GIB(1) / (BYTES * ROUNDS))));
	return ms;
}

TEST_TIMEOUT(less_by_p2p_than_staged, 300)
{
	const struct place ext4 = { "ext4", "mkfs.ext4 -q -F -E nodiscard /dev/nvme0n1" };
	struct strait_context *ctx;
	struct strait_endpoint *ep;
	struct strait_device *dev;
	struct strait_region *r;
	uint64_t staged, p2p;
	int fd;

	close(ko_open_p2p());
	fd = place_file(&ext4, BYTES, 1, 0);
	ASSERT_OK(strait_context_open(NULL, &ctx));
	ASSERT_OK(strait_device_find(ctx, "vgpu:0", &dev));
	ASSERT_OK(strait_file_import(ctx, fd, STRAIT_FILE_DIRECT, &ep));
	ASSERT_OK(strait_region_alloc(dev, BYTES, &r));
	/* Once for what is made at the first use. */
	cost(ep, r, STRAIT_READ, STRAIT_ROUTE_P2P);
	for (uint32_t op = STRAIT_READ; op <= STRAIT_WRITE; op++) {
		p2p = cost(ep, r, op, STRAIT_ROUTE_P2P);
		staged = cost(ep, r, op, STRAIT_ROUTE_STAGED);
		ASSERT_LT(p2p, staged);
	}
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	close(fd);
	place_unmount();
}
