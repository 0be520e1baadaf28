/* SPDX-License-Identifier: MIT */
/* A PCI device in user space through either backend: registers, interrupts, memory it reaches. */
#include "edu.h"
#include "nvme.h"
#include "raw.h"

#include <poll.h>
#include <stdatomic.h>
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

static const struct backend {
	const char *name;
	bool revokes;
} backends[] = { { "strait", true }, { "vfio", false }, { "vfio-type1", false } };

TEST_VARIANTS(what_it_is, struct backend, backends)
{
	struct pci_device *dev = edu_open(v->name);
	uint32_t value;

	ASSERT_EQ(strncmp(dev->ops->name, v->name, strlen(dev->ops->name)), 0);
	ASSERT_EQ(dev->ops->revokes, v->revokes);
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
	ASSERT_LT(dev->ops->config_read(dev, 65536, 4, &value), 0);
	ASSERT_EQ(dev->ops->reset(dev), -EOPNOTSUPP);
	ASSERT_EQ(pci_address_bits(dev, 23), -EINVAL);
	ASSERT_EQ(pci_address_bits(dev, 65), -EINVAL);
	pci_close(dev);
}

/* From one end of a mapping to the other by the engine, which takes at most one run at a time. */
static void move_through(struct pci_device *dev, const struct pci_mapping *m, volatile unsigned char *p, uint64_t len)
{
	static const uint64_t from[] = { 0, 5000, KIB(32) - 512 };

	for (unsigned int i = 0; i < ARRAY_SIZE(from); i++) {
		uint64_t to = len - EDU_MOST - from[i], n;

		for (uint64_t done = 0; done < EDU_MOST; done += n) {
			uint64_t load_run, store_run;
			uint64_t load = pci_bus(m, from[i] + done, &load_run);
			uint64_t store = pci_bus(m, to + done, &store_run);

			n = min_u64(EDU_MOST - done, min_u64(load_run, store_run));
			ASSERT_GT(n, 0);
			edu_load(dev, load, (unsigned int)n);
			edu_store(dev, store, (unsigned int)n);
		}
		for (unsigned int k = 0; k < EDU_MOST; k++)
			ASSERT_EQ(p[to + k], p[from[i] + k]);
	}
}

TEST_VARIANTS(host_memory, struct backend, backends)
{
	struct pci_device *dev = edu_open(v->name);
	unsigned char *p = host_pages(LEN), *want = malloc(LEN);
	struct pci_mapping *m;

	fill(p, LEN, SEED);
	memcpy(want, p, LEN);
	ASSERT_OK(pci_map_host(dev, p, LEN, PCI_MAP_READ | PCI_MAP_WRITE, &m));
	ASSERT_EQ(m->length, LEN);
	/* Scattered pages are one run behind the IOMMU. */
	ASSERT_EQ(m->count, 1);
	if (v->revokes) {
		ASSERT_EQ(ko_counter("mapped_bytes"), LEN);
		ASSERT_EQ(ko_counter("pinned_bytes"), LEN);
	}
	move_through(dev, m, p, LEN);
	/* Nothing else was touched. */
	ASSERT_MEMEQ(p, want, LEN / 2);
	ASSERT_OK(dev->ops->mapping_check(dev, m));
	pci_unmap(m);
	if (v->revokes) {
		ASSERT_EQ(ko_counter("mapped_bytes"), 0);
		ko_expect_counter("pinned_bytes", 0);
	}
	pci_close(dev);
}

/* DMA addresses are as narrow as the device requires. */
TEST_VARIANTS(few_address_lines, struct backend, backends)
{
	struct pci_device *dev = edu_open(v->name);
	unsigned char *p = host_pages(LEN);
	struct pci_mapping *m;

	ASSERT_OK(pci_address_bits(dev, 28));
	for (int i = 0; i < 8; i++) {
		ASSERT_OK(pci_map_host(dev, p, LEN, PCI_MAP_READ | PCI_MAP_WRITE, &m));
		for (size_t k = 0; k < m->count; k++)
			ASSERT_LT(m->run[k].bus + m->run[k].length - 1, 1u << 28);
	}
	fill(p, LEN, SEED);
	move_through(dev, m, p, LEN);
	/* Closing unmaps remaining mappings. */
	pci_close(dev);
	if (v->revokes) {
		ko_expect_counter("maps", 0);
		ko_expect_counter("pinned_bytes", 0);
	}
}

static const struct variant {
	const char *name;
	uint64_t off, len;
} parts[] = { { "all", 0, LEN }, { "a_part", KIB(4) * 3, KIB(128) }, { "not_whole_pages", 700, KIB(128) + 100 } };

/* Memory of the lab's GPU, by a dma-buf; parts that are not whole pages by P2PDMA pages, where they exist. */
TEST_VARIANTS(device_memory, struct variant, parts)
{
	struct strait_device *gpu = device("vgpu:0");
	struct gpu_mem part = { .fd = gpu_open(), .len = v->len };
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
	/* Adjacent DMA addresses are one run, which may happen by chance. */
	part.p = (unsigned char *)p + v->off;
	ASSERT_GE(m->count, 1);
	ASSERT_LE(m->count, gpu_runs(&part));
	close(part.fd);
	move_through(dev, m, (unsigned char *)p + v->off, v->len);
	pci_unmap(m);
	ASSERT_EQ(ko_counter("maps"), 0);
	region_put(r);
	pci_close(dev);
	device_set_close(&set);
	ko_expect_counter("device_bytes", 0);
}

/* VFIO: only if the caller accepts it, because the CPU has the BAR mapped. */
TEST_VARIANTS(device_memory_through_vfio, struct variant, parts)
{
	struct strait_device *gpu = device("vgpu:0");
	struct pci_device *dev = edu_open("vfio-type1");
	struct strait_region *r;
	struct pci_mapping *m;
	void *p;

	ASSERT_OK(region_alloc(gpu, LEN, &r));
	ASSERT_OK(gpu->ops->mem_map(gpu, &r->mem, &p));
	fill(p, LEN, SEED);
	ASSERT_EQ(pci_map_region(dev, r, v->off, v->len, PCI_MAP_READ | PCI_MAP_WRITE, &m), -EOPNOTSUPP);
	ASSERT_OK(pci_map_region(dev, r, v->off, v->len, PCI_MAP_READ | PCI_MAP_WRITE | PCI_MAP_UNREVOCABLE, &m));
	ASSERT_EQ(m->length, v->len);
	ASSERT_EQ(m->count, 1);
	move_through(dev, m, (unsigned char *)p + v->off, v->len);
	pci_unmap(m);
	region_put(r);
	pci_close(dev);
	device_set_close(&set);
}

TEST(emulated_device_memory)
{
	struct strait_device *emu = device("emu:0");
	struct pci_device *dev = edu_open("strait");
	struct strait_region *r;
	struct pci_mapping *m;
	void *p;

	ASSERT_OK(region_alloc(emu, LEN, &r));
	ASSERT_OK(emu->ops->mem_map(emu, &r->mem, &p));
	fill(p, LEN, SEED);
	ASSERT_OK(pci_map_region(dev, r, 0, LEN, PCI_MAP_READ | PCI_MAP_WRITE, &m));
	move_through(dev, m, p, LEN);
	pci_unmap(m);
	region_put(r);
	pci_close(dev);
	device_set_close(&set);
}

TEST_VARIANTS(interrupts, struct backend, backends)
{
	struct pci_device *dev = edu_open(v->name);
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

/* The drive: it can be reset, and its interrupt table is in a BAR. */
TEST(a_drive)
{
	struct strait_ioc_attach attach = { .size = sizeof(attach) };
	char name[PCI_NAME], why[512];
	struct pci_device *dev;
	volatile uint32_t *table;
	uint32_t value;
	int ko;

	drive_bind("strait", name);
	ASSERT_OK(pci_open(&no_log, name, NULL, why, sizeof(why), &dev));
	ASSERT_EQ(dev->class_code, 0x010802);
	ASSERT_GT(dev->vectors, 1);
	ASSERT_GE(pci_read32(dev, 0, 8), 0x10000);
	/* As its driver left it, not disabled, until a reset. */
	ASSERT_OK(dev->ops->bus_master(dev, true));
	ASSERT_OK(dev->ops->reset(dev));
	ASSERT_EQ(pci_read32(dev, 0, 0x14) & 1, 0);
	ASSERT_OK(dev->ops->config_read(dev, 4, 2, &value));
	ASSERT_TRUE(value & 4);
	pci_close(dev);
	/* Its state is not there for the next program. */
	ko = (int)ASSERT_OK(raw_node(name));
	ASSERT_OK(ko_call(ko, STRAIT_IOC_ATTACH, &attach));
	ASSERT_GE(attach.irq_bar, 0);
	table = mmap(NULL, attach.irq_length, PROT_READ | PROT_WRITE, MAP_SHARED, ko,
		     (off_t)(STRAIT_MMAP_BAR(attach.irq_bar) + attach.irq_offset));
	ASSERT_TRUE(table != MAP_FAILED);
	/* The real table would show masked vectors. */
	for (unsigned int i = 0; i < 64; i++)
		ASSERT_EQ(table[i], 0);
	table[0] = 0xfee00000;
	ASSERT_EQ(munmap((void *)table, attach.irq_length), 0);
	table = mmap(NULL, attach.irq_length, PROT_READ | PROT_WRITE, MAP_SHARED, ko,
		     (off_t)(STRAIT_MMAP_BAR(attach.irq_bar) + attach.irq_offset));
	ASSERT_TRUE(table != MAP_FAILED);
	ASSERT_EQ(table[0], 0);
	ASSERT_EQ(munmap((void *)table, attach.irq_length), 0);
	close(ko);
	pci_bind(name, NULL);
	ASSERT_STREQ(pci_driver(name), "nvme");
	drive_give_back();
}

struct looker {
	struct pci_device *dev;
	uint32_t value; /* of a register that does not change */
	atomic_bool stop, wrong;
	atomic_uint looks;
};

static void *look(void *arg)
{
	struct looker *l = arg;

	while (!atomic_load(&l->stop)) {
		if (pci_read32(l->dev, 0, 8) != l->value)
			atomic_store(&l->wrong, true);
		atomic_fetch_add(&l->looks, 1);
	}
	return NULL;
}

/*
 * A thread that reads a register during a reset gets no signal and no other value, and continues when the reset is
 * done.
 */
TEST(registers_read_during_a_reset)
{
	struct looker l = { 0 };
	char name[PCI_NAME], why[512];
	pthread_t thread;

	drive_bind("strait", name);
	ASSERT_OK(pci_open(&no_log, name, NULL, why, sizeof(why), &l.dev));
	l.value = pci_read32(l.dev, 0, 8);
	ASSERT_EQ(pthread_create(&thread, NULL, look, &l), 0);
	for (int i = 0; i < 5; i++) {
		unsigned int looks;

		ASSERT_OK(l.dev->ops->reset(l.dev));
		looks = atomic_load(&l.looks);
		while (atomic_load(&l.looks) < looks + 10)
			sleep_ms(1);
	}
	atomic_store(&l.stop, true);
	ASSERT_EQ(pthread_join(thread, NULL), 0);
	ASSERT_FALSE(atomic_load(&l.wrong));
	pci_close(l.dev);
	drive_give_back();
}
