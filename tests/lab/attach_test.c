/* SPDX-License-Identifier: MIT */
/* A PCI device in user space, through strait.ko: registers, interrupts, memory it reaches, and who may have it. */
#include "edu.h"

#include <poll.h>
#include <sys/syscall.h>

#define LEN KIB(256)
#define SEED 11

static struct device_set set;
static const struct log_sink no_log;

static struct strait_device *device(const char *name)
{
	struct strait_device *dev;

	ASSERT_OK(device_set_open(&set, &no_log, NULL));
	if (device_set_find(&set, name, &dev))
		SKIP("there is no device %s", name);
	return dev;
}

static void *host_pages(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	ASSERT_TRUE(p != MAP_FAILED);
	return p;
}

TEST(what_it_is)
{
	struct pci_device *dev = edu_open("strait");
	uint32_t value;

	ASSERT_STREQ(dev->ops->name, "strait");
	ASSERT_TRUE(dev->ops->revokes);
	ASSERT_EQ(dev->vendor, 0x1234);
	ASSERT_EQ(dev->device, 0x11e8);
	ASSERT_EQ(dev->bar[0].length, MIB(1));
	ASSERT_EQ(dev->bar[1].length, 0);
	ASSERT_EQ(dev->vectors, 1);
	ASSERT_EQ(pci_read32(dev, 0, 0) & 0xffff, 0x00ed);
	pci_write32(dev, 0, 4, 0x12345678);
	ASSERT_EQ(pci_read32(dev, 0, 4), ~0x12345678u);
	ASSERT_OK(dev->ops->config_read(dev, 0, 4, &value));
	ASSERT_EQ(value, EDU_ID);
	ASSERT_OK(dev->ops->config_read(dev, 2, 2, &value));
	ASSERT_EQ(value, 0x11e8);
	ASSERT_OK(dev->ops->config_read(dev, 4, 2, &value));
	ASSERT_TRUE(value & 4);
	ASSERT_OK(dev->ops->bus_master(dev, false));
	ASSERT_OK(dev->ops->config_read(dev, 4, 2, &value));
	ASSERT_FALSE(value & 4);
	ASSERT_EQ(dev->ops->config_read(dev, 2, 4, &value), -EINVAL);
	ASSERT_EQ(dev->ops->config_read(dev, 65536, 4, &value), -EINVAL);
	pci_close(dev);
	ko_expect_counter("attached", 0);
}

/* From one end of a mapping to the other, by the engine. */
static void move_through(struct pci_device *dev, const struct pci_mapping *m, volatile unsigned char *p, uint64_t len)
{
	static const uint64_t from[] = { 0, 5000, KIB(32) - 512 };

	for (unsigned int i = 0; i < ARRAY_SIZE(from); i++) {
		uint64_t to = len - EDU_MOST - from[i], run;
		uint64_t bus = pci_bus(m, from[i], &run);

		ASSERT_GE(run, EDU_MOST);
		edu_load(dev, bus, EDU_MOST);
		bus = pci_bus(m, to, &run);
		ASSERT_GE(run, EDU_MOST);
		edu_store(dev, bus, EDU_MOST);
		for (unsigned int k = 0; k < EDU_MOST; k++)
			ASSERT_EQ(p[to + k], p[from[i] + k]);
	}
}

TEST(host_memory)
{
	struct pci_device *dev = edu_open("strait");
	unsigned char *p = host_pages(LEN), *want = malloc(LEN);
	struct pci_mapping *m;

	fill(p, LEN, SEED);
	memcpy(want, p, LEN);
	ASSERT_OK(pci_map_host(dev, p, LEN, PCI_MAP_READ | PCI_MAP_WRITE, &m));
	ASSERT_EQ(m->length, LEN);
	/* Pages that lie anywhere are one piece behind the IOMMU. */
	ASSERT_EQ(m->count, 1);
	ASSERT_EQ(ko_counter("mapped_bytes"), LEN);
	ASSERT_EQ(ko_counter("pinned_bytes"), LEN);
	move_through(dev, m, p, LEN);
	/* Nothing else was touched. */
	ASSERT_MEMEQ(p, want, LEN / 2);
	ASSERT_OK(dev->ops->mapping_check(dev, m));
	pci_unmap(m);
	ASSERT_EQ(ko_counter("mapped_bytes"), 0);
	ko_expect_counter("pinned_bytes", 0);
	pci_close(dev);
}

static const struct variant {
	const char *name;
	uint64_t off, len;
} parts[] = { { "all", 0, LEN }, { "a_part", KIB(4) * 3, KIB(128) }, { "not_whole_pages", 700, KIB(128) + 100 } };

/* Of the lab's GPU, by a dma-buf; what is not whole pages by P2PDMA pages, where there are any. */
TEST_VARIANTS(device_memory, struct variant, parts)
{
	struct strait_device *gpu = device("vgpu:0");
	struct pci_device *dev = edu_open("strait");
	struct strait_region *r;
	struct pci_mapping *m;
	void *p;
	int rc;

	ASSERT_OK(region_alloc(gpu, LEN, &r));
	ASSERT_OK(gpu->ops->mem_map(gpu, &r->mem, &p));
	fill(p, LEN, SEED);
	rc = pci_map_region(dev, r, v->off, v->len, PCI_MAP_READ | PCI_MAP_WRITE, &m);
	ASSERT_OK(rc);
	ASSERT_EQ(m->length, v->len);
	ASSERT_EQ(m->count, 1);
	move_through(dev, m, (unsigned char *)p + v->off, v->len);
	pci_unmap(m);
	ASSERT_EQ(ko_counter("maps"), 0);
	region_put(r);
	pci_close(dev);
	device_set_close(&set);
	ko_expect_counter("device_bytes", 0);
}

TEST(interrupts)
{
	struct pci_device *dev = edu_open("strait");
	unsigned char *p = host_pages(KIB(4));
	struct pci_mapping *m;
	struct pollfd poll_fd = { .events = POLLIN };
	uint64_t count, run;
	int fd, again;

	ASSERT_OK(pci_map_host(dev, p, KIB(4), PCI_MAP_READ | PCI_MAP_WRITE, &m));
	ASSERT_OK(dev->ops->irq(dev, 0, &fd));
	ASSERT_OK(dev->ops->irq(dev, 0, &again));
	ASSERT_EQ(fd, again);
	ASSERT_EQ(dev->ops->irq(dev, 1, &again), -EINVAL);
	poll_fd.fd = fd;
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(poll(&poll_fd, 1, 0), 0);
		edu_start(dev, pci_bus(m, 0, &run), 0, 64, false, true);
		ASSERT_EQ(poll(&poll_fd, 1, 5000 * (int)test_slow()), 1);
		ASSERT_EQ(read(fd, &count, sizeof(count)), sizeof(count));
		ASSERT_EQ(count, 1);
		pci_write32(dev, 0, 0x64, pci_read32(dev, 0, 0x24));
	}
	pci_unmap(m);
	pci_close(dev);
}
