/* SPDX-License-Identifier: MIT */
/* The settings of cuFile: reading the file they stand in, and which of them have an effect here. */
#include <cufile_settings.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"

#define MAX_FILE (1 << 20)
#define MAX_PATH 1024
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const char *const in_force[] = {
	"logging.level",
	"logging.dir",
	"profile.cufile_stats",
	"profile.io_batchsize",
	"properties.io_batchsize",
	"properties.max_batch_io_size",
	"properties.allow_compat_mode",
	"properties.force_compat_mode",
	"properties.vanilla_posix_mode",
	"properties.force_odirect_mode",
	"properties.max_device_pinned_mem_size_kb",
	"properties.posix_pool_slab_size_kb",
	"properties.posix_pool_slab_count",
	"execution.max_io_queue_depth",
};

static const char *const reported[] = {
	"profile.nvtx",
	"execution.parallel_io",
	"execution.max_io_threads",
	"execution.min_io_threshold_size_kb",
	"execution.max_request_parallelism",
	"properties.use_poll_mode",
	"properties.poll_mode_max_size_kb",
	"properties.allow_system_memory",
	"properties.use_pci_p2pdma",
	"properties.prefer_iouring",
	"properties.max_batch_io_timeout_msecs",
	"properties.max_direct_io_size_kb",
	"properties.max_device_cache_size_kb",
	"properties.per_buffer_cache_size_kb",
	"miscellaneous.api_check_aggressive",
	"miscellaneous.skip_topology_detection",
	"miscellaneous.stream_memops_bypass",
};

/* What these begin with is of no use where Strait chooses the route. */
static const char *const ignored[] = {
	"logging.",
	"properties.rdma_",
	"properties.gds_rdma_",
	"properties.gpu_bounce_buffer_",
	"fs.",
	"block.",
	"sparse.",
	"properties.compat_odirect_",
	"denylist.",
	"miscellaneous.",
	"topology.",
	"properties.ib_",
	"async.",
};

static const char *const env_in_force[] = {
	"CUFILE_ENV_PATH_JSON",	    "CUFILE_LOGFILE_PATH",	"CUFILE_LOGGING_LEVEL",
	"CUFILE_ALLOW_COMPAT_MODE", "CUFILE_FORCE_COMPAT_MODE", "CUFILE_LIBRARY",
};

static const char *const env_reported[] = { "CUFILE_USE_PCIP2PDMA", "CUFILE_SKIP_TOPOLOGY_DETECTION", "CUFILE_NVTX" };

static bool among(const char *const *names, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(names[i], name))
			return true;
	return false;
}

enum setting_effect setting_effect(const char *path)
{
	if (among(in_force, COUNT(in_force), path))
		return SETTING_IN_FORCE;
	if (among(reported, COUNT(reported), path))
		return SETTING_REPORTED;
	for (size_t i = 0; i < COUNT(ignored); i++)
		if (!strncmp(path, ignored[i], strlen(ignored[i])))
			return SETTING_IGNORED;
	return SETTING_UNKNOWN;
}

enum setting_effect setting_env_effect(const char *name)
{
	if (among(env_in_force, COUNT(env_in_force), name))
		return SETTING_IN_FORCE;
	return among(env_reported, COUNT(env_reported), name) ? SETTING_REPORTED : SETTING_IGNORED;
}

char *settings_file_load(const char *path)
{
	FILE *f = fopen(path, "re");
	char *text;
	size_t n;

	if (!f)
		return NULL;
	text = malloc(MAX_FILE + 1);
	n = text ? fread(text, 1, MAX_FILE, f) : 0;
	fclose(f);
	if (text)
		text[n] = 0;
	return text;
}

struct walk {
	struct json j;
	char path[MAX_PATH];
	setting_fn *fn;
	void *arg;
};

static bool value(struct walk *w, int index);

static bool members(struct walk *w)
{
	size_t len = strlen(w->path);
	bool ok = true;

	if (!json_read_enter(&w->j, '{'))
		return false;
	while (ok && json_read_next(&w->j, '}')) {
		char *name = json_read_key(&w->j);

		ok = name && len + strlen(name) + 2 <= sizeof(w->path);
		if (ok) {
			if (len)
				w->path[len] = '.';
			memcpy(w->path + len + (len ? 1 : 0), name, strlen(name) + 1);
			ok = value(w, -1);
			w->path[len] = 0;
		}
		free(name);
	}
	return ok && !w->j.error;
}

static bool elements(struct walk *w)
{
	struct setting_value k = { .path = w->path, .index = -1, .kind = SETTING_EMPTY };
	bool ok = true;
	int i = 0;

	if (!json_read_enter(&w->j, '['))
		return false;
	while (ok && json_read_next(&w->j, ']'))
		ok = value(w, i++);
	if (ok && !w->j.error && !i)
		w->fn(w->arg, &k);
	return ok && !w->j.error;
}

static bool scalar(struct walk *w, int index)
{
	struct setting_value k = { .path = w->path, .index = index };
	bool ok, yes = false;
	char *text = NULL;

	switch (json_read_kind(&w->j)) {
	case JSON_STRING:
		k.kind = SETTING_STRING;
		k.text = text = json_read_string(&w->j);
		ok = text != NULL;
		break;
	case JSON_BOOL:
		k.kind = SETTING_BOOL;
		ok = json_read_bool(&w->j, &yes);
		k.number = yes;
		break;
	case JSON_NUMBER:
		k.kind = SETTING_NUMBER;
		ok = json_read_number(&w->j, &k.number);
		break;
	case JSON_NULL:
		k.kind = SETTING_NULL;
		ok = json_read_skip(&w->j);
		break;
	default:
		ok = false;
	}
	if (ok)
		w->fn(w->arg, &k);
	free(text);
	return ok;
}

static bool value(struct walk *w, int index)
{
	enum json_kind kind = json_read_kind(&w->j);

	return kind == JSON_OBJECT ? members(w) : kind == JSON_ARRAY ? elements(w) : scalar(w, index);
}

int settings_file_parse(const char *text, setting_fn *fn, void *arg)
{
	struct walk w = { .fn = fn, .arg = arg };

	json_read_init(&w.j, text, strlen(text));
	w.j.comments = true;
	return value(&w, -1) && json_read_end(&w.j) ? 0 : (int)json_read_line(&w.j);
}
