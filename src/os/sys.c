/* SPDX-License-Identifier: MIT */
/* Threads, clock, fork, dynamic libraries, small files. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "os/inject.h"

os_inject_fn *os_inject;

int os_thread(const char *name, void *(*fn)(void *), void *arg, unsigned long *thread)
{
	sigset_t all, old;
	pthread_t t;
	int rc;

	OS_POINT(OS_THREAD);
	/* The application's signals are the application's: our threads take none. */
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

int os_tid(void)
{
	return (int)syscall(SYS_gettid);
}

unsigned int os_thread_slot(void)
{
	static atomic_uint next;
	static __thread unsigned int slot;

	if (!slot)
		slot = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) + 1;
	return slot - 1;
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

unsigned int os_fork_generation(void)
{
	return atomic_load_explicit(&fork_generation, memory_order_relaxed);
}

void os_at_fork(void (*prepare)(void), void (*after)(void))
{
	pthread_atfork(prepare, after, after);
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
