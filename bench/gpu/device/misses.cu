/* SPDX-License-Identifier: MIT */
/* Random misses of 4 KiB by whole warps: from windows and through the host, with free frames and evicting, and one alone. */
#include <pthread.h>

#include "bench.cuh"

/* The bytes of one granule after the other straight from its window, without frames. */
__global__ void pull(const __grid_constant__ struct strait_view v, strait_u32 steps, strait_u64 seed, char *scratch)
{
	strait_u64 warp = (blockIdx.x * (strait_u64)blockDim.x + threadIdx.x) / WARP, granules = v.length / 4096;

	for (strait_u32 k = 0; k < steps; k++) {
		strait_u64 g = mix(warp * 1000003 + k + seed) % granules;

		strait_vc_copy_together(scratch + warp * 4096, strait_vc_window(&v, g), 0xffffffffu);
		__syncwarp();
	}
}

__global__ void __launch_bounds__(BLOCK, 3)
	touch(const __grid_constant__ struct strait_view v, strait_u32 steps, strait_u64 seed, strait_u64 *bad)
{
	strait_u64 warp = (blockIdx.x * (strait_u64)blockDim.x + threadIdx.x) / WARP, lane = threadIdx.x % WARP;
	struct strait_cursor c = STRAIT_CURSOR_INIT;
	strait_u64 wrong = 0;

	for (strait_u32 k = 0; k < steps; k++) {
		strait_u64 off = mix(warp * 1000003 + k + seed) % (v.length / 4096) * 4096 + lane * 128;

		wrong += strait_load_u64(&v, &c, off) != pattern(off / 8);
	}
	if (wrong || c.error)
		atomicAdd(bad, wrong ? wrong : 1);
}

static strait_u64 *bad, seed = 1;
static char *scratch;

static void expect_good(const char *what)
{
	strait_u64 n;

	CUDA(cudaMemcpy(&n, bad, 8, cudaMemcpyDeviceToHost));
	if (n)
		quit("%s: %llu words are wrong", what, n);
}

/* M granules/s, of @warps in blocks of 8 or less. */
static double pull_rate(struct rig *r, unsigned int warps, unsigned int steps)
{
	unsigned int block = warps < 8 ? warps : 8;

	rig_begin(r, STRAIT_INTENT_READ);
	pull<<<warps / block, block * WARP, 0, r->cuda>>>(r->view, steps, seed += 7777777, scratch);
	OK(rig_end(r, "bare pull"));
	return (double)warps * steps / r->seconds / 1e6;
}

static double touch_rate(struct rig *r, unsigned int warps, unsigned int steps, const char *what)
{
	uint64_t before, after;
	unsigned int block = warps < 8 ? warps : 8;

	r->info.size = sizeof(r->info);
	OK(strait_frames_info(r->frames, &r->info));
	before = r->info.pulled + r->info.fetched;
	rig_begin(r, STRAIT_INTENT_READ);
	touch<<<warps / block, block * WARP, 0, r->cuda>>>(r->view, steps, seed += 7777777, bad);
	OK(rig_end(r, what));
	expect_good(what);
	after = r->info.pulled + r->info.fetched;
	phase("%s: %u warps, %u touches each, %llu misses, %llu evicted in all, %.3f s", what, warps, steps,
	      (unsigned long long)(after - before), (unsigned long long)r->info.evictions, r->seconds);
	return (double)(after - before) / r->seconds / 1e6;
}

static void windows(const char *path)
{
	struct shape free_frames = { path, 0, false, KIB(4), GIB(8) }, few = { path, 0, false, KIB(4), GIB(4) };
	unsigned int warps = multiprocessors() * 24;
	double bare, alone;
	struct rig r;

	phase("opening: windows of 32 GiB, 4 KiB frames, 8 GiB");
	rig_open(&r, &free_frames);
	alone = 1 / pull_rate(&r, 1, 2000);
	pull_rate(&r, warps, 50);
	bare = pull_rate(&r, warps, 400);
	row("misses, bare pull of 4 KiB", bare, "M/s", 0, 0);
	row("misses, windows, one alone", 1 / touch_rate(&r, 1, 1000, "one alone"), "us", alone, -4);
	row("misses, windows, frames free", touch_rate(&r, warps, 1500000 / warps, "frames free"), "M/s", bare, 11);
	row("misses, windows, frames free, 128 warps", touch_rate(&r, 128, 2000, "frames free, 128 warps"), "M/s", bare,
	    0);
	rig_close(&r);
	phase("opening: windows of 32 GiB, 4 KiB frames, 4 GiB");
	rig_open(&r, &few);
	touch_rate(&r, warps, 1500000 / warps, "before eviction");
	row("misses, windows, each evicts", touch_rate(&r, warps, 2000000 / warps, "each evicts"), "M/s", bare, 8);
	row("misses, windows, each evicts, one alone", 1 / touch_rate(&r, 1, 1000, "one alone, evicts"), "us", alone,
	    0);
	rig_close(&r);
}

/* ---- through the host ---- */

struct reader {
	pthread_t thread;
	int fd;
	uint64_t len, n, seed;
};

static void *reader_main(void *arg)
{
	struct reader *r = (struct reader *)arg;
	char *buf = (char *)aligned_alloc(4096, 4096);
	double end = now() + 0.3;

	while (now() < end)
		for (int i = 0; i < 64; i++, r->n++)
			if (pread(r->fd, buf, 4096, (off_t)(mix(r->seed + r->n) % (r->len / 4096) * 4096)) != 4096)
				quit("pread: %s", strerror(errno));
	free(buf);
	return NULL;
}

static double pread_rate(const char *path, uint64_t len, unsigned int threads)
{
	struct reader reader[16];
	uint64_t n = 0;
	double from = now();

	for (unsigned int i = 0; i < threads; i++) {
		reader[i] = { 0, open(path, O_RDONLY | O_CLOEXEC), len, 0, i * 1000003ull };
		if (pthread_create(&reader[i].thread, NULL, reader_main, &reader[i]))
			quit("pthread_create");
	}
	for (unsigned int i = 0; i < threads; i++) {
		pthread_join(reader[i].thread, NULL);
		close(reader[i].fd);
		n += reader[i].n;
	}
	return (double)n / (now() - from) / 1e6;
}

static void service(const char *path, unsigned int threads, double goal)
{
	struct shape s = { path, GIB(8), false, KIB(4), GIB(2), STRAIT_FRAMES_NO_WINDOWS, threads, 1024 };
	double plain = pread_rate(path, s.length, threads);
	char name[80];
	struct rig r;

	phase("opening: service by %u threads", threads);
	rig_open(&r, &s);
	if (threads == 4)
		row("misses, service, one alone", 1 / touch_rate(&r, 1, 1000, "service, one alone"), "us", 0, -8);
	snprintf(name, sizeof(name), "misses, service, %u threads, frames free", threads);
	row(name, touch_rate(&r, multiprocessors() * 8, 400, name), "M/s", plain, goal);
	touch_rate(&r, multiprocessors() * 8, 300, "filling");
	snprintf(name, sizeof(name), "misses, service, %u threads, each evicts", threads);
	row(name, touch_rate(&r, multiprocessors() * 8, 400, name), "M/s", plain, 0);
	rig_close(&r);
}

void misses(void)
{
	const char *path = file_of("large", GIB(32));

	CUDA(cudaMalloc(&bad, 8));
	CUDA(cudaMemset(bad, 0, 8));
	CUDA(cudaMalloc(&scratch, multiprocessors() * 64ull * 4096));
	windows(path);
	service(path, 4, 2);
	service(path, 10, 4);
	CUDA(cudaFree(bad));
	CUDA(cudaFree(scratch));
}
