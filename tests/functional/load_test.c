/* SPDX-License-Identifier: MIT */
/* The shared library, loaded by dlopen(). */
#include "common.h"

struct visitor {
	__typeof__(strait_read) *read;
	struct strait_endpoint *ep;
	struct strait_region *r;
	ssize_t n;
	pthread_barrier_t step;
};

static void *visit(void *arg)
{
	struct visitor *v = arg;

	v->n = v->read(v->ep, 0, v->r, 0, 1000);
	pthread_barrier_wait(&v->step);
	pthread_barrier_wait(&v->step);
	return NULL;
}

/* A thread that has called the library ends after dlclose(). */
TEST(threads_live_longer)
{
	void *lib = open_library("libstrait.so.0");
	struct strait_context *ctx;
	struct strait_device *dev;
	struct visitor v;
	pthread_t thread;

	LOAD(lib, strait_context_open);
	LOAD(lib, strait_context_close);
	LOAD(lib, strait_device_find);
	LOAD(lib, strait_file_open);
	LOAD(lib, strait_endpoint_close);
	LOAD(lib, strait_region_alloc);
	LOAD(lib, strait_region_close);
	LOAD(lib, strait_read);
	ASSERT_OK(strait_context_open_p(NULL, &ctx));
	ASSERT_OK(strait_device_find_p(ctx, "emu:0", &dev));
	ASSERT_OK(strait_file_open_p(ctx, make_file("file", 1000, 1), O_RDONLY, 0, 0, &v.ep));
	ASSERT_OK(strait_region_alloc_p(dev, 1000, &v.r));
	v.read = strait_read_p;
	pthread_barrier_init(&v.step, NULL, 2);
	ASSERT_OK(pthread_create(&thread, NULL, visit, &v));
	pthread_barrier_wait(&v.step);
	ASSERT_EQ(v.n, 1000);
	strait_region_close_p(v.r);
	strait_endpoint_close_p(v.ep);
	strait_context_close_p(ctx);
	ASSERT_EQ(dlclose(lib), 0);
	ASSERT_EQ(dlopen(built_library("libstrait.so.0"), RTLD_NOW | RTLD_NOLOAD), NULL);
	pthread_barrier_wait(&v.step);
	ASSERT_OK(pthread_join(thread, NULL));
	pthread_barrier_destroy(&v.step);
}
