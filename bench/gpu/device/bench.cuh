/* SPDX-License-Identifier: MIT */
#ifndef BENCH_GPU_DEVICE_BENCH_CUH
#define BENCH_GPU_DEVICE_BENCH_CUH

/*
 * GPU threads that read storage themselves (strait/view.h): what the parts of bench/gpu/view share. A file with known bytes, a
 * mapping of it with frames, a launch of a kernel between strait_view_begin() and strait_view_end() whose wait is bounded, and
 * one table at the end.
 */
#include <cuda_runtime.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <strait/frames.h>
#include <strait/strait.h>
#include <strait/view.h>

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)
#define WARP 32u
#define BLOCK 256u
#define WAIT_NS 40000000000ll /* the most that a phase may take */

/* The word of the file with this number. */
__host__ __device__ static inline strait_u64 pattern(strait_u64 word)
{
	return word * 0x9e3779b97f4a7c15ull + 1;
}

/* A number that looks random, of a seed. */
__host__ __device__ static inline strait_u64 mix(strait_u64 x)
{
	x ^= x >> 31;
	x *= 0x7fb5d329728ea185ull;
	x ^= x >> 27;
	x *= 0x81dadef4bc2dd44dull;
	return x ^ x >> 33;
}

#define CUDA(call)                                                                                                     \
	do {                                                                                                           \
		cudaError_t e_ = (call);                                                                               \
		if (e_ != cudaSuccess)                                                                                 \
			quit("%s:%d: %s: %s", __FILE__, __LINE__, #call, cudaGetErrorString(e_));                      \
	} while (0)
#define OK(call)                                                                                                       \
	do {                                                                                                           \
		int e_ = (call);                                                                                       \
		if (e_)                                                                                                \
			quit("%s:%d: %s: %s", __FILE__, __LINE__, #call, strerror(-e_));                               \
	} while (0)

/* main.cu */
void quit(const char *format, ...);
/* Says what begins: the last such line before a hang says where. */
void phase(const char *format, ...);
/* A row of the table. @goal: what @value must reach; less than 0: what it must not exceed; 0: none. */
void row(const char *name, double value, const char *unit, double plain, double goal);
/* A row of the table: how much was wrong. */
void check(const char *name, uint64_t wrong);
double now(void);
int wanted(const char *name);
/* Makes a file of @len bytes of the pattern, unless it is there. */
const char *file_of(const char *name, uint64_t len);
const char *path_of(const char *name);
unsigned int multiprocessors(void);

/* A file, or anonymous memory, with frames. */
struct rig {
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_endpoint *ep;
	struct strait_mapping *m;
	struct strait_frames *frames;
	struct strait_stream *stream;
	cudaStream_t cuda;
	cudaEvent_t from, to;
	struct strait_view view;
	double seconds;			/* of the last launch */
	struct strait_frames_info info; /* after the last launch */
	int begun, ended;
};

struct shape {
	const char *path; /* NULL: anonymous */
	uint64_t length;  /* 0: all */
	bool write;
	uint32_t frame_bytes;
	uint64_t budget;
	uint32_t flags; /* of the frames */
	uint32_t threads;
	uint32_t slots;
};

/* rig.cu */
void rig_open(struct rig *r, const struct shape *s);
void rig_close(struct rig *r);
/* Between them launch a kernel on r->cuda with r->view. */
void rig_begin(struct rig *r, uint32_t intent);
int rig_end(struct rig *r, const char *what);

/* The parts. */
void verify(void);
void loads(void);
void misses(void);
void scan(void);
void graph(void);

#endif
