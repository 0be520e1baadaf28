/* SPDX-License-Identifier: MIT */
/*
 * Strait compared with plain system calls, without a GPU. Each case alternates with plain reads of the same file in one
 * run; the result is the ratio of the medians.
 *
 *     core FILE [ROUNDS]
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <strait/strait.h>

#define BLOCK (1u << 20)
#define MAX_ROUNDS 99
#define MAX_THREADS 16

static const char *path;
static uint64_t length;
static char *host_buf;
static struct strait_context *ctx;
static struct strait_region *region;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void die(const char *what, int err)
{
	fprintf(stderr, "bench: %s: %s\n", what, strerror(err));
	exit(1);
}

static void drop_cache(void)
{
	int fd = open(path, O_RDONLY);

	if (fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
		die(path, errno);
	close(fd);
}

/* Plain reads: threads that share the file block by block. */
static atomic_uint_fast64_t next_block;
static int plain_fd;

static void *plain_thread(void *arg)
{
	uint64_t off;

	(void)arg;
	while ((off = atomic_fetch_add(&next_block, BLOCK)) < length) {
		size_t len = length - off < BLOCK ? length - off : BLOCK;

		if (pread(plain_fd, host_buf + off, len, (off_t)off) != (ssize_t)len)
			die("pread", errno);
	}
	return NULL;
}

static double plain_pread(int threads)
{
	pthread_t t[MAX_THREADS];
	double start = now();

	plain_fd = open(path, O_RDONLY);
	if (plain_fd < 0)
		die(path, errno);
	atomic_store(&next_block, 0);
	for (int i = 0; i < threads; i++)
		pthread_create(&t[i], NULL, plain_thread, NULL);
	for (int i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
	close(plain_fd);
	return (double)length / (now() - start) / 1e9;
}

/* Plain io_uring direct reads of one depth and block. */
static double plain_uring(unsigned int depth, size_t block)
{
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	uint64_t off = 0, done = 0;
	unsigned int flying = 0;
	double start;
	int fd, rc;

	fd = open(path, O_RDONLY | O_DIRECT);
	if (fd < 0)
		die(path, errno);
	start = now();
	rc = io_uring_queue_init(depth, &ring, 0);
	if (rc)
		die("io_uring", -rc);
	while (done < length) {
		while (flying < depth && off < length) {
			struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

			io_uring_prep_read(sqe, fd, host_buf + off, (unsigned int)block, off);
			off += block;
			flying++;
		}
		io_uring_submit_and_wait(&ring, 1);
		while (!io_uring_peek_cqe(&ring, &cqe)) {
			if (cqe->res <= 0)
				die("read", cqe->res ? -cqe->res : EIO);
			done += (uint64_t)cqe->res;
			io_uring_cqe_seen(&ring, cqe);
			flying--;
		}
	}
	io_uring_queue_exit(&ring);
	close(fd);
	return (double)length / (now() - start) / 1e9;
}

static double strait_once(uint32_t flags, uint32_t routes)
{
	struct strait_transfer t = { .op = STRAIT_READ, .routes = routes, .region = region, .length = length };
	struct strait_result r;
	double start, end;
	int rc;

	rc = strait_file_open(ctx, path, O_RDONLY, 0, flags, &t.endpoint);
	if (rc)
		die(path, -rc);
	start = now();
	rc = strait_transfer_run(&t, STRAIT_FOREVER, &r);
	end = now();
	if (rc || r.bytes != length)
		die("transfer", rc ? -rc : EIO);
	strait_endpoint_close(t.endpoint);
	return (double)length / (end - start) / 1e9;
}

static int compare_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof(*v), compare_double);
	return v[n / 2];
}

static void row(const char *what, double ours, double plain, double goal)
{
	printf("%-44s %8.2f %8.2f %7.2f   >= %.2f  %s\n", what, ours, plain, ours / plain, goal,
	       ours / plain >= goal ? "ok" : "BELOW");
}

static void cached(int rounds, int threads)
{
	double plain[MAX_ROUNDS], staged[MAX_ROUNDS], any[MAX_ROUNDS];
	double base;

	for (int i = -1; i < rounds; i++) { /* the first round warms the cache */
		double a = plain_pread(threads);
		double b = strait_once(0, STRAIT_ROUTE_MASK(STRAIT_ROUTE_STAGED));
		double c = strait_once(0, STRAIT_ROUTE_ANY);

		if (i >= 0) {
			plain[i] = a;
			staged[i] = b;
			any[i] = c;
		}
	}
	base = median(plain, rounds);
	row("cached, staged / threads of pread", median(staged, rounds), base, 0.8);
	row("cached, default / threads of pread", median(any, rounds), base, 0.8);
}

static void direct(int rounds)
{
	static const struct {
		unsigned int depth;
		size_t block;
	} shape[] = {
		{ 4, BLOCK }, { 16, BLOCK }, { 32, BLOCK }, { 8, 4 * BLOCK }, { 64, BLOCK / 4 }, { 16, BLOCK / 2 }
	};
	enum { WAYS = sizeof(shape) / sizeof(shape[0]) };
	double plain[WAYS][MAX_ROUNDS], ours[MAX_ROUNDS], best = 0;

	for (int i = 0; i < rounds; i++) {
		for (int w = 0; w < WAYS; w++) {
			drop_cache();
			plain[w][i] = plain_uring(shape[w].depth, shape[w].block);
		}
		drop_cache();
		ours[i] = strait_once(STRAIT_FILE_DIRECT, STRAIT_ROUTE_MASK(STRAIT_ROUTE_STAGED));
	}
	for (int w = 0; w < WAYS; w++) {
		double m = median(plain[w], rounds);

		printf("  plain io_uring, depth %2u, block %4zu KiB: %.2f GB/s\n", shape[w].depth, shape[w].block >> 10,
		       m);
		best = m > best ? m : best;
	}
	row("direct, staged / best io_uring", median(ours, rounds), best, 0.95);
}

int main(int argc, char **argv)
{
	int rounds = argc > 2 ? atoi(argv[2]) : 7, threads = (int)sysconf(_SC_NPROCESSORS_ONLN), rc;
	struct strait_device *dev;
	struct stat st;

	if (argc < 2 || rounds < 1 || rounds > MAX_ROUNDS) {
		fprintf(stderr, "usage: core FILE [ROUNDS]\n");
		return 2;
	}
	path = argv[1];
	if (stat(path, &st))
		die(path, errno);
	length = (uint64_t)st.st_size;
	if (!length || length % (4 * BLOCK)) {
		fprintf(stderr, "bench: the length of %s must be a multiple of %u\n", path, 4 * BLOCK);
		return 2;
	}
	threads = threads > MAX_THREADS ? MAX_THREADS : threads;
	host_buf = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (host_buf == MAP_FAILED)
		die("memory", errno);
	rc = strait_context_open(NULL, &ctx);
	if (!rc)
		rc = strait_device_find(ctx, "emu:0", &dev);
	if (!rc)
		rc = strait_region_alloc(dev, length, &region);
	if (rc)
		die("set-up", -rc);
	printf("%s, %.2f GiB, %d threads, %d rounds, medians in GB/s\n", path, (double)length / (1 << 30), threads,
	       rounds);
	printf("%-44s %8s %8s %7s   %s\n", "case", "strait", "plain", "ratio", "goal");
	cached(rounds, threads);
	direct(rounds);
	strait_region_close(region);
	strait_context_close(ctx);
	return 0;
}
