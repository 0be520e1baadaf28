/* SPDX-License-Identifier: MIT */
/*
 * 4 KiB reads anywhere on the drive, by the kernel's driver with io_uring and by ours, polled, in one guest: how many
 * in a second, and how much of the guest's CPU each takes.
 */
#include "nvme.h"

#include <liburing.h>
#include <sys/resource.h>

#define BLOCK 4096u
#define SPAN MIB(512)
#define MOST 128

static int out = -1; /* the program's own output: what a test prints is shown only when it fails */

__attribute__((constructor)) static void keep_output(void)
{
	out = dup(STDOUT_FILENO);
}

static double seconds(void)
{
	const char *s = getenv("NVME_SPEED_SECONDS");

	return s ? strtod(s, NULL) : 1.5;
}

struct speed {
	double per_second, cpu_us;
};

static double now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Of all of the machine: what the kernel does for us in interrupts counts too. */
static double cpu_busy(void)
{
	unsigned long long user, nice, sys, idle, wait, irq, soft;
	FILE *f = fopen("/proc/stat", "re");

	ASSERT_TRUE(f);
	ASSERT_EQ(fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &sys, &idle, &wait, &irq, &soft),
		  7);
	fclose(f);
	return (double)(user + nice + sys + irq + soft) / (double)sysconf(_SC_CLK_TCK);
}

static uint64_t place(uint64_t *state)
{
	return prng_below(state, SPAN / BLOCK) * BLOCK;
}

/* As fio's io_uring engine does it: registered buffers and file, direct I/O, a system call for each round. */
static struct speed by_kernel(unsigned int depth)
{
	unsigned char *mem = aligned_alloc(4096, MOST * BLOCK);
	struct iovec iov[MOST];
	uint64_t state = 1, ops = 0;
	struct io_uring ring;
	double start, cpu, end;
	int fd = open("/dev/nvme0n1", O_RDONLY | O_DIRECT | O_CLOEXEC);

	ASSERT_TRUE(mem && fd >= 0);
	memset(mem, 0, MOST * BLOCK);
	ASSERT_EQ(io_uring_queue_init(MOST, &ring, 0), 0);
	for (unsigned int i = 0; i < depth; i++)
		iov[i] = (struct iovec){ mem + i * BLOCK, BLOCK };
	ASSERT_EQ(io_uring_register_buffers(&ring, iov, depth), 0);
	ASSERT_EQ(io_uring_register_files(&ring, &fd, 1), 0);
	start = now(CLOCK_MONOTONIC);
	cpu = cpu_busy();
	end = start + seconds();
	for (unsigned int i = 0; i < depth; i++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

		io_uring_prep_read_fixed(sqe, 0, mem + i * BLOCK, BLOCK, place(&state), (int)i);
		sqe->flags |= IOSQE_FIXED_FILE;
		sqe->user_data = i;
	}
	while (now(CLOCK_MONOTONIC) < end) {
		struct io_uring_cqe *cqe;
		unsigned int head, n = 0;

		ASSERT_GE(io_uring_submit_and_wait(&ring, 1), 0);
		io_uring_for_each_cqe(&ring, head, cqe)
		{
			struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
			unsigned int i = (unsigned int)cqe->user_data;

			ASSERT_EQ(cqe->res, BLOCK);
			io_uring_prep_read_fixed(sqe, 0, mem + i * BLOCK, BLOCK, place(&state), (int)i);
			sqe->flags |= IOSQE_FIXED_FILE;
			sqe->user_data = i;
			n++;
		}
		io_uring_cq_advance(&ring, n);
		ops += n;
	}
	end = now(CLOCK_MONOTONIC);
	cpu = cpu_busy() - cpu;
	io_uring_queue_exit(&ring);
	close(fd);
	free(mem);
	return (struct speed){ (double)ops / (end - start), cpu / (double)ops * 1e6 };
}

static struct speed by_us(struct drive *d, struct strait_region *r, unsigned int depth)
{
	struct strait_nvme_queue_opts qo = { .size = sizeof(qo), .entries = depth + 2 };
	static struct strait_nvme_command cmd[MOST];
	static struct strait_nvme_result res[MOST];
	struct strait_nvme_queue *q;
	struct strait_nvme_map *map;
	uint64_t state = 1, ops = 0;
	unsigned int idle = depth;
	double start, cpu, end;

	ASSERT_OK(strait_nvme_queue_open(d->nvme, &qo, &q));
	ASSERT_OK(strait_nvme_map(d->nvme, r, 0, MOST * BLOCK, &map));
	for (unsigned int i = 0; i < depth; i++)
		res[i].user_data = i;
	start = now(CLOCK_MONOTONIC);
	cpu = cpu_busy();
	end = start + seconds();
	while (now(CLOCK_MONOTONIC) < end) {
		int n;

		for (unsigned int i = 0; i < idle; i++) {
			uint64_t lba = place(&state) / 512;

			cmd[i] = (struct strait_nvme_command){ .opcode = 2,
							       .nsid = 1,
							       .cdw10 = { (uint32_t)lba, 0, 7 },
							       .map = map,
							       .offset = res[i].user_data * BLOCK,
							       .length = BLOCK,
							       .user_data = res[i].user_data };
		}
		ASSERT_EQ(strait_nvme_queue_submit(q, cmd, idle), idle);
		n = strait_nvme_queue_wait(q, 1, MOST, STRAIT_FOREVER, res);
		ASSERT_GE(n, 1);
		for (int i = 0; i < n; i++)
			ASSERT_EQ(res[i].status, 0);
		idle = (unsigned int)n;
		ops += idle;
	}
	end = now(CLOCK_MONOTONIC);
	cpu = cpu_busy() - cpu;
	strait_nvme_queue_close(q);
	strait_nvme_unmap(map);
	return (struct speed){ (double)ops / (end - start), cpu / (double)ops * 1e6 };
}

static const unsigned int depths[] = { 1, 32, 128 };

enum { KERNEL, SHADOW, DOORBELLS, GPU, WHO };

/* The emulator shares its processors with others: of several rounds the best counts, for all. */
static void keep_best(struct speed *best, struct speed s)
{
	if (s.per_second > best->per_second)
		*best = s;
}

static void our_round(struct speed best[WHO][3], uint32_t flags, int host, int device)
{
	static const struct nvme_way polled = { "polled", "strait", "host", false, false };
	struct strait_region *r, *g;
	struct strait_device *dev;
	struct drive d;

	drive_open_flags(&d, &polled, 0, flags);
	ASSERT_OK(strait_device_find(d.ctx, "vgpu:0", &dev));
	r = drive_region(&d, MOST * BLOCK);
	ASSERT_OK(strait_region_alloc(dev, MOST * BLOCK, &g));
	for (int i = 0; i < 3; i++) {
		keep_best(&best[host][i], by_us(&d, r, depths[i]));
		if (device != WHO)
			keep_best(&best[device][i], by_us(&d, g, depths[i]));
	}
	strait_region_close(g);
	strait_region_close(r);
	drive_close(&d);
}

TEST_TIMEOUT(against_the_kernel, 600)
{
	struct speed best[WHO][3] = { 0 };

	for (int round = 0; round < 3; round++) {
		drive_give_back();
		for (int i = 0; i < 3; i++)
			keep_best(&best[KERNEL][i], by_kernel(depths[i]));
		our_round(best, 0, SHADOW, GPU);
		our_round(best, STRAIT_NVME_NO_SHADOW, DOORBELLS, WHO);
	}
	for (int i = 0; i < 3; i++)
		dprintf(out,
			"# depth %u: kernel %.0f/s (%.0f us of CPU each), Strait %.0f/s (%.0f us), without shadow doorbells "
			"%.0f/s (%.0f us), to GPU memory %.0f/s (%.0f us)\n",
			depths[i], best[KERNEL][i].per_second, best[KERNEL][i].cpu_us, best[SHADOW][i].per_second,
			best[SHADOW][i].cpu_us, best[DOORBELLS][i].per_second, best[DOORBELLS][i].cpu_us,
			best[GPU][i].per_second, best[GPU][i].cpu_us);
	ASSERT_TRUE(best[SHADOW][1].per_second >= 1.5 * best[KERNEL][1].per_second);
}

TEST(given_back)
{
	drive_give_back();
}
