/* SPDX-License-Identifier: MIT */
#ifndef VIEW_CUDA_CUH
#define VIEW_CUDA_CUH

/* What the examples of device code in CUDA share: a file or memory with frames on a GPU, and its view on a stream. */
#include <cuda_runtime.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <strait/frames.h>
#include <strait/strait.h>
#include <strait/view.h>
#include <string.h>

struct paged {
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_endpoint *ep;
	struct strait_mapping *m;
	struct strait_frames *frames;
	struct strait_stream *stream;
	cudaStream_t cuda;
	struct strait_view view;
	int begun, ended;
};

static inline void must(int rc, const char *what)
{
	if (!rc)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(abs(rc)));
	exit(1);
}

static inline void must_cuda(cudaError_t rc, const char *what)
{
	if (rc == cudaSuccess)
		return;
	fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(rc));
	exit(1);
}

/* Of a file, or of anonymous memory if @path is NULL. */
static inline void paged_open(struct paged *p, const char *path, uint64_t length, bool write, uint64_t budget)
{
	struct strait_mapping_opts m = {};
	struct strait_frames_opts f = {};

	memset(p, 0, sizeof(*p));
	m.size = sizeof(m);
	m.flags = write ? 0 : STRAIT_MAPPING_READ_ONLY;
	f.size = sizeof(f);
	f.device_budget = budget;
	must_cuda(cudaSetDevice(0), "cudaSetDevice");
	must_cuda(cudaStreamCreate(&p->cuda), "cudaStreamCreate");
	must(strait_context_open(NULL, &p->ctx), "strait_context_open");
	must(strait_device_find(p->ctx, "cuda:0", &p->dev), "cuda:0");
	if (path)
		must(strait_file_open(p->ctx, path, (write ? O_RDWR : O_RDONLY) | O_CLOEXEC, 0, 0, &p->ep), path);
	must(strait_mapping_open(p->ctx, p->ep, 0, length, &m, &p->m), "strait_mapping_open");
	must(strait_frames_open(p->m, p->dev, &f, &p->frames), "strait_frames_open");
	must(strait_stream_import(p->dev, p->cuda, &p->stream), "strait_stream_import");
}

/* Kernels with p->view are launched on p->cuda between these two. */
static inline void paged_begin(struct paged *p, uint32_t intent)
{
	p->view.abi = STRAIT_VIEW_ABI;
	must(strait_view_begin(p->frames, p->stream, intent, &p->view, &p->begun), "strait_view_begin");
}

static inline void paged_end(struct paged *p)
{
	must_cuda(cudaGetLastError(), "launch");
	must(strait_view_end(p->frames, p->stream, &p->ended), "strait_view_end");
	must(strait_stream_wait(p->stream, STRAIT_FOREVER), "strait_stream_wait");
	must(p->begun, "strait_view_begin");
	must(p->ended, "strait_view_end");
}

static inline void paged_close(struct paged *p)
{
	strait_stream_close(p->stream);
	strait_frames_close(p->frames);
	strait_mapping_close(p->m);
	strait_endpoint_close(p->ep);
	strait_context_close(p->ctx);
}

#endif
