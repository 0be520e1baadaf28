/* SPDX-License-Identifier: MIT */
/*
 * Breadth-first search and connected components of a Kronecker graph (the generator of the GAP Benchmark Suite, as in
 * examples/graph.c) whose edges are in a file: through frames, by loads from the page cache in place, and all in device memory.
 * Offsets and labels of vertices are in device memory in each case, and a warp takes 4 KiB of neighbours at a time.
 */
#include <pthread.h>

#include "bench.cuh"

#define DEGREE 16u
#define EDGES (1u << 18) /* for which the generator is seeded anew */
#define SEED 27491095u
#define MAKERS 16u
#define NONE (~0u)
#define CHUNK 1024u /* neighbours that a warp takes */
#define ALL 0xffffffffu

/* ---- the graph ---- */

struct twister {
	uint32_t state[624];
	unsigned int at;
};

static void twister_seed(struct twister *t, uint32_t seed)
{
	t->state[0] = seed;
	for (uint32_t i = 1; i < 624; i++)
		t->state[i] = 1812433253u * (t->state[i - 1] ^ t->state[i - 1] >> 30) + i;
	t->at = 624;
}

static uint32_t twister_word(uint32_t a, uint32_t b, uint32_t c)
{
	uint32_t y = (a & 0x80000000u) | (b & 0x7fffffffu);

	return c ^ y >> 1 ^ (0 - (y & 1) & 0x9908b0dfu);
}

static void twister_fill(struct twister *t)
{
	uint32_t *s = t->state;

	for (unsigned int i = 0; i < 227; i++)
		s[i] = twister_word(s[i], s[i + 1], s[i + 397]);
	for (unsigned int i = 227; i < 623; i++)
		s[i] = twister_word(s[i], s[i + 1], s[i - 227]);
	s[623] = twister_word(s[623], s[0], s[396]);
	t->at = 0;
}

static uint32_t twister_next(struct twister *t)
{
	uint32_t y;

	if (t->at == 624)
		twister_fill(t);
	y = t->state[t->at++];
	y ^= y >> 11;
	y ^= y << 7 & 0x9d2c5680u;
	y ^= y << 15 & 0xefc60000u;
	return y ^ y >> 18;
}

struct making {
	pthread_t thread;
	unsigned int scale, first;
	uint2 *edges;
};

static void *making_main(void *arg)
{
	struct making *m = (struct making *)arg;
	uint64_t n = (uint64_t)DEGREE << m->scale;
	struct twister t;

	for (uint64_t block = m->first; block * EDGES < n; block += MAKERS) {
		twister_seed(&t, (uint32_t)(SEED + block));
		for (uint64_t i = block * EDGES; i < (block + 1) * EDGES && i < n; i++) {
			uint32_t from = 0, to = 0;

			for (unsigned int b = 0; b < m->scale; b++) {
				float x = (float)twister_next(&t) / 4294967296.0f;
				uint32_t down = x >= 0.57f + 0.19f,
					 right = down ? x > 0.57f + 0.19f + 0.19f : x > 0.57f;

				from = from << 1 | down;
				to = to << 1 | right;
			}
			m->edges[i] = make_uint2(from, to);
		}
	}
	return NULL;
}

__global__ void degrees(const uint2 *edges, strait_u64 n, strait_u32 *degree)
{
	for (strait_u64 i = blockIdx.x * (strait_u64)blockDim.x + threadIdx.x; i < n;
	     i += (strait_u64)gridDim.x * blockDim.x) {
		atomicAdd(&degree[edges[i].x], 1u);
		atomicAdd(&degree[edges[i].y], 1u);
	}
}

__global__ void place(const uint2 *edges, strait_u64 n, strait_u64 *next, strait_u32 *neighbours)
{
	for (strait_u64 i = blockIdx.x * (strait_u64)blockDim.x + threadIdx.x; i < n;
	     i += (strait_u64)gridDim.x * blockDim.x) {
		neighbours[atomicAdd(&next[edges[i].x], 1ull)] = edges[i].y;
		neighbours[atomicAdd(&next[edges[i].y], 1ull)] = edges[i].x;
	}
}

struct graph {
	unsigned int scale;
	strait_u64 vertices, n; /* vertices, and neighbours of all of them */
	strait_u64 *offset;	/* device memory */
	strait_u32 *first;	/* device memory: the vertex that each chunk begins with */
	strait_u32 *neighbours; /* device memory, until it is freed */
	char path[512];
};

static void graph_make(struct graph *g, unsigned int scale, const char *folder_file)
{
	strait_u64 edges = (strait_u64)DEGREE << scale, sum = 0, *offset, *next;
	strait_u32 *degree, *counts, *first;
	struct making making[MAKERS];
	uint2 *host, *device;
	double from = now();
	int fd;

	g->scale = scale;
	g->vertices = 1ull << scale;
	g->n = 2 * edges;
	host = (uint2 *)malloc(edges * sizeof(*host));
	counts = (strait_u32 *)malloc(g->vertices * 4);
	offset = (strait_u64 *)malloc((g->vertices + 1) * 8);
	first = (strait_u32 *)malloc(g->n / CHUNK * 4);
	if (!host || !counts || !offset || !first)
		quit("no memory for a graph");
	for (unsigned int i = 0; i < MAKERS; i++) {
		making[i] = { 0, scale, i, host };
		if (pthread_create(&making[i].thread, NULL, making_main, &making[i]))
			quit("pthread_create");
	}
	for (unsigned int i = 0; i < MAKERS; i++)
		pthread_join(making[i].thread, NULL);
	phase("edges made in %.1f s", now() - from);
	CUDA(cudaMalloc(&device, edges * sizeof(*device)));
	CUDA(cudaMalloc(&degree, g->vertices * 4));
	CUDA(cudaMalloc(&next, g->vertices * 8));
	CUDA(cudaMalloc(&g->offset, (g->vertices + 1) * 8));
	CUDA(cudaMalloc(&g->neighbours, g->n * 4));
	CUDA(cudaMemset(degree, 0, g->vertices * 4));
	CUDA(cudaMemcpy(device, host, edges * sizeof(*device), cudaMemcpyHostToDevice));
	degrees<<<2048, BLOCK>>>(device, edges, degree);
	CUDA(cudaMemcpy(counts, degree, g->vertices * 4, cudaMemcpyDeviceToHost));
	for (strait_u64 v = 0; v < g->vertices; v++) {
		offset[v] = sum;
		sum += counts[v];
	}
	offset[g->vertices] = sum;
	for (strait_u64 c = 0, v = 0; c < g->n / CHUNK; c++) {
		while (offset[v + 1] <= c * CHUNK)
			v++;
		first[c] = (strait_u32)v;
	}
	CUDA(cudaMalloc(&g->first, g->n / CHUNK * 4));
	CUDA(cudaMemcpy(g->first, first, g->n / CHUNK * 4, cudaMemcpyHostToDevice));
	CUDA(cudaMemcpy(g->offset, offset, (g->vertices + 1) * 8, cudaMemcpyHostToDevice));
	CUDA(cudaMemcpy(next, offset, g->vertices * 8, cudaMemcpyHostToDevice));
	place<<<2048, BLOCK>>>(device, edges, next, g->neighbours);
	CUDA(cudaDeviceSynchronize());
	CUDA(cudaMemcpy(host, g->neighbours, g->n * 4, cudaMemcpyDeviceToHost));
	snprintf(g->path, sizeof(g->path), "%s", folder_file);
	fd = open(g->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	for (strait_u64 off = 0; off < g->n * 4; off += MIB(64))
		if (pwrite(fd, (char *)host + off, MIB(64), (off_t)off) != (ssize_t)MIB(64))
			quit("%s: %s", g->path, strerror(errno));
	close(fd);
	CUDA(cudaFree(device));
	CUDA(cudaFree(degree));
	CUDA(cudaFree(next));
	free(host);
	free(counts);
	free(offset);
	free(first);
	phase("scale %u: %llu neighbours, %.1f GiB, made in %.1f s", scale, g->n, (double)g->n * 4 / GIB(1),
	      now() - from);
}

/* ---- kernels ---- */

struct plain {
	const strait_u32 *at;

	__device__ strait_u32 load(strait_u64 i) const
	{
		return at[i];
	}
	__device__ void fetch(strait_u64) const
	{
	}
};

struct paged {
	const struct strait_view *v;
	struct strait_cursor c;

	__device__ strait_u32 load(strait_u64 i)
	{
		return strait_load_u32(v, &c, i * 4);
	}
	/* By all threads of the warp: they copy the chunk together if it is absent. */
	__device__ void fetch(strait_u64 i)
	{
		strait_load_u32(v, &c, (i + threadIdx.x % WARP) * 4);
	}
};

struct search {
	strait_u64 vertices;
	const strait_u64 *offset;
	const strait_u32 *first;
	strait_u64 chunks;
	strait_u32 *label, level;
	strait_u32 *changed;
};

__device__ static strait_u32 label_get(const strait_u32 *label, strait_u64 v)
{
	return *(const volatile strait_u32 *)&label[v];
}

__device__ static bool label_lower(strait_u32 *label, strait_u64 v, strait_u32 to)
{
	return to < label_get(label, v) && atomicMin(&label[v], to) > to;
}

/* A neighbour @w of @v. Did a label change? */
template <bool components> __device__ bool meet(const struct search &s, strait_u64 v, strait_u32 w)
{
	strait_u32 here, there;

	if (!components)
		return label_lower(s.label, w, s.level + 1);
	here = label_get(s.label, v);
	there = label_get(s.label, w);
	return here < there ? label_lower(s.label, w, here) : there < here && label_lower(s.label, v, there);
}

/*
 * A warp takes chunks of neighbours, and 32 vertices of a chunk at a time: each lane has the bounds of one of them, and finds the
 * vertex that a neighbour is of by a binary search among the lanes.
 */
template <bool components, typename T> __device__ void step(T &a, const struct search &s)
{
	strait_u64 thread = blockIdx.x * (strait_u64)blockDim.x + threadIdx.x,
		   warps = (strait_u64)gridDim.x * blockDim.x / WARP;
	strait_u32 lane = threadIdx.x % WARP;
	bool changed = false;

	for (strait_u64 chunk = thread / WARP; chunk < s.chunks; chunk += warps) {
		strait_u64 from = chunk * CHUNK, to = from + CHUNK, v = s.first[chunk], end = 0;
		bool fetched = false;

		for (; v < s.vertices && end < to; v += WARP) {
			bool is = v + lane < s.vertices;
			strait_u64 stop = is ? s.offset[v + lane + 1] : to, k;
			bool front = is && (components || s.label[v + lane] == s.level);
			strait_u64 begin = s.offset[v];

			end = __shfl_sync(ALL, stop, 31);
			if (!__any_sync(ALL, front))
				continue;
			if (!fetched)
				a.fetch(from);
			fetched = true;
			begin = begin > from ? begin : from;
			for (k = (begin & ~31ull) + lane; __any_sync(ALL, k < end && k < to); k += WARP) {
				strait_u32 j = 0;

				for (strait_u32 half = 16; half; half /= 2)
					if (__shfl_sync(ALL, stop, j + half - 1) <= k)
						j += half;
				if (__shfl_sync(ALL, front, j) && k >= begin && k < end && k < to)
					changed |= meet<components>(s, v + j, a.load(k));
			}
		}
	}
	if (changed)
		*s.changed = 1;
}

/* Labels are vertices of the same component: follows them. */
__global__ void shorten(strait_u32 *label, strait_u64 vertices)
{
	for (strait_u64 v = blockIdx.x * (strait_u64)blockDim.x + threadIdx.x; v < vertices;
	     v += (strait_u64)gridDim.x * blockDim.x) {
		strait_u32 to = label_get(label, v), next;

		while ((next = label_get(label, to)) < to)
			to = next;
		label[v] = to;
	}
}

template <bool components> __global__ void __launch_bounds__(BLOCK) step_plain(const strait_u32 *at, struct search s)
{
	struct plain a = { at };

	step<components>(a, s);
}

template <bool components>
__global__ void __launch_bounds__(BLOCK, 3) step_paged(const __grid_constant__ struct strait_view v, struct search s)
{
	struct paged a = { &v, STRAIT_CURSOR_INIT };

	step<components>(a, s);
	if (a.c.error)
		s.changed[1] = (strait_u32)-a.c.error;
}

__global__ void set_labels(strait_u32 *label, strait_u64 vertices, strait_u32 from, bool components)
{
	for (strait_u64 v = blockIdx.x * (strait_u64)blockDim.x + threadIdx.x; v < vertices;
	     v += (strait_u64)gridDim.x * blockDim.x)
		label[v] = components ? (strait_u32)v : v == from ? 0 : NONE;
}

__global__ void count_labels(const strait_u32 *label, strait_u64 vertices, bool components, strait_u64 *n)
{
	strait_u64 mine = 0;

	for (strait_u64 v = blockIdx.x * (strait_u64)blockDim.x + threadIdx.x; v < vertices;
	     v += (strait_u64)gridDim.x * blockDim.x)
		mine += components ? label[v] == v : label[v] != NONE;
	atomicAdd(n, mine);
}

/* ---- a search: of @at, or of the rig's view if that is NULL ---- */

struct outcome {
	double seconds;
	strait_u64 n; /* components, or vertices reached */
	unsigned int rounds;
};

template <bool components> static struct outcome search_of(const struct graph *g, const strait_u32 *at, struct rig *r)
{
	cudaStream_t stream = r ? r->cuda : 0;
	struct search s = { g->vertices, g->offset, g->first, g->n / CHUNK, NULL, 0, NULL };
	unsigned int changed[2] = { 1, 0 };
	struct outcome o = {};
	strait_u64 *n;
	double from;

	CUDA(cudaMalloc(&s.label, g->vertices * 4));
	CUDA(cudaMalloc(&s.changed, 16));
	CUDA(cudaMalloc(&n, 8));
	CUDA(cudaMemset(n, 0, 8));
	set_labels<<<2048, BLOCK>>>(s.label, g->vertices, 1, components);
	CUDA(cudaDeviceSynchronize());
	from = now();
	if (r && !at)
		rig_begin(r, STRAIT_INTENT_READ);
	for (; changed[0] && !changed[1]; o.rounds++) {
		CUDA(cudaMemsetAsync(s.changed, 0, 8, stream));
		s.level = o.rounds;
		if (at)
			step_plain<components><<<multiprocessors() * 8, BLOCK, 0, stream>>>(at, s);
		else
			step_paged<components><<<multiprocessors() * 3, BLOCK, 0, stream>>>(r->view, s);
		if (components)
			shorten<<<multiprocessors() * 8, BLOCK, 0, stream>>>(s.label, g->vertices);
		CUDA(cudaMemcpyAsync(changed, s.changed, 8, cudaMemcpyDeviceToHost, stream));
		CUDA(cudaStreamSynchronize(stream));
	}
	o.seconds = now() - from;
	if (r && !at)
		OK(rig_end(r, "a search"));
	if (changed[1])
		quit("a search: error %u", changed[1]);
	count_labels<<<2048, BLOCK>>>(s.label, g->vertices, components, n);
	CUDA(cudaMemcpy(&o.n, n, 8, cudaMemcpyDeviceToHost));
	CUDA(cudaFree(s.label));
	CUDA(cudaFree(s.changed));
	CUDA(cudaFree(n));
	return o;
}

template <bool components> static void rows_of(struct graph *g, struct rig *window, struct rig *service, double goal)
{
	const char *what = components ? "CC" : "BFS";
	const strait_u32 *in_place = NULL;
	struct outcome hbm, zero, view, host;
	char name[80];

	hbm = search_of<components>(g, g->neighbours, NULL);
	phase("%s, all in device memory: %.3f s, %llu, %u rounds", what, hbm.seconds, hbm.n, hbm.rounds);
	CUDA(cudaMemcpy(&in_place, window->view.window, 8, cudaMemcpyDeviceToHost));
	zero = search_of<components>(g, in_place, window);
	phase("%s, loads in place: %.3f s", what, zero.seconds);
	view = search_of<components>(g, NULL, window);
	phase("%s, frames from windows: %.3f s, %llu pulled, %llu evicted", what, view.seconds,
	      (unsigned long long)window->info.pulled, (unsigned long long)window->info.evictions);
	host = search_of<components>(g, NULL, service);
	phase("%s, frames from the host: %.3f s, %llu fetched", what, host.seconds,
	      (unsigned long long)service->info.fetched);
	if (zero.n != hbm.n || view.n != hbm.n || host.n != hbm.n)
		quit("%s: %llu, %llu, %llu and %llu", what, hbm.n, zero.n, view.n, host.n);
	snprintf(name, sizeof(name), "%s, scale %u, all in device memory", what, g->scale);
	row(name, 1 / hbm.seconds, "1/s", 1 / zero.seconds, 0);
	snprintf(name, sizeof(name), "%s, scale %u, windows, beside loads in place", what, g->scale);
	row(name, 1 / view.seconds, "1/s", 1 / zero.seconds, goal / zero.seconds);
	snprintf(name, sizeof(name), "%s, scale %u, service, beside loads in place", what, g->scale);
	row(name, 1 / host.seconds, "1/s", 1 / zero.seconds, 0);
}

void graph(void)
{
	const char *scale = getenv("SCALE");
	struct rig window, service;
	struct graph g = {};
	struct shape s = {};

	phase("making a graph");
	graph_make(&g, scale ? (unsigned int)atoi(scale) : 25, path_of("graph"));
	s.path = g.path;
	s.frame_bytes = KIB(4);
	s.budget = g.n; /* a quarter of it */
	rig_open(&window, &s);
	s.flags = STRAIT_FRAMES_NO_WINDOWS;
	s.threads = 10;
	s.slots = 1024;
	rig_open(&service, &s);
	/* The view has the addresses of the windows once it was begun. */
	rig_begin(&window, STRAIT_INTENT_READ);
	OK(rig_end(&window, "begin and end"));
	rows_of<false>(&g, &window, &service, 1.0);
	rows_of<true>(&g, &window, &service, 1.3);
	rig_close(&window);
	rig_close(&service);
	CUDA(cudaFree(g.offset));
	CUDA(cudaFree(g.first));
	CUDA(cudaFree(g.neighbours));
	unlink(g.path);
}
