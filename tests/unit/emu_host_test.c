/* SPDX-License-Identifier: MIT */
/* The emulated device and its environment: registered host memory, the speed model, memory and devices that go away. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <strait/emu.h>

#include "base/util.h"
#include "device/emu/emu.h"
#include "device/region.h"
#include "harness/harness.h"
#include "os/os.h"

#define MS 1000000ll

static struct device_set set;
static const struct log_sink no_log;
static struct strait_device *dev;
static const struct provider_ops *ops;
static struct dev_stream *stream;

static void setup(void)
{
	ASSERT_OK(device_set_open(&set, &no_log, NULL));
	ASSERT_OK(device_set_find(&set, "emu:0", &dev));
	ops = dev->ops;
	ASSERT_OK(ops->stream_open(dev, NULL, &stream));
}

static void teardown(void)
{
	ops->stream_close(stream);
	device_set_close(&set);
}

static char *device_malloc(size_t len)
{
	void *p;

	ASSERT_OK(strait_emu_malloc(dev, len, &p));
	return p;
}

static uint64_t number(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

static void pattern(char *p, size_t len, unsigned int seed)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (char)((i * 2654435761u >> 13) + i + seed);
}

static void set_model(uint64_t bytes_per_second, uint64_t latency_ns)
{
	struct strait_emu_model m = { sizeof(m), bytes_per_second, latency_ns };

	ASSERT_OK(strait_emu_set_model(dev, &m));
}

/* ---- registered host memory ---- */

/* A file of @len bytes mapped read-only. */
static int map_file(size_t len, char **ret)
{
	char block[4096];
	int fd;

	fd = ASSERT_OK(open(test_path("file"), O_RDWR | O_CREAT | O_TRUNC, 0600));
	for (size_t at = 0; at < len; at += sizeof(block)) {
		pattern(block, sizeof(block), (unsigned int)at);
		ASSERT_EQ(write(fd, block, sizeof(block)), (ssize_t)sizeof(block));
	}
	ASSERT_OK(os_map_file(fd, 0, len, (void **)ret));
	return fd;
}

/* Whatever happens to the file, there is an error and no signal. */
TEST(a_file_that_shrinks_is_an_error)
{
	size_t len = MIB(1);
	struct copy_seg seg;
	struct host_reg reg;
	char *file, *d;
	int fd;

	setup();
	if (!(dev->caps & STRAIT_DEVICE_REGISTER_FILE))
		SKIP("process_vm_readv is forbidden here");
	d = device_malloc(len);
	fd = map_file(len, &file);
	ASSERT_OK(ops->host_register(dev, file, len, HOST_REG_READ_ONLY | HOST_REG_FILE, &reg));
	seg = (struct copy_seg){ number(d), reg.dev_addr, len };
	ASSERT_OK(ops->copy_list(stream, &seg, 1));
	ASSERT_OK(ops->stream_wait(stream, STRAIT_FOREVER));
	ASSERT_EQ(memcmp(d, file, len), 0);

	ASSERT_OK(ftruncate(fd, 65536));
	/* From a registered source the error comes with the stream ... */
	ASSERT_OK(ops->copy_list(stream, &seg, 1));
	ASSERT_EQ(ops->stream_wait(stream, STRAIT_FOREVER), -EFAULT);
	ASSERT_EQ(stream->status, EFAULT);
	ASSERT_OK(ops->copy_in(stream, number(d), file, len));
	ASSERT_EQ(ops->stream_wait(stream, STRAIT_FOREVER), -EFAULT);
	/* ... and what is left of the file is still good. */
	seg.len = 65536;
	ASSERT_OK(ops->copy_list(stream, &seg, 1));
	ASSERT_OK(ops->stream_wait(stream, STRAIT_FOREVER));
	/* Partly registered: the copy is synchronous and returns the error itself. */
	ops->host_unregister(dev, &reg);
	ASSERT_EQ(ops->host_register(dev, file, len, HOST_REG_READ_ONLY | HOST_REG_FILE, &reg), -EFAULT);
	ASSERT_OK(ops->host_register(dev, file, 65536, HOST_REG_READ_ONLY | HOST_REG_FILE, &reg));
	ASSERT_EQ(ops->copy_in(stream, number(d), file + 4096, 65536), -EFAULT);
	ASSERT_OK(ops->stream_wait(stream, 0));
	ops->host_unregister(dev, &reg);
	os_unmap(file, len);
	close(fd);
	ASSERT_OK(strait_emu_free(dev, d));
	teardown();
}

static void *truncator(void *arg)
{
	int fd = *(int *)arg;

	for (int i = 0; i < 300; i++) {
		ASSERT_OK(ftruncate(fd, 4096));
		ASSERT_OK(ftruncate(fd, MIB(1)));
	}
	return NULL;
}

TEST(a_file_that_shrinks_meanwhile)
{
	struct copy_seg seg;
	size_t len = MIB(1);
	pthread_t t;
	char *file, *d;
	int fd;

	setup();
	if (!(dev->caps & STRAIT_DEVICE_REGISTER_FILE))
		SKIP("process_vm_readv is forbidden here");
	d = device_malloc(len);
	fd = map_file(len, &file);
	pthread_create(&t, NULL, truncator, &fd);
	for (int i = 0; i < 300; i++) {
		struct host_reg reg;
		int rc = ops->host_register(dev, file, len, HOST_REG_READ_ONLY | HOST_REG_FILE, &reg);

		if (rc) {
			ASSERT_EQ(rc, -EFAULT);
			continue;
		}
		seg = (struct copy_seg){ number(d), reg.dev_addr, len };
		ASSERT_OK(ops->copy_list(stream, &seg, 1));
		rc = ops->stream_wait(stream, STRAIT_FOREVER);
		ASSERT_TRUE(!rc || rc == -EFAULT);
		ops->host_unregister(dev, &reg);
	}
	pthread_join(t, NULL);
	os_unmap(file, len);
	close(fd);
	ASSERT_OK(strait_emu_free(dev, d));
	teardown();
}

static void *registrar(void *arg)
{
	enum { N = 2000 };
	static _Thread_local struct host_reg regs[N];
	char *mem = arg;

	for (unsigned int i = 0; i < N; i++)
		ASSERT_OK(ops->host_register(dev, mem + i * 16, 64, i % 2 ? HOST_REG_READ_ONLY : 0, &regs[i]));
	for (unsigned int i = 0; i < N; i += 2)
		ops->host_unregister(dev, &regs[i]);
	for (unsigned int i = 1; i < N; i += 2) {
		struct copy_seg seg = { number(mem + MIB(1)), number(mem + i * 16), 64 };

		ASSERT_TRUE(soft_hostreg_covers(&soft_engine(dev)->regs, seg.src, 64));
		ASSERT_FALSE(soft_hostreg_covers(&soft_engine(dev)->regs, seg.src, 65));
	}
	for (unsigned int i = 1; i < N; i += 2)
		ops->host_unregister(dev, &regs[i]);
	ASSERT_FALSE(soft_hostreg_covers(&soft_engine(dev)->regs, number(mem), 1));
	return NULL;
}

TEST(thousands_of_registrations)
{
	pthread_t t[4];
	char *mem[4];

	setup();
	for (int i = 0; i < 4; i++) {
		mem[i] = malloc(MIB(2));
		pthread_create(&t[i], NULL, registrar, mem[i]);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], NULL);
		free(mem[i]);
	}
	ASSERT_EQ(soft_engine(dev)->regs.plain.root, NULL);
	teardown();
}

TEST(registrations_are_checked)
{
	struct host_reg reg;
	char c;

	setup();
	ASSERT_EQ(ops->host_register(dev, NULL, 1, 0, &reg), -EINVAL);
	ASSERT_EQ(ops->host_register(dev, &c, 0, 0, &reg), -EINVAL);
	ASSERT_EQ(ops->host_register(dev, &c, 1, 1u << 9, &reg), -EINVAL);
	ASSERT_OK(ops->mmio_map(dev, &c, 1, &reg));
	ASSERT_EQ(reg.dev_addr, number(&c));
	ops->mmio_unmap(dev, &reg);
	ASSERT_OK(ops->flush_peer_writes(dev));
	teardown();
}

/* ---- the model ---- */

TEST(the_model_takes_its_time)
{
	struct dev_stream *other;
	struct copy_seg seg[2];
	struct host_reg reg;
	char *host = malloc(MIB(2)), *d;
	uint64_t began;

	setup();
	d = device_malloc(MIB(2));
	ASSERT_OK(ops->stream_open(dev, NULL, &other));
	ASSERT_OK(ops->host_register(dev, host, MIB(2), 0, &reg));
	set_model(MIB(1) * 20, 5 * MS);
	/* 1 MiB at 20 MiB/s and 5 ms: 55 ms. From unregistered memory the call itself takes that long. */
	began = os_now_ns();
	ASSERT_OK(ops->copy_in(stream, number(d), host, MIB(1)));
	ASSERT_OK(ops->stream_wait(stream, STRAIT_FOREVER));
	ASSERT_GE(os_now_ns() - began, 55ull * MS);
	ops->host_unregister(dev, &reg);
	began = os_now_ns();
	ASSERT_OK(ops->copy_out(stream, host, number(d), MIB(1)));
	ASSERT_GE(os_now_ns() - began, 55ull * MS);
	ASSERT_OK(ops->host_register(dev, host, MIB(2), 0, &reg));

	/* Two streams share the engine of one direction. */
	began = os_now_ns();
	seg[0] = (struct copy_seg){ number(d), reg.dev_addr, KIB(512) };
	seg[1] = (struct copy_seg){ number(d) + KIB(512), reg.dev_addr, KIB(512) };
	ASSERT_OK(ops->copy_list(stream, seg, 2));
	ASSERT_OK(ops->copy_in(other, number(d) + MIB(1), host, MIB(1)));
	ASSERT_EQ(ops->stream_wait(other, 0), -ETIMEDOUT);
	ASSERT_EQ(ops->stream_wait(other, MS), -ETIMEDOUT);
	ASSERT_OK(ops->stream_wait(stream, STRAIT_FOREVER));
	ASSERT_GE(os_now_ns() - began, 55ull * MS);
	ASSERT_OK(ops->stream_wait(other, STRAIT_FOREVER));
	ASSERT_GE(os_now_ns() - began, 110ull * MS);
	set_model(0, 0);
	ASSERT_OK(ops->fill(stream, number(d), 1, MIB(1)));
	ASSERT_OK(ops->stream_wait(stream, 0));
	ops->stream_close(other);
	ops->host_unregister(dev, &reg);
	ASSERT_OK(strait_emu_free(dev, d));
	free(host);
	teardown();
}

/* ---- memory that is given back, devices that are gone ---- */

struct freer {
	char *p;
	atomic_bool ended;
};

static void *free_thread(void *arg)
{
	struct freer *f = arg;

	ASSERT_OK(strait_emu_free(dev, f->p));
	atomic_store(&f->ended, true);
	return NULL;
}

/* Work on a stream holds a use of the memory, without a region. */
TEST(free_waits_for_copies)
{
	static char host[65536];
	struct freer f = { 0 };
	struct host_reg reg;
	uint64_t began;
	pthread_t t;
	char *q;

	setup();
	f.p = device_malloc(sizeof(host));
	q = device_malloc(sizeof(host));
	ASSERT_OK(ops->host_register(dev, host, sizeof(host), 0, &reg));
	set_model(0, 50 * MS);
	began = os_now_ns();
	ASSERT_OK(ops->copy_in(stream, number(f.p), host, sizeof(host)));
	ASSERT_OK(ops->copy_out(stream, host, number(f.p), sizeof(host)));
	pthread_create(&t, NULL, free_thread, &f);
	/* Other memory is not delayed. */
	ASSERT_OK(strait_emu_free(dev, q));
	pthread_join(t, NULL);
	ASSERT_GE(os_now_ns() - began, 100ull * MS);
	/* Its thread has dropped the memory, and reports that a moment later. */
	ASSERT_OK(ops->stream_wait(stream, 1000 * MS));
	ASSERT_EQ(ops->copy_in(stream, number(f.p), host, 1), -EFAULT);
	ops->host_unregister(dev, &reg);
	teardown();
}

#define COPIERS 4

static _Atomic(char *) target;
static atomic_bool stop;

static atomic_uint copied, n_copiers;

/* Each uses its own part of the memory. */
static void *copier(void *arg)
{
	size_t at = atomic_fetch_add(&n_copiers, 1) * KIB(300);
	char *host = malloc(KIB(300));
	struct dev_stream *s;

	ASSERT_OK(ops->stream_open(dev, NULL, &s));
	memset(host, 1, KIB(300));
	while (!atomic_load(&stop)) {
		int rc = ops->copy_in(s, number(atomic_load(&target)) + at, host, KIB(300));

		/* Never a fault of this process, whatever happens to the memory. */
		ASSERT_TRUE(!rc || rc == -EFAULT || rc == -ENODEV);
		if (!rc)
			atomic_fetch_add(&copied, 1);
	}
	ops->stream_close(s);
	free(host);
	return NULL;
}

TEST(copies_against_frees_and_removal)
{
	pthread_t t[COPIERS];
	char *p;

	setup();
	p = device_malloc(COPIERS * KIB(300));
	atomic_store(&target, p);
	for (int i = 0; i < COPIERS; i++)
		pthread_create(&t[i], NULL, copier, NULL);
	for (int i = 0; i < 100; i++) {
		char *q = device_malloc(COPIERS * KIB(300));
		unsigned int before = atomic_load(&copied);

		atomic_store(&target, q);
		ASSERT_OK(strait_emu_free(dev, p));
		p = q;
		while (atomic_load(&copied) == before)
			os_sleep_ns(10000);
	}
	ASSERT_OK(strait_emu_remove(dev));
	os_sleep_ns(MS);
	atomic_store(&stop, true);
	for (int i = 0; i < COPIERS; i++)
		pthread_join(t[i], NULL);
	ASSERT_OK(strait_emu_free(dev, p));
	teardown();
}

TEST(removal_in_the_middle_of_a_copy)
{
	static char host[65536];
	struct dev_stream *other;
	struct dev_event *e;
	struct host_reg reg, no_reg;
	struct strait_region *r;
	struct provider_mem m;
	uint64_t began, where;
	void *p;
	char *d;

	setup();
	d = device_malloc(sizeof(host));
	ASSERT_OK(region_import(&set, NULL, number(d), 4096, 0, &r));
	ASSERT_OK(ops->host_register(dev, host, sizeof(host), 0, &reg));
	ASSERT_OK(ops->stream_open(dev, NULL, &other));
	ASSERT_OK(ops->event_open(stream, &e));
	set_model(0, 3600000 * MS);
	began = os_now_ns();
	ASSERT_OK(ops->copy_in(stream, number(d), host, sizeof(host)));
	ASSERT_OK(ops->event_record(e, stream));
	ASSERT_OK(ops->copy_in(stream, number(d), host, sizeof(host)));
	os_sleep_ns(5 * MS);
	ASSERT_EQ(ops->event_wait(e, 0), -ETIMEDOUT);
	ASSERT_OK(strait_emu_remove(dev));
	ASSERT_EQ(strait_emu_remove(dev), -EALREADY);
	/* The copies end long before the model's time. */
	ASSERT_EQ(ops->event_wait(e, STRAIT_FOREVER), -ENODEV);
	ASSERT_EQ(ops->stream_wait(stream, STRAIT_FOREVER), -ENODEV);
	ASSERT_LT(os_now_ns() - began, 600000ull * MS);

	ASSERT_EQ(region_use(r, 0, 1), -ENODEV);
	ASSERT_EQ(ops->copy_in(other, number(d), host, 1), -ENODEV);
	ASSERT_EQ(ops->copy_list(other, NULL, 0), -ENODEV);
	ASSERT_EQ(ops->compare(other, number(d), number(d), 1, &where), -ENODEV);
	ASSERT_EQ(ops->event_record(e, other), -ENODEV);
	ASSERT_EQ(ops->mem_alloc(dev, 1, &m), -ENODEV);
	ASSERT_EQ(ops->mem_import(dev, number(d), 1, 0, &m), -ENODEV);
	ASSERT_EQ(ops->host_register(dev, host, 1, 0, &no_reg), -ENODEV);
	ASSERT_EQ(strait_emu_malloc(dev, 1, &p), -ENODEV);
	ASSERT_OK(ops->stream_wait(other, 0));
	ops->event_close(e);
	ops->stream_close(other);
	ops->host_unregister(dev, &reg);
	region_put(r);
	ASSERT_OK(strait_emu_free(dev, d));
	teardown();
}
