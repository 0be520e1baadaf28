/* SPDX-License-Identifier: MIT */
/* The layer over system calls: what each function guarantees beyond the system call. */
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"
#include "harness/harness.h"
#include "os/ring.h"

#define LEN (KIB(256) + 10)

static int file_with(const char *name, size_t len)
{
	int fd = open(test_path(name), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	char *buf = malloc(len ? len : 1);

	ASSERT_GE(fd, 0);
	for (size_t i = 0; i < len; i++)
		buf[i] = (char)(i * 7 + i / 4096);
	ASSERT_EQ(pwrite(fd, buf, len, 0), (ssize_t)len);
	free(buf);
	return fd;
}

static bool evict(int fd)
{
	uint64_t left = 1;

	for (int i = 0; left && i < 50; i++) {
		fsync(fd);
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		ASSERT_OK(os_cached_bytes(fd, 0, LEN, &left));
	}
	return !left;
}

static enum os_call refuse_call;

static bool refuse(enum os_call call, int64_t *ret)
{
	*ret = call == OS_CACHESTAT ? -ENOSYS : -EXDEV;
	return call == refuse_call;
}

/* cachestat() and, where the kernel has none, mincore() report the same. */
TEST(what_is_cached)
{
	static const struct {
		uint64_t off, len, want;
	} rows[] = {
		{ 0, LEN, LEN }, { 0, 4096, 4096 }, { 100, 50, 50 }, { LEN - 1, 1, 1 }, { 5, 0, 0 }, { 4095, 2, 2 },
	};
	int fd = file_with("file", LEN);
	uint64_t bytes;

	for (int pass = 0; pass < 2; pass++) {
		refuse_call = OS_CACHESTAT;
		os_inject = pass ? refuse : NULL;
		for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
			bytes = 77;
			ASSERT_OK(os_cached_bytes(fd, rows[i].off, rows[i].len, &bytes));
			ASSERT_EQ(bytes, rows[i].want);
		}
		if (!evict(fd))
			SKIP("pages cannot be evicted here");
		ASSERT_OK(os_cached_bytes(fd, 0, LEN, &bytes));
		ASSERT_EQ(bytes, 0);
		for (uint64_t at = 0; at < LEN; at += 4096)
			ASSERT_GT(pread(fd, &(char){ 0 }, 1, (off_t)at), 0);
	}
	os_inject = NULL;
	close(fd);
	ASSERT_EQ(os_cached_bytes(fd, 0, LEN, &bytes), -EBADF);
}

TEST(reading_what_is_cached)
{
	int fd = file_with("file", LEN);
	char buf[4096];
	ssize_t n;

	ASSERT_EQ(os_pread_cached(fd, buf, 4096, 0), 4096);
	ASSERT_EQ(os_pread_cached(fd, buf, 4096, LEN - 5), 5);
	ASSERT_EQ(os_pread_cached(fd, buf, 4096, LEN), 0);
	/* It starts the read nevertheless, and sometimes a fast drive completes it at once. */
	for (int tries = 0; tries < 20; tries++) {
		if (!evict(fd))
			SKIP("pages cannot be evicted here");
		memset(buf, 0, sizeof(buf));
		n = os_pread_cached(fd, buf, 4096, 0);
		if (n < 0)
			break;
		ASSERT_EQ(n, 4096);
		for (int i = 0; i < 4096; i++)
			ASSERT_EQ(buf[i], (char)(i * 7));
	}
	ASSERT_TRUE(n == -EAGAIN || n == -EOPNOTSUPP);
	ASSERT_EQ(os_pread(fd, buf, 4096, 0), 4096);
	close(fd);
}

/* Pages that are gone are errors, never signals. */
TEST(pages_past_the_end)
{
	int fd = file_with("file", LEN);
	size_t map_len = align_up(LEN, 4096);
	char buf[8192];
	void *p;

	ASSERT_OK(os_map_file(fd, 0, map_len, &p));
	ASSERT_OK(os_populate_read(p, map_len));
	ASSERT_EQ(os_vm_read(buf, p, sizeof(buf)), (ssize_t)sizeof(buf));
	ASSERT_EQ(ftruncate(fd, 5000), 0);
	ASSERT_EQ(os_populate_read(p, map_len), -EFAULT);
	ASSERT_OK(os_populate_read(p, 8192));
	/* What is left of it, then the error. */
	ASSERT_EQ(os_vm_read(buf, (char *)p + 4096, sizeof(buf)), 4096);
	ASSERT_EQ(os_vm_read(buf, (char *)p + 8192, sizeof(buf)), -EFAULT);
	os_unmap(p, map_len);
	os_unmap(NULL, 4096);
	ASSERT_LT(os_map_file(fd, 1, 4096, &p), 0);
	close(fd);
}

TEST(rings)
{
	int fd = file_with("file", LEN);
	char buf[4][1000], want[1000];
	struct os_ring *ring;
	ssize_t res = 0;
	void *tag;
	int rc;

	rc = os_ring_open(4, &ring);
	if (rc == -ENOSYS || rc == -EPERM)
		SKIP("no io_uring: %s", strerror(-rc));
	ASSERT_EQ(rc, 0);
	/* Nothing is in flight, and a wait returns. */
	ASSERT_EQ(os_ring_take(ring, 0, &tag, &res), 0);
	ASSERT_EQ(os_ring_take(ring, 1000000, &tag, &res), 0);
	for (int i = 0; i < 4; i++)
		ASSERT_OK(os_ring_read(ring, fd, buf[i], 1000, (uint64_t)i * 5000, &buf[i]));
	ASSERT_EQ(os_ring_read(ring, fd, buf[0], 1000, 0, NULL), -EAGAIN);
	ASSERT_EQ(os_ring_submit(ring), 4);
	ASSERT_EQ(os_ring_submit(ring), 0);
	for (int i = 0; i < 4; i++) {
		char(*of)[1000];

		ASSERT_EQ(os_ring_take(ring, INT64_MAX, &tag, &res), 1);
		ASSERT_EQ(res, 1000);
		of = tag;
		ASSERT_EQ(pread(fd, want, 1000, (of - buf) * 5000), 1000);
		ASSERT_MEMEQ(*of, want, 1000);
	}
	ASSERT_EQ(os_ring_take(ring, 0, &tag, &res), 0);
	/* At the end of the file, and errors. */
	ASSERT_OK(os_ring_read(ring, fd, buf[0], 1000, LEN - 3, buf));
	ASSERT_EQ(os_ring_submit(ring), 1);
	ASSERT_EQ(os_ring_take(ring, INT64_MAX, &tag, &res), 1);
	ASSERT_EQ(res, 3);
	ASSERT_OK(os_ring_read(ring, -1, buf[0], 1000, 0, buf));
	ASSERT_EQ(os_ring_submit(ring), 1);
	ASSERT_EQ(os_ring_take(ring, INT64_MAX, &tag, &res), 1);
	ASSERT_EQ(res, -EBADF);
	ASSERT_OK(os_ring_write(ring, fd, "other", 5, 100, buf));
	ASSERT_EQ(os_ring_submit(ring), 1);
	ASSERT_EQ(os_ring_take(ring, 1000000000, &tag, &res), 1);
	ASSERT_EQ(res, 5);
	ASSERT_EQ(pread(fd, want, 5, 100), 5);
	ASSERT_MEMEQ(want, "other", 5);
	/* Entries that were queued and not submitted never run. */
	ASSERT_OK(os_ring_write(ring, fd, "never", 5, 100, buf));
	refuse_call = OS_RING_SUBMIT;
	os_inject = refuse;
	ASSERT_EQ(os_ring_submit(ring), -EXDEV);
	os_inject = NULL;
	os_ring_close(ring);
	os_ring_close(NULL);
	ASSERT_EQ(pread(fd, want, 5, 100), 5);
	ASSERT_MEMEQ(want, "other", 5);
	ASSERT_LT(os_ring_open(0, &ring), 0);
	close(fd);
}

TEST(descriptors)
{
	int fd = file_with("file", LEN), again, copy;
	uint64_t magic = 0;
	struct stat st;

	again = os_reopen(fd, O_RDONLY);
	ASSERT_GE(again, 0);
	ASSERT_EQ(os_get_flags(again) & O_ACCMODE, O_RDONLY);
	ASSERT_EQ(os_pwrite(again, "x", 1, 0), -EBADF);
	ASSERT_EQ(fcntl(again, F_GETFD), FD_CLOEXEC);
	copy = os_dup(fd);
	ASSERT_GE(copy, 0);
	ASSERT_EQ(fcntl(copy, F_GETFD), FD_CLOEXEC);
	ASSERT_EQ(os_get_flags(copy) & O_ACCMODE, O_RDWR);
	ASSERT_OK(os_fstat(copy, &st));
	ASSERT_EQ(st.st_size, (off_t)LEN);
	ASSERT_OK(os_fs_magic(copy, &magic));
	ASSERT_NE(magic, 0);
	ASSERT_OK(os_fdatasync(copy));
	os_close(copy);
	os_close(again);
	os_close(-1);
	ASSERT_EQ(os_dup(copy), -EBADF);
	ASSERT_EQ(os_reopen(copy, O_RDONLY), -ENOENT);
	ASSERT_EQ(os_fstat(copy, &st), -EBADF);
	ASSERT_EQ(os_get_flags(copy), -EBADF);
	ASSERT_EQ(os_fs_magic(copy, &magic), -EBADF);
	ASSERT_EQ(os_fdatasync(copy), -EBADF);
	ASSERT_EQ(os_pread(copy, &st, 1, 0), -EBADF);
	ASSERT_EQ(os_open(test_path("none"), O_RDONLY, 0), -ENOENT);
	ASSERT_LT(os_block_size(fd, &magic), 0);
	close(fd);
}

TEST(memory)
{
	char *p;
	int fd;

	ASSERT_OK(os_memfd("test", KIB(128), &fd));
	/* Reserved, and it cannot be truncated under its mapping. */
	ASSERT_EQ(ftruncate(fd, 4096), -1);
	ASSERT_EQ(errno, EPERM);
	ASSERT_OK(os_map_shared(fd, KIB(128), (void **)&p));
	p[KIB(128) - 1] = 5;
	os_unmap(p, KIB(128));
	ASSERT_OK(os_map_shared(fd, KIB(128), (void **)&p));
	ASSERT_EQ(p[KIB(128) - 1], 5);
	os_unmap(p, KIB(128));
	os_close(fd);
	/* A NUMA node that does not exist is ignored. */
	for (int node = -1; node < 2000; node += 667) {
		ASSERT_OK(os_map_anon(KIB(64), node, (void **)&p));
		ASSERT_EQ(p[0], 0);
		p[KIB(64) - 1] = 1;
		ASSERT_OK(os_dont_fork(p, KIB(64)));
		os_unmap(p, KIB(64));
	}
}

static void *nothing(void *arg)
{
	return arg;
}

/* A test can inject the result of each call. */
TEST(injection)
{
	int fd = file_with("file", LEN);
	unsigned long thread;
	struct os_ring *ring;
	uint32_t a, b;
	uint64_t n;
	struct stat st;
	char why[64];
	void *p = NULL;

#define ANSWERED(call, expr)                                                                                           \
	do {                                                                                                           \
		refuse_call = call;                                                                                    \
		os_inject = refuse;                                                                                    \
		ASSERT_EQ(expr, -EXDEV);                                                                               \
		os_inject = NULL;                                                                                      \
	} while (0)
	ANSWERED(OS_OPEN, os_open("/", O_RDONLY, 0));
	ANSWERED(OS_OPEN, os_reopen(fd, O_RDONLY));
	ANSWERED(OS_FSTAT, os_fstat(fd, &st));
	ANSWERED(OS_STATFS, os_fs_magic(fd, &n));
	ANSWERED(OS_STATX, os_dio_align(fd, &a, &b));
	ANSWERED(OS_FCNTL, os_dup(fd));
	ANSWERED(OS_FCNTL, os_get_flags(fd));
	ANSWERED(OS_FCNTL, os_lease_take(fd, os_tid()));
	ANSWERED(OS_IOCTL, os_block_size(fd, &n));
	ANSWERED(OS_IOCTL, os_block_sector(fd, &a));
	ANSWERED(OS_PREAD, (int)os_pread(fd, why, 1, 0));
	ANSWERED(OS_PREAD, (int)os_pread_cached(fd, why, 1, 0));
	ANSWERED(OS_PWRITE, (int)os_pwrite(fd, why, 1, 0));
	ANSWERED(OS_FDATASYNC, os_fdatasync(fd));
	ANSWERED(OS_MMAP, os_map_file(fd, 0, 4096, &p));
	ANSWERED(OS_MMAP, os_map_anon(4096, -1, &p));
	ANSWERED(OS_MMAP, os_map_shared(fd, 4096, &p));
	ANSWERED(OS_MADVISE, os_populate_read(p, 0));
	ANSWERED(OS_MADVISE, os_dont_fork(p, 0));
	ANSWERED(OS_MEMFD, os_memfd("x", 4096, &(int){ 0 }));
	ANSWERED(OS_VM_READ, (int)os_vm_read(why, why, 1));
	ANSWERED(OS_THREAD, os_thread("x", nothing, NULL, &thread));
	ANSWERED(OS_RING_SETUP, os_ring_open(4, &ring));
	refuse_call = OS_DLOPEN;
	os_inject = refuse;
	ASSERT_EQ(os_dl_open("libc.so.6", why, sizeof(why)), NULL);
	os_inject = NULL;
	ASSERT_EQ(p, NULL);
	close(fd);
}

TEST(libraries)
{
	char why[128] = "";
	void *lib = os_dl_open("libc.so.6", why, sizeof(why));

	ASSERT_TRUE(lib);
	ASSERT_TRUE(os_dl_sym(lib, "malloc"));
	ASSERT_EQ(os_dl_sym(lib, "no_such_symbol"), NULL);
	os_dl_close(lib);
	os_dl_close(NULL);
	ASSERT_EQ(os_dl_open("no-such-library.so", why, sizeof(why)), NULL);
	ASSERT_TRUE(strstr(why, "no-such-library"));
}

#define MANY 300 /* more than the number of slots that are reused */

static pthread_barrier_t together;

static void *take_number(void *arg)
{
	unsigned int *number = arg;

	*number = os_thread_slot();
	pthread_barrier_wait(&together);
	return os_thread_slot() == *number ? arg : NULL;
}

/* So many threads at the same time: all have different numbers, none that of this thread. */
static unsigned int highest_of(unsigned int n)
{
	unsigned int number[MANY + 1] = { os_thread_slot() }, highest = number[0];
	pthread_t thread[MANY];
	void *reg_window;

	pthread_barrier_init(&together, NULL, n);
	for (unsigned int i = 0; i < n; i++)
		ASSERT_OK(pthread_create(&thread[i], NULL, take_number, &number[i + 1]));
	for (unsigned int i = 0; i < n; i++) {
		ASSERT_OK(pthread_join(thread[i], &reg_window));
		ASSERT_TRUE(reg_window);
	}
	for (unsigned int i = 1; i <= n; i++) {
		for (unsigned int k = 0; k < i; k++)
			ASSERT_NE(number[i], number[k]);
		highest = number[i] > highest ? number[i] : highest;
	}
	pthread_barrier_destroy(&together);
	return highest;
}

/* Later threads get the numbers of threads that have ended. */
TEST(numbers_of_threads)
{
	for (int round = 0; round < 5; round++)
		ASSERT_LE(highest_of(40), 40);
	highest_of(MANY);
	ASSERT_LE(highest_of(40), 40);
}

static unsigned int hooks;

static void hook(void)
{
	hooks++;
}

TEST(forks_are_counted)
{
	unsigned int before = os_fork_generation();
	int status;
	pid_t pid;

	os_at_fork(hook, hook, hook);
	pid = fork();
	if (!pid)
		_exit(os_fork_generation() == before + 1 && hooks == 2 ? 0 : 1);
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
	ASSERT_EQ(status, 0);
	ASSERT_EQ(os_fork_generation(), before);
	ASSERT_EQ(hooks, 2);
}

static unsigned int held; /* by threads */

static void nobody_holds_it(void)
{
	held = 0;
}

OS_FORK_LOCK(fork_lock, nobody_holds_it)

static atomic_bool stop_locking;

static void *lock_on_and_on(void *arg)
{
	while (!atomic_load(&stop_locking)) {
		pthread_mutex_lock(&fork_lock);
		held++;
		pthread_mutex_unlock(&fork_lock);
	}
	return NULL;
}

/* The child finds the lock free, and the protected data consistent. */
TEST(locks_over_fork)
{
	pthread_t t[2];
	int status;

	for (int i = 0; i < 2; i++)
		ASSERT_EQ(pthread_create(&t[i], NULL, lock_on_and_on, NULL), 0);
	for (int i = 0; i < 100; i++) {
		pid_t pid = fork();

		if (!pid) {
			unsigned int had;

			pthread_mutex_lock(&fork_lock);
			had = held;
			pthread_mutex_unlock(&fork_lock);
			_exit(had ? 1 : 0);
		}
		ASSERT_EQ(waitpid(pid, &status, 0), pid);
		ASSERT_EQ(status, 0);
	}
	atomic_store(&stop_locking, true);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	pthread_mutex_lock(&fork_lock);
	ASSERT_GT(held, 0);
	pthread_mutex_unlock(&fork_lock);
}

TEST(small_files)
{
	char line[16];
	int fd = open(test_path("line"), O_WRONLY | O_CREAT, 0600);

	ASSERT_EQ(write(fd, "first\nsecond\n", 13), 13);
	close(fd);
	ASSERT_OK(os_read_line(test_path("line"), line, sizeof(line)));
	ASSERT_STREQ(line, "first");
	ASSERT_OK(os_read_line(test_path("line"), line, 3));
	ASSERT_STREQ(line, "fi");
	ASSERT_EQ(os_read_line(test_path("none"), line, sizeof(line)), -ENOENT);
	ASSERT_EQ(symlink("target", test_path("link")), 0);
	ASSERT_OK(os_read_link(test_path("link"), line, sizeof(line)));
	ASSERT_STREQ(line, "target");
	ASSERT_LT(os_read_link(test_path("line"), line, sizeof(line)), 0);
	ASSERT_EQ(os_access(test_path("line")), 0);
	ASSERT_EQ(os_access(test_path("none")), -ENOENT);
	ASSERT_GE(os_cpus(), 1);
	ASSERT_GT(os_memory_total(), MIB(1));
}
