/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cli.h"
#include "verbs/bench/bench.h"
#include "verbs/bench/cufile.h"

struct job {
	struct cufile *cufile;
	void *fh;
};

static void *base_of(const struct job *job)
{
	return (void *)(uintptr_t)job->cufile->addr;
}

static off_t slot_of(const struct bench_worker *w, unsigned int slot)
{
	const struct bench_load *load = w->run->load;

	return (off_t)((w->index * load->depth + slot) * bench_slot(load->block));
}

/* @code: the error code of the library, 0 if it returned none. */
static void failed(struct bench_worker *w, int err, int code, uint64_t off)
{
	struct strait_transfer t = { .endpoint_offset = off, .length = w->run->load->block };
	struct strait_result result = { .device_status = code };

	bench_failed(w, err, &t, &result);
}

static void work_sync(struct bench_worker *w, void *arg)
{
	const struct bench_load *load = w->run->load;
	struct job *job = arg;
	struct cufile *c = job->cufile;
	off_t slot = slot_of(w, 0);
	uint64_t off;

	cufile_attach(c);
	bench_start(w);
	while (bench_next(w, &off)) {
		uint64_t start = now_ns(), done = 0;

		while (done < load->block) {
			size_t left = load->block - done;
			off_t at = (off_t)(off + done), to = slot + (off_t)done;
			ssize_t n = bench_writes(load->mode) ? c->write(job->fh, base_of(job), left, at, to) :
							       c->read(job->fh, base_of(job), left, at, to);

			if (n <= 0) {
				failed(w, n == -1 ? -errno : n ? -EIO : -ENODATA, n < -1 ? (int)-n : 0, off);
				return;
			}
			done += (uint64_t)n;
		}
		bench_done(w, start, done);
	}
}

/* Submit one batch and wait for all of it: a batch takes new requests when the previous ones are complete. */
static bool run_batch(struct bench_worker *w, struct cufile *c, void *batch, struct cufile_request *r, unsigned int n)
{
	struct cufile_event event[CUFILE_BATCH_MAX];
	uint64_t start = now_ns();
	struct cufile_status s = c->batch_submit(batch, n, r, 0);
	unsigned int done = 0, idle = 0;

	if (s.err) {
		failed(w, -EIO, s.err, (uint64_t)r[0].file_offset);
		return false;
	}
	while (done < n) {
		struct timespec timeout = { .tv_sec = 1 };
		unsigned int got = n - done;

		s = c->batch_status(batch, 1, &got, event, &timeout);
		idle = got ? 0 : idle + 1;
		if (s.err || idle > 30) {
			failed(w, s.err ? -EIO : -ETIMEDOUT, s.err, (uint64_t)r[0].file_offset);
			return false;
		}
		for (unsigned int i = 0; i < got; i++) {
			if (event[i].status != CUFILE_COMPLETE || event[i].ret != r[0].size) {
				ssize_t ret = (ssize_t)event[i].ret;

				failed(w, -EIO, ret <= -5000 ? (int)-ret : 0, (uint64_t)r[0].file_offset);
				return false;
			}
			bench_done(w, start, event[i].ret);
		}
		done += got;
	}
	return true;
}

static void work_batch(struct bench_worker *w, void *arg)
{
	const struct bench_load *load = w->run->load;
	struct cufile_request *r = xcalloc(load->depth, sizeof(*r));
	struct job *job = arg;
	struct cufile *c = job->cufile;
	void *batch = NULL;
	struct cufile_status s;
	unsigned int n;
	uint64_t off;

	cufile_attach(c);
	s = c->batch_setup(&batch, load->depth);
	bench_start(w);
	if (s.err)
		failed(w, -EIO, s.err, 0);
	do {
		for (n = 0; !s.err && n < load->depth && bench_next(w, &off); n++)
			r[n] = (struct cufile_request){
				.mode = 1,
				.base = base_of(job),
				.file_offset = (off_t)off,
				.base_offset = slot_of(w, n),
				.size = load->block,
				.fh = job->fh,
				.opcode = bench_writes(load->mode),
				.cookie = &r[n],
			};
	} while (n && run_batch(w, c, batch, r, n));
	if (!s.err)
		c->batch_destroy(batch);
	free(r);
}

static int open_again(const struct bench_load *load, bool direct)
{
	char self[64];

	snprintf(self, sizeof(self), "/proc/self/fd/%d", load->file->fd);
	return open(self, (bench_writes(load->mode) ? O_RDWR : O_RDONLY) | (direct ? O_DIRECT : 0) | O_CLOEXEC);
}

/* Older libraries only register files that are open with O_DIRECT. */
static bool register_file(struct cufile *c, const struct bench_load *load, bool direct, int *fd, void **fh)
{
	struct cufile_descr d = { .type = 1 };
	struct cufile_status s;

	*fd = open_again(load, direct);
	if (*fd < 0) {
		snprintf(c->why, sizeof(c->why), "cannot open the file again%s: %s", direct ? " with O_DIRECT" : "",
			 strerror(errno));
		return false;
	}
	d.handle.fd = *fd;
	s = c->handle_register(fh, &d);
	if (!s.err)
		return true;
	if (s.err == 5020 && !direct) {
		close(*fd);
		return register_file(c, load, true, fd, fh);
	}
	cufile_refused(c, "cuFileHandleRegister", s.err, s.cu_err, *fd);
	close(*fd);
	return false;
}

bool bench_cufile(const struct bench_load *load, struct cufile *c, enum bench_cache cache, struct bench_row *row)
{
	struct bench_load same = *load;
	struct job job = { .cufile = c };
	struct bench_run run;
	int err, fd;

	if (!register_file(c, load, cache == BENCH_DIRECT, &fd, &job.fh))
		return false;
	same.depth = (uint32_t)min_u64(load->depth, CUFILE_BATCH_MAX);
	err = bench_measure(&run, &same, load->threads, load->depth > 1 ? work_batch : work_sync, &job, row);
	row->series = BENCH_CUFILE;
	if (err && run.failed_result.device_status) {
		cufile_refused(c, "a transfer failed", run.failed_result.device_status, 0, fd);
	} else if (err) {
		snprintf(c->why, sizeof(c->why), "a transfer at offset %" PRIu64 " failed: %s",
			 run.failed_transfer.endpoint_offset, error_text(err));
	}
	c->handle_deregister(job.fh);
	close(fd);
	return !err;
}
