/* SPDX-License-Identifier: MIT */
#ifndef OS_OS_H
#define OS_OS_H

/*
 * The seam: every system call, sysfs read and dlopen of the library goes through here. All return a
 * negative errno on failure. Calls that can be interrupted are restarted. Each can be made to fail
 * by a test (os_inject).
 */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

enum os_call {
	OS_OPEN,
	OS_FSTAT,
	OS_STATFS,
	OS_STATX,
	OS_FCNTL,
	OS_IOCTL,
	OS_PREAD,
	OS_PWRITE,
	OS_FDATASYNC,
	OS_POLL,
	OS_EVENTFD,
	OS_MMAP,
	OS_MADVISE,
	OS_MBIND,
	OS_CACHESTAT,
	OS_MINCORE,
	OS_MEMFD,
	OS_FALLOCATE,
	OS_VM_READ,
	OS_THREAD,
	OS_RING_SETUP,
	OS_RING_SUBMIT,
	OS_RING_RESULT, /* what a completed ring request returns */
	OS_DLOPEN,
	OS_CALL_COUNT,
};

/*
 * Tests only: called before each call; true means "do not make the call, return *ret". NULL in
 * every other program. Must be set while no other thread is inside the library.
 */
typedef bool os_inject_fn(enum os_call call, int64_t *ret);
extern os_inject_fn *os_inject;

int os_open(const char *path, int flags, mode_t mode);
int os_reopen(int fd, int flags); /* through /proc/self/fd */
int os_dup(int fd);
void os_close(int fd);
int os_fstat(int fd, struct stat *st);
int os_get_flags(int fd); /* fcntl(F_GETFL) */
int os_fs_magic(int fd, uint64_t *magic);
/* A call to a driver, of its own kind. 0, or what it returns if that is more. */
int os_ioctl(int fd, unsigned long request, void *arg);
/* Where in a file @len bytes lie that are on the drive: no hole, nothing only reserved. -ENODATA if nowhere. */
int os_data_on_drive(int fd, uint64_t len, uint64_t *off);
/* Size of a block device. */
int os_block_size(int fd, uint64_t *bytes);
int os_block_sector(int fd, uint32_t *bytes);
/* statx(STATX_DIOALIGN): -EOPNOTSUPP when the kernel does not tell. Zeros mean "no direct I/O". */
int os_dio_align(int fd, uint32_t *mem, uint32_t *off);

ssize_t os_pread(int fd, void *buf, size_t len, uint64_t off);
/*
 * What needs no waiting: -EAGAIN if that is nothing, -EOPNOTSUPP where it cannot be asked. The kernel starts
 * to read what is missing all the same, for the next one.
 */
ssize_t os_pread_cached(int fd, void *buf, size_t len, uint64_t off);
ssize_t os_pwrite(int fd, const void *buf, size_t len, uint64_t off);
int os_fdatasync(int fd);
/* Until one of the two can be read: 1 for @a, 0 for @b alone. */
int os_wait_readable(int a, int b);
/* A descriptor that can be read once it was signalled. */
int os_event_fd(int *fd);
void os_event_signal(int fd);
/* Until it was signalled, which is forgotten then: 0, or -ETIMEDOUT. Several may wait after os_event_share(). */
int os_event_share(int fd);
int os_event_wait(int fd, uint64_t timeout_ns);
/* Forget that it was signalled; after os_event_share(). */
void os_event_clear(int fd);

/* Of the kernel: 4 KiB on most machines, 64 KiB on some. */
uint64_t os_page_size(void);
/* Tests only: pages as large as this, a multiple of the kernel's; 0 in every other program. */
extern uint64_t os_page_override;

int os_map_file(int fd, uint64_t off, size_t len, void **ret); /* read-only, shared */
int os_map_anon(size_t len, int numa_node, void **ret);
int os_map_shared(int fd, size_t len, void **ret); /* read-write, shared, populated */
/* A device's memory, read-write and shared, at an address that is a multiple of @align. */
int os_map_device(int fd, uint64_t off, size_t len, size_t align, void **ret);
/* Addresses that nothing else gets, with no memory behind them; given back by os_unmap(). */
int os_reserve(size_t len, void **ret);
void os_unmap(void *ptr, size_t len);
int os_populate_read(void *ptr, size_t len); /* fault in without a signal: -EFAULT past the end of a file */
int os_dont_fork(void *ptr, size_t len);

/* Pages of [off, off + len) in the page cache, in bytes. -EOPNOTSUPP if neither cachestat nor mincore can tell. */
int os_cached_bytes(int fd, uint64_t off, uint64_t len, uint64_t *bytes);

int os_memfd(const char *name, uint64_t len, int *fd); /* sealed against shrinking, memory reserved */
/* Copy inside this process without a signal if the source is gone: bytes copied, or -EFAULT. */
ssize_t os_vm_read(void *dst, const void *src, size_t len);
/* Is the descriptor that of a dma-buf? And how long is what is behind it? */
bool os_is_dmabuf(int fd);
int os_seek_end(int fd, uint64_t *len);
/* CPU access to the mapping of a dma-buf begins, or ends. Other files need no such thing: 0. */
int os_dmabuf_sync(int fd, bool begin);
/* A dma-buf for a part of a memfd, through /dev/udmabuf. */
int os_udmabuf(int memfd, uint64_t off, uint64_t len, int *fd);

/* A read lease; the SIGIO it would send goes to the thread @tid, which has it blocked. */
int os_lease_take(int fd, int tid);
bool os_lease_held(int fd); /* false once a writer waits for it */
void os_lease_drop(int fd);
/* Called by that thread: returns when a lease may have been broken, or after @timeout_ns. */
void os_lease_wait(int64_t timeout_ns);

/* A thread with all signals blocked. */
int os_thread(const char *name, void *(*fn)(void *), void *arg, unsigned long *thread);
int os_tid(void);
/* A small number that no other thread has: the first to ask gets 0, and those that end give theirs back. */
unsigned int os_thread_slot(void);
unsigned int os_cpus(void);
unsigned int os_descriptor_limit(void); /* how many this process may have open */
uint64_t os_memory_total(void);
uint64_t os_now_ns(void);
/* A timeout of the public calls as a point in os_now_ns() time, UINT64_MAX for STRAIT_FOREVER; and what is left of it. */
uint64_t os_deadline(int64_t timeout_ns);
int64_t os_time_left(uint64_t deadline);
void os_sleep_ns(uint64_t ns);
void os_yield(void); /* let another thread run */

/* Changes in a forked child; handles remember the value they were made under. */
unsigned int os_fork_generation(void);
/* Run before each fork(), and behind it in the parent and in the child. */
void os_at_fork(void (*prepare)(void), void (*parent)(void), void (*child)(void));

/*
 * A static lock, which the forking thread holds over fork(): the child finds it free, and what it protects whole. There
 * @reset, unless it is NULL, first drops the state of calls that other threads were in. The lock must never be held
 * over a call that may fork or take long: of a driver, or of the application.
 */
#define OS_FORK_LOCK(lock, reset)                                                                                      \
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;                                                       \
	static void lock##_prepare(void)                                                                               \
	{                                                                                                              \
		pthread_mutex_lock(&lock);                                                                             \
	}                                                                                                              \
	static void lock##_parent(void)                                                                                \
	{                                                                                                              \
		pthread_mutex_unlock(&lock);                                                                           \
	}                                                                                                              \
	static void lock##_child(void)                                                                                 \
	{                                                                                                              \
		void (*drop)(void) = reset;                                                                            \
                                                                                                                       \
		if (drop)                                                                                              \
			drop();                                                                                        \
		pthread_mutex_unlock(&lock);                                                                           \
	}                                                                                                              \
	__attribute__((constructor)) static void lock##_over_fork(void)                                                \
	{                                                                                                              \
		os_at_fork(lock##_prepare, lock##_parent, lock##_child);                                               \
	}

void *os_dl_open(const char *name, char *why, size_t len);
void *os_dl_sym(void *lib, const char *name);
void os_dl_close(void *lib);

/* First line of a small file such as sysfs has, without its newline. */
int os_read_line(const char *path, char *buf, size_t len);
int os_read_link(const char *path, char *buf, size_t len);
int os_access(const char *path); /* 0 if it exists */

#endif
