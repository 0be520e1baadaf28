/* SPDX-License-Identifier: MIT */
/* Every byte, stores, atomic operations, write-back, few frames, divergent code and errors, by thousands of warps. */
#include "bench.cuh"

struct result {
	strait_u64 loads, wrong, errors, sum;
	int error; /* the last one */
};

static struct result *results;

static struct result result_of(const char *what, struct rig *r, int rc)
{
	struct result x;

	CUDA(cudaMemcpy(&x, results, sizeof(x), cudaMemcpyDeviceToHost));
	CUDA(cudaMemset(results, 0, sizeof(x)));
	phase("%s: %llu accesses in %.3f s, %llu wrong, %llu errors (%d); %u frames, pulled %llu, fetched %llu, evicted %llu, stored %llu, rc %d",
	      what, x.loads, r->seconds, x.wrong, x.errors, x.error, r->info.frames, (unsigned long long)r->info.pulled,
	      (unsigned long long)r->info.fetched, (unsigned long long)r->info.evictions,
	      (unsigned long long)r->info.stored, rc);
	return x;
}

static void expect_right(const char *what, struct rig *r, int rc)
{
	struct result x = result_of(what, r, rc);
	char name[96];

	snprintf(name, sizeof(name), "%s", what);
	check(name, x.wrong + x.errors);
	if (rc)
		quit("%s: %s", what, strerror(-rc));
}

__device__ static void report(struct result *res, strait_u64 loads, strait_u64 wrong, strait_u64 sum, int error)
{
	atomicAdd(&res->loads, loads);
	atomicAdd(&res->sum, sum);
	if (wrong)
		atomicAdd(&res->wrong, wrong);
	if (error) {
		atomicAdd(&res->errors, 1ull);
		res->error = error;
	}
}

/* Each word once, in order. */
__global__ void sweep(const __grid_constant__ struct strait_view v, struct result *res)
{
	strait_u64 thread = blockIdx.x * (strait_u64)blockDim.x + threadIdx.x, all = (strait_u64)gridDim.x * blockDim.x;
	struct strait_cursor c = STRAIT_CURSOR_INIT;
	strait_u64 wrong = 0, n = 0, sum = 0;

	for (strait_u64 i = thread; i < v.length / 8; i += all, n++) {
		strait_u64 x = strait_load_u64(&v, &c, i * 8);

		wrong += x != pattern(i);
		sum += x;
	}
	report(res, n, wrong, sum, c.error);
}

/* Words at random, of all sizes, each thread on its own path. */
__global__ void scatter(const __grid_constant__ struct strait_view v, strait_u32 steps, strait_u64 seed,
			struct result *res)
{
	strait_u64 thread = blockIdx.x * (strait_u64)blockDim.x + threadIdx.x, wrong = 0, n = 0;
	struct strait_cursor c = STRAIT_CURSOR_INIT;
	strait_u32 more = (strait_u32)(mix(thread ^ seed) % 8);

	for (strait_u32 k = 0; k < steps + more && !c.error; k++, n++) {
		strait_u64 x = mix(thread * 1000003 + k * 7919ull + seed), i = (x >> 8) % (v.length / 8),
			   want = pattern(i);

		/* The next of a run of words, by some threads. */
		if (x % 16 < 4) {
			wrong += strait_load_u8(&v, &c, i * 8 + 5) != (want >> 40 & 255);
		} else if (x % 16 < 7) {
			wrong += strait_load_u16(&v, &c, i * 8 + 2) != (want >> 16 & 0xffff);
		} else if (x % 16 < 10) {
			wrong += strait_load_u32(&v, &c, i * 8 + 4) != (want >> 32);
		} else if (x % 16 < 13) {
			for (strait_u32 j = 0; j < (x >> 4 & 7) && i + j < v.length / 8; j++)
				wrong += strait_load_u64(&v, &c, (i + j) * 8) != pattern(i + j);
		} else if (x % 16 < 15) {
			wrong += strait_load_u64(&v, &c, i * 8) != want;
		} else {
			strait_u64 buf[3] = { 0, 0, 0 };
			strait_u64 len = i + 3 <= v.length / 8 ? 24 : 8;
			int rc = strait_view_read(&v, i * 8, buf, len);

			if (rc && !c.error)
				c.error = rc;
			for (strait_u32 j = 0; j < len / 8; j++)
				wrong += buf[j] != pattern(i + j);
		}
	}
	report(res, n, c.error ? 0 : wrong, 0, c.error);
}

/* Each thread xors words anywhere, and stores a byte of words that are its own. */
__global__ void change(const __grid_constant__ struct strait_view v, strait_u32 steps, struct result *res)
{
	strait_u64 thread = blockIdx.x * (strait_u64)blockDim.x + threadIdx.x, all = (strait_u64)gridDim.x * blockDim.x;
	strait_u64 half = v.length / 16; /* words of the first half are xored, of the second stored to */
	struct strait_cursor c = STRAIT_CURSOR_INIT;

	for (strait_u32 k = 0; k < steps; k++) {
		strait_u64 x = mix(thread * 1000003 + k);

		strait_atomic_xor_u64(&v, &c, x % half * 8, x);
		if (thread + k * all < half)
			strait_store_u8(&v, &c, (half + thread + k * all) * 8 + 3, (unsigned char)x);
	}
	report(res, steps, 0, 0, c.error);
}

__global__ void add(const __grid_constant__ struct strait_view v, strait_u32 adds, struct result *res)
{
	strait_u64 thread = blockIdx.x * (strait_u64)blockDim.x + threadIdx.x;
	struct strait_cursor c = STRAIT_CURSOR_INIT;

	for (strait_u32 i = 0; i < adds; i++)
		strait_atomic_add_u64(&v, &c, 0, 1);
	strait_atomic_add_u64(&v, &c, (1 + thread) * 4096, adds);
	report(res, adds, 0, 0, c.error);
}

/* One load of each granule: all threads of the device at once. */
__global__ void each(const __grid_constant__ struct strait_view v, strait_u64 good, struct result *res)
{
	strait_u64 thread = blockIdx.x * (strait_u64)blockDim.x + threadIdx.x, all = (strait_u64)gridDim.x * blockDim.x;
	strait_u64 wrong = 0, n = 0;

	for (strait_u64 g = thread; g < v.length / 4096; g += all, n++) {
		struct strait_cursor c = STRAIT_CURSOR_INIT;
		strait_u64 x = strait_load_u64(&v, &c, g * 4096);

		wrong += g * 4096 < good ? c.error || x != pattern(g * 512) : c.error != -EFAULT;
	}
	report(res, n, wrong, 0, 0);
}

static void reads(const char *what, const struct shape *s, strait_u32 steps)
{
	unsigned int grid = multiprocessors() * 8;
	char name[96];
	struct rig r;
	int rc;

	phase("%s", what);
	rig_open(&r, s);
	rig_begin(&r, STRAIT_INTENT_READ);
	sweep<<<grid, BLOCK, 0, r.cuda>>>(r.view, results);
	rc = rig_end(&r, what);
	snprintf(name, sizeof(name), "%s, every word", what);
	expect_right(name, &r, rc);
	rig_begin(&r, STRAIT_INTENT_READ);
	scatter<<<grid, BLOCK, 0, r.cuda>>>(r.view, steps, 5, results);
	rc = rig_end(&r, what);
	snprintf(name, sizeof(name), "%s, divergent", what);
	expect_right(name, &r, rc);
	rig_close(&r);
}

static void stores(const char *what, struct shape s)
{
	unsigned int grid = multiprocessors() * 2, steps = 8;
	strait_u64 *want, *has, half = s.length / 16, wrong = 0, all = (strait_u64)grid * BLOCK;
	struct rig r;
	int fd, rc;

	phase("%s", what);
	unlink(file_of("stores", s.length));
	s.path = file_of("stores", s.length);
	rig_open(&r, &s);
	rig_begin(&r, STRAIT_INTENT_WRITE);
	change<<<grid, BLOCK, 0, r.cuda>>>(r.view, steps, results);
	rc = rig_end(&r, what);
	expect_right(what, &r, rc);
	rig_close(&r);
	want = (strait_u64 *)malloc(s.length);
	has = (strait_u64 *)malloc(s.length);
	for (uint64_t i = 0; i < s.length / 8; i++)
		want[i] = pattern(i);
	for (strait_u64 t = 0; t < all; t++)
		for (strait_u32 k = 0; k < steps; k++) {
			strait_u64 x = mix(t * 1000003 + k);

			want[x % half] ^= x;
			if (t + k * all < half)
				((unsigned char *)&want[half + t + k * all])[3] = (unsigned char)x;
		}
	fd = open(s.path, O_RDONLY | O_CLOEXEC);
	for (uint64_t off = 0; off < s.length; off += MIB(1))
		if (pread(fd, (char *)has + off, MIB(1), (off_t)off) != (ssize_t)MIB(1))
			quit("%s: %s", s.path, strerror(errno));
	close(fd);
	for (uint64_t i = 0; i < s.length / 8; i++)
		wrong += want[i] != has[i];
	check("stores and atomics, the file", wrong);
	free(want);
	free(has);
}

static void anonymous(void)
{
	struct shape s = { NULL, 513 * 4096, true, 4096, MIB(1) };
	strait_u64 own = 0, *cpu;
	struct rig r;
	int rc;

	phase("512 x 1000 additions to anonymous memory");
	rig_open(&r, &s);
	rig_begin(&r, STRAIT_INTENT_WRITE);
	add<<<4, 128, 0, r.cuda>>>(r.view, 1000, results);
	rc = rig_end(&r, "atomic_anon");
	expect_right("atomic additions", &r, rc);
	OK(strait_mapping_acquire(r.m, NULL, 0, s.length, STRAIT_INTENT_READ, (void **)&cpu));
	for (unsigned int i = 0; i < 512; i++)
		own += cpu[(1 + i) * 512];
	phase("the CPU sees %llu, and %llu in own pages", cpu[0], own);
	check("512 x 1000 additions that the CPU sees", cpu[0] != 512000);
	check("512 x 1000 additions to own pages", own != 512000);
	OK(strait_mapping_release(r.m, NULL, 0, s.length, STRAIT_INTENT_READ));
	rig_close(&r);
}

static void truncated(void)
{
	struct shape s = { NULL, MIB(64), true, KIB(16), MIB(8) };
	struct result x;
	struct rig r;
	int rc;

	phase("a truncated file");
	unlink(file_of("short", s.length));
	s.path = file_of("short", s.length);
	rig_open(&r, &s);
	if (truncate(s.path, MIB(32)))
		quit("truncate: %s", strerror(errno));
	rig_begin(&r, STRAIT_INTENT_READ);
	each<<<multiprocessors() * 2, BLOCK, 0, r.cuda>>>(r.view, MIB(32), results);
	rc = rig_end(&r, "truncated");
	x = result_of("truncated", &r, rc);
	check("truncated file, to each thread its outcome", x.wrong);
	check("truncated file, -EFAULT in the info", r.info.error != -EFAULT);
	rig_close(&r);
	unlink(s.path);
}

__global__ void spin(volatile int *stop, strait_u64 ns)
{
	strait_u64 end = strait_vc_clock() + ns;

	while (!*stop && strait_vc_clock() < end)
		__nanosleep(1000);
}

/* Another kernel of the process does not end: what of a view waits for it? */
static void beside(const char *path, const char *what, uint32_t flags)
{
	struct shape s = { path, 0, false, KIB(64), MIB(64), flags };
	double from, opened, begun, ended;
	cudaStream_t other;
	char name[96];
	int *stop;
	struct rig r;

	phase("beside a kernel that spins for 3 s, %s", what);
	CUDA(cudaHostAlloc(&stop, 4, cudaHostAllocMapped));
	CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
	*stop = 0;
	spin<<<1, 1, 0, other>>>(stop, 3000000000ull);
	from = now();
	rig_open(&r, &s);
	opened = now();
	rig_begin(&r, STRAIT_INTENT_READ);
	begun = now();
	sweep<<<multiprocessors(), BLOCK, 0, r.cuda>>>(r.view, results);
	OK(rig_end(&r, what));
	ended = now();
	phase("%s: opened in %.3f s, begin returned after %.3f s, end complete after %.3f s; the other kernel %s", what,
	      opened - from, begun - opened, ended - begun,
	      cudaStreamQuery(other) == cudaSuccess ? "has ended" : "runs");
	*(volatile int *)stop = 1;
	CUDA(cudaStreamSynchronize(other));
	rig_close(&r);
	snprintf(name, sizeof(name), "beside a kernel that spins, %s", what);
	expect_right(name, &r, 0);
	CUDA(cudaStreamDestroy(other));
	CUDA(cudaFreeHost(stop));
}

void verify(void)
{
	const char *path = file_of("small", MIB(512));
	struct shape window = { path, 0, false, KIB(64), MIB(64) }, fits = { path, 0, false, KIB(64), GIB(1) };
	struct shape window4 = { path, 0, false, KIB(4), MIB(16) }, huge = { path, 0, false, MIB(2), MIB(64) };
	struct shape service = { path, MIB(128), false, KIB(4), MIB(16), STRAIT_FRAMES_NO_WINDOWS, 8, 256 };
	struct shape few = { path, MIB(4), false, KIB(4), KIB(256) };
	struct shape few_slots = { path, MIB(4), false, KIB(4), KIB(256), STRAIT_FRAMES_NO_WINDOWS, 2, 4 };
	struct shape written = { NULL, MIB(64), true, KIB(16), MIB(8), 0, 8, 256 };

	CUDA(cudaMalloc(&results, sizeof(*results)));
	CUDA(cudaMemset(results, 0, sizeof(*results)));
	reads("all fits", &fits, 64);
	reads("windows, 64 KiB frames, evicting", &window, 4);
	reads("windows, 4 KiB frames, evicting", &window4, 4);
	reads("windows, 2 MiB frames, evicting", &huge, 2);
	reads("64 frames for all threads", &few, 1);
	reads("service, 4 KiB frames, evicting", &service, 2);
	reads("service, 64 frames, 4 slots", &few_slots, 1);
	anonymous();
	stores("stores and atomics, evicting", written);
	written.budget = MIB(128);
	stores("stores and atomics, all fits", written);
	truncated();
	beside(path, "windows", 0);
	beside(path, "service", STRAIT_FRAMES_NO_WINDOWS);
	CUDA(cudaFree(results));
}
