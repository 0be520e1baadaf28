/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>

#include <strait/strait.h>

#include "lib/cli.h"
#include "lib/transfer_totals.h"
#include "verbs/bench/bench.h"

struct job {
	const struct target *target;
	uint32_t routes;
	struct strait_endpoint *ep;
	struct strait_region *region;
};

static struct strait_transfer request(const struct bench_worker *w, const struct job *job, unsigned int slot,
				      uint64_t off)
{
	const struct bench_load *load = w->run->load;

	return (struct strait_transfer){
		.op = bench_writes(load->mode) ? STRAIT_WRITE : STRAIT_READ,
		.routes = job->routes,
		.endpoint = job->ep,
		.region = job->region,
		.endpoint_offset = off,
		.region_offset = (w->index * load->depth + slot) * bench_slot(load->block),
		.length = load->block,
		.user_data = slot,
	};
}

/* Count a result; false if the transfer failed. */
static bool count_result(struct bench_worker *w, const struct strait_transfer *t, int err,
			 const struct strait_result *result, uint64_t start_ns)
{
	if (!err && result->bytes < t->length)
		err = -ENODATA; /* the file was truncated */
	if (err) {
		bench_failed(w, err, t, result);
		return false;
	}
	bench_done(w, start_ns, result->bytes);
	for (int r = 0; r < STRAIT_ROUTE_COUNT; r++)
		w->route_bytes[r] += result->route_bytes[r];
	return true;
}

static void work_sync(struct bench_worker *w, void *arg)
{
	struct job *job = arg;
	uint64_t off;

	bench_start(w);
	while (bench_next(w, &off)) {
		struct strait_transfer t = request(w, job, 0, off);
		struct strait_result result = { 0 };
		uint64_t start = now_ns();
		int err = strait_transfer_run(&t, STRAIT_FOREVER, &result);

		if (!count_result(w, &t, err, &result, start))
			return;
	}
}

/* Keep @depth transfers in flight: each completion is replaced at once. */
static void work_queue(struct bench_worker *w, void *arg)
{
	struct job *job = arg;
	unsigned int depth = w->run->load->depth, in_flight = 0, n = 0;
	struct strait_queue_opts opts = { .size = sizeof(opts), .entries = depth };
	struct strait_transfer *t = xcalloc(depth, sizeof(*t)), *batch = xcalloc(depth, sizeof(*batch));
	struct strait_result *result = xcalloc(depth, sizeof(*result));
	uint64_t *start = xcalloc(depth, sizeof(*start)), off, now;
	struct strait_queue *queue = NULL;
	bool good = true;
	int got, err = strait_queue_open(job->target->ctx, &opts, &queue);

	bench_start(w);
	if (err) {
		bench_failed(w, err, &t[0], &result[0]);
		good = false;
	}
	for (n = 0; good && n < depth && bench_next(w, &off); n++)
		t[n] = batch[n] = request(w, job, n, off);
	while (good && (n || in_flight)) {
		now = now_ns();
		for (unsigned int i = 0; i < n; i++)
			start[batch[i].user_data] = now;
		err = n ? strait_queue_submit(queue, batch, n) : 0;
		if (err) {
			bench_failed(w, err, &batch[0], &result[0]);
			break;
		}
		in_flight += n;
		n = 0;
		got = strait_queue_wait(queue, 1, depth, STRAIT_FOREVER, result);
		if (got <= 0) {
			bench_failed(w, got ? got : -EIO, &t[0], &result[0]);
			break;
		}
		in_flight -= (unsigned int)got;
		for (int i = 0; i < got && good; i++) {
			unsigned int slot = (unsigned int)result[i].user_data;

			good = count_result(w, &t[slot], result[i].status, &result[i], start[slot]);
			if (good && bench_next(w, &off))
				t[slot] = batch[n++] = request(w, job, slot, off);
		}
	}
	strait_queue_close(queue);
	free(t);
	free(batch);
	free(result);
	free(start);
}

int bench_strait(const struct bench_load *load, const struct target *t, uint32_t routes, struct strait_endpoint *ep,
		 struct strait_region *region, struct bench_row *row)
{
	struct job job = { t, routes, ep, region };
	struct bench_run run;
	int err;

	err = bench_measure(&run, load, load->threads, load->depth > 1 ? work_queue : work_sync, &job, row);
	if (err)
		return transfer_failed(&run.failed_transfer, &run.failed_result, err, load->file->path);
	return CLI_OK;
}
