/* SPDX-License-Identifier: MIT */
#ifndef CLI_TARGET_H
#define CLI_TARGET_H

/* The device a verb works with, and how: what --device, --route, --direct and their like come to. */

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
	{ "device", "D", OPT_TEXT, &(o)->device, "the device: cuda:0, emu:0, host, ...; the best one by default" },    \
		{ "route", "R", OPT_TEXT, &(o)->route,                                                                 \
		  "require a route: p2p, pagecache, staged, host, or a list of them" },                                \
		{ "direct", NULL, OPT_FLAG, &(o)->direct, "direct I/O wherever alignment allows" },                    \
		{ "buffered", NULL, OPT_FLAG, &(o)->buffered, "always through the page cache" },                       \
	{                                                                                                              \
		"no-uring", NULL, OPT_FLAG, &(o)->no_uring, "threads instead of io_uring"                              \
	}

struct target {
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_device_info info;
	uint32_t routes;     /* STRAIT_ROUTE_ANY, or those that may be used */
	uint32_t file_flags; /* STRAIT_FILE_* */
};

/* A context whose log lines go to stderr. Returns an exit code, having said what was wrong. */
int context_open(bool no_uring, struct strait_context **ret);

/* Returns an exit code, having said what was wrong. */
int target_open(const struct target_opts *opts, struct target *t);
void target_close(struct target *t);

/* Say why a file could not be opened as an endpoint. Returns the exit code for it. */
int file_failed(const char *path, int err);

/*
 * Memory for @want bytes, or for less where the device has not so much free: *@got says how much, and
 * the caller goes through it in slices. Returns an exit code, having said what was wrong.
 */
int target_alloc(struct target *t, uint64_t want, struct strait_region **ret, uint64_t *got);

#endif
