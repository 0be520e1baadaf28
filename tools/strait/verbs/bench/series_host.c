/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <strait/route.h>

#include "lib/cli.h"
#include "lib/pattern.h"
#include "verbs/bench/bench.h"

/* The comparison has as many threads as Strait has transfers in flight, up to this many. */
enum { MAX_THREADS = 256 };

static void work(struct bench_worker *w, void *arg)
{
	const struct bench_load *load = w->run->load;
	bool writes = bench_writes(load->mode);
	struct strait_transfer t = { .op = writes ? STRAIT_WRITE : STRAIT_READ, .length = load->block };
	struct strait_result none = { 0 };
	int fd = *(int *)arg;
	void *buf = NULL;
	uint64_t off;

	if (posix_memalign(&buf, 4096, bench_slot(load->block)))
		buf = NULL;
	else /* also faults the pages in, before the measurement */
		pattern_fill(&(struct pattern){ PATTERN_RANDOM, w->index }, 0, buf, load->block);
	bench_start(w);
	if (!buf)
		bench_failed(w, -ENOMEM, &t, &none);
	while (buf && bench_next(w, &off)) {
		uint64_t start = now_ns(), done = 0;
		ssize_t n = 1;

		while (done < load->block) {
			n = writes ? pwrite(fd, (char *)buf + done, load->block - done, (off_t)(off + done)) :
				     pread(fd, (char *)buf + done, load->block - done, (off_t)(off + done));
			if (n < 0 && errno == EINTR)
				continue;
			if (n <= 0)
				break;
			done += (uint64_t)n;
		}
		if (done < load->block) {
			t.endpoint_offset = off;
			none.bytes = done;
			bench_failed(w, n < 0 ? -errno : -ENODATA, &t, &none);
			break;
		}
		bench_done(w, start, done);
	}
	free(buf);
}

static int open_again(const struct bench_load *load, enum bench_cache cache)
{
	int flags = bench_writes(load->mode) ? O_RDWR : O_RDONLY, fd;
	char self[64];

	snprintf(self, sizeof(self), "/proc/self/fd/%d", load->file->fd);
	if (cache == BENCH_DIRECT && !(load->block % 512)) {
		fd = open(self, flags | O_DIRECT | O_CLOEXEC);
		if (fd >= 0)
			return fd;
	}
	if (cache == BENCH_DIRECT)
		note("the comparison with host uses buffered I/O: direct I/O is not possible here with blocks of %" PRIu64
		     " bytes",
		     load->block);
	return open(self, flags | O_CLOEXEC);
}

int bench_host(const struct bench_load *load, enum bench_cache cache, struct bench_row *row)
{
	unsigned int threads = (unsigned int)min_u64((uint64_t)load->threads * load->depth, MAX_THREADS);
	struct bench_load plain = *load;
	struct bench_run run;
	int err, fd = open_again(load, cache);

	if (fd < 0)
		return fail(CLI_FAILED, NULL, "cannot open %s for comparison: %s", load->file->path, strerror(errno));
	plain.threads = threads;
	plain.depth = 1;
	err = bench_measure(&run, &plain, threads, work, &fd, row);
	close(fd);
	row->series = BENCH_HOST;
	if (err)
		return fail(CLI_FAILED, NULL, "%s: plain I/O at offset %" PRIu64 " failed: %s", load->file->path,
			    run.failed_transfer.endpoint_offset, error_text(err));
	row->route_bytes[STRAIT_ROUTE_HOST] = row->bytes;
	return CLI_OK;
}
