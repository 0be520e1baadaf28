/* SPDX-License-Identifier: MIT */
/*
 * /dev/strait: random calls on a device in user space. Two threads use one file, which is replaced now and then, while
 * a third frees, unmaps and replaces the memory they map; each call is valid except for one argument, or random.
 * ATTACH_FUZZ_CALLS is the number of calls, ATTACH_FUZZ_SEED the seed. The test checks only that every call returns and
 * that all memory is free at the end; the kernel's log is scanned afterwards.
 */
#include "edu.h"
#include "fuzz.h"
#include "raw.h"

#include <pthread.h>
#include <sys/syscall.h>

#define CALLS 50000
#define FILE_CALLS 2500 /* on one file, before it is replaced */
#define LEN MIB(1)

/* Memory that is mapped while it is freed and allocated again. */
struct moving {
	int gpu;
	_Atomic int dmabuf;
	atomic_bool stop;
	unsigned char *device, *host;
};

static int event;
static char name[PCI_NAME];
static _Atomic uint32_t regions[FUZZ_HANDLES], maps[FUZZ_HANDLES];
static unsigned char *device, *host;
static struct moving moving = { .dmabuf = -1 };

union arg {
	union fuzz_arg any;
	struct strait_ioc_import import;
	struct strait_ioc_release release;
	struct strait_ioc_attach attach;
	struct strait_ioc_map map;
	struct strait_ioc_mapping mapping;
	struct strait_ioc_runs runs;
	struct strait_ioc_irq irq;
	struct strait_ioc_config config;
	struct strait_ioc_control control;
};

static struct strait_run runs_out[64];

static void good_import(struct fuzz *f, struct strait_ioc_import *a)
{
	*a = (struct strait_ioc_import){ .size = sizeof(*a), .kind = (uint32_t)below(f, 3) + 1, .fd = -1 };
	a->address = below(f, 16) * 4096;
	a->length = (below(f, 16) + 1) * 4096;
	if (a->kind == STRAIT_IMPORT_DMABUF)
		a->fd = atomic_load(&moving.dmabuf);
	else
		a->address += (uintptr_t)(a->kind == STRAIT_IMPORT_P2P ? below(f, 2) ? device : moving.device :
					  below(f, 2)		       ? host :
									 moving.host);
}

/* A valid call. */
static unsigned long good(struct fuzz *f, union arg *a)
{
	switch (below(f, 16)) {
	case 0:
	case 1:
	case 2:
		good_import(f, &a->import);
		return STRAIT_IOC_IMPORT;
	case 3:
		a->release = (struct strait_ioc_release){ .size = sizeof(a->release), .handle = some(f, regions) };
		return STRAIT_IOC_RELEASE;
	case 4:
		a->attach = (struct strait_ioc_attach){ .size = sizeof(a->attach) };
		return STRAIT_IOC_ATTACH;
	case 5:
	case 6:
	case 7:
	case 8:
		a->map = (struct strait_ioc_map){ .size = sizeof(a->map),
						  .flags = (uint32_t)below(f, 3) + 1,
						  .region = some(f, regions),
						  .offset = below(f, 8) * 4096,
						  .length = (below(f, 8) + 1) * 4096 };
		return STRAIT_IOC_MAP;
	case 9:
	case 10:
		a->mapping = (struct strait_ioc_mapping){ .size = sizeof(a->mapping), .handle = some(f, maps) };
		return below(f, 4) ? STRAIT_IOC_UNMAP : STRAIT_IOC_MAPPED;
	case 11:
		a->runs = (struct strait_ioc_runs){ .size = sizeof(a->runs),
						    .handle = some(f, maps),
						    .first = (uint32_t)below(f, 4),
						    .count = (uint32_t)below(f, 64),
						    .runs = (uintptr_t)runs_out };
		return STRAIT_IOC_RUNS;
	case 12:
		a->irq = (struct strait_ioc_irq){ .size = sizeof(a->irq), .fd = below(f, 2) ? event : -1 };
		return STRAIT_IOC_IRQ;
	case 13:
	case 14:
		a->config = (struct strait_ioc_config){ .size = sizeof(a->config),
							.width = 1u << below(f, 3),
							.offset = (uint32_t)below(f, 64) * 4 };
		return STRAIT_IOC_CONFIG;
	default:
		a->control = (struct strait_ioc_control){ .size = sizeof(a->control), .what = (uint32_t)below(f, 3) };
		a->control.value = a->control.what == STRAIT_CONTROL_ADDRESS_BITS ? (uint32_t)below(f, 40) + 25 :
				   a->control.what == STRAIT_CONTROL_RESET	  ? 0 :
										    (uint32_t)below(f, 2);
		return STRAIT_IOC_CONTROL;
	}
}

static void one_call(struct fuzz *f)
{
	union arg a = { .any = { .words = { 0 } } };
	unsigned long cmd = good(f, &a);

	if (fuzz_call(f, &cmd, &a.any, 128))
		return;
	if (cmd == STRAIT_IOC_IMPORT)
		keep(f, regions, a.import.handle);
	if (cmd == STRAIT_IOC_MAP)
		keep(f, maps, a.map.handle);
}

/* Maps registers, and reads one if that succeeds. Reads of some of them have no effect. */
static void one_mmap(struct fuzz *f)
{
	uint64_t off = below(f, 4) ? STRAIT_MMAP_BAR(below(f, 10)) + below(f, 300) * 4096 : odd(f);
	size_t len = (below(f, 4) + 1) * 4096;
	int prot = (int)below(f, 8);
	volatile uint32_t *p;

	p = mmap(NULL, len, prot, below(f, 8) ? MAP_SHARED : MAP_PRIVATE, f->fd, (off_t)(off & ~4095ull));
	if (p == MAP_FAILED)
		return;
	if (prot & PROT_READ)
		(void)p[below(f, len / 4)];
	if (below(f, 2))
		madvise((void *)p, len, 4 /* MADV_DONTNEED */);
	munmap((void *)p, len);
	f->good++;
}

static void *worker(void *arg)
{
	struct fuzz *f = arg;

	for (uint64_t i = 0; i < f->calls; i++) {
		if (below(f, 16))
			one_call(f);
		else
			one_mmap(f);
	}
	return NULL;
}

static void *mover(void *arg)
{
	struct moving *m = arg;

	while (!atomic_load(&m->stop)) {
		struct gpu_mem mem;
		int fd;

		ASSERT_OK(gpu_try_alloc(m->gpu, PLAIN, LEN, &mem));
		fd = (int)ASSERT_OK(gpu_dmabuf(&mem, 0, LEN));
		ASSERT_EQ(mmap(m->device, LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, m->gpu,
			       (off_t)mem.offset),
			  m->device);
		atomic_store(&m->dmabuf, fd);
		sleep_ms(20);
		ASSERT_EQ(mmap(m->host, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			  m->host);
		ASSERT_OK(gpu_free(&mem));
		close(fd);
	}
	return NULL;
}

TEST_TIMEOUT(random_calls, 3000)
{
	uint64_t calls = fuzz_env("ATTACH_FUZZ_CALLS", very_slow() ? CALLS / 4 : CALLS),
		 seed = fuzz_env("ATTACH_FUZZ_SEED", 1), before[2], good = 0;
	pthread_t moves;
	struct gpu_mem m;
	int gpu = gpu_open();

	event = (int)syscall(SYS_eventfd2, 0, 0);
	close(ko_open());
	pci_find(EDU_ID, name);
	pci_bind(name, "strait");
	gpu_all_free(gpu, before);
	m = gpu_alloc(gpu, PLAIN, LEN);
	device = m.p;
	host = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	moving.gpu = gpu_open();
	moving.device = mmap(NULL, LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	moving.host = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_EQ(pthread_create(&moves, NULL, mover, &moving), 0);
	for (uint64_t done = 0; done < calls; done += FILE_CALLS) {
		int ko = (int)ASSERT_OK(raw_node(name));

		memset(regions, 0, sizeof(regions));
		memset(maps, 0, sizeof(maps));
		good += fuzz_pair(ko, worker, FILE_CALLS, &seed, NULL);
		close(ko);
	}
	atomic_store(&moving.stop, true);
	ASSERT_EQ(pthread_join(moves, NULL), 0);
	printf("# %llu calls, %llu of them successful\n", (unsigned long long)calls, (unsigned long long)good);
	ASSERT_GT(good, calls / 50);
	ko_expect_counter("attached", 0);
	ko_expect_counter("maps", 0);
	ko_expect_counter("mapped_bytes", 0);
	ko_expect_counter("device_bytes", 0);
	ko_expect_counter("pinned_bytes", 0);
	ASSERT_GT(ko_counter("maps_revoked"), 0);
	munmap(moving.device, LEN);
	ASSERT_OK(gpu_free(&m));
	gpu_expect_free(gpu, before);
}
