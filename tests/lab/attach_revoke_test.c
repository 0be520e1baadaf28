/* SPDX-License-Identifier: MIT */
/* /dev/strait: memory and devices that go away under a device in user space, and who may have one. */
#include "raw.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define LEN KIB(256)
#define SEED 21
#define TRIES 20 /* to be in time for the engine */

static const struct log_sink no_log;

/* Devices that write where they may not any more. */
__attribute__((constructor)) static void allow_faults(void)
{
	printf("# allow-log DMAR: (DRHD: handling fault|\\[DMA)\n");
	fflush(stdout);
}

static const struct kind {
	const char *name;
	uint32_t kind;
	bool again; /* the device is let go on */
} kinds[] = {
	{ "p2p", STRAIT_IMPORT_P2P, false },	   { "p2p_goes_on", STRAIT_IMPORT_P2P, true },
	{ "dmabuf", STRAIT_IMPORT_DMABUF, false }, { "dmabuf_goes_on", STRAIT_IMPORT_DMABUF, true },
	{ "nvp2p", STRAIT_IMPORT_NVP2P, false },   { "nvp2p_goes_on", STRAIT_IMPORT_NVP2P, true },
};

static uint32_t import_kind(int ko, uint32_t kind, const struct gpu_mem *m)
{
	struct strait_ioc_import imp = { .size = sizeof(imp), .kind = kind, .fd = -1, .length = m->len };
	int rc;

	raw_need_kind(ko, kind);
	if (kind == STRAIT_IMPORT_DMABUF)
		imp.fd = (int)ASSERT_OK(gpu_dmabuf(m, 0, m->len));
	else
		imp.address = (uintptr_t)m->p;
	rc = ko_call(ko, STRAIT_IOC_IMPORT, &imp);
	if (imp.fd >= 0)
		close(imp.fd);
	ASSERT_OK(rc);
	ASSERT_TRUE(imp.can & STRAIT_CAN_DMA);
	return imp.handle;
}

/* What one try works with. */
struct fixture {
	struct raw *e;
	const struct kind *kind;
	int gpu;
	uint32_t region, handle;
	struct gpu_mem next; /* what is in the place of the memory that was freed */
};

/* False when the engine was done before the memory was another's: on a busy machine that happens. */
static bool free_in_the_middle(struct fixture *s)
{
	struct gpu_mem m = gpu_alloc(s->gpu, PLAIN, LEN);
	struct raw *e = s->e;
	struct strait_ioc_map map;
	bool in_time;

	s->region = import_kind(e->ko, s->kind->kind, &m);
	ASSERT_OK(raw_map(e->ko, s->region, 0, LEN, &map));
	s->handle = map.handle;
	ASSERT_OK(raw_mapping(e->ko, STRAIT_IOC_MAPPED, map.handle));
	raw_load(e, SEED);
	raw_start(e, map.bus, EDU_MOST, true);
	ASSERT_OK(gpu_free(&m));
	gpu_unmap(&m);
	/* Pages are back when nobody reaches them any more. */
	ko_expect_counter("maps", 1);
	if (s->kind->again)
		ASSERT_OK(raw_control(e->ko, STRAIT_CONTROL_BUS_MASTER, 1));
	else
		ASSERT_FALSE(raw_master(e->name));
	gpu_free_bytes(s->gpu, PLAIN);
	s->next = gpu_alloc(s->gpu, PLAIN, LEN);
	ASSERT_EQ(s->next.bar, m.bar);
	fill(s->next.p, KIB(4), SEED + 1);
	in_time = raw_busy(e);
	raw_wait(e);
	sleep_ms(20);
	ASSERT_TRUE(filled(s->next.p, KIB(4), SEED + 1));
	ASSERT_TRUE(all_zero(s->next.p + KIB(4), LEN - KIB(4)));
	ASSERT_EQ(raw_mapping(e->ko, STRAIT_IOC_MAPPED, s->handle), -ENODEV);
	return in_time;
}

/*
 * Device memory is freed while the engine is about to write there. What has it next keeps what it puts there,
 * also when the device is allowed to go on: then the IOMMU says that it tried.
 */
TEST_VARIANTS_TIMEOUT(freed_in_the_middle, struct kind, kinds, 120)
{
	struct raw e = raw_open();
	struct fixture s = { .e = &e, .kind = v, .gpu = gpu_open() };
	uint64_t faults = raw_faults();
	struct strait_ioc_map map;
	int tries = 0;

	while (!free_in_the_middle(&s)) {
		ASSERT_LT(++tries, TRIES);
		ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_UNMAP, s.handle));
		ASSERT_OK(ko_release(e.ko, s.region));
		ASSERT_OK(gpu_free(&s.next));
		gpu_unmap(&s.next);
		ASSERT_OK(raw_control(e.ko, STRAIT_CONTROL_BUS_MASTER, 1));
	}
	if (v->again)
		ASSERT_GT(raw_faults(), faults);
	ASSERT_EQ(raw_map(e.ko, s.region, 0, LEN, &map), -ENODEV);
	ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_UNMAP, s.handle));
	/* It is as good as before. */
	ASSERT_OK(raw_control(e.ko, STRAIT_CONTROL_BUS_MASTER, 1));
	ASSERT_OK(raw_map(e.ko, import_kind(e.ko, v->kind, &s.next), 0, LEN, &map));
	raw_load(&e, SEED + 2);
	raw_start(&e, map.bus + KIB(64), EDU_MOST, true);
	raw_wait(&e);
	ASSERT_TRUE(filled(s.next.p + KIB(64), EDU_MOST, SEED + 2));
	raw_close(&e);
	ko_expect_counter("device_bytes", 0);
	ASSERT_OK(gpu_free(&s.next));
}

/* Memory of the process: unmapped, or its region released. */
TEST_TIMEOUT(host_memory_goes, 120)
{
	struct raw e = raw_open();
	uint64_t faults = raw_faults();
	int tries = 0;

	for (int done = 0; done < 2;) {
		unsigned char *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		uint32_t region = ko_import(e.ko, STRAIT_IMPORT_USER, p, LEN);
		struct strait_ioc_map map;
		bool in_time;

		ASSERT_LT(++tries, TRIES);
		ASSERT_OK(raw_map(e.ko, region, KIB(4), LEN - KIB(4), &map));
		raw_load(&e, SEED);
		raw_start(&e, map.bus, EDU_MOST, true);
		if (done) {
			ASSERT_OK(ko_release(e.ko, region));
		} else {
			ASSERT_EQ(munmap(p, LEN), 0);
			ko_expect_counter("maps", 1);
		}
		ASSERT_EQ(ko_counter("maps"), 1);
		in_time = raw_busy(&e);
		ASSERT_OK(raw_control(e.ko, STRAIT_CONTROL_BUS_MASTER, 1));
		raw_wait(&e);
		sleep_ms(20);
		ASSERT_EQ(raw_mapping(e.ko, STRAIT_IOC_MAPPED, map.handle), -ENODEV);
		ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_UNMAP, map.handle));
		if (!in_time)
			continue;
		if (!done)
			ASSERT_GT(raw_faults(), faults);
		else
			ASSERT_TRUE(all_zero(p, LEN));
		done++;
	}
	raw_close(&e);
	ko_expect_counter("pinned_bytes", 0);
}

struct thread_call {
	int ko;
	uint32_t handle, region;
	int rc;
};

static void *unmap_in_thread(void *arg)
{
	struct thread_call *c = arg;

	c->rc = raw_mapping(c->ko, STRAIT_IOC_UNMAP, c->handle);
	return NULL;
}

static void *map_in_thread(void *arg)
{
	struct thread_call *c = arg;
	struct strait_ioc_map map;

	c->rc = raw_map(c->ko, c->region, 0, LEN, &map);
	return NULL;
}

static void wait_in_window(const char *name)
{
	for (int i = 0; i < 2000 && !window_entered(name); i++)
		sleep_ms(1);
	ASSERT_GT(window_entered(name), 0);
}

/* The exporter takes a dma-buf back that is being unmapped: unmapped, and not yet detached. */
TEST(freed_while_it_is_unmapped)
{
	struct raw e = raw_open();
	int gpu = gpu_open();
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN);
	struct thread_call c = { .ko = e.ko, .rc = 1 };
	struct strait_ioc_map map;
	pthread_t thread;

	c.region = import_kind(e.ko, STRAIT_IMPORT_DMABUF, &m);
	ASSERT_OK(raw_map(e.ko, c.region, 0, LEN, &map));
	c.handle = map.handle;
	window_open("strait:detach", 300);
	ASSERT_EQ(pthread_create(&thread, NULL, unmap_in_thread, &c), 0);
	wait_in_window("strait:detach");
	/* Waits until no device has it mapped, not until it is detached. */
	ASSERT_OK(gpu_free(&m));
	ASSERT_GT(window_met("strait:detach"), 0);
	window_close("strait:detach");
	ASSERT_EQ(pthread_join(thread, NULL), 0);
	ASSERT_OK(c.rc);
	ASSERT_EQ(ko_counter("maps"), 1);
	gpu_unmap(&m);
	raw_close(&e);
	ko_expect_counter("device_bytes", 0);
}

/* The region is released while a mapping of it has been made and is not yet known to be one. */
TEST(released_while_it_is_mapped)
{
	struct raw e = raw_open();
	unsigned char *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct thread_call c = { .ko = e.ko, .region = ko_import(e.ko, STRAIT_IMPORT_USER, p, LEN), .rc = 1 };
	pthread_t thread;

	window_open("strait:map", 300);
	ASSERT_EQ(pthread_create(&thread, NULL, map_in_thread, &c), 0);
	wait_in_window("strait:map");
	ASSERT_OK(ko_release(e.ko, c.region));
	ASSERT_GT(window_met("strait:map"), 0);
	window_close("strait:map");
	ASSERT_EQ(pthread_join(thread, NULL), 0);
	ASSERT_EQ(c.rc, -ENODEV);
	ASSERT_EQ(ko_counter("maps"), 1);
	raw_close(&e);
	ko_expect_counter("pinned_bytes", 0);
}

struct owner {
	int go[2];
	bool exits;
	uint32_t kind;
};

static int own(void *arg)
{
	struct owner *o = arg;
	struct raw e = raw_open();
	int gpu = gpu_open();
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN);
	struct strait_ioc_map map;
	uint64_t bar = m.bar;

	ASSERT_OK(raw_map(e.ko, import_kind(e.ko, o->kind, &m), 0, LEN, &map));
	raw_load(&e, SEED);
	raw_start(&e, map.bus, EDU_MOST, true);
	ASSERT_EQ(write(o->go[1], &bar, sizeof(bar)), sizeof(bar));
	if (o->exits)
		return 0;
	for (;;)
		pause();
	return 0;
}

static const struct ending {
	const char *name;
	uint32_t kind;
	bool exits;
} endings[] = { { "killed_with_a_dmabuf", STRAIT_IMPORT_DMABUF, false },
		{ "killed_with_pages", STRAIT_IMPORT_P2P, false },
		{ "exits", STRAIT_IMPORT_DMABUF, true } };

/* Whoever has the device ends, with a transfer under way. */
TEST_VARIANTS(the_owner_ends, struct ending, endings)
{
	struct owner o = { .exits = v->exits, .kind = v->kind };
	uint64_t before[2], bar;
	int gpu = gpu_open();
	struct gpu_mem next;
	char name[PCI_NAME];
	pid_t pid;

	if (v->kind == STRAIT_IMPORT_P2P)
		close(ko_open_p2p());
	pci_find(EDU_ID, name);
	gpu_all_free(gpu, before);
	ASSERT_EQ(pipe(o.go), 0);
	pid = start(own, &o);
	ASSERT_EQ(read(o.go[0], &bar, sizeof(bar)), sizeof(bar));
	if (!v->exits)
		ASSERT_EQ(kill(pid, SIGKILL), 0);
	wait_for(pid);
	ko_expect_counter("attached", 0);
	ASSERT_FALSE(raw_master(name));
	gpu_expect_free(gpu, before);
	next = gpu_alloc(gpu, PLAIN, LEN);
	ASSERT_EQ(next.bar, bar);
	fill(next.p, LEN, SEED + 1);
	sleep_ms(ENGINE_MS * test_slow());
	ASSERT_TRUE(filled(next.p, LEN, SEED + 1));
	ASSERT_EQ(ko_counter("maps"), 0);
	ko_expect_counter("device_bytes", 0);
	ko_expect_counter("pinned_bytes", 0);
	ASSERT_OK(gpu_free(&next));
}

/*
 * The device goes, with a transfer under way: registers of ones, dead handles, no signal. False: the engine may have been
 * sooner, as the machine stood still.
 */
static bool take_device(bool remove)
{
	struct raw e = raw_open();
	int gpu = gpu_open();
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN);
	struct strait_ioc_map map;
	struct strait_ioc_config config = { .size = sizeof(config), .width = 4 };
	volatile struct strait_status *status = mmap(NULL, 4096, PROT_READ, MAP_SHARED, e.ko, STRAIT_MMAP_STATUS);
	char path[128];
	uint32_t region = import_kind(e.ko, STRAIT_IMPORT_DMABUF, &m);
	struct ko_gone gone;
	uint64_t begun;
	bool in_time;

	ASSERT_TRUE(status != MAP_FAILED && !status->gone);
	ASSERT_OK(raw_map(e.ko, region, 0, LEN, &map));
	raw_load(&e, SEED);
	fill(m.p, LEN, SEED + 1);
	ko_gone_watch(&gone, status);
	begun = now_ms();
	raw_start(&e, map.bus, EDU_MOST, true);
	if (remove)
		snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/remove", e.name);
	else
		snprintf(path, sizeof(path), "/sys/bus/pci/drivers/strait/unbind");
	ASSERT_OK(write_text(path, remove ? "1" : e.name));
	in_time = ko_gone_at(&gone) - begun < ENGINE_MS / 2;
	ASSERT_EQ(status->gone, 1);
	ASSERT_EQ(*(volatile uint32_t *)e.bar, UINT32_MAX);
	e.bar[0x40000] = 1;
	ASSERT_EQ(*(volatile uint32_t *)(e.bar + 0x80), UINT32_MAX);
	ASSERT_EQ(ko_call(e.ko, STRAIT_IOC_CONFIG, &config), -ENODEV);
	ASSERT_EQ(raw_control(e.ko, STRAIT_CONTROL_BUS_MASTER, 1), -ENODEV);
	ASSERT_EQ(raw_control(e.ko, STRAIT_CONTROL_RESET, 0), -ENODEV);
	ASSERT_EQ(raw_mapping(e.ko, STRAIT_IOC_MAPPED, map.handle), -ENODEV);
	ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_UNMAP, map.handle));
	ASSERT_EQ(raw_mapping(e.ko, STRAIT_IOC_UNMAP, map.handle), -ENOENT);
	ASSERT_EQ(raw_map(e.ko, region, 0, LEN, &map), -ENODEV);
	sleep_ms(ENGINE_MS * test_slow());
	ASSERT_TRUE(!in_time || filled(m.p, LEN, SEED + 1));
	/* It is another's while we still hold what is left of it. */
	if (remove)
		ASSERT_OK(write_text("/sys/bus/pci/rescan", "1"));
	pci_bind(e.name, "strait");
	{
		struct raw other = raw_open();

		ASSERT_EQ(*(volatile uint32_t *)e.bar, UINT32_MAX);
		ASSERT_EQ(*(volatile uint32_t *)other.bar & 0xff, 0xed);
		munmap((void *)status, 4096);
		munmap((void *)e.bar, MIB(1));
		close(e.ko);
		ASSERT_EQ(ko_counter("attached"), 1);
		ASSERT_EQ(*(volatile uint32_t *)other.bar & 0xff, 0xed);
		raw_close(&other);
	}
	munmap(e.host, KIB(4));
	ASSERT_OK(gpu_free(&m));
	return in_time;
}

TEST(the_device_is_removed)
{
	for (int tries = 0; !take_device(true); tries++)
		ASSERT_LT(tries, 10);
}

TEST(the_driver_is_unbound)
{
	for (int tries = 0; !take_device(false); tries++)
		ASSERT_LT(tries, 10);
}

static int try_in_child(void *arg)
{
	struct strait_ioc_attach attach;
	struct raw *e = arg;
	int ko = (int)ASSERT_OK(raw_node(e->name));

	ASSERT_EQ(raw_attach(ko, &attach), -EBUSY);
	/* What was passed on is as good as the original. */
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
	/* A mapping holds it as an open descriptor does. */
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

/* An IOMMU that lets everything pass is no protection. */
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
	/* Where there is no BAR, past one, not shared, to be written, executed. */
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

TEST_TIMEOUT(as_many_as_there_may_be, 120)
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

static const struct kind each[] = {
	{ "user", STRAIT_IMPORT_USER, false },
	{ "p2p", STRAIT_IMPORT_P2P, false },
	{ "dmabuf", STRAIT_IMPORT_DMABUF, false },
};

/* Every allocation of attaching, mapping and interrupts fails once, and nothing stays of it. */
TEST_VARIANTS(each_allocation_fails, struct kind, each)
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

		region = v->kind == STRAIT_IMPORT_USER ? ko_import(ko, v->kind, p, LEN) : import_kind(ko, v->kind, &m);
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

/* The engine raises its interrupt: @event is told, and no other. */
static void expect_interrupt(struct raw *e, int event)
{
	struct pollfd poll_fd = { .fd = event, .events = POLLIN };
	uint64_t count;

	*(volatile uint32_t *)(e->bar + 0x60) = 1;
	ASSERT_EQ(poll(&poll_fd, 1, 5000 * (int)test_slow()), 1);
	ASSERT_EQ(read(event, &count, sizeof(count)), sizeof(count));
	*(volatile uint32_t *)(e->bar + 0x64) = 1;
}

/* An eventfd is replaced without a moment in which there is none, and stays where replacing it fails. */
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
	/* Nothing is requested for the second: nothing can fail. */
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

/* With a module that allows little. */
TEST(device_memory_is_limited)
{
	int gpu = gpu_open(), n = 0;
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN);
	struct strait_ioc_map map;
	struct raw e;
	uint32_t region;

	close(ko_open());
	if (system("rmmod strait_nvp2p strait && modprobe strait device_mib_max=1"))
		SKIP("the module does not unload here");
	e = raw_open();
	region = import_kind(e.ko, STRAIT_IMPORT_DMABUF, &m);
	while (!raw_map(e.ko, region, 0, LEN, &map))
		n++;
	ASSERT_EQ(n, 4);
	ASSERT_EQ(raw_map(e.ko, region, 0, LEN, &map), -ENOSPC);
	ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_UNMAP, 3));
	ASSERT_OK(raw_map(e.ko, region, 0, LEN, &map));
	raw_close(&e);
	ko_expect_counter("device_bytes", 0);
	ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(system("rmmod strait && modprobe strait && modprobe strait_nvp2p"), 0);
}
