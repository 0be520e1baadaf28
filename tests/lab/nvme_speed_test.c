/* SPDX-License-Identifier: MIT */
/*
 * Random 4 KiB reads of the drive, in one guest: by the kernel's driver with io_uring, in a loop of our own and by fio,
 * and by our driver, polled. Measures commands per second, and the guest's CPU time for each.
 */
#include "nvme.h"

#include <liburing.h>
#include <signal.h>
#include <sys/wait.h>

#define BLOCK 4096u
#define SPAN MIB(48)
#define MOST 128
#define ROUNDS 3      /* at least */
#define MOST_ROUNDS 6 /* while the result is not as expected */
#define SLICES 4
#define SERIAL "fast"

static int out = -1; /* the program's own output: output of a test is shown only when it fails */
static char name[PCI_NAME], block[32];

__attribute__((constructor)) static void keep_output(void)
{
	out = dup(STDOUT_FILENO);
}

static double slice(void)
{
	const char *s = getenv("NVME_SPEED_SECONDS");

	return s ? strtod(s, NULL) : 0.4;
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Of the whole machine: interrupts count too. */
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

/* The emulator shares its processors with other processes: the best of all time slices counts, for every contender. */
struct speed {
	double per_second, cpu_us;
};

struct clock {
	struct speed *best;
	double start, cpu;
	uint64_t ops;
	unsigned int left;
};

static struct clock clock_start(struct speed *best, uint64_t ops)
{
	return (struct clock){ best, now(), cpu_busy(), ops, SLICES };
}

/* False: that was the last slice. @ops: completed since the start. */
static bool clock_goes_on(struct clock *c, uint64_t ops)
{
	double t = now(), cpu, n = (double)(ops - c->ops);

	if (t < c->start + slice())
		return true;
	cpu = cpu_busy();
	if (n / (t - c->start) > c->best->per_second)
		*c->best = (struct speed){ n / (t - c->start), (cpu - c->cpu) / n * 1e6 };
	c->start = t;
	c->cpu = cpu;
	c->ops = ops;
	return --c->left;
}

/*
 * The share of time in which this processor is stopped because the host runs something else. If it is large, a guest
 * that polls takes time from the drive, which is another thread of the emulator.
 */
static double stolen(void)
{
	double start = now(), last = start, gone = 0, t;

	while ((t = now()) < start + slice()) {
		if (t - last > 0.001)
			gone += t - last;
		last = t;
	}
	return gone / (t - start);
}

static uint64_t place(uint64_t *state)
{
	return prng_below(state, SPAN / BLOCK) * BLOCK;
}

static void prepare(struct io_uring *ring, unsigned char *mem, unsigned int i, uint64_t at)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	io_uring_prep_read_fixed(sqe, 0, mem + i * BLOCK, BLOCK, at, (int)i);
	sqe->flags |= IOSQE_FIXED_FILE;
	sqe->user_data = i;
}

/* Registered buffers and file, direct I/O, a system call for each round. */
static void by_loop(struct speed *best, unsigned int depth)
{
	unsigned char *mem = aligned_alloc(4096, MOST * BLOCK);
	struct iovec iov[MOST];
	uint64_t state = 1, ops = 0;
	struct io_uring ring;
	struct clock c;
	int fd = open(block, O_RDONLY | O_DIRECT | O_CLOEXEC);

	ASSERT_TRUE(mem && fd >= 0);
	memset(mem, 0, MOST * BLOCK);
	ASSERT_EQ(io_uring_queue_init(MOST, &ring, 0), 0);
	for (unsigned int i = 0; i < depth; i++)
		iov[i] = (struct iovec){ mem + i * BLOCK, BLOCK };
	ASSERT_EQ(io_uring_register_buffers(&ring, iov, depth), 0);
	ASSERT_EQ(io_uring_register_files(&ring, &fd, 1), 0);
	for (unsigned int i = 0; i < depth; i++)
		prepare(&ring, mem, i, place(&state));
	c = clock_start(best, 0);
	while (clock_goes_on(&c, ops)) {
		struct io_uring_cqe *cqe;
		unsigned int head, n = 0;

		ASSERT_GE(io_uring_submit_and_wait(&ring, 1), 0);
		io_uring_for_each_cqe(&ring, head, cqe)
		{
			ASSERT_EQ(cqe->res, BLOCK);
			prepare(&ring, mem, (unsigned int)cqe->user_data, place(&state));
			n++;
		}
		io_uring_cq_advance(&ring, n);
		ops += n;
	}
	io_uring_queue_exit(&ring);
	close(fd);
	free(mem);
}

static uint64_t reads_done(void)
{
	char path[64], text[256];

	snprintf(path, sizeof(path), "/sys/class/block/%s/stat", block + strlen("/dev/"));
	ASSERT_OK(read_text(path, text, sizeof(text)));
	return strtoull(text, NULL, 10);
}

static const char *fio(void)
{
	return access("/usr/bin/fio", X_OK) ? NULL : "/usr/bin/fio";
}

static pid_t fio_start(unsigned int depth)
{
	char file[64], size[32], iodepth[32], submit[48], complete[48];
	pid_t pid;

	snprintf(file, sizeof(file), "--filename=%s", block);
	snprintf(size, sizeof(size), "--size=%llu", (unsigned long long)SPAN);
	snprintf(iodepth, sizeof(iodepth), "--iodepth=%u", depth);
	snprintf(submit, sizeof(submit), "--iodepth_batch_submit=%u", depth);
	snprintf(complete, sizeof(complete), "--iodepth_batch_complete_max=%u", depth);
	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid) {
		execl(fio(), "fio", "--name=read", "--ioengine=io_uring", "--fixedbufs", "--registerfiles",
		      "--direct=1", "--rw=randread", "--norandommap", "--bs=4k", "--gtod_reduce=1", "--thread",
		      "--time_based", "--runtime=120", "--output=/tmp/fio.out", "--iodepth_batch_complete_min=1", file,
		      size, iodepth, submit, complete, (char *)NULL);
		_exit(127);
	}
	return pid;
}

/* Counted from outside after its start, which takes long on an emulated processor. */
static void by_fio(struct speed *best, unsigned int depth)
{
	uint64_t before = reads_done();
	struct clock c;
	pid_t pid = fio_start(depth);
	int status;

	for (int i = 0; i < 6000 && reads_done() < before + 1000; i++) {
		ASSERT_EQ(waitpid(pid, &status, WNOHANG), 0);
		sleep_ms(10);
	}
	ASSERT_GE(reads_done(), before + 1000);
	c = clock_start(best, reads_done());
	do
		sleep_ms((unsigned int)(slice() * 1000) + 1);
	while (clock_goes_on(&c, reads_done()));
	kill(pid, SIGKILL);
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
}

static void by_us(struct speed *best, struct drive *d, struct strait_region *r, unsigned int depth)
{
	struct strait_nvme_queue_opts qo = { .size = sizeof(qo), .entries = depth + 2 };
	static struct strait_nvme_command cmd[MOST];
	static struct strait_nvme_result res[MOST];
	struct strait_nvme_queue *q;
	struct strait_nvme_map *map;
	uint64_t state = 1, ops = 0;
	unsigned int idle = depth;
	struct clock c;

	ASSERT_OK(strait_nvme_queue_open(d->nvme, &qo, &q));
	ASSERT_OK(strait_nvme_map(d->nvme, r, 0, MOST * BLOCK, &map));
	for (unsigned int i = 0; i < depth; i++)
		res[i].user_data = i;
	c = clock_start(best, 0);
	while (clock_goes_on(&c, ops)) {
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
	strait_nvme_queue_close(q);
	strait_nvme_unmap(map);
}

static const unsigned int depths[] = { 1, 32, 128 };

enum { LOOP, FIO, SHADOW, DOORBELLS, GPU, WHO };

static const char *const who[WHO] = { "the kernel's driver, io_uring", "the kernel's driver, fio", "Strait",
				      "Strait without shadow doorbells", "Strait to GPU memory" };

static void our_round(struct speed best[WHO][3], uint32_t flags, int host, int device)
{
	static const struct nvme_setup polled = { "polled", "strait", "host", false, false };
	struct strait_region *r, *g;
	struct strait_device *dev;
	struct drive d;

	drive_open_named(&d, name, &polled, 0, flags);
	ASSERT_OK(strait_device_find(d.ctx, "vgpu:0", &dev));
	r = drive_region(&d, MOST * BLOCK);
	ASSERT_OK(strait_region_alloc(dev, MOST * BLOCK, &g));
	for (int i = 0; i < 3; i++) {
		by_us(&best[host][i], &d, r, depths[i]);
		if (device != WHO)
			by_us(&best[device][i], &d, g, depths[i]);
	}
	strait_region_close(g);
	strait_region_close(r);
	drive_close(&d);
}

static double kernels(struct speed best[WHO][3], int i)
{
	return best[FIO][i].per_second > best[LOOP][i].per_second ? best[FIO][i].per_second : best[LOOP][i].per_second;
}

static void one_round(struct speed best[WHO][3])
{
	drive_to_kernel(name, block, sizeof(block));
	for (int i = 0; i < 3; i++) {
		by_loop(&best[LOOP][i], depths[i]);
		if (fio())
			by_fio(&best[FIO][i], depths[i]);
	}
	our_round(best, 0, SHADOW, GPU);
	our_round(best, STRAIT_NVME_NO_SHADOW, DOORBELLS, WHO);
}

TEST_TIMEOUT(against_the_kernel, 600)
{
	struct speed best[WHO][3] = { 0 };
	double ratio = 0, busy = 0;
	int rounds;

	drive_find(SERIAL, name);
	for (rounds = 0; rounds < ROUNDS || (rounds < MOST_ROUNDS && ratio < 1.5); rounds++) {
		busy += stolen();
		one_round(best);
		ratio = best[SHADOW][1].per_second / kernels(best, 1);
	}
	busy /= rounds;
	if (!fio())
		dprintf(out, "# fio is not there: \"scripts/setup lab\" installs it\n");
	for (int w = 0; w < WHO; w++)
		for (int i = 0; i < 3 && best[w][0].per_second > 0; i++)
			dprintf(out, "# %s: depth %u: %.0f in a second, %.1f us of CPU for each\n", who[w], depths[i],
				best[w][i].per_second, best[w][i].cpu_us);
	dprintf(out, "# Strait at depth 32: %.2f times the kernel's; the host took %.0f %% of the time\n", ratio,
		busy * 100);
	drive_to_kernel(name, block, sizeof(block));
	if (ratio < 1.5 && busy > 0.1)
		SKIP("the host is busy: this processor stood still %.0f %% of the time", busy * 100);
	ASSERT_TRUE(ratio >= 1.5);
}
