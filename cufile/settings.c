/* SPDX-License-Identifier: MIT */
#include <cufile_settings.h>

#include <string.h>

#define STRAIT_CUFILE_NO_CUDA_H
#include <cufile.h>

#include "common/cufile_library.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

#define NUMBER(param) SETTING_NUMBER, CUFILE_PARAM_##param
#define BOOL(param) SETTING_BOOL, CUFILE_PARAM_##param
#define STRING(param) SETTING_STRING, CUFILE_PARAM_##param
#define ARRAY(param) SETTING_ARRAY, CUFILE_PARAM_##param
#define NO_PARAM SETTING_NULL, SETTING_NO_PARAM

/*
 * The first row that matches a path counts, so exact paths stand before patterns; the first row of a parameter has
 * the path it is reported under.
 */
static const struct setting settings[] = {
	{ "logging.level", STRING(LOGGING_LEVEL), "CUFILE_LOGGING_LEVEL", SETTING_IN_FORCE },
	{ "logging.dir", STRING(LOG_DIR), NULL, SETTING_IN_FORCE },
	{ NULL, STRING(ENV_LOGFILE_PATH), "CUFILE_LOGFILE_PATH", SETTING_IN_FORCE },
	{ NULL, NO_PARAM, SETTINGS_FILE_ENV, SETTING_IN_FORCE },
	{ NULL, NO_PARAM, CUFILE_LIBRARY_ENV, SETTING_IN_FORCE },

	{ "profile.cufile_stats", NUMBER(PROFILE_STATS), NULL, SETTING_IN_FORCE },
	{ "profile.nvtx", BOOL(PROFILE_NVTX), "CUFILE_NVTX", SETTING_REPORTED },

	{ "execution.max_io_queue_depth", NUMBER(EXECUTION_MAX_IO_QUEUE_DEPTH), NULL, SETTING_IN_FORCE },
	{ "execution.parallel_io", BOOL(EXECUTION_PARALLEL_IO), NULL, SETTING_REPORTED },
	{ "execution.max_io_threads", NUMBER(EXECUTION_MAX_IO_THREADS), NULL, SETTING_REPORTED },
	{ "execution.min_io_threshold_size_kb", NUMBER(EXECUTION_MIN_IO_THRESHOLD_SIZE_KB), NULL, SETTING_REPORTED },
	{ "execution.max_request_parallelism", NUMBER(EXECUTION_MAX_REQUEST_PARALLELISM), NULL, SETTING_REPORTED },

	{ "properties.allow_compat_mode", BOOL(PROPERTIES_ALLOW_COMPAT_MODE), "CUFILE_ALLOW_COMPAT_MODE",
	  SETTING_IN_FORCE },
	{ "properties.force_compat_mode", BOOL(FORCE_COMPAT_MODE), "CUFILE_FORCE_COMPAT_MODE", SETTING_IN_FORCE },
	{ "properties.vanilla_posix_mode", BOOL(PROPERTIES_POSIX_IO_MODE), NULL, SETTING_IN_FORCE },
	{ "properties.force_odirect_mode", BOOL(FORCE_ODIRECT_MODE), NULL, SETTING_IN_FORCE },
	{ "properties.io_batchsize", NUMBER(PROPERTIES_IO_BATCHSIZE), NULL, SETTING_IN_FORCE },
	{ "properties.max_batch_io_size", NUMBER(PROPERTIES_IO_BATCHSIZE), NULL, SETTING_IN_FORCE },
	{ "profile.io_batchsize", NUMBER(PROPERTIES_IO_BATCHSIZE), NULL, SETTING_IN_FORCE },
	{ "properties.max_device_pinned_mem_size_kb", NUMBER(PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB), NULL,
	  SETTING_IN_FORCE },
	{ "properties.posix_pool_slab_size_kb", ARRAY(POSIX_POOL_SLAB_SIZE_KB), NULL, SETTING_IN_FORCE },
	{ "properties.posix_pool_slab_count", ARRAY(POSIX_POOL_SLAB_COUNT), NULL, SETTING_IN_FORCE },
	{ "properties.use_poll_mode", BOOL(PROPERTIES_USE_POLL_MODE), NULL, SETTING_REPORTED },
	{ "properties.poll_mode_max_size_kb", NUMBER(POLLTHRESHOLD_SIZE_KB), NULL, SETTING_REPORTED },
	{ "properties.allow_system_memory", BOOL(PROPERTIES_ALLOW_SYSTEM_MEMORY), NULL, SETTING_REPORTED },
	{ "properties.use_pci_p2pdma", BOOL(USE_PCIP2PDMA), "CUFILE_USE_PCIP2PDMA", SETTING_REPORTED },
	{ "properties.prefer_iouring", BOOL(PREFER_IO_URING), NULL, SETTING_REPORTED },
	{ "properties.max_batch_io_timeout_msecs", NUMBER(PROPERTIES_BATCH_IO_TIMEOUT_MS), NULL, SETTING_REPORTED },
	{ "properties.max_direct_io_size_kb", NUMBER(PROPERTIES_MAX_DIRECT_IO_SIZE_KB), NULL, SETTING_REPORTED },
	{ "properties.max_device_cache_size_kb", NUMBER(PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB), NULL, SETTING_REPORTED },
	{ "properties.per_buffer_cache_size_kb", NUMBER(PROPERTIES_PER_BUFFER_CACHE_SIZE_KB), NULL, SETTING_REPORTED },

	{ "miscellaneous.api_check_aggressive", BOOL(FS_MISC_API_CHECK_AGGRESSIVE), NULL, SETTING_REPORTED },
	{ "miscellaneous.skip_topology_detection", BOOL(SKIP_TOPOLOGY_DETECTION), "CUFILE_SKIP_TOPOLOGY_DETECTION",
	  SETTING_REPORTED },
	{ "miscellaneous.stream_memops_bypass", BOOL(STREAM_MEMOPS_BYPASS), NULL, SETTING_REPORTED },

	{ "logging.*", NO_PARAM, NULL, SETTING_IGNORED },
	{ "properties.rdma_*", NO_PARAM, NULL, SETTING_IGNORED },
	{ "properties.gds_rdma_*", NO_PARAM, NULL, SETTING_IGNORED },
	{ "properties.gpu_bounce_buffer_*", NO_PARAM, NULL, SETTING_IGNORED },
	{ "properties.compat_odirect_*", NO_PARAM, NULL, SETTING_IGNORED },
	{ "properties.ib_*", NO_PARAM, NULL, SETTING_IGNORED },
	{ "fs.*", NO_PARAM, NULL, SETTING_IGNORED },
	{ "block.*", NO_PARAM, NULL, SETTING_IGNORED },
	{ "sparse.*", NO_PARAM, NULL, SETTING_IGNORED },
	{ "denylist.*", NO_PARAM, NULL, SETTING_IGNORED },
	{ "miscellaneous.*", NO_PARAM, NULL, SETTING_IGNORED },
	{ "topology.*", NO_PARAM, NULL, SETTING_IGNORED },
	{ "async.*", NO_PARAM, NULL, SETTING_IGNORED },
};

const struct setting *setting_at(size_t i)
{
	return i < COUNT(settings) ? &settings[i] : NULL;
}

static bool path_matches(const char *pattern, const char *path)
{
	size_t n = strlen(pattern);

	return n && pattern[n - 1] == '*' ? !strncmp(pattern, path, n - 1) : !strcmp(pattern, path);
}

const struct setting *setting_by_path(const char *path)
{
	for (size_t i = 0; i < COUNT(settings); i++)
		if (settings[i].path && path_matches(settings[i].path, path))
			return &settings[i];
	return NULL;
}

const struct setting *setting_by_param(enum setting_kind kind, int param)
{
	for (size_t i = 0; i < COUNT(settings); i++)
		if (settings[i].kind == kind && settings[i].param == param)
			return &settings[i];
	return NULL;
}

enum setting_effect setting_effect(const char *path)
{
	const struct setting *s = setting_by_path(path);

	return s ? s->effect : SETTING_UNKNOWN;
}

enum setting_effect setting_env_effect(const char *name)
{
	for (size_t i = 0; i < COUNT(settings); i++)
		if (settings[i].env && !strcmp(settings[i].env, name))
			return settings[i].effect;
	return SETTING_IGNORED;
}
