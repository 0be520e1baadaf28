/* SPDX-License-Identifier: MIT */
/* The emulated device: its memory and copies. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <strait/emu.h>
#include <strait/region.h>

#include "base/crc32c.h"
#include "base/util.h"
#include "device/emu/emu.h"
#include "harness/harness.h"
#include "os/os.h"

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

/* ---- memory ---- */

TEST(memory_is_zeroed_counted_and_numbered)
{
	struct strait_device_info info = { .size = sizeof(info) };
	struct provider_mem a, b;
	uint64_t before, id;
	char *cpu;

	setup();
	ASSERT_OK(ops->info(dev, &info));
	ASSERT_STREQ(info.name, "emu:0");
	ASSERT_STREQ(info.provider, "emu");
	ASSERT_EQ(info.page_size, 65536u);
	ASSERT_TRUE(info.caps & STRAIT_DEVICE_EMULATED);
	before = info.mem_free;

	ASSERT_OK(ops->mem_alloc(dev, 65537, &a));
	ASSERT_OK(ops->mem_alloc(dev, 1, &b));
	ASSERT_NE(a.id, b.id);
	ASSERT_OK(ops->info(dev, &info));
	ASSERT_EQ(info.mem_free, before - 3 * 65536);
	ASSERT_OK(ops->mem_map(dev, &a, (void **)&cpu));
	for (unsigned int i = 0; i < 65537; i++)
		ASSERT_EQ(cpu[i], 0);
	ASSERT_OK(ops->mem_sync_memops(dev, &a, true));
	id = max_u64(a.id, b.id);
	ops->mem_free(dev, &a);
	ops->mem_free(dev, &b);
	ASSERT_OK(ops->mem_alloc(dev, 65537, &a));
	ASSERT_GT(a.id, id);
	ops->mem_free(dev, &a);
	ASSERT_OK(ops->info(dev, &info));
	ASSERT_EQ(info.mem_free, before);
	teardown();
}

TEST(memory_ends)
{
	struct provider_mem m[4], none;
	void *p;

	setenv("STRAIT_EMU_MEMORY", "262144", 1);
	setup();
	for (int i = 0; i < 4; i++)
		ASSERT_OK(ops->mem_alloc(dev, 65536, &m[i]));
	ASSERT_EQ(ops->mem_alloc(dev, 1, &none), -ENOMEM);
	ASSERT_EQ(strait_emu_malloc(dev, 1, &p), -ENOMEM);
	ASSERT_EQ(strait_emu_malloc(dev, SIZE_MAX, &p), -ENOMEM);
	ops->mem_free(dev, &m[2]);
	ASSERT_OK(strait_emu_malloc(dev, 65536, &p));
	ASSERT_OK(strait_emu_free(dev, p));
	ops->mem_free(dev, &m[0]);
	ops->mem_free(dev, &m[1]);
	ops->mem_free(dev, &m[3]);
	teardown();
}

static enum os_call failing;

static bool fail_one(enum os_call call, int64_t *ret)
{
	*ret = -ENOMEM;
	return call == failing;
}

TEST(allocation_that_fails_halfway_leaves_nothing)
{
	static const enum os_call calls[] = { OS_MEMFD, OS_MMAP };
	struct strait_device_info info = { .size = sizeof(info) };
	struct provider_mem m;
	uint64_t before;

	setup();
	ASSERT_OK(ops->info(dev, &info));
	before = info.mem_free;
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		failing = calls[i];
		os_inject = fail_one;
		ASSERT_EQ(ops->mem_alloc(dev, 4096, &m), -ENOMEM);
		os_inject = NULL;
		ASSERT_OK(ops->info(dev, &info));
		ASSERT_EQ(info.mem_free, before);
	}
	teardown();
}

TEST(calls_of_the_driver_interface_check_their_device)
{
	struct strait_emu_model model = { .size = sizeof(model) };
	struct strait_device *host;
	struct provider_mem m;
	void *p = NULL;
	char *q;

	setup();
	ASSERT_OK(device_set_find(&set, "host", &host));
	ASSERT_EQ(strait_emu_malloc(host, 1, &p), -EINVAL);
	ASSERT_EQ(strait_emu_remove(host), -EINVAL);
	ASSERT_EQ(strait_emu_set_model(host, &model), -EINVAL);
	ASSERT_EQ(strait_emu_malloc(NULL, 1, &p), -EINVAL);
	ASSERT_EQ(strait_emu_malloc(dev, 0, &p), -EINVAL);
	model.size = 3;
	ASSERT_EQ(strait_emu_set_model(dev, &model), -EINVAL);
	ASSERT_OK(strait_emu_free(dev, NULL));
	q = device_malloc(8192);
	ASSERT_EQ(strait_emu_free(dev, q + 4096), -EINVAL);
	ASSERT_EQ(strait_emu_free(dev, &q), -EINVAL);
	ASSERT_OK(ops->mem_alloc(dev, 4096, &m));
	ASSERT_EQ(strait_emu_free(dev, (void *)(uintptr_t)m.addr), -EINVAL);
	ops->mem_free(dev, &m);
	/* Memory that an application leaks is freed with the context; @q is left for that. */
	teardown();
}

TEST(a_forked_child_owns_nothing)
{
	int status;
	pid_t pid;
	char *p;

	setup();
	p = device_malloc(4096);
	pid = fork();
	if (!pid) {
		void *q;

		_exit(strait_emu_malloc(dev, 1, &q) == -EOWNERDEAD && strait_emu_free(dev, p) == -EOWNERDEAD &&
				      strait_emu_remove(dev) == -EOWNERDEAD ?
			      0 :
			      1);
	}
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
	ASSERT_EQ(status, 0);
	ASSERT_OK(strait_emu_free(dev, p));
	teardown();
}

TEST(dmabuf_where_the_kernel_makes_them)
{
	struct provider_mem m;
	char *cpu;
	int fd = -1;

	setup();
	ASSERT_OK(ops->mem_alloc(dev, 131072, &m));
	if (!(m.caps & STRAIT_REGION_DMABUF)) {
		ASSERT_FALSE(dev->caps & STRAIT_DEVICE_DMABUF);
		ASSERT_EQ(ops->mem_dmabuf(dev, &m, 0, 65536, &fd), -EOPNOTSUPP);
		ops->mem_free(dev, &m);
		teardown();
		SKIP("no /dev/udmabuf");
	}
	cpu = (char *)(uintptr_t)m.addr;
	cpu[65536] = 'x';
	ASSERT_EQ(ops->mem_dmabuf(dev, &m, 100, 65536, &fd), -EINVAL);
	ASSERT_EQ(ops->mem_dmabuf(dev, &m, 65536, 131072, &fd), -EINVAL);
	ASSERT_OK(ops->mem_dmabuf(dev, &m, 65536, 65536, &fd));
	ops->mem_free(dev, &m);
	/* It keeps the memory alive. */
	cpu = mmap(NULL, 65536, PROT_READ, MAP_SHARED, fd, 0);
	ASSERT_NE(cpu, MAP_FAILED);
	ASSERT_EQ(cpu[0], 'x');
	munmap(cpu, 65536);
	close(fd);
	teardown();
}

/* ---- copies ---- */

/* Every alignment of both sides, and lengths on both sides of the threshold for streaming stores. */
TEST(copies_are_exact)
{
	static const size_t lens[] = { 1, 63, 4096, 262143, 262144, 262145, 262400, 300001, MIB(5) + 77 };
	static const size_t skews[] = { 0, 1, 15, 63, 64, 100 };
	size_t room = MIB(6);
	char *host = malloc(room), *back = malloc(room), *d;

	setup();
	d = device_malloc(room);
	pattern(host, room, 0);
	for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
		for (size_t k = 0; k < ARRAY_SIZE(skews) * ARRAY_SIZE(skews); k++) {
			size_t to = skews[k % ARRAY_SIZE(skews)] + 64, from = skews[k / ARRAY_SIZE(skews)];
			size_t len = lens[i];

			if (len > MIB(1) && k % 7)
				continue;
			ASSERT_OK(ops->fill(stream, number(d), 0xa5, len + 256));
			ASSERT_OK(ops->copy_in(stream, number(d) + to, host + from, len));
			ASSERT_EQ((unsigned char)d[to - 1], 0xa5);
			ASSERT_EQ((unsigned char)d[to + len], 0xa5);
			memset(back, 0, len + 1);
			ASSERT_OK(ops->copy_out(stream, back, number(d) + to, len));
			ASSERT_OK(ops->stream_wait(stream, STRAIT_FOREVER));
			ASSERT_EQ(memcmp(back, host + from, len), 0);
			ASSERT_EQ(back[len], 0);
		}
	}
	ASSERT_OK(ops->copy_in(stream, number(d), host, 0));
	ASSERT_OK(strait_emu_free(dev, d));
	free(host);
	free(back);
	teardown();
}

TEST(all_kinds_of_streaming_stores)
{
	enum { ROOM = 4096 };
	char *to = malloc(ROOM), *from = malloc(ROOM), *want = malloc(ROOM);
	unsigned int tried = 0;

	pattern(from, ROOM, 3);
	for (unsigned int kind = 0; kind < SOFT_COPY_KINDS; kind++) {
		for (size_t len = 0; len < 1200; len += 1 + len / 9) {
			for (size_t skew = 0; skew < 128; skew += 9) {
				memset(to, 0x5a, ROOM);
				memset(want, 0x5a, ROOM);
				memcpy(want + skew + 64, from + skew / 2, len);
				if (!soft_copy_streaming_kind(kind, to + skew + 64, from + skew / 2, len))
					goto next;
				ASSERT_EQ(memcmp(to, want, ROOM), 0);
			}
		}
		tried++;
next:;
	}
	free(to);
	free(from);
	free(want);
	if (!tried)
		SKIP("none in this build");
}

TEST(addresses_that_are_not_the_devices)
{
	struct copy_seg segs[2];
	char host[64], *d;
	uint32_t crc = 0;
	uint64_t where;

	setup();
	d = device_malloc(4096);
	ASSERT_EQ(ops->copy_in(stream, number(host), host, 1), -EFAULT);
	ASSERT_EQ(ops->copy_in(stream, number(d) + 4090, host, 7), -EFAULT);
	ASSERT_EQ(ops->copy_in(stream, number(d), host, UINT64_MAX), -EFAULT);
	ASSERT_EQ(ops->copy_out(stream, host, 4096, 1), -EFAULT);
	ASSERT_EQ(ops->fill(stream, number(d) + 4096, 0, 1), -EFAULT);
	ASSERT_EQ(ops->compare(stream, number(d), number(host), 1, &where), -EFAULT);
	ASSERT_EQ(ops->crc32c(stream, number(host), 1, &crc), -EFAULT);
	/* A list accepts only what a copy engine could reach. */
	segs[0] = (struct copy_seg){ number(d), number(d) + 64, 64 };
	segs[1] = (struct copy_seg){ number(d), number(host), 64 };
	ASSERT_OK(ops->copy_list(stream, segs, 1));
	ASSERT_EQ(ops->copy_list(stream, segs, 2), -EFAULT);
	segs[1] = (struct copy_seg){ number(host), number(host) + 32, 32 };
	ASSERT_EQ(ops->copy_list(stream, segs, 2), -EFAULT);
	ASSERT_OK(ops->stream_wait(stream, STRAIT_FOREVER));
	/* Refused lists hold no use of the memory. */
	ASSERT_OK(strait_emu_free(dev, d));
	teardown();
}

TEST(lists_of_any_length)
{
	enum { N = 1000 };
	static struct copy_seg segs[N];
	size_t len = N * 96;
	char *host = malloc(len), *back = calloc(1, len), *d;
	struct host_reg reg, reg_back;

	setup();
	d = device_malloc(len);
	pattern(host, len, 1);
	ASSERT_OK(ops->host_register(dev, host, len, 0, &reg));
	ASSERT_OK(ops->host_register(dev, back, len, 0, &reg_back));
	/* Backwards, with empty segments, and at several lengths near the one that needs an allocation. */
	for (unsigned int n = 0; n <= N; n = n < 20 ? n + 1 : n * 2 > N && n != N ? N : n * 2) {
		memset(d, 0, len);
		for (unsigned int i = 0; i < n; i++)
			segs[i] = (struct copy_seg){ number(d) + i * 96, reg.dev_addr + (n - 1 - i) * 96,
						     i % 5 ? 96 : 0 };
		ASSERT_OK(ops->copy_list(stream, segs, n));
		memset(segs, 0xff, sizeof(segs));
		ASSERT_OK(ops->stream_wait(stream, STRAIT_FOREVER));
		for (unsigned int i = 0; i < n; i++)
			ASSERT_EQ(memcmp(d + i * 96, i % 5 ? host + (n - 1 - i) * 96 : d + len - 96, i % 5 ? 96 : 0),
				  0);
		if (n == N)
			break;
	}
	for (unsigned int i = 0; i < N; i++)
		segs[i] = (struct copy_seg){ reg_back.dev_addr + i * 96, number(d) + i * 96, 96 };
	ASSERT_OK(ops->copy_list(stream, segs, N));
	ASSERT_OK(ops->stream_wait(stream, STRAIT_FOREVER));
	ASSERT_EQ(memcmp(back, d, len), 0);
	ops->host_unregister(dev, &reg);
	ops->host_unregister(dev, &reg_back);
	ASSERT_OK(strait_emu_free(dev, d));
	free(host);
	free(back);
	teardown();
}

TEST(compare_and_checksum)
{
	static const uint64_t at[] = { 0, 1, 7, 8, 16383, 16384, 4194303, 4194304, 5000000, 5242879 };
	size_t len = MIB(5);
	uint64_t where = 0;
	uint32_t crc;
	char *a, *b;

	setup();
	a = device_malloc(len);
	b = device_malloc(len);
	pattern(a, len, 2);
	ASSERT_OK(ops->copy_in(stream, number(b), a, len));
	ASSERT_OK(ops->compare(stream, number(a), number(b), len, &where));
	ASSERT_EQ(where, len);
	for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
		b[at[i]] ^= 0x10;
		b[len - 1] ^= 1;
		ASSERT_OK(ops->compare(stream, number(a), number(b), len, &where));
		ASSERT_EQ(where, at[i]);
		b[len - 1] ^= 1;
		b[at[i]] ^= 0x10;
	}
	ASSERT_OK(ops->compare(stream, number(a), number(b), 0, &where));
	ASSERT_EQ(where, 0u);
	crc = 0x1234;
	ASSERT_OK(ops->crc32c(stream, number(a), len, &crc));
	ASSERT_EQ(crc, crc32c_update(0x1234, a, len));
	ASSERT_OK(strait_emu_free(dev, a));
	ASSERT_OK(strait_emu_free(dev, b));
	teardown();
}
