/* SPDX-License-Identifier: MIT */
#ifndef OS_OS_H
#define OS_OS_H

/*
 * Every system call, sysfs read and dlopen() of the library is made here. All functions return a negative errno on
 * failure and restart after EINTR. Tests make them fail through os_inject.
 */

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
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
	OS_RING_RESULT, /* result of a completed ring request */
	OS_DLOPEN,
	OS_USERFAULTFD,
	OS_VM_WRITE,
	OS_CALL_COUNT,
};

/*
 * Tests only: invoked before each call; true means "do not make the call, return *ret". NULL in every other program.
 * A thread that is in the library meanwhile may still use the value of before.
 */
typedef bool os_inject_fn(enum os_call call, int64_t *ret);
extern os_inject_fn *_Atomic os_inject;

int os_open(const char *path, int flags, mode_t mode);
int os_reopen(int fd, int flags); /* through /proc/self/fd */
int os_dup(int fd);
void os_close(int fd);
int os_fstat(int fd, struct stat *st);
int os_get_flags(int fd); /* fcntl(F_GETFL) */
int os_fs_magic(int fd, uint64_t *magic);
/* ioctl(2): its result, 0 or positive. */
int os_ioctl(int fd, unsigned long request, void *arg);
/* Offset of @len bytes of a file that are stored on the drive: no hole, not unwritten. -ENODATA if there are none. */
int os_data_on_drive(int fd, uint64_t len, uint64_t *off);
/* Length, and logical sector size, of a block device. */
int os_block_size(int fd, uint64_t *bytes);
int os_block_sector(int fd, uint32_t *bytes);
/* statx(STATX_DIOALIGN): -EOPNOTSUPP if the kernel does not report it. 0 means "no direct I/O". */
int os_dio_align(int fd, uint32_t *mem, uint32_t *off);

ssize_t os_pread(int fd, void *buf, size_t len, uint64_t off);
/*
 * Reads with RWF_NOWAIT: -EAGAIN if nothing can be read without blocking, -EOPNOTSUPP if the file does not support it.
 * The kernel may start readahead of the missing pages all the same.
 */
ssize_t os_pread_cached(int fd, void *buf, size_t len, uint64_t off);
ssize_t os_pwrite(int fd, const void *buf, size_t len, uint64_t off);
int os_fdatasync(int fd);
/* Wait until @a or @b is readable: 1 if @a is, 0 if only @b is. */
int os_wait_readable(int a, int b);
/* Wait until one of up to 4 descriptors is readable or @timeout_ns have passed: 0, or -ETIMEDOUT. STRAIT_FOREVER: no timeout. */
int os_wait_any(const int *fd, unsigned int n, int64_t timeout_ns);
/* O_NONBLOCK for a descriptor of another library. */
int os_set_nonblocking(int fd);
/* eventfd(2): readable once it is signalled. */
int os_event_fd(int *fd);
void os_event_signal(int fd);
/* Wait for the signal and clear it: 0, or -ETIMEDOUT. After os_event_share() several threads may wait. */
int os_event_share(int fd);
int os_event_wait(int fd, uint64_t timeout_ns);
/* Clear the signal; only after os_event_share(). */
void os_event_clear(int fd);

/* Page size of the kernel: 4 KiB on most machines, 64 KiB on some. */
uint64_t os_page_size(void);
/* Tests only: a page size to assume, a multiple of the kernel's; 0 in every other program. */
extern uint64_t os_page_override;

int os_map_file(int fd, uint64_t off, size_t len, void **ret); /* read-only, shared */
int os_map_anon(size_t len, int numa_node, void **ret);
int os_map_shared(int fd, size_t len, void **ret); /* read-write, shared, populated */
/* Map a device's memory read-write and shared, at an address that is a multiple of @align. */
int os_map_device(int fd, uint64_t off, size_t len, size_t align, void **ret);
/* Reserve addresses without memory. Undone by os_unmap(). */
int os_reserve(size_t len, void **ret);
void os_unmap(void *ptr, size_t len);
int os_populate_read(void *ptr, size_t len); /* fault pages in: -EFAULT, and no SIGBUS, past the end of a file */
/* Fault the pages of fresh anonymous memory in. */
void os_populate(void *ptr, size_t len);
int os_dont_fork(void *ptr, size_t len);

/* Map a file as mmap(2) does for an application: shared or private, with or without write access. fd -1: anonymous. */
int os_map_user(int fd, uint64_t off, size_t len, bool shared, bool write, void **ret);
/* Anonymous memory in small pages, aligned to @align, that a forked child does not have. */
int os_map_copy(size_t len, size_t align, bool write, void **ret);
enum os_advice { OS_ADVICE_NORMAL, OS_ADVICE_SEQUENTIAL, OS_ADVICE_RANDOM };
/* madvise(2) about the kernel's own readahead. */
int os_advise(void *ptr, size_t len, enum os_advice advice);
/* Removes the pages of anonymous memory: MADV_DONTNEED. */
int os_discard(void *ptr, size_t len);

/*
 * Finds stores to a mapping (track.c). os_track_open() fails where the kernel or a sandbox does not allow it.
 * os_track_protect() begins: stores from now on are found. os_track_scan() fills in up to @n runs of pages that were
 * stored to since, protects those again in the same step, and returns how many runs; it got as far as @next. Addresses
 * and lengths are multiples of the page size.
 */
struct os_track {
	int uffd;
	int pagemap;
};

struct os_page_run {
	uint64_t start;
	uint64_t end;
	uint64_t categories;
};

int os_track_open(struct os_track *t, void *ptr, size_t len);
void os_track_close(struct os_track *t);
int os_track_protect(const struct os_track *t, void *ptr, size_t len);
int os_track_scan(const struct os_track *t, void *ptr, size_t len, struct os_page_run *runs, unsigned int n,
		  void **next);
/*
 * The same with missing pages left to a thread of the caller. @user_only: the process may handle faults of its threads in
 * user mode only; a system call that meets a missing page returns -EFAULT.
 *
 * os_fault_read() waits until threads fault or @stop_fd is readable: the number of addresses, 0 for none, -ECANCELED.
 * os_fault_copy() fills missing pages, protected, and wakes their threads. *@done: bytes before the first that failed, with
 * -EEXIST for a page that is not missing.
 */
int os_fault_open(struct os_track *t, void *ptr, size_t len, bool *user_only);
int os_fault_read(const struct os_track *t, int stop_fd, uint64_t *addrs, unsigned int n);
int os_fault_copy(const struct os_track *t, void *dst, const void *src, size_t len, size_t *done);
void os_fault_wake(const struct os_track *t, void *ptr, size_t len);

/* Bytes of [off, off + len) in the page cache. -EOPNOTSUPP if neither cachestat(2) nor mincore(2) tells. */
int os_cached_bytes(int fd, uint64_t off, uint64_t len, uint64_t *bytes);

int os_memfd(const char *name, uint64_t len, int *fd); /* sealed against shrinking, memory reserved */
/* Copy within this process: bytes copied, or -EFAULT, and no signal, if the source is unmapped. */
ssize_t os_vm_read(void *dst, const void *src, size_t len);
/* The same with -EFAULT for the destination, e.g. past the end of a mapped file. */
ssize_t os_vm_write(void *dst, const void *src, size_t len);
/* Is the descriptor a dma-buf? And its length. */
bool os_is_dmabuf(int fd);
int os_seek_end(int fd, uint64_t *len);
/* Begin or end CPU access to the mapping of a dma-buf. 0 for other files. */
int os_dmabuf_sync(int fd, bool begin);
/* Create a dma-buf from a part of a memfd, by /dev/udmabuf. */
int os_udmabuf(int memfd, uint64_t off, uint64_t len, int *fd);

/* Take a read lease whose SIGIO is directed to thread @tid, which has the signal blocked. */
int os_lease_take(int fd, int tid);
bool os_lease_held(int fd); /* false once a writer is waiting to break it */
void os_lease_drop(int fd);
/* Called by thread @tid: returns when a lease may be breaking, or after @timeout_ns. */
void os_lease_wait(int64_t timeout_ns);

/* Start a thread with all signals blocked. */
int os_thread(const char *name, void *(*fn)(void *), void *arg, unsigned long *thread);
/* Sleeps of the calling thread, of the library, end within microseconds: the kernel adds 50 us by default. */
void os_thread_sleeps_briefly(void);
int os_tid(void);
/* Lowest number that no other running thread has: the first thread gets 0. */
unsigned int os_thread_slot(void);
unsigned int os_cpus(void);
unsigned int os_descriptor_limit(void); /* most descriptors of this process: RLIMIT_NOFILE */
uint64_t os_memory_total(void);
uint64_t os_now_ns(void);
/* Deadline on the clock of os_now_ns() for a timeout of a public call, UINT64_MAX for STRAIT_FOREVER; and time left. */
uint64_t os_deadline(int64_t timeout_ns);
int64_t os_time_left(uint64_t deadline);
/* Must work with this deadline (UINT64_MAX: none) and flag (NULL: none) stop now? -ECANCELED, -ETIMEDOUT, or 0. */
static inline int os_stop(uint64_t deadline, const atomic_bool *cancel)
{
	if (cancel && atomic_load_explicit(cancel, memory_order_relaxed))
		return -ECANCELED;
	return deadline != UINT64_MAX && os_now_ns() >= deadline ? -ETIMEDOUT : 0;
}
void os_sleep_ns(uint64_t ns);
void os_yield(void); /* sched_yield(2) */

int os_random(void *buf, size_t len); /* getrandom(2) */

/* Changes in a forked child. Handles record the value at their creation. */
unsigned int os_fork_generation(void);
/* pthread_atfork(3). */
void os_at_fork(void (*prepare)(void), void (*parent)(void), void (*child)(void));

/*
 * A static lock that the forking thread holds over fork(), so that in the child it is free and the state it protects
 * consistent. In the child @reset, unless NULL, first drops the state of calls that other threads were making. The lock
 * must not be held over calls that may fork or take long, such as those of a driver or of the application.
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

/* First line of a small file, such as those of sysfs, without its newline. */
int os_read_line(const char *path, char *buf, size_t len);
int os_read_link(const char *path, char *buf, size_t len);
int os_access(const char *path); /* 0 if it exists */

#endif
