/* SPDX-License-Identifier: MIT */
/* Ordinary users, sandboxes and tight limits: everything works, perhaps more slowly, or fails cleanly. */
#include "common.h"

#include <dlfcn.h>
#include <grp.h>
#include <libgen.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define LEN (MIB(6) + 77)
#define NOBODY 65534

#ifndef __NR_cachestat
#define __NR_cachestat 451
#endif

static unsigned char *want;

/* Every interface and route, on both devices. Returns how many of them worked. */
static int use_all(const char *path, uint32_t flags, bool must)
{
	static const uint32_t masks[] = { 0, ROUTE(STAGED), ROUTE(PAGECACHE) };
	static const char *const names[] = { "emu", "host" };
	struct strait_context *ctx;
	int good = 0;

	ASSERT_OK(strait_context_open(NULL, &ctx));
	for (int d = 0; d < 2; d++) {
		struct strait_region *r = NULL;
		struct strait_endpoint *ep = NULL;
		struct strait_queue *q = NULL;
		int rc = strait_region_alloc(device_named(ctx, names[d]), LEN, &r);

		if (!rc)
			rc = strait_file_open(ctx, path, O_RDONLY, 0, flags, &ep);
		if (!rc)
			rc = strait_queue_open(ctx, NULL, &q);
		if (must)
			ASSERT_EQ(rc, 0);
		for (int k = 0; !rc && k < (d ? 1 : 3); k++) {
			for (uint64_t len = 1000; len <= LEN; len += LEN - 1000) {
				struct strait_transfer t = {
					.routes = masks[k], .endpoint = ep, .region = r, .length = len
				};
				struct strait_result res;

				strait_transfer_run(&t, STRAIT_FOREVER, &res);
				if (must && masks[k] != ROUTE(PAGECACHE))
					ASSERT_EQ(res.status, 0);
				ASSERT_GT(res.status, -4096);
				region_expect(r, 0, want, res.bytes);
				good += !res.status;
				ASSERT_OK(strait_queue_submit(q, &t, 1));
				ASSERT_EQ(strait_queue_wait(q, 1, 1, STRAIT_FOREVER, &res), 1);
				if (must && masks[k] != ROUTE(PAGECACHE))
					ASSERT_EQ(res.status, 0);
				region_expect(r, 0, want, res.bytes);
			}
		}
		strait_queue_close(q);
		strait_endpoint_close(ep);
		strait_region_close(r);
	}
	strait_context_close(ctx);
	return good;
}

static void become_nobody(void)
{
	char dir[4200];

	/* The other user must be able to reach the files. */
	snprintf(dir, sizeof(dir), "%s", test_dir());
	chmod(dir, 0755);
	chmod(dirname(dir), 0711);
	if (getuid())
		return;
	/* The driver may be in a folder that only its owner can enter. */
	if (on_cuda())
		ASSERT_TRUE(dlopen("libcuda.so.1", RTLD_NOW));
	ASSERT_EQ(setgroups(0, NULL), 0);
	ASSERT_EQ(setgid(NOBODY), 0);
	ASSERT_EQ(setuid(NOBODY), 0);
	/* Changing the user ID clears the dumpable flag, and with it access to /proc/self. */
	prctl(PR_SET_DUMPABLE, 1);
}

static void limit(int resource, rlim_t n)
{
	struct rlimit l = { n, n };

	ASSERT_EQ(setrlimit(resource, &l), 0);
}

/* Makes system calls fail with an errno, as a sandbox does. */
static void forbid(const int *calls, int error)
{
	struct sock_filter code[24];
	struct sock_fprog prog = { 0, code };

	code[prog.len++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (; *calls >= 0; calls++) {
		code[prog.len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)*calls, 0, 1);
		code[prog.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error);
	}
	code[prog.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		SKIP("no seccomp: %s", strerror(errno));
}

static const char *shared_file(void)
{
	const char *path = make_file("file", LEN, 1);

	chmod(path, 0644);
	want = pattern_new(0, LEN, 1);
	return path;
}

TEST(an_ordinary_user)
{
	const char *path = strdup(shared_file());

	evict(path, 0, 0);
	become_nobody();
	ASSERT_EQ(use_all(path, 0, true), 8);
	ASSERT_EQ(use_all(path, STRAIT_FILE_DIRECT, true), 8);
	ASSERT_EQ(use_all(path, STRAIT_FILE_LEASE, true), 8);
	free(want);
	free((char *)path);
}

/* The kernel reports cached pages only to the owner of a file: then nothing is assumed to be cached. */
TEST(a_file_of_another_user)
{
	struct strait_route_report rep = { .size = sizeof(rep) };
	const char *path = strdup(shared_file());
	struct strait_context *ctx;
	struct strait_region *r;
	struct strait_endpoint *ep;

	if (getuid())
		SKIP("needs root to make a file of another user's");
	if (!evict(path, 0, 0))
		SKIP("pages cannot be evicted here");
	become_nobody();
	ctx = context_new(NULL);
	r = region_new(device_named(ctx, "emu"), LEN);
	ep = file_new(ctx, path, O_RDONLY, 0);
	ASSERT_OK(strait_route_query_device(ep, device_named(ctx, "emu"), STRAIT_READ, &rep));
	ASSERT_EQ(rep.cached_bytes, 0);
	ASSERT_EQ(strait_read(ep, 0, r, 0, LEN), (ssize_t)LEN);
	region_expect(r, 0, want, LEN);
	strait_endpoint_close(ep);
	strait_region_close(r);
	strait_context_close(ctx);
	free(want);
	free((char *)path);
}

static const struct sandbox {
	const char *name;
	int calls[6];
	int error;
	bool pagecache;
} sandboxes[] = {
	{ "no-uring", { __NR_io_uring_setup, -1 }, EPERM, true },
	{ "no-uring-at-all", { __NR_io_uring_setup, -1 }, ENOSYS, true },
	{ "no-cachestat", { __NR_cachestat, -1 }, EPERM, true },
	{ "no-cachestat-nor-mincore", { __NR_cachestat, __NR_mincore, -1 }, ENOSYS, true },
	{ "no-vm-read", { __NR_process_vm_readv, -1 }, EPERM, false },
	{ "no-statx", { __NR_statx, -1 }, ENOSYS, true },
	{ "nothing-modern",
	  { __NR_io_uring_setup, __NR_cachestat, __NR_process_vm_readv, __NR_statx, __NR_preadv2, -1 },
	  ENOSYS,
	  false },
};

TEST_VARIANTS(a_sandbox, struct sandbox, sandboxes)
{
	const char *path = shared_file();
	int good;

	/* A part of the file is cached, so that both kinds of read are tried. */
	evict(path, LEN / 2, LEN / 4);
	forbid(v->calls, v->error);
	good = v->pagecache || on_cuda() ? 8 : 6;
	ASSERT_EQ(use_all(path, 0, true), good);
	ASSERT_EQ(use_all(path, STRAIT_FILE_DIRECT, true), good);
	free(want);
}

TEST(no_locked_memory)
{
	const char *path = strdup(shared_file());

	limit(RLIMIT_MEMLOCK, 0);
	become_nobody();
	ASSERT_EQ(use_all(path, 0, true), 8);
	free(want);
	free((char *)path);
}

/* Files that many threads read take descriptors, but leave enough for the application. */
TEST(descriptors_are_not_all_taken)
{
	enum { FILES = 60, EACH = 24 };
	struct strait_context_opts opts = { .size = sizeof(opts), .threads = 8 };
	struct strait_context *ctx = context_new(&opts);
	struct strait_region *r = region_new(device_named(ctx, "emu"), FILES * EACH * 100);
	struct strait_endpoint *ep[FILES];
	unsigned int before;
	struct strait_queue *q;

	want = pattern_new(0, EACH * 100, 1);
	limit(RLIMIT_NOFILE, 256);
	q = queue_new(ctx, EACH * FILES);
	before = descriptors_now();
	for (int i = 0; i < FILES; i++) {
		char name[32];

		snprintf(name, sizeof(name), "file%d", i);
		ep[i] = file_new(ctx, make_file(name, EACH * 100, 1), O_RDONLY, 0);
	}
	for (int round = 0; round < 5; round++) {
		struct strait_result res[EACH];

		for (uint64_t i = 0; i < FILES * EACH; i++) {
			struct strait_transfer t = { .endpoint = ep[i % FILES],
						     .region = r,
						     .endpoint_offset = i / FILES * 100,
						     .region_offset = i * 100,
						     .length = 100 };

			ASSERT_OK(strait_queue_submit(q, &t, 1));
		}
		for (int i = 0; i < FILES; i++) {
			ASSERT_EQ(strait_queue_wait(q, EACH, EACH, STRAIT_FOREVER, res), EACH);
			for (int k = 0; k < EACH; k++)
				ASSERT_EQ(res[k].bytes, 100);
		}
	}
	/* Two for each file, a quarter of the limit for threads, some for rings. */
	ASSERT_LE(descriptors_now(), before + 2 * FILES + 256 / 4 + 16);
	for (uint64_t i = 0; i < FILES * EACH; i++)
		region_expect(r, i * 100, want + i / FILES * 100, 100);
	for (int i = 0; i < FILES; i++)
		strait_endpoint_close(ep[i]);
	strait_queue_close(q);
	strait_region_close(r);
	strait_context_close(ctx);
	free(want);
}

TEST_WHERE(few_descriptors, where_not_cuda) /* the driver needs more and does not start */
TEST(few_descriptors)
{
	const char *path = shared_file();
	unsigned int now = descriptors_now();
	struct strait_context *ctx;

	/* With ever fewer descriptors available. */
	for (rlim_t left = 12; left > 0; left--) {
		limit(RLIMIT_NOFILE, now + left);
		use_all(path, 0, left > 8);
		use_all(path, STRAIT_FILE_DIRECT, left > 8);
	}
	ASSERT_OK(strait_context_open(NULL, &ctx));
	strait_context_close(ctx);
	free(want);
}

static void use_alone(void *arg)
{
	become_nobody();
	limit(RLIMIT_NPROC, 1);
	ASSERT_EQ(use_all(arg, 0, true), 8);
	ASSERT_EQ(threads_now(), 1);
}

TEST(no_threads)
{
	const char *path = strdup(shared_file());
	struct strait_context *ctx;
	struct strait_stream *s;

	inject(OS_THREAD, 1, UINT32_MAX, -EAGAIN);
	ASSERT_EQ(use_all(path, 0, true), 8);
	ASSERT_EQ(use_all(path, STRAIT_FILE_DIRECT, true), 8);
	ASSERT_EQ(use_all(path, STRAIT_FILE_LEASE, true), 8);
	ctx = context_new(NULL);
	ASSERT_OK(strait_stream_open(device_named(ctx, "emu"), &s));
	ASSERT_EQ(strait_stream_call(s, free, NULL), on_cuda() ? 0 : -EAGAIN);
	strait_stream_close(s);
	strait_context_close(ctx);
	inject_off();
	/* The same with a real limit. */
	if (!on_cuda())
		in_child(use_alone, (void *)path);
	free(want);
	free((char *)path);
}

/* A limit on the length of files, as write(2) reports it when SIGXFSZ is ignored. */
TEST(a_limit_on_file_length)
{
	struct strait_context *ctx = context_new(NULL);
	struct strait_region *r = region_new(device_named(ctx, "emu"), LEN);
	struct strait_endpoint *ep = file_new(ctx, test_path("out"), O_RDWR | O_CREAT, 0);
	struct strait_result res;

	want = pattern_new(0, LEN, 1);
	region_put_bytes(r, 0, want, LEN);
	signal(SIGXFSZ, SIG_IGN);
	limit(RLIMIT_FSIZE, MIB(3) + 5);
	res = move(STRAIT_WRITE, 0, ep, 0, r, 0, LEN);
	ASSERT_EQ(res.status, -EFBIG);
	ASSERT_EQ(res.bytes, MIB(3) + 5);
	ASSERT_EQ(file_length(test_path("out")), MIB(3) + 5);
	file_expect(test_path("out"), 0, want, MIB(3) + 5);
	strait_endpoint_close(ep);
	strait_region_close(r);
	strait_context_close(ctx);
	free(want);
}

/* Little device memory: what does not fit is refused. */
TEST_WHERE(little_device_memory, where_emulated)
TEST(little_device_memory)
{
	struct strait_device_info info = { .size = sizeof(info) };
	struct strait_context *ctx;
	struct strait_region *a, *b;
	struct strait_device *dev;

	setenv("STRAIT_EMU_MEMORY", "1048576", 1);
	ctx = context_new(NULL);
	dev = device_named(ctx, "emu");
	ASSERT_OK(strait_device_info(dev, &info));
	ASSERT_EQ(info.mem_total, MIB(1));
	ASSERT_EQ(info.mem_free, MIB(1));
	ASSERT_EQ(strait_region_alloc(dev, MIB(1) + 1, &a), -ENOMEM);
	ASSERT_OK(strait_region_alloc(dev, MIB(1) - KIB(64), &a));
	ASSERT_EQ(strait_region_alloc(dev, KIB(64) + 1, &b), -ENOMEM);
	ASSERT_OK(strait_region_alloc(dev, KIB(64), &b));
	ASSERT_OK(strait_device_info(dev, &info));
	ASSERT_EQ(info.mem_free, 0);
	strait_region_close(a);
	strait_region_close(b);
	ASSERT_OK(strait_device_info(dev, &info));
	ASSERT_EQ(info.mem_free, MIB(1));
	ASSERT_EQ(strait_region_alloc(dev, SIZE_MAX, &a), -EOVERFLOW);
	ASSERT_EQ(strait_region_alloc(dev, SIZE_MAX / 2, &a), -ENOMEM);
	strait_context_close(ctx);
}
