/* SPDX-License-Identifier: MIT */
/* Processes forked while a thread is inside the driver: neither parent nor child waits for it. */
#include "fakecuda/common.h"

#include <cufile.h>

#define OK(call) ASSERT_EQ((int)(call).err, CU_FILE_SUCCESS)

/* As the driver does to load its kernel module. */
static void start_a_program(void)
{
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	ASSERT_GE(pid, 0);
	ASSERT_EQ(waitpid(pid, NULL, 0), pid);
}

TEST_TIMEOUT(the_driver_forks_when_it_starts, 20)
{
	struct strait_context *ctx;

	fake_machine.in_init = start_a_program;
	OK(cuFileDriverOpen());
	ASSERT_EQ(cuFileUseCount(), 1);
	OK(cuFileDriverClose());
	ctx = context_new(NULL);
	device_named(ctx, "cuda:0");
	strait_context_close(ctx);
	expect_clean();
}

static atomic_bool inside, go_on;

static void wait_to_go_on(void)
{
	atomic_store(&inside, true);
	while (!atomic_load(&go_on))
		sleep_ms(1);
}

static void reach_inside(void)
{
	while (!atomic_load(&inside))
		sleep_ms(1);
}

/* In the child no thread will ever finish what was begun: CUDA is not available, everything else is. */
static void opens_a_context(void *arg)
{
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_region *r;
	char why[200] = "";

	fake_machine.in_init = NULL;
	ctx = context_new(NULL);
	ASSERT_EQ(strait_device_find(ctx, "cuda:0", &dev), -ENODEV);
	ASSERT_OK(strait_device_missing_reason(ctx, "cuda:0", why, sizeof(why)));
	ASSERT_TRUE(strstr(why, "fork"));
	r = region_new(device_named(ctx, "emu:0"), 4096);
	ASSERT_OK(strait_region_fill(r, 0, 7, 4096));
	strait_region_close(r);
	strait_context_close(ctx);
}

static void opens_the_driver(void *arg)
{
	ASSERT_EQ(cuFileUseCount(), 0);
	opens_a_context(arg);
	OK(cuFileDriverOpen());
	ASSERT_EQ(cuFileUseCount(), 1);
	OK(cuFileDriverClose());
}

static void *open_context(void *arg)
{
	struct strait_context *ctx = context_new(NULL);

	device_named(ctx, "cuda:0");
	strait_context_close(ctx);
	return NULL;
}

static void *open_driver(void *arg)
{
	OK(cuFileDriverOpen());
	return NULL;
}

static const struct opener {
	const char *name;
	void *(*open)(void *arg);
	void (*child)(void *arg);
} openers[] = { { "context", open_context, opens_a_context }, { "cufile", open_driver, opens_the_driver } };

TEST_VARIANTS_TIMEOUT(forked_while_the_driver_starts, struct opener, openers, 30)
{
	struct strait_context *ctx;
	pthread_t t[3];

	fake_machine.in_init = wait_to_go_on;
	for (int i = 0; i < 3; i++)
		thread_start(&t[i], v->open, NULL);
	reach_inside();
	sleep_ms(20); /* the other threads wait for the first */
	in_child(v->child, NULL);
	atomic_store(&go_on, true);
	for (int i = 0; i < 3; i++)
		thread_join(t[i]);
	/* The parent is not affected. */
	ctx = context_new(NULL);
	device_named(ctx, "cuda:0");
	strait_context_close(ctx);
	while (cuFileUseCount())
		OK(cuFileDriverClose());
	expect_clean();
}

static void *close_driver(void *arg)
{
	OK(cuFileDriverClose());
	return NULL;
}

static void wait_on_the_stream(void *arg)
{
	wait_to_go_on();
}

static void finds_nothing(void *arg)
{
	ASSERT_EQ(cuFileUseCount(), 0);
}

/* The last close waits for the work of registered streams; the process can fork meanwhile. */
TEST_TIMEOUT(forked_while_the_driver_closes, 30)
{
	CUfileDescr_t d = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD };
	CUfileHandle_t fh;
	cu_context app;
	cu_stream s;
	cu_ptr ptr;
	size_t n = 1000;
	off_t off = 0, at = 0;
	ssize_t done = -99;
	pthread_t t;

	CU(cuInit(0));
	CU(cuCtxCreate_v2(&app, 0, 0));
	CU(cuMemAlloc_v2(&ptr, 4096));
	CU(cuStreamCreate(&s, 1));
	d.handle.fd = open(make_file("file", 4096, 1), O_RDONLY);
	OK(cuFileHandleRegister(&fh, &d));
	OK(cuFileStreamRegister((CUstream)s, 0));
	CU(cuLaunchHostFunc(s, wait_on_the_stream, NULL));
	OK(cuFileReadAsync(fh, (void *)ptr, &n, &off, &at, &done, (CUstream)s));
	reach_inside();
	thread_start(&t, close_driver, NULL);
	while (cuFileUseCount())
		sleep_ms(1);
	sleep_ms(20);
	in_child(finds_nothing, NULL);
	atomic_store(&go_on, true);
	thread_join(t);
	ASSERT_EQ(done, 1000);
	CU(cuStreamDestroy_v2(s));
	CU(cuMemFree_v2(ptr));
	close(d.handle.fd);
	expect_clean();
}
