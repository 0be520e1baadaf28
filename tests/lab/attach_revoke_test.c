/* SPDX-License-Identifier: MIT */
/* /dev/strait: memory and devices that go away under a device in user space. */
#include "raw.h"

#include <signal.h>

#define LEN KIB(256)
#define SEED 21
#define TRIES 20 /* attempts to race with the engine */

/* Devices that write to revoked addresses. */
__attribute__((constructor)) static void allow_faults(void)
{
	printf("# allow-log DMAR: (DRHD: handling fault|\\[DMA)\n");
	fflush(stdout);
}

static const struct kind {
	const char *name;
	uint32_t kind;
	bool again; /* the device may continue */
} kinds[] = {
	{ "p2p", STRAIT_IMPORT_P2P, false },	   { "p2p_goes_on", STRAIT_IMPORT_P2P, true },
	{ "dmabuf", STRAIT_IMPORT_DMABUF, false }, { "dmabuf_goes_on", STRAIT_IMPORT_DMABUF, true },
	{ "nvp2p", STRAIT_IMPORT_NVP2P, false },   { "nvp2p_goes_on", STRAIT_IMPORT_NVP2P, true },
};

/* State of one attempt. */
struct fixture {
	struct raw *e;
	const struct kind *kind;
	int gpu;
	uint32_t region, handle;
	struct gpu_mem next; /* the memory that replaced the freed memory */
};

/* False if the engine finished before the memory had a new owner, which happens on a busy machine. */
static bool free_in_the_middle(struct fixture *s)
{
	struct gpu_mem m = gpu_alloc(s->gpu, PLAIN, LEN);
	struct raw *e = s->e;
	struct strait_ioc_map map;
	bool in_time;

	s->region = raw_import(e->ko, s->kind->kind, &m);
	ASSERT_OK(raw_map(e->ko, s->region, 0, LEN, &map));
	s->handle = map.handle;
	ASSERT_OK(raw_mapping(e->ko, STRAIT_IOC_MAPPED, map.handle));
	raw_load(e, SEED);
	raw_start(e, map.bus, EDU_MOST, true);
	ASSERT_OK(gpu_free(&m));
	gpu_unmap(&m);
	/* Pages are given back when no device reaches them any more. */
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
 * Device memory is freed while the engine is about to write to it. The next owner's data stays intact, also if the
 * device may continue: then the IOMMU reports a fault.
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
		raw_expect_fault(faults);
	ASSERT_EQ(raw_map(e.ko, s.region, 0, LEN, &map), -ENODEV);
	ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_UNMAP, s.handle));
	/* The device still works. */
	ASSERT_OK(raw_control(e.ko, STRAIT_CONTROL_BUS_MASTER, 1));
	ASSERT_OK(raw_map(e.ko, raw_import(e.ko, v->kind, &s.next), 0, LEN, &map));
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
			raw_expect_fault(faults);
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
	c->handle = c->rc ? 0 : map.handle;
	return NULL;
}

static void wait_in_window(const char *name)
{
	for (int i = 0; i < 2000 && !window_entered(name); i++)
		sleep_ms(1);
	ASSERT_GT(window_entered(name), 0);
}

/* The exporter revokes a dma-buf that is being unmapped: unmapped, and not yet detached. */
TEST(freed_while_it_is_unmapped)
{
	struct raw e = raw_open();
	int gpu = gpu_open();
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN);
	struct thread_call c = { .ko = e.ko, .rc = 1 };
	struct strait_ioc_map map;
	pthread_t thread;

	c.region = raw_import(e.ko, STRAIT_IMPORT_DMABUF, &m);
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

/* The region is released while a mapping of it has been made and is not yet published. */
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

/*
 * A mapping is published after a revocation took the region's memory and before it closed it for mappings: the
 * revocation ends the mapping.
 */
TEST(mapped_while_it_is_revoked)
{
	struct raw e = raw_open();
	unsigned char *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct thread_call c = { .ko = e.ko, .region = ko_import(e.ko, STRAIT_IMPORT_USER, p, LEN), .rc = 1 };
	pthread_t thread;

	window_open("strait:map", 300);
	window_open("strait:defer", 900);
	ASSERT_EQ(pthread_create(&thread, NULL, map_in_thread, &c), 0);
	wait_in_window("strait:map");
	ASSERT_OK(ko_release(e.ko, c.region));
	ASSERT_GT(window_entered("strait:defer"), 0);
	ASSERT_GT(window_met("strait:defer"), 0);
	window_close("strait:defer");
	window_close("strait:map");
	ASSERT_EQ(pthread_join(thread, NULL), 0);
	ASSERT_OK(c.rc);
	ASSERT_EQ(raw_mapping(e.ko, STRAIT_IOC_MAPPED, c.handle), -ENODEV);
	ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_UNMAP, c.handle));
	ko_expect_counter("maps", 1);
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

	ASSERT_OK(raw_map(e.ko, raw_import(e.ko, o->kind, &m), 0, LEN, &map));
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

/* The process that attached the device ends, with a transfer in flight. */
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
 * The device is removed with a transfer in flight: registers read as ones, handles are dead, no signal. False: the
 * engine may have finished before, because the machine stood still.
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
	uint32_t region = raw_import(e.ko, STRAIT_IMPORT_DMABUF, &m);
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
	/* Another process attaches it while this one still has its old file open. */
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
