/* SPDX-License-Identifier: MIT */
/*
 * What a coherent mapping costs: bench-mapping FILE [DEVICE] [MIB]
 *
 * Makes FILE, maps it, and prints one table: the first acquire, an acquire with nothing stale, the CPU changing one word, or
 * all, of 1 % of the 64 KiB pages, and the device doing so. Beside them a full copy: of the file by strait_read(), and on a
 * GPU of pinned and of managed memory. Each row but the first is the best of ROUNDS. Below a row is where the library's time
 * went, summed over its threads. At the end, what pages cost the CPU: protection, faults, releases.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <strait/mapping.h>
#include <strait/strait.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 5
#define PAGE 65536u
#define EVERY 100u /* one page of so many is changed */

static struct {
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_endpoint *ep;
	struct strait_mapping *m;
	struct strait_region *plain; /* for full copies */
	char *cpu;
	uint64_t len;
} b;

struct times {
	double store, release, acquire, total; /* ms */
	uint64_t bytes;
	double scan, protect, walk, stage, device; /* of the library, in ms, summed over its threads */
	uint64_t copies;
};

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void must(int rc, const char *what)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "bench-mapping: %s: %s\n", what, strerror(-rc));
	exit(1);
}

static struct strait_mapping_info info(void)
{
	struct strait_mapping_info i = { .size = sizeof(i) };

	must(strait_mapping_info(b.m, &i), "strait_mapping_info");
	return i;
}

/* What the library did since @from. */
static void breakdown(const struct strait_mapping_info *from, struct times *t)
{
	struct strait_mapping_info i = info();

	t->scan = (double)(i.scan_ns - from->scan_ns) / 1e6;
	t->protect = (double)(i.protect_ns - from->protect_ns) / 1e6;
	t->walk = (double)(i.walk_ns - from->walk_ns) / 1e6;
	t->stage = (double)(i.stage_ns - from->stage_ns) / 1e6;
	t->device = (double)(i.device_ns - from->device_ns) / 1e6;
	t->copies = i.copies - from->copies;
}

static void make_file(const char *path)
{
	char *block = malloc(1 << 24);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0 || !block)
		must(-errno, path);
	memset(block, 7, 1 << 24);
	for (uint64_t off = 0; off < b.len; off += 1 << 24)
		if (pwrite(fd, block, 1 << 24, (off_t)off) != 1 << 24)
			must(errno ? -errno : -EIO, path);
	close(fd);
	free(block);
}

/* The pages that a round changes: others in each, so that first stores are first stores. */
#define FOR_PAGES(off, round)                                                                                          \
	for (uint64_t off = (uint64_t)(round)*7 % EVERY * PAGE; off < b.len; off += (uint64_t)EVERY * PAGE)

static void cpu_round(int round, bool whole, struct times *t)
{
	struct strait_mapping_info before;
	double a, c, d;

	must(strait_mapping_acquire(b.m, NULL, 0, b.len, STRAIT_INTENT_WRITE, NULL), "acquire for the CPU");
	before = info();
	a = now_ms();
	FOR_PAGES(off, round)
	{
		if (whole)
			memset(b.cpu + off, round + 1, PAGE);
		else
			*(uint64_t *)(void *)(b.cpu + off + 8) = (uint64_t)round + 1;
	}
	c = now_ms();
	must(strait_mapping_release(b.m, NULL, 0, b.len, STRAIT_INTENT_WRITE), "release of the CPU");
	d = now_ms();
	must(strait_mapping_acquire(b.m, b.dev, 0, b.len, STRAIT_INTENT_READ, NULL), "acquire for the device");
	*t = (struct times){ .store = c - a, .release = d - c, .acquire = now_ms() - d, .total = now_ms() - a };
	t->bytes = info().to_device_bytes - before.to_device_bytes;
	breakdown(&before, t);
	must(strait_mapping_release(b.m, b.dev, 0, b.len, STRAIT_INTENT_READ), "release of the device");
}

/* Stores by calls of the library, one for each page: not part of the time. */
static void device_round(int round, bool whole, struct times *t)
{
	struct strait_mapping_info before = info();
	struct strait_region *r;
	double a, c, d;
	uint64_t at;
	void *addr;

	a = now_ms();
	must(strait_mapping_acquire(b.m, b.dev, 0, b.len, STRAIT_INTENT_WRITE, &addr), "acquire for the device");
	t->store = now_ms() - a;
	must(strait_region_lookup(b.ctx, addr, &at, &r), "strait_region_lookup");
	FOR_PAGES(off, round)
	must(strait_region_fill(r, at + off, (uint8_t)(round + 100), whole ? PAGE : 8), "strait_region_fill");
	strait_region_close(r);
	c = now_ms();
	must(strait_mapping_release(b.m, b.dev, 0, b.len, STRAIT_INTENT_WRITE), "release of the device");
	d = now_ms();
	must(strait_mapping_acquire(b.m, NULL, 0, b.len, STRAIT_INTENT_READ, NULL), "acquire for the CPU");
	t->release = d - c;
	t->acquire = now_ms() - d;
	t->total = t->store + t->release + t->acquire;
	t->bytes = info().to_host_bytes - before.to_host_bytes;
	breakdown(&before, t);
	must(strait_mapping_release(b.m, NULL, 0, b.len, STRAIT_INTENT_READ), "release of the CPU");
}

static void row(const char *what, const struct times *t, double full)
{
	printf("%-46s %9.3f %9.3f %9.3f %9.3f %10.4f %%", what, t->store, t->release, t->acquire, t->total,
	       (double)t->bytes * 100 / (double)b.len);
	if (full > 0)
		printf(" %8.1f x %8.1f x", full / t->total, full / (t->release + t->acquire));
	printf("\n");
	if (t->copies)
		printf("    scan %.3f, protect %.3f, walk %.3f, staging %.3f, device %.3f, in %llu copies\n", t->scan,
		       t->protect, t->walk, t->stage, t->device, (unsigned long long)t->copies);
}

static struct times best(void (*fn)(int, bool, struct times *), bool whole, int first)
{
	struct times t, min = { .total = 1e12 };

	for (int i = 0; i < ROUNDS; i++) {
		fn(first + i, whole, &t);
		if (t.total < min.total)
			min = t;
	}
	return min;
}

static double full_read(void)
{
	double min = 1e12;

	for (int i = 0; i < 3; i++) {
		double a = now_ms();
		ssize_t n = strait_read(b.ep, 0, b.plain, 0, b.len);

		must(n < 0 ? (int)n : 0, "strait_read");
		min = now_ms() - a < min ? now_ms() - a : min;
	}
	return min;
}

/* The GPU's own ways: pinned memory, and managed memory. */
static struct {
	int (*init)(unsigned int);
	int (*retain)(void **, int);
	int (*set_current)(void *);
	int (*host_alloc)(void **, size_t, unsigned int);
	int (*host_free)(void *);
	int (*copy)(uint64_t, const void *, size_t);
	int (*managed)(uint64_t *, size_t, unsigned int);
	int (*prefetch)(uint64_t, size_t, int, void *);
	int (*synchronize)(void *);
	int (*free)(uint64_t);
} cu;

static bool cuda_load(void)
{
	static const char *const names[] = { "cuInit",
					     "cuDevicePrimaryCtxRetain",
					     "cuCtxSetCurrent",
					     "cuMemHostAlloc",
					     "cuMemFreeHost",
					     "cuMemcpyHtoD_v2",
					     "cuMemAllocManaged",
					     "cuMemPrefetchAsync",
					     "cuStreamSynchronize",
					     "cuMemFree_v2" };
	void *lib = dlopen("libcuda.so.1", RTLD_NOW), **to = (void **)&cu, *ctx;

	for (size_t i = 0; lib && i < sizeof(names) / sizeof(names[0]); i++)
		if (!(to[i] = dlsym(lib, names[i])))
			return false;
	return lib && !cu.init(0) && !cu.retain(&ctx, 0) && !cu.set_current(ctx);
}

static double pinned_copy(void)
{
	struct strait_region_info r = { .size = sizeof(r) };
	double min = 1e12;
	void *p;

	must(strait_region_info(b.plain, &r), "strait_region_info");
	if (cu.host_alloc(&p, b.len, 1))
		return 0;
	for (int i = 0; i < 3; i++) {
		double a = now_ms();

		if (cu.copy(r.addr, p, b.len))
			min = 0;
		min = now_ms() - a < min ? now_ms() - a : min;
	}
	cu.host_free(p);
	return min;
}

static void managed_round(int round, bool whole, struct times *t)
{
	char *p = b.cpu;
	double a, c;

	a = now_ms();
	FOR_PAGES(off, round)
	{
		if (whole)
			memset(p + off, round + 1, PAGE);
		else
			*(volatile uint64_t *)(void *)(p + off + 8) = (uint64_t)round + 1;
	}
	c = now_ms();
	if (cu.prefetch((uintptr_t)p, b.len, 0, NULL) || cu.synchronize(NULL))
		must(-EIO, "cuMemPrefetchAsync");
	*t = (struct times){ .store = c - a, .acquire = now_ms() - c, .total = now_ms() - a };
}

static void managed_rows(double full)
{
	struct times t;
	uint64_t addr;

	if (cu.managed(&addr, b.len, 1))
		return;
	b.cpu = (char *)(uintptr_t)addr;
	memset(b.cpu, 1, b.len);
	if (cu.prefetch(addr, b.len, 0, NULL) || cu.synchronize(NULL)) {
		printf("managed memory cannot be prefetched here\n");
		cu.free(addr);
		return;
	}
	t = best(managed_round, false, 0);
	row("managed memory: CPU changes a word per page", &t, full);
	t = best(managed_round, true, ROUNDS);
	row("managed memory: CPU changes whole pages", &t, full);
	cu.free(addr);
}

static void nothing_stale(void)
{
	double min = 1e12;

	for (int i = 0; i < 100; i++) {
		double a = now_ms();

		must(strait_mapping_acquire(b.m, b.dev, 0, b.len, STRAIT_INTENT_READ, NULL), "acquire");
		min = now_ms() - a < min ? now_ms() - a : min;
		must(strait_mapping_release(b.m, b.dev, 0, b.len, STRAIT_INTENT_READ), "release");
	}
	printf("%-46s %39.3f ms\n", "acquire for the device, nothing stale", min);
}

static void line(const char *what, double value, const char *unit)
{
	printf("%-58s %27.3f %s\n", what, value, unit);
}

/* What the CPU pays with nothing to do: the scan. */
static void cpu_nothing(void)
{
	double acquire = 1e12, release = 1e12;

	for (int i = 0; i < ROUNDS; i++) {
		double a = now_ms(), c;

		must(strait_mapping_acquire(b.m, NULL, 0, b.len, STRAIT_INTENT_WRITE, NULL), "acquire");
		c = now_ms();
		must(strait_mapping_release(b.m, NULL, 0, b.len, STRAIT_INTENT_WRITE), "release");
		acquire = c - a < acquire ? c - a : acquire;
		release = now_ms() - c < release ? now_ms() - c : release;
	}
	line("shared: acquire of the CPU for writing, nothing stale", acquire, "ms");
	line("shared: release, nothing stored: the scan", release, "ms");
}

/* The CPU's copies, which page faults fill: opened beside the mapping of the file. */
#define TOUCHED (256u << 20)
static void copy_costs(void)
{
	struct strait_mapping_opts o = { .size = sizeof(o), .flags = STRAIT_MAPPING_COPY };
	struct strait_mapping_info i = { .size = sizeof(i) };
	uint64_t len = b.len < TOUCHED ? b.len : TOUCHED;
	double a, min = 1e12, pages = (double)len / 4096;
	struct strait_mapping *m;
	volatile char *at;

	must(strait_mapping_open(b.ctx, b.ep, 0, 0, &o, &m), "strait_mapping_open");
	must(strait_mapping_info(m, &i), "strait_mapping_info");
	at = i.addr;
	for (int k = 0; k < ROUNDS + 1; k++) {
		a = now_ms();
		must(strait_mapping_acquire(m, NULL, 0, b.len, STRAIT_INTENT_READ, NULL), "acquire");
		min = k && now_ms() - a < min ? now_ms() - a : min;
		must(strait_mapping_release(m, NULL, 0, b.len, STRAIT_INTENT_READ), "release");
	}
	if (i.backing == STRAIT_BACKING_COPY)
		line("copy: acquire of the CPU, nothing stale", min, "ms");
	a = now_ms();
	for (uint64_t off = 0; off < len; off += PAGE)
		(void)at[off];
	line("copy: first load, a fault for each 64 KiB", (now_ms() - a) * 1e3 / (double)(len / PAGE), "us per 64 KiB");
	must(strait_mapping_acquire(m, NULL, 0, len, STRAIT_INTENT_WRITE, NULL), "acquire");
	a = now_ms();
	for (uint64_t off = 0; off < len; off += 4096)
		at[off] = 1;
	line("copy: first store to a page, a fault for each", (now_ms() - a) * 1e3 / pages, "us per 4 KiB");
	a = now_ms();
	must(strait_mapping_release(m, NULL, 0, len, STRAIT_INTENT_WRITE), "release");
	line("copy: release of pages that were stored to", (now_ms() - a) * 1e3 / pages, "us per 4 KiB");
	strait_mapping_close(m);
}

static void measure(bool gpu)
{
	double a, full, protect, words, pinned = 0;
	struct times t;

	a = now_ms();
	must(strait_mapping_acquire(b.m, b.dev, 0, b.len, STRAIT_INTENT_READ, NULL), "first acquire");
	printf("%-46s %39.3f ms\n", "first acquire for the device", now_ms() - a);
	must(strait_mapping_release(b.m, b.dev, 0, b.len, STRAIT_INTENT_READ), "release");
	nothing_stale();
	a = now_ms();
	must(strait_mapping_acquire(b.m, NULL, 0, b.len, STRAIT_INTENT_WRITE, NULL), "acquire");
	protect = now_ms() - a;
	printf("%-46s %39.3f ms\n", "first acquire of the CPU for writing: protect", protect);
	must(strait_mapping_release(b.m, NULL, 0, b.len, STRAIT_INTENT_WRITE), "release");
	must(strait_mapping_acquire(b.m, b.dev, 0, b.len, STRAIT_INTENT_READ, NULL), "acquire");
	must(strait_mapping_release(b.m, b.dev, 0, b.len, STRAIT_INTENT_READ), "release");
	full = full_read();
	printf("%-46s %39.3f ms\n", "full copy: strait_read() of the file", full);
	if (gpu) {
		pinned = pinned_copy();
		printf("%-46s %39.3f ms\n", "full copy: cuMemcpyHtoD of pinned memory", pinned);
	}
	full = pinned > 0 && pinned < full ? pinned : full;
	printf("\n%-46s %9s %9s %9s %9s %12s %10s %10s\n", "1 % of the 64 KiB pages; times in ms", "stores", "release",
	       "acquire", "total", "moved", "faster", "w/o stores");
	t = best(cpu_round, false, 0);
	words = t.store;
	row("CPU changes a word per page", &t, full);
	t = best(cpu_round, true, ROUNDS);
	row("CPU changes whole pages", &t, full);
	t = best(device_round, false, 2 * ROUNDS);
	row("device changes a word per page (first: twin)", &t, 0);
	t = best(device_round, true, 3 * ROUNDS);
	row("device changes whole pages (first: twin)", &t, 0);
	if (gpu)
		managed_rows(full);
	printf("\n");
	cpu_nothing();
	line("shared: protect", protect * 1e3 / (double)(b.len / 4096), "us per 4 KiB");
	line("shared: first store to a page, in the row of words", words * 1e3 / (double)(b.len / PAGE / EVERY),
	     "us per 4 KiB");
	copy_costs();
}

int main(int argc, char **argv)
{
	const char *path = argc > 1 ? argv[1] : NULL, *device = argc > 2 ? argv[2] : "emu:0";
	static const char *const tracking[] = { "none", "scan", "compare" };
	struct strait_mapping_info i;
	bool gpu = !strncmp(device, "cuda", 4) && cuda_load();

	if (!path) {
		fprintf(stderr, "usage: bench-mapping FILE [DEVICE] [MIB]\n");
		return 2;
	}
	b.len = (argc > 3 ? strtoull(argv[3], NULL, 0) : 256) << 20;
	make_file(path);
	must(strait_context_open(NULL, &b.ctx), "strait_context_open");
	must(strait_device_find(b.ctx, device, &b.dev), device);
	must(strait_file_open(b.ctx, path, O_RDWR | O_CLOEXEC, 0, 0, &b.ep), path);
	must(strait_region_alloc(b.dev, b.len, &b.plain), "strait_region_alloc");
	must(strait_mapping_open(b.ctx, b.ep, 0, 0, NULL, &b.m), "strait_mapping_open");
	i = info();
	b.cpu = i.addr;
	printf("%s on %s, %llu MiB, tracking: %s\n", path, device, (unsigned long long)(b.len >> 20),
	       tracking[i.tracking]);
	measure(gpu);
	b.cpu = NULL;
	i = info();
	printf("device memory %llu MiB of which twins %llu, pinned %llu MiB, copies %llu, declared %llu, conflicts %llu\n\n",
	       (unsigned long long)(i.device_bytes >> 20), (unsigned long long)(i.twin_bytes >> 20),
	       (unsigned long long)(i.pinned_bytes >> 20), (unsigned long long)i.copies, (unsigned long long)i.declared,
	       (unsigned long long)i.conflicts);
	strait_mapping_close(b.m);
	strait_region_close(b.plain);
	strait_endpoint_close(b.ep);
	strait_context_close(b.ctx);
	unlink(path);
	return 0;
}
