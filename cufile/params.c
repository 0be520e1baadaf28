/* SPDX-License-Identifier: MIT */
/* Parameters. A value set by the program has precedence over the environment, then cufile.json, then the default. */
#include "params.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include <cufile_settings.h>

#define SIZES (CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS + 1)
#define BOOLS (CUFILE_PARAM_GDS_FALLBACK_IO + 1)
#define STRINGS (CUFILE_PARAM_RDMA_TRANSPORT + 1)
#define SLABS 16

static const struct {
	size_t value, min, max;
} size_defaults[SIZES] = {
	[CUFILE_PARAM_PROFILE_STATS] = { 0, 0, 3 },
	[CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH] = { 128, 1, 256 },
	[CUFILE_PARAM_EXECUTION_MAX_IO_THREADS] = { 4, 0, 32 },
	[CUFILE_PARAM_EXECUTION_MIN_IO_THRESHOLD_SIZE_KB] = { 8192, 4, UINT32_MAX },
	[CUFILE_PARAM_EXECUTION_MAX_REQUEST_PARALLELISM] = { 4, 0, 8 },
	[CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB] = { 16384, 64, 16384 },
	[CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB] = { 131072, 0, 268435456 },
	[CUFILE_PARAM_PROPERTIES_PER_BUFFER_CACHE_SIZE_KB] = { 1024, 64, 16384 },
	[CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB] = { 33554432, 64, 268435456 },
	[CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE] = { 128, 1, 256 },
	[CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB] = { 4, 4, UINT32_MAX },
	[CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS] = { 5, 1, 1000 },
};

/* Unused entries are 0. */
struct slabs {
	size_t size[SLABS], count[SLABS];
};

static const struct slabs posix_default = { .size = { 4, 1024, 16384 }, .count = { 128, 64, 64 } };

static struct {
	bool loaded;
	size_t size[SIZES];
	bool size_by_program[SIZES];
	bool flag[BOOLS], flag_by_program[BOOLS];
	char text[STRINGS][PATH_MAX];
	bool text_by_program[STRINGS];
	struct slabs posix, bounce;
	bool posix_by_program;
} params;

static pthread_mutex_t params_lock = PTHREAD_MUTEX_INITIALIZER;

void cf_params_forked(void)
{
	pthread_mutex_init(&params_lock, NULL);
}

static void set_defaults_locked(void)
{
	for (int i = 0; i < SIZES; i++)
		if (!params.size_by_program[i])
			params.size[i] = size_defaults[i].value;
	for (int i = 0; i < BOOLS; i++)
		if (!params.flag_by_program[i])
			params.flag[i] = i == CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE ||
					 i == CUFILE_PARAM_EXECUTION_PARALLEL_IO ||
					 i == CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY;
	for (int i = 0; i < STRINGS; i++)
		if (!params.text_by_program[i])
			strcpy(params.text[i], i == CUFILE_PARAM_LOGGING_LEVEL ? "ERROR" : "");
	if (!params.posix_by_program)
		params.posix = posix_default;
}

void cf_params_apply_log(void)
{
	pthread_mutex_lock(&params_lock);
	cf_log_setup(params.text[CUFILE_PARAM_LOGGING_LEVEL], params.text[CUFILE_PARAM_LOG_DIR],
		     params.text[CUFILE_PARAM_ENV_LOGFILE_PATH]);
	pthread_mutex_unlock(&params_lock);
}

/* Repeated at each open: file and environment may have changed. */
void cf_params_load(void)
{
	pthread_mutex_lock(&params_lock);
	set_defaults_locked();
	params.loaded = true;
	pthread_mutex_unlock(&params_lock);
	cf_config_read();
}

void cf_params_load_once(void)
{
	bool loaded;

	pthread_mutex_lock(&params_lock);
	loaded = params.loaded;
	pthread_mutex_unlock(&params_lock);
	if (!loaded)
		cf_params_load();
}

void cf_params_check(void)
{
	pthread_mutex_lock(&params_lock);
	for (int i = 0; i < SIZES; i++)
		if (params.size[i] < size_defaults[i].min || params.size[i] > size_defaults[i].max) {
			cf_log(CF_WARN, "%s: %zu is out of range, using %zu", setting_by_param(SETTING_NUMBER, i)->path,
			       params.size[i], size_defaults[i].value);
			params.size[i] = size_defaults[i].value;
		}
	pthread_mutex_unlock(&params_lock);
}

size_t cf_param_size(CUFileSizeTConfigParameter_t p)
{
	size_t v;

	pthread_mutex_lock(&params_lock);
	v = params.size[p];
	pthread_mutex_unlock(&params_lock);
	return v;
}

bool cf_param_bool(CUFileBoolConfigParameter_t p)
{
	bool v;

	pthread_mutex_lock(&params_lock);
	v = params.flag[p];
	pthread_mutex_unlock(&params_lock);
	return v;
}

/* The cufile.json that CUDA installs spells out all of NVIDIA's defaults. Those are not a choice of the user. */
bool cf_param_size_chosen(CUFileSizeTConfigParameter_t p)
{
	bool v;

	pthread_mutex_lock(&params_lock);
	v = params.size[p] != size_defaults[p].value;
	pthread_mutex_unlock(&params_lock);
	return v;
}

static void param_set_size(CUFileSizeTConfigParameter_t p, size_t value, bool by_program)
{
	pthread_mutex_lock(&params_lock);
	if (by_program || !params.size_by_program[p]) {
		params.size[p] = value;
		params.size_by_program[p] = by_program;
	}
	pthread_mutex_unlock(&params_lock);
}

static void param_set_bool(CUFileBoolConfigParameter_t p, bool value, bool by_program)
{
	pthread_mutex_lock(&params_lock);
	if (by_program || !params.flag_by_program[p]) {
		params.flag[p] = value;
		params.flag_by_program[p] = by_program;
	}
	pthread_mutex_unlock(&params_lock);
}

static void param_set_string(CUFileStringConfigParameter_t p, const char *value, bool by_program)
{
	pthread_mutex_lock(&params_lock);
	if (by_program || !params.text_by_program[p]) {
		snprintf(params.text[p], sizeof(params.text[p]), "%s", value);
		params.text_by_program[p] = by_program;
	}
	pthread_mutex_unlock(&params_lock);
}

void cf_param_override_size(CUFileSizeTConfigParameter_t p, size_t value, bool open)
{
	cf_params_load_once();
	pthread_mutex_lock(&params_lock);
	params.size[p] = value;
	params.size_by_program[p] |= !open;
	pthread_mutex_unlock(&params_lock);
}

void cf_param_override_bool(CUFileBoolConfigParameter_t p, bool value, bool open)
{
	cf_params_load_once();
	pthread_mutex_lock(&params_lock);
	params.flag[p] = value;
	params.flag_by_program[p] |= !open;
	pthread_mutex_unlock(&params_lock);
}

void cf_param_configure_size(CUFileSizeTConfigParameter_t p, size_t value)
{
	param_set_size(p, value, false);
}

void cf_param_configure_bool(CUFileBoolConfigParameter_t p, bool value)
{
	param_set_bool(p, value, false);
}

void cf_param_configure_string(CUFileStringConfigParameter_t p, const char *value)
{
	param_set_string(p, value, false);
}

/* Elements arrive in order. Each one clears the default from its index on. */
void cf_param_configure_slab(bool count, unsigned int index, size_t value)
{
	size_t *list = count ? params.posix.count : params.posix.size;

	pthread_mutex_lock(&params_lock);
	if (!params.posix_by_program && index < SLABS) {
		memset(list + index, 0, (SLABS - index) * sizeof(*list));
		list[index] = value;
	}
	pthread_mutex_unlock(&params_lock);
}

uint64_t cf_param_pool_bytes(void)
{
	uint64_t sum = 0, part;

	pthread_mutex_lock(&params_lock);
	for (int i = 0; memcmp(&params.posix, &posix_default, sizeof(posix_default)) && i < SLABS; i++)
		if (!__builtin_mul_overflow(params.posix.size[i], params.posix.count[i], &part) &&
		    part < (uint64_t)1 << 40)
			sum += part * 1024;
	pthread_mutex_unlock(&params_lock);
	return sum;
}

bool cf_param_bounce_slabs(size_t *largest, size_t *sum)
{
	*largest = *sum = 0;
	pthread_mutex_lock(&params_lock);
	for (int i = 0; i < SLABS && params.bounce.size[i]; i++) {
		if (params.bounce.size[i] > *largest)
			*largest = params.bounce.size[i];
		*sum += params.bounce.size[i] * params.bounce.count[i];
	}
	pthread_mutex_unlock(&params_lock);
	return *largest;
}

CF_API CUfileError_t cuFileGetParameterSizeT(CUFileSizeTConfigParameter_t p, size_t *value)
{
	if ((unsigned int)p >= SIZES || !value)
		return cf_error(CU_FILE_INVALID_VALUE);
	cf_params_load_once();
	*value = cf_param_size(p);
	return CF_OK;
}

CF_API CUfileError_t cuFileGetParameterBool(CUFileBoolConfigParameter_t p, bool *value)
{
	if ((unsigned int)p >= BOOLS || !value)
		return cf_error(CU_FILE_INVALID_VALUE);
	cf_params_load_once();
	*value = cf_param_bool(p);
	return CF_OK;
}

CF_API CUfileError_t cuFileGetParameterString(CUFileStringConfigParameter_t p, char *text, int len)
{
	bool readable;
	int n;

	if ((unsigned int)p >= STRINGS || !text || len <= 0)
		return cf_error(CU_FILE_INVALID_VALUE);
	cf_params_load_once();
	pthread_mutex_lock(&params_lock);
	/* As in NVIDIA's library: reading a log path that was never set is an error. An empty variable counts as set. */
	readable = p != CUFILE_PARAM_ENV_LOGFILE_PATH || params.text[p][0] || getenv("CUFILE_LOGFILE_PATH");
	n = snprintf(text, (size_t)len, "%s", params.text[p]);
	pthread_mutex_unlock(&params_lock);
	return readable && n < len ? CF_OK : cf_error(CU_FILE_INVALID_VALUE);
}

static int check_settable(bool sane)
{
	if (!sane)
		return CU_FILE_INVALID_VALUE;
	if (cf_is_open())
		return CU_FILE_DRIVER_ALREADY_OPEN;
	cf_params_load_once();
	return CU_FILE_SUCCESS;
}

CF_API CUfileError_t cuFileSetParameterSizeT(CUFileSizeTConfigParameter_t p, size_t value)
{
	int code = check_settable((unsigned int)p < SIZES);

	if (!code)
		param_set_size(p, value, true);
	return cf_error(code);
}

CF_API CUfileError_t cuFileSetParameterBool(CUFileBoolConfigParameter_t p, bool value)
{
	int code = check_settable((unsigned int)p < BOOLS);

	if (!code)
		param_set_bool(p, value, true);
	return cf_error(code);
}

CF_API CUfileError_t cuFileSetParameterString(CUFileStringConfigParameter_t p, const char *text)
{
	/* As in NVIDIA's library: any level is accepted. An unknown one logs as the default does. */
	int code = check_settable((unsigned int)p < STRINGS && text && text[0] && strlen(text) < PATH_MAX);

	if (!code)
		param_set_string(p, text, true);
	return cf_error(code);
}

CF_API CUfileError_t cuFileGetParameterMinMaxValue(CUFileSizeTConfigParameter_t p, size_t *min, size_t *max)
{
	if ((unsigned int)p >= SIZES || !min || !max)
		return cf_error(CU_FILE_INVALID_VALUE);
	*min = size_defaults[p].min;
	*max = size_defaults[p].max;
	return CF_OK;
}

static CUfileError_t slabs_set(struct slabs *s, const size_t *size, const size_t *count, int n, bool *by_program)
{
	int code = check_settable(size && count && n > 0 && n <= SLABS);

	if (code)
		return cf_error(code);
	for (int i = 0; i < n; i++)
		if (!size[i] || !count[i])
			return cf_error(CU_FILE_INVALID_VALUE);
	pthread_mutex_lock(&params_lock);
	memset(s, 0, sizeof(*s));
	memcpy(s->size, size, (size_t)n * sizeof(*size));
	memcpy(s->count, count, (size_t)n * sizeof(*count));
	if (by_program)
		*by_program = true;
	pthread_mutex_unlock(&params_lock);
	return CF_OK;
}

static CUfileError_t slabs_get(const struct slabs *s, size_t *size, size_t *count, int n)
{
	if (!size || !count || n <= 0)
		return cf_error(CU_FILE_INVALID_VALUE);
	cf_params_load_once();
	pthread_mutex_lock(&params_lock);
	for (int i = 0; i < n; i++) {
		size[i] = i < SLABS ? s->size[i] : 0;
		count[i] = i < SLABS ? s->count[i] : 0;
	}
	pthread_mutex_unlock(&params_lock);
	return CF_OK;
}

CF_API CUfileError_t cuFileSetParameterPosixPoolSlabArray(const size_t *size, const size_t *count, int n)
{
	return slabs_set(&params.posix, size, count, n, &params.posix_by_program);
}

CF_API CUfileError_t cuFileGetParameterPosixPoolSlabArray(size_t *size, size_t *count, int n)
{
	return slabs_get(&params.posix, size, count, n);
}

CF_API CUfileError_t cuFileSetParameterGpuBounceBufferSlabArray(const size_t *size, const size_t *count, int n)
{
	return slabs_set(&params.bounce, size, count, n, NULL);
}

CF_API CUfileError_t cuFileGetParameterGpuBounceBufferSlabArray(size_t *size, size_t *count, int n)
{
	return slabs_get(&params.bounce, size, count, n);
}
