/* SPDX-License-Identifier: MIT */
#ifndef CLI_TARGET_H
#define CLI_TARGET_H

/* The device a verb works with, its context, and the routes and file flags that the options ask for. */

#include <stdbool.h>
#include <stdint.h>

#include <strait/device.h>
#include <strait/types.h>

#include "lib/args.h"

struct target_opts {
	const char *device;
	const char *route;
	bool direct;
	bool buffered;
	bool no_uring;
};

#define TARGET_OPTS(o)                                                                                                 \
	{ "device", "D", OPT_TEXT, &(o)->device, "device to use: cuda:0, emu:0, host, ...; default: the best one" },   \
		{ "route", "R", OPT_TEXT, &(o)->route,                                                                 \
		  "routes allowed, comma-separated: p2p, pagecache, staged, host" },                                   \
		{ "direct", NULL, OPT_FLAG, &(o)->direct, "use direct I/O wherever alignment allows" },                \
		{ "buffered", NULL, OPT_FLAG, &(o)->buffered, "always use the page cache" },                           \
	{                                                                                                              \
		"no-uring", NULL, OPT_FLAG, &(o)->no_uring, "use threads instead of io_uring"                          \
	}

struct target {
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_device_info info;
	uint32_t routes;     /* STRAIT_ROUTE_ANY, or those that may be used */
	uint32_t file_flags; /* STRAIT_FILE_* */
};

/* A context whose log lines go to stderr. Returns an exit code, having printed what was wrong. */
int context_open(bool no_uring, struct strait_context **ret);

/* Returns an exit code, having printed what was wrong. */
int target_open(const struct target_opts *opts, struct target *t);
void target_close(struct target *t);

/* Print why a file could not be opened as an endpoint. Returns the exit code for it. */
int file_failed(const char *path, int err);

/*
 * Allocate @want bytes, or less where the device has less free: *@got is the size, and the caller works in slices of it.
 * Returns an exit code, having printed what was wrong.
 */
int target_alloc(struct target *t, uint64_t want, struct strait_region **ret, uint64_t *got);

#endif
