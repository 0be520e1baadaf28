/* SPDX-License-Identifier: MIT */
/*
 * Memory that goes away under a drive with commands in flight: nothing is written there any more, and the drive can be
 * used for other memory. strait.ko revokes the memory; the IOMMU's faults prove that the drive still tried.
 */
#include "nvme.h"

#include <signal.h>

#define LEN MIB(2)
#define N 32

__attribute__((constructor)) static void allow_faults(void)
{
	printf("# allow-log DMAR: (DRHD: handling fault|\\[DMA)\n");
	fflush(stdout);
}

static const struct nvme_setup setups[] = { { "polled", "strait", "vgpu:0", false, false },
					    { "interrupts", "strait", "vgpu:0", true, false } };

/* Reads into all of the memory repeatedly, until one fails. */
static void submit_all(struct strait_nvme_queue *q, struct strait_nvme_map *map)
{
	struct strait_nvme_command cmd[N];

	for (unsigned int i = 0; i < N; i++)
		cmd[i] = (struct strait_nvme_command){ .opcode = 2,
						       .nsid = 1,
						       .cdw10 = { i * 128, 0, 127 },
						       .map = map,
						       .offset = i * (LEN / N),
						       .length = LEN / N };
	ASSERT_EQ(strait_nvme_queue_submit(q, cmd, N), N);
}

/* The drive still works with other memory. */
static void expect_works(struct drive *d)
{
	struct strait_region *r = drive_region(d, MIB(1));

	memset(drive_cpu(r), 0xa5, MIB(1));
	ASSERT_EQ(strait_read(d->ep, 0, r, 0, MIB(1)), MIB(1));
	strait_region_close(r);
}

/* The region is closed: the library waits for the commands, then unmaps it. */
TEST_VARIANTS_TIMEOUT(closed, struct nvme_setup, setups, 120)
{
	struct strait_nvme_result res[N];
	struct strait_nvme_queue *q;
	struct strait_nvme_map *map;
	struct strait_region *r, *other;
	struct drive d;

	drive_open(&d, v, 5000000000u);
	r = drive_region(&d, LEN);
	ASSERT_OK(strait_nvme_queue_open(d.nvme, NULL, &q));
	ASSERT_OK(strait_nvme_map(d.nvme, r, 0, LEN, &map));
	for (int round = 0; round < 5; round++) {
		submit_all(q, map);
		strait_region_close(r);
		/* Most likely the same memory, with a new owner. */
		other = drive_region(&d, LEN);
		fill(drive_cpu(other), LEN, 5);
		ASSERT_EQ(strait_nvme_queue_wait(q, N, N, STRAIT_FOREVER, res), N);
		sleep_ms(50);
		ASSERT_TRUE(filled(drive_cpu(other), LEN, 5));
		strait_region_close(other);
		strait_nvme_unmap(map);
		r = drive_region(&d, LEN);
		ASSERT_OK(strait_nvme_map(d.nvme, r, 0, LEN, &map));
	}
	strait_nvme_unmap(map);
	strait_nvme_queue_close(q);
	strait_region_close(r);
	expect_works(&d);
	drive_close(&d);
}

/*
 * The owner frees it through the GPU's driver, without the library: the kernel revokes it with the commands in flight.
 */
TEST_VARIANTS_TIMEOUT(freed, struct nvme_setup, setups, 240)
{
	struct strait_nvme_result res[N];
	struct strait_nvme_info info = { .size = sizeof(info) };
	struct strait_nvme_queue *q;
	struct strait_nvme_map *map;
	struct strait_region *r;
	struct gpu_mem m, other;
	struct drive d;
	int gpu;

	drive_open(&d, v, 5000000000u);
	gpu = gpu_open();
	m = gpu_alloc(gpu, PLAIN, LEN);
	gpu_map(&m);
	if (strait_region_import(d.ctx, d.dev, m.p, LEN, &r))
		SKIP("memory of another's cannot be imported");
	ASSERT_OK(strait_nvme_queue_open(d.nvme, NULL, &q));
	ASSERT_OK(strait_nvme_map(d.nvme, r, 0, LEN, &map));
	submit_all(q, map);
	gpu_unmap(&m);
	ASSERT_OK(gpu_free(&m));
	other = gpu_alloc(gpu, PLAIN, LEN);
	gpu_map(&other);
	fill(other.p, LEN, 6);
	ASSERT_EQ(strait_nvme_queue_wait(q, N, N, STRAIT_FOREVER, res), N);
	sleep_ms(100);
	ASSERT_TRUE(filled(other.p, LEN, 6));
	strait_nvme_unmap(map);
	strait_nvme_queue_close(q);
	strait_region_close(r);
	expect_works(&d);
	ASSERT_OK(strait_nvme_info(d.nvme, &info));
	printf("# %llu resets, %llu commands failed\n", (unsigned long long)info.resets,
	       (unsigned long long)info.failed);
	drive_close(&d);
	gpu_unmap(&other);
	close(gpu);
}

/* The process dies with commands in flight: its queues and its memory are released. */
TEST_VARIANTS_TIMEOUT(killed, struct nvme_setup, setups, 240)
{
	struct gpu_mem other;
	struct drive d;
	int status, gpu, ready[2];
	char c;
	pid_t pid;

	ASSERT_EQ(pipe(ready), 0);
	fflush(stdout);
	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid) {
		struct strait_nvme_queue *q;
		struct strait_nvme_map *map;
		struct strait_nvme_result res[N];
		struct strait_region *r;

		drive_open(&d, v, 0);
		r = drive_region(&d, LEN);
		ASSERT_OK(strait_nvme_queue_open(d.nvme, NULL, &q));
		ASSERT_OK(strait_nvme_map(d.nvme, r, 0, LEN, &map));
		ASSERT_EQ(write(ready[1], "x", 1), 1);
		for (;;) {
			submit_all(q, map);
			strait_nvme_queue_wait(q, N, N, STRAIT_FOREVER, res);
		}
	}
	ASSERT_EQ(read(ready[0], &c, 1), 1);
	sleep_ms(200);
	ASSERT_EQ(kill(pid, SIGKILL), 0);
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
	gpu = gpu_open();
	other = gpu_alloc(gpu, PLAIN, MIB(32));
	gpu_map(&other);
	fill(other.p, MIB(32), 8);
	sleep_ms(300);
	ASSERT_TRUE(filled(other.p, MIB(32), 8));
	gpu_unmap(&other);
	close(gpu);
	drive_open(&d, v, 0);
	expect_works(&d);
	drive_close(&d);
}

TEST(given_back)
{
	drive_give_back();
}
