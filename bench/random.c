/* SPDX-License-Identifier: MIT */
/*
 * Runs of random 4 KiB reads of a cached file, in batches of 128, each run on a handle just opened: what the admission
 * policy of the registration cache costs and gains beside both pure policies.
 *
 *     random FILE [DEVICE]
 *
 * never: staged reads alone. always: a window is registered, by the reader, before its first read. A run includes opening
 * and closing the file, and with it unregistering. Each row is the best of three.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <strait/strait.h>

#define BATCH 128
#define BYTES 4096u
#define WINDOW (128u << 20) /* the longest that a device registers at once */
#define WINDOWS_MAX 65536
#define REPEATS 3

enum policy { NEVER, ALWAYS, PAID, POLICIES };

static const char *const names[POLICIES] = { "never", "always", "strait" };

static struct strait_context *ctx;
static struct strait_region *region;
static struct strait_queue *queue;
static bool touched[WINDOWS_MAX];

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void need(int rc, const char *what)
{
	if (!rc)
		return;
	fprintf(stderr, "random: %s: %s\n", what, strerror(-rc));
	exit(1);
}

/* Registers the window of the transfer by reading a byte of it that way. */
static void touch(const struct strait_transfer *t)
{
	struct strait_transfer one = *t;
	struct strait_result r;

	if (touched[t->endpoint_offset / WINDOW % WINDOWS_MAX])
		return;
	touched[t->endpoint_offset / WINDOW % WINDOWS_MAX] = true;
	one.routes = STRAIT_ROUTE_MASK(STRAIT_ROUTE_PAGECACHE);
	need(strait_transfer_run(&one, STRAIT_FOREVER, &r), "a transfer");
}

static void run(const char *path, enum policy policy, long reads, double *elapsed, double *cpu)
{
	static struct strait_transfer t[BATCH];
	static struct strait_result r[BATCH];
	struct strait_file_info info = { .size = sizeof(info) };
	struct strait_endpoint *ep;
	uint64_t seed = (uint64_t)reads;

	memset(touched, 0, sizeof(touched));
	*elapsed = seconds();
	*cpu = cpu_seconds();
	need(strait_file_open(ctx, path, O_RDONLY, 0, STRAIT_FILE_IMMUTABLE, &ep), path);
	need(strait_file_info(ep, &info), path);
	for (long done = 0; done < reads; done += BATCH) {
		for (int i = 0; i < BATCH; i++) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			t[i] = (struct strait_transfer){
				.op = STRAIT_READ,
				.routes = policy == NEVER ? STRAIT_ROUTE_MASK(STRAIT_ROUTE_STAGED) : 0,
				.endpoint = ep,
				.region = region,
				.endpoint_offset = (seed >> 20) % (info.length / BYTES) * BYTES,
				.region_offset = (uint64_t)i * BYTES,
				.length = BYTES,
			};
			if (policy == ALWAYS)
				touch(&t[i]);
		}
		need(strait_queue_submit(queue, t, BATCH), "a batch");
		need(strait_queue_wait(queue, BATCH, BATCH, STRAIT_FOREVER, r) == BATCH ? 0 : -5, "a batch");
	}
	strait_endpoint_close(ep);
	*elapsed = seconds() - *elapsed;
	*cpu = cpu_seconds() - *cpu;
}

int main(int argc, char **argv)
{
	static const long lengths[] = { 1000, 3000, 12800, 30000, 100000, 300000, 1000000 };
	struct strait_context_opts opts = { .size = sizeof(opts), .pinned_budget = 64ull << 30 };
	struct strait_device *dev;
	double elapsed, cpu;

	if (argc != 2 && argc != 3) {
		fprintf(stderr, "usage: random FILE [DEVICE]\n");
		return 2;
	}
	need(strait_context_open(&opts, &ctx), "a context");
	need(strait_device_find(ctx, argc == 3 ? argv[2] : "emu:0", &dev), "the device");
	need(strait_region_alloc(dev, (size_t)BATCH * BYTES, &region), "memory");
	need(strait_queue_open(ctx, NULL, &queue), "a queue");
	/* The first transfers of a process are another matter. */
	run(argv[1], NEVER, 10000, &elapsed, &cpu);
	run(argv[1], ALWAYS, 1000, &elapsed, &cpu);
	printf("%9s  %14s %14s %14s   %10s %10s %10s   %9s %9s\n", "reads", "never/s", "always/s", "strait/s",
	       "never ms", "always ms", "strait ms", "speed", "cpu");
	for (unsigned int i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		double rate[POLICIES] = { 0 }, used[POLICIES] = { 0 }, best;

		for (int p = 0; p < POLICIES; p++)
			for (int k = 0; k < REPEATS; k++) {
				run(argv[1], (enum policy)p, lengths[i], &elapsed, &cpu);
				if ((double)lengths[i] / elapsed > rate[p])
					rate[p] = (double)lengths[i] / elapsed;
				if (!k || cpu < used[p])
					used[p] = cpu;
			}
		best = used[NEVER] < used[ALWAYS] ? used[NEVER] : used[ALWAYS];
		printf("%9ld  %14.0f %14.0f %14.0f   %10.1f %10.1f %10.1f   %8.2fx %8.2fx\n", lengths[i], rate[NEVER],
		       rate[ALWAYS], rate[PAID], used[NEVER] * 1e3, used[ALWAYS] * 1e3, used[PAID] * 1e3,
		       rate[PAID] / rate[NEVER], used[PAID] / best);
		fflush(stdout);
	}
	printf("speed: of %s beside %s; cpu: of %s beside the better one of the others\n", names[PAID], names[NEVER],
	       names[PAID]);
	strait_queue_close(queue);
	strait_region_close(region);
	strait_context_close(ctx);
	return 0;
}
