/* SPDX-License-Identifier: MIT */
/*
 * Strait compared with NVIDIA's libcufile and with the limits of the machine, in one run.
 *
 *     bench-gpu FILE [SIZE_MIB] [ROUNDS]
 *
 * Creates FILE if it does not exist, and leaves it there; it is only read. FILE.written is created and removed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

#define READ_TURNS 4

void die(const char *what, int err)
{
	fprintf(stderr, "bench: %s: %s\n", what, strerror(err));
	exit(1);
}

double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

void keep_best(struct sample *best, struct sample s)
{
	if (s.rate > best->rate)
		*best = s;
}

static void head(void)
{
	printf("%-46s %10s %6s %10s %6s %7s  %s\n", "case", "strait", "cores", "other", "cores", "ratio", "goal");
}

static void row(const char *what, struct sample ours, const char *other, struct sample theirs, double ratio_goal,
		double goal, double cores_goal)
{
	double ratio = theirs.rate > 0 ? ours.rate / theirs.rate : 0;
	bool ok = (ratio <= 0 || ratio >= ratio_goal) && ours.rate >= goal &&
		  (cores_goal <= 0 || ours.cores <= cores_goal);
	char name[96], goals[96] = "";

	snprintf(name, sizeof(name), "%s / %s", what, other);
	if (goal > 0)
		snprintf(goals, sizeof(goals), ">= %g ", goal);
	if (ratio_goal > 0)
		snprintf(goals + strlen(goals), sizeof(goals) - strlen(goals), ">= %gx ", ratio_goal);
	if (cores_goal > 0)
		snprintf(goals + strlen(goals), sizeof(goals) - strlen(goals), "<= %g cores ", cores_goal);
	printf("%-46s %10.2f %6.2f %10.2f %6.2f %7.2f  %s%s\n", name, ours.rate, ours.cores, theirs.rate, theirs.cores,
	       ratio, goals, ok ? "ok" : "MISSED");
	fflush(stdout);
}

static void latency_row(struct bench *b, const char *what, size_t block)
{
	struct sample ours = { 0 }, theirs = { 0 };

	for (int i = 0; i < b->rounds; i++) {
		keep_best(&ours, ours_random(b, block));
		if (b->cufile)
			keep_best(&theirs, cufile_random(b, block));
	}
	printf("%-46s %8.2fus %6s %8.2fus %6s %7.2f  <= cuFile %s\n", what, ours.us, "", theirs.us, "",
	       theirs.us > 0 ? ours.us / theirs.us : 0, theirs.us <= 0 || ours.us <= theirs.us ? "ok" : "MISSED");
	fflush(stdout);
}

static struct sample best_queued(struct bench *b, uint32_t flags)
{
	static const struct {
		unsigned int threads, batch;
	} shape[] = { { 1, 128 }, { 1, 1024 }, { 2, 512 }, { 4, 256 }, { 4, 512 }, { 8, 256 }, { 8, 512 }, { 12, 256 } };
	struct sample best = { 0 };

	for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
		struct sample s = { 0 };

		for (int k = 0; k < b->rounds; k++)
			keep_best(&s, ours_queued(b, flags, shape[i].threads, shape[i].batch));
		printf("    %u submitting threads, batches of %4u: %10.0f/s, %.1f cores\n", shape[i].threads,
		       shape[i].batch, s.rate, s.cores);
		keep_best(&best, s);
	}
	return best;
}

/*
 * Measurements alternate, because the machine is shared and its cores are slower for half a second at a time. That is
 * the time of three of these reads, so a round has more of them.
 */
static void sequential(struct bench *b)
{
	struct sample limit = { 0 }, one = { 0 }, eight = { 0 }, any = { 0 }, pagecache = { 0 }, staged = { 0 },
		      again = { 0 };

	for (int i = 0; i < READ_TURNS * b->rounds; i++) {
		keep_best(&limit, plain_copy_limit(b));
		if (b->cufile) {
			keep_best(&one, cufile_read(b, false, 1));
			keep_best(&eight, cufile_read(b, false, 8));
		}
		keep_best(&any, ours_read(b, 0, 0));
		keep_best(&pagecache, ours_read(b, 0, STRAIT_ROUTE_MASK(STRAIT_ROUTE_PAGECACHE)));
		keep_best(&staged, ours_read(b, 0, STRAIT_ROUTE_MASK(STRAIT_ROUTE_STAGED)));
		keep_best(&again, ours_reread(b));
	}
	row("read cached, default", any, "cuFile", one, 2, 50, 7);
	row("read cached, default", any, "cuFile, 8 calling threads", eight, 1, 0, 0);
	row("read cached, default", any, "copy limit", limit, 0, 0, 0);
	row("read cached, pagecache", pagecache, "cuFile", one, 0, 28, 1.2);
	row("read cached, staged", staged, "cuFile", one, 0, 48, 0);
	row("read again, promised immutable", again, "copy limit", limit, 0, 54, 0.3);
}

static void small(struct bench *b)
{
	struct sample theirs = { 0 };

	latency_row(b, "random 4 KiB cached, one at a time / cuFile", 4096);
	latency_row(b, "random 64 KiB cached, one at a time / cuFile", 65536);
	for (int i = 0; i < b->rounds && b->cufile; i++)
		keep_best(&theirs, cufile_batch(b));
	row("random 4 KiB cached, queued", best_queued(b, 0), "cuFile batch", theirs, 20, 4e6, 0);
	row("random 4 KiB, promised immutable", best_queued(b, STRAIT_FILE_IMMUTABLE), "cuFile batch", theirs, 0, 10e6,
	    0);
}

/* Measurements alternate, because the drive is shared and its speed drifts. */
static void cold(struct bench *b)
{
	struct sample plain = { 0 }, theirs = { 0 }, ours = { 0 };

	for (int i = 0; i < b->rounds; i++) {
		keep_best(&plain, plain_uring_read(b));
		if (b->cufile) {
			keep_best(&theirs, cufile_read(b, true, 1));
			keep_best(&theirs, cufile_read(b, true, 8));
		}
		for (int k = 0; k < 2; k++)
			keep_best(&ours, ours_read(b, STRAIT_FILE_DIRECT, 0));
	}
	row("read cold, direct", ours, "best io_uring", plain, 0.95, 0, 0);
	row("read cold, direct", ours, "cuFile", theirs, 1, 0, 0);
}

static void writes(struct bench *b, bool direct)
{
	struct sample plain = { 0 }, theirs = { 0 }, ours = { 0 };
	const char *what = direct ? "write, direct" : "write, buffered";

	for (int i = 0; i < b->rounds; i++) {
		keep_best(&plain, plain_write(b, direct));
		if (b->cufile)
			keep_best(&theirs, cufile_write(b, direct));
		keep_best(&ours, ours_write(b, direct));
	}
	row(what, ours, "best plain write", plain, 0.9, 0, 0);
	row(what, ours, "cuFile", theirs, 1, 0, 0);
}

int main(int argc, char **argv)
{
	struct strait_context_opts opts = { .size = sizeof(opts), .pinned_budget = 64ull << 30 };
	struct strait_region_info info = { .size = sizeof(info) };
	struct bench b = { .rounds = 3 };
	char why[5120];
	struct stat st;
	int rc;

	if (argc < 2) {
		fprintf(stderr, "usage: bench-gpu FILE [SIZE_MIB] [ROUNDS]\n");
		return 2;
	}
	b.path = argv[1];
	b.length = (argc > 2 ? strtoull(argv[2], NULL, 0) : 8192) * MIB;
	if (argc > 3)
		b.rounds = atoi(argv[3]);
	snprintf(b.written, sizeof(b.written), "%s.written", b.path);
	if (stat(b.path, &st)) {
		plain_make_file(b.path, b.length);
	} else if ((uint64_t)st.st_size != b.length) {
		fprintf(stderr, "bench: %s exists and does not have %llu MiB: remove it, or give another path\n",
			b.path, (unsigned long long)(b.length / MIB));
		return 2;
	}
	rc = strait_context_open(&opts, &b.ctx);
	if (!rc)
		rc = strait_device_find(b.ctx, "cuda:0", &b.dev);
	if (rc) {
		why[0] = '\0';
		strait_device_missing_reason(b.ctx, "cuda:0", why, sizeof(why));
		fprintf(stderr, "bench: there is no cuda:0: %s\n", why);
		return 4;
	}
	rc = cuda_load();
	if (!rc)
		rc = strait_region_alloc(b.dev, b.length, &b.region);
	if (!rc)
		rc = strait_region_info(b.region, &info);
	if (rc)
		die("set-up", -rc);
	b.addr = info.addr;
	b.cufile = !cufile_load(&b, why, sizeof(why));
	printf("%s, %.1f GiB; GB/s, or operations per second; best of %d, cached reads of %d\n", b.path,
	       (double)b.length / (1u << 30), b.rounds, READ_TURNS * b.rounds);
	if (b.cufile)
		printf("compared with %s\n", b.cufile_path);
	else
		printf("NVIDIA's libcufile is not compared: %s\n", why);
	plain_warm_cache(&b);
	ours_verify(&b);
	head();
	sequential(&b);
	small(&b);
	cold(&b);
	plain_make_file(b.written, b.length);
	writes(&b, false);
	writes(&b, true);
	unlink(b.written);
	strait_region_close(b.region);
	strait_context_close(b.ctx);
	return 0;
}
