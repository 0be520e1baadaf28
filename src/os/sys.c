/* SPDX-License-Identifier: MIT */
/* Threads, clock, fork, dynamic libraries, small files. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <strait/types.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "os/inject.h"

os_inject_fn *_Atomic os_inject;

int os_thread(const char *name, void *(*fn)(void *), void *arg, unsigned long *thread)
{
	sigset_t all, old;
	pthread_t t;
	int rc;

	OS_POINT(OS_THREAD);
	/* Signals of the application must not be delivered to threads of the library. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&t, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc)
		return -rc;
	pthread_setname_np(t, name);
	*thread = t;
	return 0;
}

void os_thread_sleeps_briefly(void)
{
	prctl(PR_SET_TIMERSLACK, 1000ul, 0, 0, 0);
}

int os_tid(void)
{
	return (int)syscall(__NR_gettid);
}

#define SLOTS 256u

static atomic_ullong slots[SLOTS / 64];
static __thread unsigned int my_slot; /* slot + 1; 0: none yet */
static pthread_once_t slot_once = PTHREAD_ONCE_INIT;
static pthread_key_t slot_key;
static bool slots_return;

static void put_slot(void *slot)
{
	unsigned int i = (unsigned int)(uintptr_t)slot - 1;

	my_slot = 0;
	atomic_fetch_and_explicit(&slots[i / 64], ~(1ull << i % 64), memory_order_relaxed);
}

static void make_slot_key(void)
{
	slots_return = !pthread_key_create(&slot_key, put_slot);
}

/* put_slot() must not be called after the library is unloaded. */
__attribute__((destructor)) static void drop_slot_key(void)
{
	if (slots_return)
		pthread_key_delete(slot_key);
}

/* The lowest free slot. Slots past SLOTS are never reused. */
static unsigned int take_slot(void)
{
	static atomic_uint more = SLOTS;

	for (unsigned int i = 0; i < ARRAY_SIZE(slots); i++) {
		unsigned long long used = atomic_load_explicit(&slots[i], memory_order_relaxed);

		while (~used) {
			unsigned int bit = (unsigned int)__builtin_ctzll(~used);

			if (atomic_compare_exchange_weak_explicit(&slots[i], &used, used | 1ull << bit,
								  memory_order_relaxed, memory_order_relaxed))
				return i * 64 + bit;
		}
	}
	return atomic_fetch_add_explicit(&more, 1, memory_order_relaxed);
}

unsigned int os_thread_slot(void)
{
	if (!my_slot) {
		pthread_once(&slot_once, make_slot_key);
		my_slot = take_slot() + 1;
		if (slots_return && my_slot <= SLOTS)
			pthread_setspecific(slot_key, (void *)(uintptr_t)my_slot);
	}
	return my_slot - 1;
}

unsigned int os_cpus(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		return 1;
	return (unsigned int)CPU_COUNT(&set);
}

unsigned int os_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return 0;
	return limit.rlim_cur > INT32_MAX ? INT32_MAX : (unsigned int)limit.rlim_cur;
}

uint64_t os_memory_total(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

	return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

uint64_t os_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t os_deadline(int64_t timeout_ns)
{
	return timeout_ns == STRAIT_FOREVER ? UINT64_MAX : os_now_ns() + (uint64_t)timeout_ns;
}

int64_t os_time_left(uint64_t deadline)
{
	uint64_t now;

	if (deadline == UINT64_MAX)
		return STRAIT_FOREVER;
	now = os_now_ns();
	if (now >= deadline)
		return 0;
	return deadline - now < STRAIT_FOREVER ? (int64_t)(deadline - now) : STRAIT_FOREVER - 1;
}

void os_sleep_ns(uint64_t ns)
{
	struct timespec ts = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };

	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, &ts) == EINTR)
		;
}

void os_yield(void)
{
	sched_yield();
}

static atomic_uint fork_generation;

static void forked_child(void)
{
	atomic_fetch_add_explicit(&fork_generation, 1, memory_order_relaxed);
}

__attribute__((constructor)) static void watch_fork(void)
{
	pthread_atfork(NULL, NULL, forked_child);
}

int os_random(void *buf, size_t len)
{
	ssize_t n;

	/* Up to 256 bytes are never interrupted. */
	n = getrandom(buf, len, 0);
	if (n < 0)
		return -errno;
	return (size_t)n == len ? 0 : -EIO;
}

unsigned int os_fork_generation(void)
{
	return atomic_load_explicit(&fork_generation, memory_order_relaxed);
}

void os_at_fork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
	pthread_atfork(prepare, parent, child);
}

void *os_dl_open(const char *name, char *why, size_t len)
{
	int64_t injected;
	const char *err;
	void *lib;

	if (os_inject && os_inject(OS_DLOPEN, &injected)) {
		str_format(why, len, "%s: refused", name);
		return NULL;
	}
	lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		err = dlerror();
		str_copy(why, len, err ? err : "unknown error");
	}
	return lib;
}

void *os_dl_sym(void *lib, const char *name)
{
	return dlsym(lib, name);
}

void os_dl_close(void *lib)
{
	if (lib)
		dlclose(lib);
}

int os_read_line(const char *path, char *buf, size_t len)
{
	ssize_t n;
	int fd;

	fd = os_open(path, O_RDONLY, 0);
	if (fd < 0)
		return fd;
	n = read(fd, buf, len - 1);
	if (n < 0)
		n = -errno;
	close(fd);
	if (n < 0)
		return (int)n;
	buf[n] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	return 0;
}

int os_read_link(const char *path, char *buf, size_t len)
{
	ssize_t n = readlink(path, buf, len - 1);

	if (n < 0)
		return -errno;
	buf[n] = '\0';
	return 0;
}

int os_access(const char *path)
{
	return access(path, F_OK) ? -errno : 0;
}
