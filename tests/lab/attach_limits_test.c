/* SPDX-License-Identifier: MIT */
/* /dev/strait: exclusive attachment, calls that are refused, and what remains when allocations fail. */
#include "raw.h"

#include <poll.h>
#include <sys/syscall.h>

#define LEN KIB(256)

static const struct log_sink no_log;

static int try_in_child(void *arg)
{
	struct strait_ioc_attach attach;
	struct raw *e = arg;
	int ko = (int)ASSERT_OK(raw_node(e->name));

	ASSERT_EQ(raw_attach(ko, &attach), -EBUSY);
	/* The inherited descriptor works as the original does. */
	ASSERT_OK(raw_control(e->ko, STRAIT_CONTROL_BUS_MASTER, 0));
	return 0;
}

TEST(one_at_a_time)
{
	struct raw e = raw_open();
	struct strait_ioc_attach attach;
	struct pci_device *dev;

	ASSERT_EQ(wait_for(start(try_in_child, &e)), 0);
	ASSERT_EQ(edu_try_open("strait", &dev), -EBUSY);
	ASSERT_TRUE(strstr(edu_why, "another process"));
	ASSERT_EQ(raw_attach(e.ko, &attach), -EBUSY);
	ASSERT_EQ(syscall(SYS_delete_module, "strait", O_NONBLOCK), -1);
	ASSERT_EQ(errno, EAGAIN);
	/* A mapping keeps the device attached, as an open descriptor does. */
	close(e.ko);
	ASSERT_EQ(edu_try_open("strait", &dev), -EBUSY);
	ASSERT_EQ(*(volatile uint32_t *)e.bar & 0xff, 0xed);
	munmap((void *)e.bar, MIB(1));
	ko_expect_counter("attached", 0);
	ASSERT_OK(edu_try_open("strait", &dev));
	pci_close(dev);
	ASSERT_EQ(edu_try_open("vfio", &dev), -EBUSY);
	ASSERT_TRUE(strstr(edu_why, "--driver vfio-pci"));
	pci_bind(e.name, NULL);
	ASSERT_EQ(edu_try_open(NULL, &dev), -EBUSY);
	ASSERT_TRUE(strstr(edu_why, "strait bind"));
	ASSERT_EQ(pci_open(&no_log, "0000:ff:1f.7", NULL, edu_why, sizeof(edu_why), &dev), -ENODEV);
	ASSERT_EQ(pci_open(&no_log, "sda", NULL, edu_why, sizeof(edu_why), &dev), -ENODEV);
}

/* An IOMMU in identity mode is no protection. */
TEST(untranslated_is_refused)
{
	char name[PCI_NAME], path[128], link[256], type[128];
	struct pci_device *dev;

	close(ko_open());
	pci_find(EDU_ID, name);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/iommu_group", name);
	ASSERT_GT(readlink(path, link, sizeof(link) - 1), 0);
	snprintf(type, sizeof(type), "/sys/kernel/iommu_groups/%d/type", atoi(strrchr(link, '/') + 1));
	pci_bind(name, NULL);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/driver/unbind", name);
	if (pci_driver(name)[0])
		ASSERT_OK(write_text(path, name));
	ASSERT_OK(write_text(type, "identity"));
	pci_bind(name, "strait");
	ASSERT_EQ(edu_try_open("strait", &dev), -EOPNOTSUPP);
	ASSERT_TRUE(strstr(edu_why, type));
	pci_bind(name, NULL);
	if (pci_driver(name)[0])
		ASSERT_OK(write_text(path, name));
	ASSERT_OK(write_text(type, "DMA-FQ"));
	pci_bind(name, "strait");
	ASSERT_OK(edu_try_open("strait", &dev));
	pci_close(dev);
}

TEST(wrong_calls)
{
	struct raw e = raw_open();
	int other = ko_open(), node = (int)ASSERT_OK(raw_node(e.name)), event;
	unsigned char *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint32_t region = ko_import(e.ko, STRAIT_IMPORT_USER, p, LEN);
	struct strait_ioc_runs runs = { .size = sizeof(runs), .handle = 1 };
	struct strait_ioc_irq irq = { .size = sizeof(irq), .fd = -1 };
	struct strait_ioc_attach attach;
	struct strait_ioc_map map;

	ASSERT_EQ(raw_control(other, STRAIT_CONTROL_BUS_MASTER, 1), -ENXIO);
	ASSERT_EQ(mmap(NULL, 4096, PROT_READ, MAP_SHARED, other, 0), MAP_FAILED);
	ASSERT_EQ(raw_attach(other, &attach), -ENXIO);
	attach.flags = 1;
	ASSERT_EQ(ko_call(node, STRAIT_IOC_ATTACH, &attach), -EINVAL);
	/* Calls of a file that has not attached the device. */
	ASSERT_EQ(raw_control(node, STRAIT_CONTROL_BUS_MASTER, 1), -ENXIO);
	ASSERT_EQ(mmap(NULL, 4096, PROT_READ, MAP_SHARED, node, 0), MAP_FAILED);
	close(node);
	ASSERT_EQ(ko_call(other, _IO(STRAIT_IOC, 0x18), &attach), -ENOTTY);
	ASSERT_EQ(raw_map(e.ko, 0, 0, LEN, &map), -ENOENT);
	ASSERT_EQ(raw_map(e.ko, region + 1, 0, LEN, &map), -ENOENT);
	ASSERT_EQ(raw_map(e.ko, region, 0, 0, &map), -EINVAL);
	ASSERT_EQ(raw_map(e.ko, region, 1, KIB(4), &map), -EINVAL);
	ASSERT_EQ(raw_map(e.ko, region, 0, LEN + KIB(4), &map), -EINVAL);
	ASSERT_EQ(raw_map(e.ko, region, UINT64_MAX - 4095, KIB(8), &map), -EINVAL);
	map = (struct strait_ioc_map){ .size = sizeof(map), .region = region, .length = LEN };
	ASSERT_EQ(ko_call(e.ko, STRAIT_IOC_MAP, &map), -EINVAL);
	map.flags = 8;
	ASSERT_EQ(ko_call(e.ko, STRAIT_IOC_MAP, &map), -EINVAL);
	ASSERT_OK(raw_map(e.ko, region, 0, LEN, &map));
	runs.handle = map.handle;
	runs.count = 1;
	ASSERT_EQ(ko_call(e.ko, STRAIT_IOC_RUNS, &runs), -EFAULT);
	runs.count = 0;
	ASSERT_OK(ko_call(e.ko, STRAIT_IOC_RUNS, &runs));
	runs.first = UINT32_MAX;
	runs.count = UINT32_MAX;
	ASSERT_OK(ko_call(e.ko, STRAIT_IOC_RUNS, &runs));
	ASSERT_EQ(runs.count, 0);
	ASSERT_EQ(raw_control(e.ko, 3, 0), -EINVAL);
	ASSERT_EQ(raw_control(e.ko, STRAIT_CONTROL_BUS_MASTER, 2), -EINVAL);
	ASSERT_EQ(raw_control(e.ko, STRAIT_CONTROL_RESET, 1), -EINVAL);
	ASSERT_EQ(raw_control(e.ko, STRAIT_CONTROL_RESET, 0), -EOPNOTSUPP);
	ASSERT_EQ(raw_control(e.ko, STRAIT_CONTROL_ADDRESS_BITS, 8), -EINVAL);
	ASSERT_OK(ko_call(e.ko, STRAIT_IOC_IRQ, &irq));
	irq.vector = 1;
	ASSERT_EQ(ko_call(e.ko, STRAIT_IOC_IRQ, &irq), -EINVAL);
	irq = (struct strait_ioc_irq){ .size = sizeof(irq), .fd = other };
	ASSERT_EQ(ko_call(e.ko, STRAIT_IOC_IRQ, &irq), -EINVAL);
	event = (int)syscall(SYS_eventfd2, 0, 0);
	irq.fd = event;
	for (int i = 0; i < 3; i++)
		ASSERT_OK(ko_call(e.ko, STRAIT_IOC_IRQ, &irq));
	close(event);
	/* No such BAR, past its end, private, write access to the status page, executable. */
	ASSERT_EQ(mmap(NULL, 4096, PROT_READ, MAP_SHARED, e.ko, STRAIT_MMAP_BAR(1)), MAP_FAILED);
	ASSERT_EQ(mmap(NULL, 4096, PROT_READ, MAP_SHARED, e.ko, STRAIT_MMAP_BAR(6)), MAP_FAILED);
	ASSERT_EQ(mmap(NULL, 8192, PROT_READ, MAP_SHARED, e.ko, STRAIT_MMAP_BAR(0) + MIB(1) - 4096), MAP_FAILED);
	ASSERT_EQ(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, e.ko, STRAIT_MMAP_BAR(0)), MAP_FAILED);
	ASSERT_EQ(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, e.ko, STRAIT_MMAP_BAR(0)), MAP_FAILED);
	ASSERT_EQ(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, e.ko, STRAIT_MMAP_STATUS), MAP_FAILED);
	ASSERT_EQ(mmap(NULL, 8192, PROT_READ, MAP_SHARED, e.ko, STRAIT_MMAP_STATUS), MAP_FAILED);
	ASSERT_EQ(mmap(NULL, 4096, PROT_READ, MAP_SHARED, e.ko, STRAIT_MMAP_STATUS + (1ull << 40)), MAP_FAILED);
	close(other);
	raw_close(&e);
}

TEST_TIMEOUT(as_many_mappings_as_allowed, 120)
{
	struct raw e = raw_open();
	unsigned char *p = mmap(NULL, KIB(4), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint32_t region = ko_import(e.ko, STRAIT_IMPORT_USER, p, KIB(4));
	struct strait_ioc_map map;
	int n = 1;

	while (!raw_map(e.ko, region, 0, KIB(4), &map))
		n++;
	ASSERT_EQ(n, STRAIT_MAPS_MAX);
	ASSERT_EQ(raw_map(e.ko, region, 0, KIB(4), &map), -ENOSPC);
	ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_UNMAP, 77));
	ASSERT_OK(raw_map(e.ko, region, 0, KIB(4), &map));
	raw_close(&e);
	ASSERT_EQ(ko_counter("maps"), 0);
	ko_expect_counter("pinned_bytes", 0);
}

static const struct kind {
	const char *name;
	uint32_t kind;
} kinds[] = {
	{ "user", STRAIT_IMPORT_USER },
	{ "p2p", STRAIT_IMPORT_P2P },
	{ "dmabuf", STRAIT_IMPORT_DMABUF },
};

/* Every allocation of attaching, mapping and interrupts fails once, without a leak. */
TEST_VARIANTS(each_allocation_fails, struct kind, kinds)
{
	int gpu = gpu_open(), event = (int)syscall(SYS_eventfd2, 0, 0), tries;
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN);
	unsigned char *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char name[PCI_NAME];

	pci_find(EDU_ID, name);
	pci_bind(name, "strait");
	for (tries = 1; tries < 40; tries++) {
		struct strait_ioc_irq irq = { .size = sizeof(irq), .fd = event };
		struct strait_ioc_attach attach;
		struct strait_ioc_map map;
		uint32_t region;
		int ko = (int)ASSERT_OK(raw_node(name)), rc;
		bool left;

		region = v->kind == STRAIT_IMPORT_USER ? ko_import(ko, v->kind, p, LEN) : raw_import(ko, v->kind, &m);
		ko_fail_nth((unsigned int)tries);
		rc = raw_attach(ko, &attach);
		if (!rc)
			rc = raw_map(ko, region, 0, LEN, &map);
		if (!rc && attach.vectors)
			rc = ko_call(ko, STRAIT_IOC_IRQ, &irq);
		left = ko_fail_left();
		ko_fail_nth(0);
		if (rc)
			ASSERT_EQ(rc, -ENOMEM);
		close(ko);
		ASSERT_EQ(ko_counter("maps"), 0);
		ASSERT_EQ(ko_counter("mapped_bytes"), 0);
		ASSERT_EQ(ko_counter("attached"), 0);
		if (left) {
			ASSERT_OK(rc);
			break;
		}
	}
	ASSERT_GE(tries, 7);
	ASSERT_LT(tries, 40);
	ko_expect_counter("device_bytes", 0);
	ko_expect_counter("pinned_bytes", 0);
	ASSERT_OK(gpu_free(&m));
}

/* The engine raises its interrupt: @event is signaled, and no other. */
static void expect_interrupt(struct raw *e, int event)
{
	struct pollfd poll_fd = { .fd = event, .events = POLLIN };
	uint64_t count;

	*(volatile uint32_t *)(e->bar + 0x60) = 1;
	ASSERT_EQ(poll(&poll_fd, 1, 5000 * (int)test_slow()), 1);
	ASSERT_EQ(read(event, &count, sizeof(count)), sizeof(count));
	*(volatile uint32_t *)(e->bar + 0x64) = 1;
}

/* An eventfd is replaced without a gap, and stays if replacing it fails. */
TEST(an_interrupt_has_an_eventfd_always)
{
	struct raw e = raw_open();
	int first = (int)syscall(SYS_eventfd2, 0, 0), second = (int)syscall(SYS_eventfd2, 0, 0);
	struct strait_ioc_irq irq = { .size = sizeof(irq), .fd = first };

	ASSERT_OK(ko_call(e.ko, STRAIT_IOC_IRQ, &irq));
	expect_interrupt(&e, first);
	irq.fd = e.ko;
	ASSERT_EQ(ko_call(e.ko, STRAIT_IOC_IRQ, &irq), -EINVAL);
	expect_interrupt(&e, first);
	/* The second eventfd needs no allocation, so none can fail. */
	irq.fd = second;
	ko_fail_nth(1);
	ASSERT_OK(ko_call(e.ko, STRAIT_IOC_IRQ, &irq));
	ASSERT_TRUE(ko_fail_left());
	ko_fail_nth(0);
	expect_interrupt(&e, second);
	raw_close(&e);
	close(first);
	close(second);
}

/* With a low limit of the module. */
TEST(device_memory_is_limited)
{
	int gpu = gpu_open(), n = 0;
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN);
	struct strait_ioc_map map;
	struct raw e;
	uint32_t region;

	close(ko_open());
	ASSERT_EQ(system(KO_UNLOAD " && modprobe strait device_mib_max=1"), 0);
	e = raw_open();
	region = raw_import(e.ko, STRAIT_IMPORT_DMABUF, &m);
	while (!raw_map(e.ko, region, 0, LEN, &map))
		n++;
	ASSERT_EQ(n, 4);
	ASSERT_EQ(raw_map(e.ko, region, 0, LEN, &map), -ENOSPC);
	ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_UNMAP, 3));
	ASSERT_OK(raw_map(e.ko, region, 0, LEN, &map));
	raw_close(&e);
	ko_expect_counter("device_bytes", 0);
	ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(system(KO_UNLOAD " && " KO_LOAD), 0);
}
