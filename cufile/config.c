/* SPDX-License-Identifier: MIT */
/* cufile.json and the environment. */
#include "core.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include <cufile_settings.h>

static const struct {
	const char *path;
	CUFileSizeTConfigParameter_t param;
} size_keys[] = {
	{ "profile.cufile_stats", CUFILE_PARAM_PROFILE_STATS },
	{ "profile.io_batchsize", CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE },
	{ "properties.io_batchsize", CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE },
	{ "properties.max_batch_io_size", CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE },
	{ "properties.max_batch_io_timeout_msecs", CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS },
	{ "properties.max_direct_io_size_kb", CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB },
	{ "properties.max_device_cache_size_kb", CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB },
	{ "properties.per_buffer_cache_size_kb", CUFILE_PARAM_PROPERTIES_PER_BUFFER_CACHE_SIZE_KB },
	{ "properties.max_device_pinned_mem_size_kb", CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB },
	{ "properties.poll_mode_max_size_kb", CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB },
	{ "execution.max_io_queue_depth", CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH },
	{ "execution.max_io_threads", CUFILE_PARAM_EXECUTION_MAX_IO_THREADS },
	{ "execution.min_io_threshold_size_kb", CUFILE_PARAM_EXECUTION_MIN_IO_THRESHOLD_SIZE_KB },
	{ "execution.max_request_parallelism", CUFILE_PARAM_EXECUTION_MAX_REQUEST_PARALLELISM },
};

static const struct {
	const char *path;
	CUFileBoolConfigParameter_t param;
} bool_keys[] = {
	{ "profile.nvtx", CUFILE_PARAM_PROFILE_NVTX },
	{ "execution.parallel_io", CUFILE_PARAM_EXECUTION_PARALLEL_IO },
	{ "properties.use_poll_mode", CUFILE_PARAM_PROPERTIES_USE_POLL_MODE },
	{ "properties.allow_compat_mode", CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE },
	{ "properties.force_compat_mode", CUFILE_PARAM_FORCE_COMPAT_MODE },
	{ "properties.allow_system_memory", CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY },
	{ "properties.use_pci_p2pdma", CUFILE_PARAM_USE_PCIP2PDMA },
	{ "properties.prefer_iouring", CUFILE_PARAM_PREFER_IO_URING },
	{ "properties.force_odirect_mode", CUFILE_PARAM_FORCE_ODIRECT_MODE },
	{ "properties.vanilla_posix_mode", CUFILE_PARAM_PROPERTIES_POSIX_IO_MODE },
	{ "miscellaneous.api_check_aggressive", CUFILE_PARAM_FS_MISC_API_CHECK_AGGRESSIVE },
	{ "miscellaneous.skip_topology_detection", CUFILE_PARAM_SKIP_TOPOLOGY_DETECTION },
	{ "miscellaneous.stream_memops_bypass", CUFILE_PARAM_STREAM_MEMOPS_BYPASS },
};

static const struct {
	const char *name;
	CUFileBoolConfigParameter_t param;
} bool_env[] = {
	{ "CUFILE_ALLOW_COMPAT_MODE", CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE },
	{ "CUFILE_FORCE_COMPAT_MODE", CUFILE_PARAM_FORCE_COMPAT_MODE },
	{ "CUFILE_USE_PCIP2PDMA", CUFILE_PARAM_USE_PCIP2PDMA },
	{ "CUFILE_SKIP_TOPOLOGY_DETECTION", CUFILE_PARAM_SKIP_TOPOLOGY_DETECTION },
	{ "CUFILE_NVTX", CUFILE_PARAM_PROFILE_NVTX },
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* The log is set up after the file was read: what is to be said waits until then. */
struct reading {
	char ignored[2048];
};

/* Keeps a value that is a parameter. */
static bool take(const struct setting_value *v)
{
	for (size_t i = 0; i < COUNT(size_keys); i++)
		if (v->kind == SETTING_NUMBER && !strcmp(v->path, size_keys[i].path)) {
			cf_param_configure_size(size_keys[i].param, v->number < 0 ? SIZE_MAX : (size_t)v->number);
			return true;
		}
	for (size_t i = 0; i < COUNT(bool_keys); i++)
		if (v->kind == SETTING_BOOL && !strcmp(v->path, bool_keys[i].path)) {
			cf_param_configure_bool(bool_keys[i].param, v->number != 0);
			return true;
		}
	if (v->kind == SETTING_STRING && !strcmp(v->path, "logging.level"))
		cf_param_configure_string(CUFILE_PARAM_LOGGING_LEVEL, v->text);
	else if (v->kind == SETTING_STRING && !strcmp(v->path, "logging.dir"))
		cf_param_configure_string(CUFILE_PARAM_LOG_DIR, v->text);
	else if (v->kind == SETTING_NUMBER && v->index >= 0 && !strcmp(v->path, "properties.posix_pool_slab_size_kb"))
		cf_param_configure_slab(false, (unsigned int)v->index, (size_t)v->number);
	else if (v->kind == SETTING_NUMBER && v->index >= 0 && !strcmp(v->path, "properties.posix_pool_slab_count"))
		cf_param_configure_slab(true, (unsigned int)v->index, (size_t)v->number);
	else
		return false;
	return true;
}

static void add_name(struct reading *r, const char *name, size_t n)
{
	size_t len = strlen(r->ignored);

	if (len + n + 2 < sizeof(r->ignored))
		sprintf(r->ignored + len, " %.*s", (int)n, name);
}

static void setting(void *arg, const struct setting_value *v)
{
	bool taken = take(v);

	if ((!taken || setting_effect(v->path) != SETTING_IN_FORCE) && v->index <= 0 && v->kind != SETTING_EMPTY)
		add_name(arg, v->path, strlen(v->path));
}

static bool truth(const char *text)
{
	return !strcasecmp(text, "true") || !strcasecmp(text, "on") || !strcasecmp(text, "yes") || !strcmp(text, "1");
}

static void read_environment(void)
{
	const char *v;

	for (size_t i = 0; i < COUNT(bool_env); i++) {
		v = getenv(bool_env[i].name);
		if (v && v[0])
			cf_param_configure_bool(bool_env[i].param, truth(v));
	}
	v = getenv("CUFILE_LOGGING_LEVEL");
	if (v && v[0])
		cf_param_configure_string(CUFILE_PARAM_LOGGING_LEVEL, v);
	v = getenv("CUFILE_LOGFILE_PATH");
	if (v && v[0])
		cf_param_configure_string(CUFILE_PARAM_ENV_LOGFILE_PATH, v);
}

extern char **environ;

/* Variables that are cuFile's and mean nothing here. */
static void read_names(struct reading *r)
{
	for (char **e = environ; e && *e; e++) {
		const char *end = strchr(*e, '=');
		char name[64];

		if (strncmp(*e, "CUFILE_", 7) || !end || (size_t)(end - *e) >= sizeof(name))
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)(end - *e), *e);
		if (setting_env_effect(name) != SETTING_IN_FORCE)
			add_name(r, name, strlen(name));
	}
}

/* A program that opens the driver again and again is told once, as long as it is the same. */
static void tell_ignored(const struct reading *r, const char *path)
{
	static struct reading told;

	if (!r->ignored[0] || !strcmp(r->ignored, told.ignored))
		return;
	cf_log(CF_WARN, "%s and the environment: without effect here:%s", path, r->ignored);
	/* Only what was written counts. */
	if (cf_log_enabled(CF_WARN))
		told = *r;
}

/* A file that is missing or broken is no reason to fail: some programs name one that does not exist. */
void cf_config_read(void)
{
	const char *named = getenv(SETTINGS_FILE_ENV), *path = named && named[0] ? named : SETTINGS_FILE;
	struct reading r = { .ignored = "" };
	char *text = settings_file_load(path);
	int err = errno, line = text ? settings_file_parse(text, setting, &r) : 0;

	read_environment();
	read_names(&r);
	cf_params_apply_log();
	if (!text && path == named)
		cf_log(CF_WARN, "%s: %s; the defaults are taken", path, strerror(err));
	if (line)
		cf_log(CF_WARN, "%s:%d: is not JSON; what stands before is taken", path, line);
	tell_ignored(&r, path);
	free(text);
}
