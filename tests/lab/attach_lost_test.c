/* SPDX-License-Identifier: MIT */
/* A device in user space that is reset or suspended, or a program whose memory blocks on a page fault. */
#include "raw.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>

#include "nvme.h"

#define LEN KIB(64)

__attribute__((constructor)) static void allow_errors(void)
{
	printf("# allow-log pcieport .*AER\n");
	fflush(stdout);
}

/* The drive, by its node: unlike the engine it can be reset. */
struct lost {
	int fd;
	char name[PCI_NAME];
	volatile uint32_t *bar;
	const volatile struct strait_status *status;
};

static struct lost lost_open(void)
{
	struct strait_ioc_attach attach;
	struct lost l;

	drive_bind("strait", l.name);
	l.fd = (int)ASSERT_OK(raw_node(l.name));
	ASSERT_OK(raw_attach(l.fd, &attach));
	l.bar = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, l.fd, STRAIT_MMAP_BAR(0));
	l.status = mmap(NULL, 4096, PROT_READ, MAP_SHARED, l.fd, STRAIT_MMAP_STATUS);
	ASSERT_TRUE(l.bar != MAP_FAILED && l.status != MAP_FAILED);
	ASSERT_NE(l.bar[2], UINT32_MAX);
	ASSERT_EQ(l.status->gone, 0);
	return l;
}

static void expect_lost(struct lost *l, const struct strait_ioc_map *map)
{
	for (int i = 0; i < 500 && !(l->status->gone && l->bar[2] == UINT32_MAX); i++)
		sleep_ms(10);
	ASSERT_EQ(l->status->gone, 1);
	ASSERT_EQ(l->bar[2], UINT32_MAX);
	ASSERT_EQ(raw_control(l->fd, STRAIT_CONTROL_BUS_MASTER, 1), -ENODEV);
	ASSERT_EQ(raw_mapping(l->fd, STRAIT_IOC_MAPPED, map->handle), -ENODEV);
	ASSERT_OK(raw_mapping(l->fd, STRAIT_IOC_UNMAP, map->handle));
	ASSERT_FALSE(raw_master(l->name));
	ko_expect_counter("attached", 0);
}

static void lost_close(struct lost *l)
{
	munmap((void *)l->bar, 4096);
	munmap((void *)l->status, 4096);
	close(l->fd);
}

static void map_something(struct lost *l, struct strait_ioc_map *map)
{
	void *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ASSERT_OK(raw_map(l->fd, ko_import(l->fd, STRAIT_IMPORT_USER, p, LEN), 0, LEN, map));
}

/* The same device can be opened again and works. */
static void expect_again(void)
{
	struct lost again = lost_open();
	struct strait_ioc_map map;

	map_something(&again, &map);
	lost_close(&again);
	ko_expect_counter("maps", 0);
	drive_give_back();
}

/* A reset by the administrator counts; one by the program itself does not. */
TEST(reset_from_outside)
{
	struct lost l = lost_open();
	struct strait_ioc_map map;
	char path[128];

	map_something(&l, &map);
	ASSERT_OK(raw_control(l.fd, STRAIT_CONTROL_RESET, 0));
	ASSERT_EQ(l.status->gone, 0);
	ASSERT_OK(raw_mapping(l.fd, STRAIT_IOC_MAPPED, map.handle));
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/reset", l.name);
	ASSERT_OK(write_text(path, "1"));
	expect_lost(&l, &map);
	lost_close(&l);
	expect_again();
}

/* Suspends all device drivers, and resumes after a while. */
TEST_TIMEOUT(suspended, 120)
{
	struct strait_ioc_map map;
	struct lost l;

	if (write_text("/sys/power/pm_test", "devices"))
		SKIP("this kernel cannot try to suspend");
	l = lost_open();
	map_something(&l, &map);
	write_text("/sys/module/suspend/parameters/pm_test_delay", "1");
	ASSERT_OK(write_text("/sys/power/state", "freeze"));
	ASSERT_OK(write_text("/sys/power/pm_test", "none"));
	expect_lost(&l, &map);
	lost_close(&l);
	expect_again();
}

/* A fatal error on the link: the port is reset with everything below it, and recovers. */
TEST_TIMEOUT(an_error_of_the_link, 120)
{
	struct strait_ioc_map map;
	struct lost l;

	if (access("/lab/bin/host", X_OK))
		SKIP("this is not the lab");
	l = lost_open();
	map_something(&l, &map);
	ASSERT_EQ(system("/lab/bin/host error drive"), 0);
	expect_lost(&l, &map);
	lost_close(&l);
	for (int i = 0; i < 500 && system("dmesg | grep -q 'AER: device recovery successful'"); i++)
		sleep_ms(20);
	ASSERT_EQ(system("dmesg | grep -q 'AER: device recovery successful'"), 0);
	expect_again();
}

/* A call whose result goes to a page that is missing until the test provides it. */
struct stuck {
	int fd;
	struct strait_ioc_runs runs;
	int rc;
};

static void *ask_for_runs(void *arg)
{
	struct stuck *s = arg;

	s->rc = ko_call(s->fd, STRAIT_IOC_RUNS, &s->runs);
	return NULL;
}

static int watch_page(void *page)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .range = { (uintptr_t)page, 4096 }, .mode = UFFDIO_REGISTER_MODE_MISSING };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		SKIP("this kernel has no userfaultfd");
	ASSERT_EQ(ioctl(fd, UFFDIO_API, &api), 0);
	ASSERT_EQ(ioctl(fd, UFFDIO_REGISTER, &reg), 0);
	return fd;
}

/* Unbinding does not wait for a page of a program's memory. */
TEST(unbound_while_an_answer_is_stuck)
{
	struct raw e = raw_open();
	unsigned char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *buf = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct stuck s = { .fd = e.ko,
			   .runs = { .size = sizeof(s.runs), .count = 1, .runs = (uintptr_t)page },
			   .rc = 1 };
	struct uffdio_zeropage zero = { .range = { (uintptr_t)page, 4096 } };
	struct pollfd ready = { .events = POLLIN };
	struct strait_ioc_map map;
	pthread_t thread;

	ASSERT_OK(raw_map(e.ko, ko_import(e.ko, STRAIT_IMPORT_USER, buf, LEN), 0, LEN, &map));
	s.runs.handle = map.handle;
	ready.fd = watch_page(page);
	ASSERT_EQ(pthread_create(&thread, NULL, ask_for_runs, &s), 0);
	ASSERT_EQ(poll(&ready, 1, 20000), 1);
	ASSERT_EQ(ready.revents, POLLIN);
	ASSERT_OK(write_text("/sys/bus/pci/drivers/strait/unbind", e.name));
	ASSERT_EQ(ko_counter("attached"), 0);
	ASSERT_EQ(ko_counter("maps"), 0);
	ASSERT_EQ(ioctl(ready.fd, UFFDIO_ZEROPAGE, &zero), 0);
	ASSERT_EQ(pthread_join(thread, NULL), 0);
	ASSERT_OK(s.rc);
	ASSERT_EQ(((struct strait_run *)page)->length, LEN);
	raw_close(&e);
}
