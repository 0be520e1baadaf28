/* SPDX-License-Identifier: MIT */
#include "bench.cuh"

void rig_open(struct rig *r, const struct shape *s)
{
	struct strait_mapping_opts m = {};
	struct strait_frames_opts f = {};

	memset(r, 0, sizeof(*r));
	m.size = sizeof(m);
	m.flags = s->write ? 0 : STRAIT_MAPPING_READ_ONLY;
	f.size = sizeof(f);
	f.frame_bytes = s->frame_bytes;
	f.device_budget = s->budget;
	f.flags = s->flags;
	f.threads = s->threads;
	f.slots = s->slots;
	f.timeout_ns = 10000000000ull;
	OK(strait_context_open(NULL, &r->ctx));
	OK(strait_device_find(r->ctx, "cuda:0", &r->dev));
	if (s->path)
		OK(strait_file_open(r->ctx, s->path, (s->write ? O_RDWR : O_RDONLY) | O_CLOEXEC, 0, 0, &r->ep));
	OK(strait_mapping_open(r->ctx, r->ep, 0, s->length, &m, &r->m));
	OK(strait_frames_open(r->m, r->dev, &f, &r->frames));
	CUDA(cudaStreamCreateWithFlags(&r->cuda, cudaStreamNonBlocking));
	CUDA(cudaEventCreate(&r->from));
	CUDA(cudaEventCreate(&r->to));
	OK(strait_stream_import(r->dev, r->cuda, &r->stream));
}

void rig_close(struct rig *r)
{
	strait_stream_close(r->stream);
	strait_frames_close(r->frames);
	strait_mapping_close(r->m);
	strait_endpoint_close(r->ep);
	strait_context_close(r->ctx);
	cudaEventDestroy(r->from);
	cudaEventDestroy(r->to);
	cudaStreamDestroy(r->cuda);
}

void rig_begin(struct rig *r, uint32_t intent)
{
	r->begun = r->ended = 1;
	r->view.abi = STRAIT_VIEW_ABI;
	OK(strait_view_begin(r->frames, r->stream, intent, &r->view, &r->begun));
	CUDA(cudaEventRecord(r->from, r->cuda));
}

static void stood(struct rig *r, const char *what)
{
	quit("%s: not over after %lld s (begun %d, ended %d)", what, WAIT_NS / 1000000000, r->begun, r->ended);
}

int rig_end(struct rig *r, const char *what)
{
	float ms = 0;
	int rc;

	CUDA(cudaGetLastError());
	CUDA(cudaEventRecord(r->to, r->cuda));
	OK(strait_view_end(r->frames, r->stream, &r->ended));
	rc = strait_stream_wait(r->stream, WAIT_NS);
	if (rc == -ETIMEDOUT)
		stood(r, what);
	OK(rc);
	CUDA(cudaEventElapsedTime(&ms, r->from, r->to));
	r->seconds = ms / 1e3;
	r->info.size = sizeof(r->info);
	OK(strait_frames_info(r->frames, &r->info));
	return r->begun ? r->begun : r->ended;
}
