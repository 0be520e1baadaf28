/* SPDX-License-Identifier: MIT */
/*
 * A dma-buf whose exporter neither pins nor revokes, as udmabuf and NVIDIA's driver: what a device reaches of it after
 * the mapping was taken away. Some kernels map such a dma-buf when it is attached and unmap it when it is detached.
 */
#include "raw.h"

#include <fcntl.h>
#include <signal.h>

#include "os/os.h"

#define LEN KIB(64)
#define SEED 31
#define ROUNDS 30
#define ENGINE_AT_MS 100 /* when a transfer touches memory */

__attribute__((constructor)) static void allow_faults(void)
{
	printf("# allow-log DMAR: (DRHD: handling fault|\\[DMA)\n");
	fflush(stdout);
}

/* Memory of this process that is also a dma-buf. */
struct buf {
	int memfd, dmabuf;
	unsigned char *p;
};

static struct buf buf_new(void)
{
	struct buf b;

	if (access("/dev/udmabuf", F_OK))
		SKIP("there is no /dev/udmabuf");
	b.memfd = memfd_create("static", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ASSERT_GE(b.memfd, 0);
	ASSERT_EQ(ftruncate(b.memfd, LEN), 0);
	ASSERT_EQ(fcntl(b.memfd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	ASSERT_OK(os_udmabuf(b.memfd, 0, LEN, &b.dmabuf));
	b.p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, b.memfd, 0);
	ASSERT_TRUE(b.p != MAP_FAILED);
	memset(b.p, 0, LEN);
	return b;
}

static void buf_free(struct buf *b)
{
	munmap(b->p, LEN);
	close(b->dmabuf);
	close(b->memfd);
}

static uint32_t buf_import(const struct buf *b, int ko)
{
	struct strait_ioc_import imp = {
		.size = sizeof(imp), .kind = STRAIT_IMPORT_DMABUF, .fd = b->dmabuf, .length = LEN
	};

	raw_need_kind(ko, STRAIT_IMPORT_DMABUF);
	ASSERT_OK(ko_call(ko, STRAIT_IOC_IMPORT, &imp));
	return imp.handle;
}

/* The engine writes to @bus, to the end: nothing may arrive in @b. */
static void expect_lost(struct raw *e, const struct buf *b, uint64_t bus)
{
	uint64_t faults = raw_faults();

	ASSERT_OK(raw_control(e->ko, STRAIT_CONTROL_BUS_MASTER, 1));
	raw_load(e, SEED + 1);
	memset(b->p, 0, LEN);
	raw_start(e, bus, EDU_MOST, true);
	raw_wait(e);
	sleep_ms(20);
	ASSERT_TRUE(all_zero(b->p, LEN));
	ASSERT_GT(raw_faults(), faults);
}

/* A mapping that works, and is in the IOMMU's caches. */
static uint64_t map_and_use(struct raw *e, const struct buf *b, uint32_t region, uint32_t *handle)
{
	struct strait_ioc_map map;

	ASSERT_OK(raw_map(e->ko, region, 0, LEN, &map));
	raw_load(e, SEED);
	raw_start(e, map.bus, EDU_MOST, true);
	raw_wait(e);
	ASSERT_TRUE(filled(b->p, EDU_MOST, SEED));
	*handle = map.handle;
	return map.bus;
}

TEST(unmapped)
{
	struct raw e = raw_open();
	struct buf b = buf_new();
	uint32_t region = buf_import(&b, e.ko), handle;
	uint64_t bus = map_and_use(&e, &b, region, &handle);

	ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_UNMAP, handle));
	expect_lost(&e, &b, bus);
	ASSERT_OK(ko_release(e.ko, region));
	raw_close(&e);
	buf_free(&b);
	ko_expect_counter("device_bytes", 0);
}

TEST(released)
{
	struct raw e = raw_open();
	struct buf b = buf_new();
	uint32_t region = buf_import(&b, e.ko), handle;
	uint64_t bus = map_and_use(&e, &b, region, &handle);

	ASSERT_OK(ko_release(e.ko, region));
	ASSERT_FALSE(raw_master(e.name));
	ASSERT_EQ(raw_mapping(e.ko, STRAIT_IOC_MAPPED, handle), -ENODEV);
	expect_lost(&e, &b, bus);
	ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_UNMAP, handle));
	raw_close(&e);
	buf_free(&b);
	ko_expect_counter("device_bytes", 0);
}

/*
 * UNMAP is called when the engine is about to write, each time a little later: what is written after the call has
 * returned must not arrive, and a lazy IOMMU forgets mappings only when it is told to.
 */
TEST_TIMEOUT(unmapped_just_before_the_write, 120)
{
	struct raw e = raw_open();
	struct buf b = buf_new();
	uint32_t region = buf_import(&b, e.ko), handle;
	unsigned int in_time = 0;

	for (unsigned int i = 0; i < ROUNDS; i++) {
		uint64_t bus = map_and_use(&e, &b, region, &handle), begun;
		bool late;

		raw_load(&e, SEED + 2);
		memset(b.p, 0, LEN);
		begun = now_ms();
		raw_start(&e, bus, EDU_MOST, true);
		while (now_ms() < begun + ENGINE_AT_MS - 15 + i % 15)
			;
		ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_UNMAP, handle));
		late = !raw_busy(&e);
		raw_wait(&e);
		sleep_ms(20);
		if (late)
			continue;
		in_time++;
		ASSERT_TRUE(all_zero(b.p, LEN));
	}
	printf("# %u of %u calls returned before the engine wrote\n", in_time, ROUNDS);
	ASSERT_GE(in_time, 5);
	raw_close(&e);
	buf_free(&b);
}

static const struct leaving {
	const char *name;
	bool remove;
} leavings[] = { { "unbound", false }, { "removed", true } };

/* The device goes while the dma-buf is mapped: whoever has it next does not reach the memory, and closing is safe. */
TEST_VARIANTS(the_device_goes, struct leaving, leavings)
{
	struct raw e = raw_open(), next;
	struct buf b = buf_new();
	uint32_t region = buf_import(&b, e.ko), handle;
	uint64_t bus = map_and_use(&e, &b, region, &handle);
	char path[128];

	snprintf(path, sizeof(path),
		 v->remove ? "/sys/bus/pci/devices/%s/remove" : "/sys/bus/pci/devices/%s/driver/unbind", e.name);
	ASSERT_OK(write_text(path, v->remove ? "1" : e.name));
	ASSERT_EQ(raw_mapping(e.ko, STRAIT_IOC_MAPPED, handle), -ENODEV);
	ASSERT_EQ(ko_counter("maps"), 0);
	if (v->remove)
		ASSERT_OK(write_text("/sys/bus/pci/rescan", "1"));
	next = raw_open();
	expect_lost(&next, &b, bus);
	/* Not unmapped by its owner: closing does that. */
	munmap((void *)e.bar, MIB(1));
	munmap(e.host, KIB(4));
	close(e.ko);
	ko_expect_counter("device_bytes", 0);
	expect_lost(&next, &b, bus);
	raw_close(&next);
	buf_free(&b);
}

/* Several mappings of one region, some of them unmapped by their handles and the rest by closing. */
TEST(closed_with_mappings)
{
	struct raw e = raw_open(), next;
	struct buf b = buf_new();
	uint32_t region = buf_import(&b, e.ko), handle[4];
	uint64_t bus[4];

	for (int i = 0; i < 4; i++)
		bus[i] = map_and_use(&e, &b, region, &handle[i]);
	ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_UNMAP, handle[2]));
	expect_lost(&e, &b, bus[2]);
	raw_close(&e);
	ASSERT_EQ(ko_counter("maps"), 0);
	ko_expect_counter("device_bytes", 0);
	next = raw_open();
	for (int i = 0; i < 4; i++)
		expect_lost(&next, &b, bus[i]);
	raw_close(&next);
	buf_free(&b);
}

/* Asked for reading only: the device cannot write, or the answer says that it can. */
TEST(read_only)
{
	struct raw e = raw_open();
	struct buf b = buf_new();
	struct strait_ioc_map map = {
		.size = sizeof(map), .flags = STRAIT_MAP_READ, .region = buf_import(&b, e.ko), .length = LEN
	};

	ASSERT_OK(ko_call(e.ko, STRAIT_IOC_MAP, &map));
	ASSERT_EQ(map.where, STRAIT_WHERE_HOST);
	printf("# the device can %s\n", map.access & STRAIT_MAP_WRITE ? "read and write" : "read");
	ASSERT_TRUE(map.access & STRAIT_MAP_READ);
	if (map.access & STRAIT_MAP_WRITE) {
		raw_load(&e, SEED);
		raw_start(&e, map.bus, EDU_MOST, true);
		raw_wait(&e);
		ASSERT_TRUE(filled(b.p, EDU_MOST, SEED));
	} else {
		expect_lost(&e, &b, map.bus);
	}
	raw_close(&e);
	buf_free(&b);
}
