/* SPDX-License-Identifier: MIT */
/* Loads and initializes the driver, and translates its results. */
#include "device/cuda/api.h"

#include <pthread.h>

#include "base/util.h"
#include "os/os.h"

#define LIBRARY "libcuda.so.1"

struct cuda_api cu;

/*
 * One thread at a time loads and initializes the driver. It holds no lock meanwhile, because that takes long and the
 * driver forks helper programs.
 */
static struct {
	pthread_cond_t changed;
	bool loaded;
	bool busy;	  /* a thread is loading or initializing */
	bool interrupted; /* the process was forked while busy: that thread is not in the child */
} start_state = { .changed = PTHREAD_COND_INITIALIZER };

static void driver_start_forked(void)
{
	start_state.interrupted |= start_state.busy;
	start_state.busy = false;
	pthread_cond_init(&start_state.changed, NULL);
}

OS_FORK_LOCK(start_lock, driver_start_forked)

typedef void (*any_fn)(void);
typedef cu_result get_proc_v1(const char *symbol, void **fn, int version, uint64_t flags);
typedef cu_result get_proc_v2(const char *symbol, void **fn, int version, uint64_t flags, int *status);

/* cuGetProcAddress of the driver; v2 is preferred. */
struct finder {
	get_proc_v1 *v1;
	get_proc_v2 *v2;
};

static any_fn find_call(const struct finder *f, const char *symbol, int version)
{
	any_fn fn = NULL;
	void *p = NULL;
	int status;

	/* An unknown symbol is an error or leaves NULL. */
	if (f->v2 ? f->v2(symbol, &p, version, 0, &status) : f->v1(symbol, &p, version, 0))
		return NULL;
	memcpy(&fn, &p, sizeof(fn));
	return fn;
}

static int find_all_calls(const struct finder *f, char *why, size_t len)
{
	static const struct {
		const char *symbol;
		int version;
		bool optional;
		size_t at;
	} calls[] = {
#define CUDA_CALL(name, symbol, version, optional, args) { symbol, version, optional, offsetof(struct cuda_api, name) },
		CUDA_CALLS(CUDA_CALL)
#undef CUDA_CALL
	};

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		any_fn fn = find_call(f, calls[i].symbol, calls[i].version);

		if (!fn && !calls[i].optional) {
			str_format(why, len, "the CUDA driver has no %s: update it to one for CUDA 11.3 or later",
				   calls[i].symbol);
			return -EOPNOTSUPP;
		}
		memcpy((char *)&cu + calls[i].at, &fn, sizeof(fn));
	}
	return 0;
}

static int driver_load(char *why, size_t len)
{
	struct finder f;
	char text[160];
	void *lib, *p;
	int rc;

	lib = os_dl_open(LIBRARY, text, sizeof(text));
	if (!lib) {
		str_format(why, len,
			   LIBRARY
			   " cannot be loaded (%s): install the NVIDIA driver, or give the container its libraries",
			   text);
		return -ENOENT;
	}
	p = os_dl_sym(lib, "cuGetProcAddress_v2");
	memcpy(&f.v2, &p, sizeof(p));
	p = os_dl_sym(lib, "cuGetProcAddress");
	memcpy(&f.v1, &p, sizeof(p));
	if (!f.v1 && !f.v2) {
		str_copy(why, len, "the CUDA driver has no cuGetProcAddress: update it to one for CUDA 11.3 or later");
		rc = -EOPNOTSUPP;
	} else {
		rc = find_all_calls(&f, why, len);
	}
	/* No call was made yet, so the library can be unloaded. */
	if (rc)
		os_dl_close(lib);
	return rc;
}

static const char *init_failure_advice(cu_result r)
{
	switch (r) {
	case CU_NO_DEVICE:
		return "it sees no GPU: check nvidia-smi, CUDA_VISIBLE_DEVICES, and the devices given to the container";
	case CU_NOT_INITIALIZED:
		return "CUDA does not work in a forked child of a process that has used it: restart the program";
	case CU_STUB_LIBRARY:
		return "this is the toolkit's stub library: install the driver, and remove the stub from LD_LIBRARY_PATH";
	case CU_SYSTEM_DRIVER_MISMATCH:
		return "the versions of its library and kernel module differ: reboot, or give the container the host's library";
	case CU_SYSTEM_NOT_READY:
		return "the system is not ready: is nvidia-fabricmanager running?";
	default:
		return "check nvidia-smi and the kernel log";
	}
}

static int driver_init(char *why, size_t len)
{
	cu_result r = cu.init(0);

	if (!r)
		return 0;
	str_format(why, len, "the CUDA driver cannot start (%s): %s", cuda_error_name(r), init_failure_advice(r));
	return cuda_open_errno(r);
}

int cuda_open_errno(cu_result r)
{
	int rc = cuda_errno(r);

	return rc == -ENOMEM ? -EIO : rc;
}

/* False: the process was forked while a thread was initializing the driver, whose state is unknown. */
static bool driver_start_begin(void)
{
	bool can;

	pthread_mutex_lock(&start_lock);
	while (start_state.busy)
		pthread_cond_wait(&start_state.changed, &start_lock);
	can = !start_state.interrupted;
	start_state.busy = can;
	pthread_mutex_unlock(&start_lock);
	return can;
}

static void driver_start_end(bool loaded)
{
	pthread_mutex_lock(&start_lock);
	start_state.loaded = loaded;
	start_state.busy = false;
	pthread_cond_signal(&start_state.changed);
	pthread_mutex_unlock(&start_lock);
}

int cuda_api_load(char *why, size_t len)
{
	bool loaded;
	int rc = 0;

	if (!driver_start_begin()) {
		str_copy(why, len,
			 "the process was forked while another thread started the CUDA driver: start the program anew");
		return -ENODEV;
	}
	loaded = start_state.loaded; /* no lock: driver_start_begin() made this the only thread here */
	if (!loaded)
		rc = driver_load(why, len);
	loaded = !rc;
	if (!rc)
		rc = driver_init(why, len);
	driver_start_end(loaded);
	return rc;
}

int cuda_errno(cu_result r)
{
	switch (r) {
	case CU_OK:
		return 0;
	case CU_INVALID_VALUE:
	case CU_INVALID_HANDLE:
		return -EINVAL;
	case CU_OUT_OF_MEMORY:
	case CU_LAUNCH_OUT_OF_RESOURCES:
		return -ENOMEM;
	case CU_NOT_INITIALIZED:
	case CU_DEINITIALIZED:
	case CU_DEVICE_UNAVAILABLE:
	case CU_NO_DEVICE:
	case CU_INVALID_DEVICE:
	case CU_INVALID_CONTEXT:
	case CU_CONTEXT_IS_DESTROYED:
		return -ENODEV;
	case CU_NOT_READY:
		return -ETIMEDOUT;
	case CU_ALREADY_REGISTERED:
		return -EEXIST;
	case CU_NOT_REGISTERED:
		return -EFAULT;
	case CU_NOT_PERMITTED:
		return -EPERM;
	case CU_NOT_SUPPORTED:
	case CU_CAPTURE_UNSUPPORTED:
		return -EOPNOTSUPP;
	default:
		return r >= CU_CAPTURE_UNSUPPORTED && r <= CU_CAPTURE_WRONG_THREAD ? -EOPNOTSUPP : -EIO;
	}
}

const char *cuda_error_name(cu_result r)
{
	const char *name = NULL;

	return cu.error_name && !cu.error_name(r, &name) && name ? name : "unknown error";
}
