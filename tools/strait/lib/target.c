/* SPDX-License-Identifier: MIT */
#include "lib/target.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <strait/strait.h>

#include "lib/cli.h"
#include "lib/progress.h"
#include "lib/size.h"

static void on_log(void *arg, enum strait_log_level level, const char *text)
{
	progress_clear();
	fprintf(stderr, "%s: %s\n", strait_log_level_name(level), text);
}

int context_open(bool no_uring, struct strait_context **ret)
{
	struct strait_context_opts opts = {
		.size = sizeof(opts),
		.flags = no_uring ? STRAIT_CONTEXT_NO_URING : 0,
		.log_level = cli.verbose ? STRAIT_LOG_DEBUG : STRAIT_LOG_WARN,
		.log = on_log,
	};
	int err = strait_context_open(&opts, ret);

	if (err)
		return fail(CLI_FAILED, NULL, "cannot open a Strait context: %s", error_text(err));
	return CLI_OK;
}

static int parse_routes(const char *list, uint32_t *mask)
{
	char text[128], *name, *save = NULL;

	*mask = STRAIT_ROUTE_ANY;
	if (!list)
		return CLI_OK;
	snprintf(text, sizeof(text), "%s", list);
	for (name = strtok_r(text, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
		int route = strait_route_parse(name);

		if (route < 0)
			return fail(CLI_USAGE, "routes are p2p, pagecache, staged and host", "unknown route \"%s\"",
				    name);
		*mask |= STRAIT_ROUTE_MASK(route);
	}
	return CLI_OK;
}

static int find_device(struct target *t, const char *name)
{
	char why[512];
	int err;

	if (!name) {
		err = strait_device_at(t->ctx, 0, &t->dev);
		return err ? fail(CLI_NO_ROUTE, "see: strait info", "no device is available") : CLI_OK;
	}
	err = strait_device_find(t->ctx, name, &t->dev);
	if (!err)
		return CLI_OK;
	if (strait_device_missing_reason(t->ctx, name, why, sizeof(why)) == -EEXIST)
		snprintf(why, sizeof(why), "%s", error_text(err));
	return fail(CLI_NO_ROUTE, "see: strait info", "no device %s: %s", name, why);
}

int target_open(const struct target_opts *opts, struct target *t)
{
	int code;

	memset(t, 0, sizeof(*t));
	if (opts->direct && opts->buffered)
		return fail(CLI_USAGE, "give only one of them", "--direct and --buffered exclude each other");
	t->file_flags = (opts->direct ? STRAIT_FILE_DIRECT : 0) | (opts->buffered ? STRAIT_FILE_BUFFERED : 0);
	code = parse_routes(opts->route, &t->routes);
	if (!code)
		code = context_open(opts->no_uring, &t->ctx);
	if (!code)
		code = find_device(t, opts->device);
	if (!code) {
		int err;

		t->info.size = sizeof(t->info);
		err = strait_device_info(t->dev, &t->info);
		if (err)
			code = fail(CLI_NO_ROUTE, "see: strait info", "cannot query the device: %s", error_text(err));
	}
	if (code)
		target_close(t);
	return code;
}

void target_close(struct target *t)
{
	strait_context_close(t->ctx);
	t->ctx = NULL;
}

int file_failed(const char *path, int err)
{
	const char *hint = NULL;

	switch (-err) {
	case EISDIR:
		hint = "it is a directory: name a file in it";
		break;
	case EOPNOTSUPP:
		hint = "name a regular file or a block device: pipes, sockets and terminals have no offsets";
		break;
	case EACCES:
	case EPERM:
		hint = "run as a user who may open it, or as root";
		break;
	}
	return fail(CLI_FAILED, hint, "cannot open %s: %s", path, error_text(err));
}

int target_alloc(struct target *t, uint64_t want, struct strait_region **ret, uint64_t *got)
{
	struct strait_device_info info = { .size = sizeof(info) };
	char need[SIZE_TEXT];
	int err;

	/* An eighth of the free memory is left to staging buffers and other processes. */
	err = strait_device_info(t->dev, &info);
	if (!err && want > info.mem_free - info.mem_free / 8) {
		want = min_u64(GIB, info.mem_free / 4) & ~(2 * MIB - 1);
		if (!want)
			want = MIB;
	}
	for (;; want /= 2) {
		err = strait_region_alloc(t->dev, want, ret);
		if (err != -ENOMEM || want <= MIB)
			break;
	}
	if (err)
		return fail(CLI_FAILED, "free device memory, or use another --device", "%s: cannot allocate %s: %s",
			    t->info.name, size_format(want, need), error_text(err));
	*got = want;
	return CLI_OK;
}
