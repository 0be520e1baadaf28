/* SPDX-License-Identifier: MIT */
/* Opening and closing the driver, and its properties. */
#include <strait/interpose.h>

#include "file.h"
#include "mem.h"
#include "params.h"
#include "stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#undef cuFileDriverClose

#define DEFAULT_VERSION 1150

struct cf_state cf = { .lock = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP, .changed = PTHREAD_COND_INITIALIZER };

static unsigned int p2p_flags[CU_FILE_MAX_TARGET_TYPES];

uint64_t cf_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int cf_code_of_errno(int rc)
{
	switch (-rc) {
	case 0:
		return CU_FILE_SUCCESS;
	case ENOMEM:
		return CU_FILE_NOMEM_ERROR;
	case EINVAL:
	case EOVERFLOW:
	case EBADF:
		return CU_FILE_INVALID_VALUE;
	case EFAULT:
		return CU_FILE_CUDA_POINTER_RANGE_ERROR;
	case EACCES:
	case EPERM:
		return CU_FILE_PERMISSION_DENIED;
	case EISDIR:
	case ENOTSUP:
		return CU_FILE_INVALID_FILE_TYPE;
	case EMFILE:
	case ENFILE:
		return CU_FILE_GETNEWFD_FAILED;
	case ENODEV:
		return CU_FILE_DEVICE_NOT_FOUND;
	case EIO:
		return CU_FILE_IO_ERROR;
	default:
		return CU_FILE_INTERNAL_ERROR;
	}
}

ssize_t cf_fail(int err)
{
	errno = err;
	return -1;
}

static void fork_prepare(void)
{
	pthread_mutex_lock(&cf.lock);
}

static void fork_parent(void)
{
	pthread_mutex_unlock(&cf.lock);
}

static void fork_child(void)
{
	cf.opens = 0;
	cf.users = 0;
	cf.transition = CF_STEADY;
	cf.ctx = NULL;
	cf_files_forked();
	cf_mem_forked();
	cf_streams_forked();
	cf_batches_forked();
	cf_params_forked();
	cf_stats_forked();
	cf_run_stats_forked();
	cf_log_forked();
	pthread_cond_init(&cf.changed, NULL);
	/* The thread that called fork() took it. Initializing it again would look to ThreadSanitizer as if it were held. */
	pthread_mutex_unlock(&cf.lock);
}

/* When the library is loaded: parameters, statistics and the log have locks that are taken before the driver is opened. */
__attribute__((constructor)) static void fork_setup(void)
{
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}

/*
 * How much page cache may stay registered with the device under leases: what the application allows to be pinned, but
 * at most an eighth of the machine's memory.
 */
static uint64_t pinned_budget(void)
{
	uint64_t limit = (uint64_t)cf_param_size(CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB) * 1024;
	uint64_t eighth = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 8;

	return limit < eighth ? limit : eighth;
}

static bool leases_wanted(void)
{
	const char *text = getenv("STRAIT_CUFILE_LEASE");

	return !text || strcmp(text, "0");
}

/* Called by the one thread that set CF_OPENING. */
static int open_context(struct strait_context **ret)
{
	struct strait_context_opts o = { .size = sizeof(o), .log = cf_log_strait };
	int rc;

	cf_params_load();
	cf_params_check();
	o.log_level = cf_log_enabled(CF_DEBUG) ? STRAIT_LOG_DEBUG :
		      cf_log_enabled(CF_INFO)  ? STRAIT_LOG_INFO :
						 STRAIT_LOG_WARN;
	o.pool_bytes = cf_param_pool_bytes();
	o.pinned_budget = pinned_budget();
	if (cf_param_size_chosen(CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH))
		o.queue_depth = (uint32_t)cf_param_size(CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH);
	rc = strait_context_open(&o, ret);
	if (rc) {
		cf_log(CF_ERROR, "cuFileDriverOpen: cannot open a Strait context: %s", strerror(-rc));
		return cf_code_of_errno(rc);
	}
	cf_run_stats_open();
	cf_stats_configure(cf_param_size(CUFILE_PARAM_PROFILE_STATS));
	strait_context_share(*ret);
	return CU_FILE_SUCCESS;
}

static uint32_t routes_wanted(void)
{
	if (cf_param_bool(CUFILE_PARAM_FORCE_COMPAT_MODE) || cf_param_bool(CUFILE_PARAM_PROPERTIES_POSIX_IO_MODE))
		return STRAIT_ROUTE_MASK(STRAIT_ROUTE_PAGECACHE) | STRAIT_ROUTE_MASK(STRAIT_ROUTE_STAGED) |
		       STRAIT_ROUTE_MASK(STRAIT_ROUTE_HOST);
	return STRAIT_ROUTE_ANY;
}

/* Waits while another thread opens or closes the driver. */
static void wait_steady_locked(void)
{
	while (cf.transition != CF_STEADY)
		pthread_cond_wait(&cf.changed, &cf.lock);
}

static void set_steady_locked(void)
{
	cf.transition = CF_STEADY;
	pthread_cond_broadcast(&cf.changed);
}

static int driver_open(bool again)
{
	struct strait_context *ctx = NULL;
	bool leases;
	uint32_t routes;
	int code;

	pthread_mutex_lock(&cf.lock);
	wait_steady_locked();
	if (cf.opens) {
		cf.opens += again;
		pthread_mutex_unlock(&cf.lock);
		return CU_FILE_SUCCESS;
	}
	cf.transition = CF_OPENING;
	pthread_mutex_unlock(&cf.lock);
	code = open_context(&ctx);
	routes = routes_wanted();
	leases = leases_wanted();
	pthread_mutex_lock(&cf.lock);
	if (!code) {
		cf.ctx = ctx;
		cf.routes = routes;
		cf.leases = leases;
		cf.opens = 1;
	}
	set_steady_locked();
	pthread_mutex_unlock(&cf.lock);
	return code;
}

int cf_enter_open(struct strait_context **ctx)
{
	int code = CU_FILE_DRIVER_NOT_INITIALIZED;

	pthread_mutex_lock(&cf.lock);
	if (cf.opens) {
		cf.users++;
		*ctx = cf.ctx;
		code = CU_FILE_SUCCESS;
	}
	pthread_mutex_unlock(&cf.lock);
	return code;
}

int cf_enter(struct strait_context **ctx)
{
	int code;

	/* driver_open() waits for a close in progress; another close may follow before the driver is entered. */
	while (cf_enter_open(ctx)) {
		code = driver_open(false);
		if (code)
			return code;
	}
	return CU_FILE_SUCCESS;
}

void cf_leave(void)
{
	pthread_mutex_lock(&cf.lock);
	if (!--cf.users && cf.transition == CF_CLOSING)
		pthread_cond_broadcast(&cf.changed);
	pthread_mutex_unlock(&cf.lock);
}

int cf_open_implicit(void)
{
	return cf_is_open() ? CU_FILE_SUCCESS : driver_open(false);
}

bool cf_is_open(void)
{
	bool open;

	pthread_mutex_lock(&cf.lock);
	open = cf.opens > 0;
	pthread_mutex_unlock(&cf.lock);
	return open;
}

struct strait_context *cf_context(void)
{
	struct strait_context *ctx;

	pthread_mutex_lock(&cf.lock);
	ctx = cf.ctx;
	pthread_mutex_unlock(&cf.lock);
	return ctx;
}

CF_API CUfileError_t cuFileDriverOpen(void)
{
	return cf_error(driver_open(true));
}

/* The last close drops all registrations. I/O in flight has its own references. */
static int driver_close(void)
{
	struct strait_context *ctx = NULL;
	int code = CU_FILE_SUCCESS;

	pthread_mutex_lock(&cf.lock);
	wait_steady_locked();
	if (!cf.opens) {
		code = CU_FILE_DRIVER_NOT_INITIALIZED;
	} else if (!--cf.opens) {
		cf.transition = CF_CLOSING;
		while (cf.users)
			pthread_cond_wait(&cf.changed, &cf.lock);
		ctx = cf.ctx;
		cf.ctx = NULL;
	}
	pthread_mutex_unlock(&cf.lock);
	if (!ctx)
		return code;
	strait_context_unshare(ctx);
	cf_streams_close_all();
	cf_mem_drop_all();
	cf_files_drop_all();
	strait_context_close(ctx);
	pthread_mutex_lock(&cf.lock);
	set_steady_locked();
	pthread_mutex_unlock(&cf.lock);
	return code;
}

CF_API CUfileError_t cuFileDriverClose_v2(void)
{
	return cf_error(driver_close());
}

CUfileError_t cuFileDriverClose(void);
CF_API CUfileError_t cuFileDriverClose(void)
{
	return cf_error(driver_close());
}

CF_API long cuFileUseCount(void)
{
	long n;

	pthread_mutex_lock(&cf.lock);
	n = cf.opens;
	pthread_mutex_unlock(&cf.lock);
	return n;
}

int cf_version(void)
{
	const char *text = getenv("STRAIT_CUFILE_VERSION");
	int major, minor;

	if (text && sscanf(text, "%d.%d", &major, &minor) == 2 && major > 0 && major < 1000 && minor >= 0 &&
	    minor < 100)
		return 1000 * major + 10 * minor;
	return DEFAULT_VERSION;
}

CF_API CUfileError_t cuFileGetVersion(int *version)
{
	if (!version)
		return cf_error(CU_FILE_INVALID_VALUE);
	*version = cf_version();
	return CF_OK;
}

/* Does not open the driver, so parameters can still be set. */
CF_API CUfileError_t cuFileDriverGetProperties(CUfileDrvProps_t *p)
{
	size_t largest, sum;

	if (!p)
		return cf_error(CU_FILE_INVALID_VALUE);
	cf_params_load_once();
	memset(p, 0, sizeof(*p));
	p->nvfs.poll_thresh_size = cf_param_size(CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB);
	p->nvfs.max_direct_io_size = cf_param_size(CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB);
	p->nvfs.dcontrolflags =
		(unsigned int)cf_param_bool(CUFILE_PARAM_PROPERTIES_USE_POLL_MODE) << CU_FILE_USE_POLL_MODE |
		(unsigned int)cf_param_bool(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE) << CU_FILE_ALLOW_COMPAT_MODE;
	p->fflags = 1u << CU_FILE_DYN_ROUTING_SUPPORTED | 1u << CU_FILE_BATCH_IO_SUPPORTED |
		    1u << CU_FILE_STREAMS_SUPPORTED | 1u << CU_FILE_PARALLEL_IO_SUPPORTED;
	p->max_device_cache_size = (unsigned int)cf_param_size(CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB);
	p->per_buffer_cache_size = (unsigned int)cf_param_size(CUFILE_PARAM_PROPERTIES_PER_BUFFER_CACHE_SIZE_KB);
	p->max_device_pinned_mem_size =
		(unsigned int)cf_param_size(CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB);
	if (cf_param_bounce_slabs(&largest, &sum)) {
		p->nvfs.max_direct_io_size = largest;
		p->max_device_cache_size = (unsigned int)sum;
	}
	p->max_batch_io_size = (unsigned int)cf_param_size(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE);
	p->max_batch_io_timeout_msecs = (unsigned int)cf_param_size(CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS);
	return CF_OK;
}

/*
 * Strait does not need these limits: they are stored and reported, without effect. They do not open the driver, since
 * programs set them first and parameters next. The values accepted are those that NVIDIA's library accepts.
 */
static CUfileError_t set_limit(CUFileSizeTConfigParameter_t p, size_t kb, bool accepted)
{
	if (!accepted)
		return cf_error(CU_FILE_DRIVER_UNSUPPORTED_LIMIT);
	cf_param_override_size(p, kb, cf_is_open());
	return CF_OK;
}

CF_API CUfileError_t cuFileDriverSetPollMode(bool poll, size_t kb)
{
	CUfileError_t e = set_limit(CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB, kb, kb && kb % 4 == 0);

	if (!e.err)
		cf_param_override_bool(CUFILE_PARAM_PROPERTIES_USE_POLL_MODE, poll, cf_is_open());
	return e;
}

CF_API CUfileError_t cuFileDriverSetMaxDirectIOSize(size_t kb)
{
	return set_limit(CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB, kb, kb && kb % 64 == 0 && kb <= 16384);
}

CF_API CUfileError_t cuFileDriverSetMaxCacheSize(size_t kb)
{
	return set_limit(CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB, kb, kb % 4 == 0);
}

CF_API CUfileError_t cuFileDriverSetMaxPinnedMemSize(size_t kb)
{
	return set_limit(CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB, kb, !kb || (kb >= 64 && kb % 4 == 0));
}

CF_API CUfileError_t cuFileDriverSetP2PFlags(CUfileDriverStatusFlags_t fs, CUfileP2PFlags_t flags)
{
	const unsigned int settable = 1u << CUFILE_P2PDMA | 1u << CUFILE_C2C;

	if ((unsigned int)fs >= CU_FILE_MAX_TARGET_TYPES || ((unsigned int)flags & ~settable))
		return cf_error(CU_FILE_INVALID_VALUE);
	pthread_mutex_lock(&cf.lock);
	p2p_flags[fs] = (unsigned int)flags;
	pthread_mutex_unlock(&cf.lock);
	return CF_OK;
}

CF_API CUfileError_t cuFileDriverGetP2PFlags(CUfileDriverStatusFlags_t fs, CUfileP2PFlags_t *flags)
{
	if ((unsigned int)fs >= CU_FILE_MAX_TARGET_TYPES || !flags)
		return cf_error(CU_FILE_INVALID_VALUE);
	pthread_mutex_lock(&cf.lock);
	*flags = (CUfileP2PFlags_t)p2p_flags[fs];
	pthread_mutex_unlock(&cf.lock);
	return CF_OK;
}
