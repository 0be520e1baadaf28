/* SPDX-License-Identifier: MIT */
#ifndef VIEW_THREADS_H
#define VIEW_THREADS_H

/*
 * What the examples of device code share: a file or memory with frames on a device whose kernels are functions, and a launch of
 * such a kernel, by a few threads of the CPU that stand for those of a GPU.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <strait/frames.h>
#include <strait/strait.h>
#include <strait/view.h>
#include <string.h>

#define LANES 4u

struct launch {
	struct strait_view view;
	/* The kernel: thread @thread of @threads. Returns an error of the view, or 0. */
	int (*kernel)(struct launch *l, uint64_t thread, uint64_t threads);
	void *arg;
	int error;
};

struct lane {
	struct launch *l;
	uint64_t thread;
	int error;
};

static inline void *lane_main(void *p)
{
	struct lane *lane = p;

	lane->error = lane->l->kernel(lane->l, lane->thread, LANES);
	return NULL;
}

/* Put on the stream: all threads of the kernel. */
static inline void launch_run(void *p)
{
	struct launch *l = p;
	struct lane lane[LANES];
	pthread_t id[LANES];

	for (uint64_t i = 0; i < LANES; i++) {
		lane[i] = (struct lane){ l, i, 0 };
		if (pthread_create(&id[i], NULL, lane_main, &lane[i]))
			abort();
	}
	for (unsigned int i = 0; i < LANES; i++) {
		pthread_join(id[i], NULL);
		if (lane[i].error)
			l->error = lane[i].error;
	}
}

/* A mapping with frames: of a file, or of anonymous memory if @path is NULL. */
struct paged {
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_endpoint *ep;
	struct strait_mapping *m;
	struct strait_frames *frames;
	struct strait_stream *stream;
	uint64_t length;
};

static inline int paged_open(struct paged *p, const char *device, const char *path, uint64_t length, int write,
			     uint64_t budget)
{
	struct strait_mapping_opts m = { .size = sizeof(m), .flags = write ? 0 : STRAIT_MAPPING_READ_ONLY };
	struct strait_frames_opts f = { .size = sizeof(f), .device_budget = budget };
	struct strait_mapping_info info = { .size = sizeof(info) };
	int rc;

	memset(p, 0, sizeof(*p));
	rc = strait_context_open(NULL, &p->ctx);
	if (!rc)
		rc = strait_device_find(p->ctx, device, &p->dev);
	if (!rc && path)
		rc = strait_file_open(p->ctx, path, (write ? O_RDWR : O_RDONLY) | O_CLOEXEC, 0, 0, &p->ep);
	if (!rc)
		rc = strait_mapping_open(p->ctx, p->ep, 0, length, &m, &p->m);
	if (!rc)
		rc = strait_mapping_info(p->m, &info);
	if (!rc)
		rc = strait_frames_open(p->m, p->dev, &f, &p->frames);
	if (!rc)
		rc = strait_stream_open(p->dev, &p->stream);
	p->length = info.length;
	return rc;
}

static inline void paged_close(struct paged *p)
{
	strait_stream_close(p->stream);
	strait_frames_close(p->frames);
	strait_mapping_close(p->m);
	strait_endpoint_close(p->ep);
	strait_context_close(p->ctx);
}

/* Begin, the kernel and end on the stream, and a wait for all of it. */
static inline int paged_launch(struct paged *p, uint32_t intent, int (*kernel)(struct launch *, uint64_t, uint64_t),
			       void *arg)
{
	struct launch l = { .view = { .abi = STRAIT_VIEW_ABI }, .kernel = kernel, .arg = arg };
	int rc, begun = 0, ended = 0;

	rc = strait_view_begin(p->frames, p->stream, intent, &l.view, &begun);
	if (rc)
		return rc;
	rc = strait_stream_call(p->stream, launch_run, &l);
	if (!rc)
		rc = strait_view_end(p->frames, p->stream, &ended);
	if (!rc)
		rc = strait_stream_wait(p->stream, STRAIT_FOREVER);
	return rc ? rc : begun ? begun : l.error ? l.error : ended;
}

static inline int fail(const char *program, const char *what, int code)
{
	fprintf(stderr, "%s: %s: %s\n", program, what, strerror(abs(code)));
	return 1;
}

/* The value of --@name, as a number; @has if it is not given. */
static inline uint64_t option(int argc, char **argv, const char *name, uint64_t has)
{
	for (int i = 1; i + 1 < argc; i++)
		if (!strncmp(argv[i], "--", 2) && !strcmp(argv[i] + 2, name))
			return strtoull(argv[i + 1], NULL, 0);
	return has;
}

/* The last argument that is no option, NULL: there is none. */
static inline const char *operand(int argc, char **argv)
{
	const char *last = NULL;

	for (int i = 1; i < argc; i++) {
		if (!strncmp(argv[i], "--", 2))
			i++;
		else
			last = argv[i];
	}
	return last;
}

static inline const char *option_text(int argc, char **argv, const char *name, const char *has)
{
	for (int i = 1; i + 1 < argc; i++)
		if (!strncmp(argv[i], "--", 2) && !strcmp(argv[i] + 2, name))
			return argv[i + 1];
	return has;
}

#endif
