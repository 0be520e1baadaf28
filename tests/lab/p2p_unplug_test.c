/* SPDX-License-Identifier: MIT */
/* /dev/strait and route p2p when the drive, or the GPU, is unplugged during I/O. */
#include "outside.h"
#include "p2p.h"

#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include <strait/strait.h>

#define SEED 61
#define LEN MIB(8)
#define DEPTH 32
#define NODE "/dev/nvme0n1"

static const struct place places[] = PLACES;

/*
 * pciehp takes its reset_lock and the lock of all PCI removals in both orders, which lockdep reports for any device
 * that is unplugged, and then reports nothing more. Printed before the plan, because output of tests is captured.
 */
__attribute__((constructor)) static void allow_report(void)
{
	if (getenv("LAB_KERNEL") && !strcmp(getenv("LAB_KERNEL"), "debug"))
		printf("# allow-log WARNING: possible circular locking dependency detected\n");
}

struct user {
	int ko, file;
	uint32_t op, handle;
	struct strait_context *ctx;
	struct strait_device *dev;
	atomic_int *begun, *stop;
	void *p;
	int64_t end; /* how it ended: an error, or fewer bytes than expected */
};

/*
 * A removed drive has length 0 for a process that has it open: reading it is reading past its end. A file system
 * returns an error.
 */

/* By blocking calls. */
static void *by_ioctl(void *arg)
{
	struct user *u = arg;
	bool first = true;

	do {
		u->end = ko_io(u->ko, u->op, u->handle, u->file, 0, 0, MIB(1), NULL);
		atomic_fetch_add(u->begun, first);
		first = false;
	} while (u->end == MIB(1));
	return NULL;
}

static void prepare(struct io_uring *ring, const struct user *u, uint64_t off)
{
	uint32_t cmd_op = u->op == STRAIT_OP_READ ? STRAIT_URING_READ : STRAIT_URING_WRITE;

	ko_sqe(ring, u->ko, cmd_op, u->handle, u->file, off, off, KIB(128));
}

/* By io_uring commands, as many as fit in a ring, until one fails. */
static void *by_uring(void *arg)
{
	struct user *u = arg;
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	bool first = true;

	ASSERT_OK(io_uring_queue_init(DEPTH, &ring, 0));
	do {
		for (unsigned int i = 0; i < DEPTH; i++)
			prepare(&ring, u, i * KIB(128));
		ASSERT_EQ(io_uring_submit(&ring), DEPTH);
		atomic_fetch_add(u->begun, first);
		first = false;
		u->end = KIB(128);
		for (unsigned int i = 0; i < DEPTH; i++) {
			ASSERT_OK(io_uring_wait_cqe(&ring, &cqe));
			u->end = cqe->res < u->end ? cqe->res : u->end;
			io_uring_cqe_seen(&ring, cqe);
		}
	} while (u->end == KIB(128));
	io_uring_queue_exit(&ring);
	return NULL;
}

/* By the library, which would use another route if one were allowed. */
static void *by_library(void *arg)
{
	struct user *u = arg;
	struct strait_transfer t = { .op = STRAIT_READ, .length = MIB(1) };
	struct strait_result res;
	bool first = true;

	ASSERT_OK(strait_file_import(u->ctx, u->file, STRAIT_FILE_DIRECT, &t.endpoint));
	ASSERT_OK(strait_region_alloc(u->dev, t.length, &t.region));
	do {
		u->end = strait_transfer_run(&t, STRAIT_FOREVER, &res);
		u->end = u->end ? u->end : (int64_t)res.bytes;
		if (first)
			ASSERT_EQ(res.route_bytes[STRAIT_ROUTE_P2P], MIB(1));
		atomic_fetch_add(u->begun, first);
		first = false;
	} while (u->end == MIB(1));
	strait_region_close(t.region);
	strait_endpoint_close(t.endpoint);
	return NULL;
}

static void *(*const methods[])(void *) = { by_ioctl, by_uring, by_ioctl, by_uring, by_library };

static void wait_node(bool there)
{
	for (int i = 0; i < 3000 && !access(NODE, F_OK) != there; i++)
		sleep_ms(10);
	ASSERT_EQ(!access(NODE, F_OK), there);
}

/* Plugged in again. It has its old name, because nothing of the old device is in use any more. */
static void put_back(const struct place *place, int ko, uint32_t handle, const struct gpu_mem *m)
{
	unsigned char *want = malloc(LEN);
	char answer[64];
	int file;

	ASSERT_TRUE(want);
	outside_ask(answer, sizeof(answer), "plug drive");
	wait_node(true);
	file = place_file(place, LEN, SEED + 1, 0);
	file_pattern(want, 0, LEN, SEED + 1);
	ASSERT_EQ(ko_io(ko, STRAIT_OP_READ, handle, file, 0, 0, LEN, NULL), LEN);
	ASSERT_MEMEQ(m->p, want, LEN);
	close(file);
	place_unmount();
	free(want);
}

TEST_VARIANTS_TIMEOUT(taken_out_in_the_middle_of_io, struct place, places, 180)
{
	int ko = ko_open_p2p(), gpu = gpu_open(), file;
	struct user u[ARRAY_SIZE(methods)];
	pthread_t thread[ARRAY_SIZE(methods)];
	struct strait_context *ctx;
	struct strait_device *dev;
	struct gpu_mem m;
	atomic_int begun = 0;
	uint64_t before[2];
	uint32_t handle;
	char answer[64];

	if (getenv("LAB_TOPOLOGY") && !strcmp(getenv("LAB_TOPOLOGY"), "flat"))
		SKIP("a drive in the root complex cannot be taken out");
	ASSERT_OK(strait_context_open(NULL, &ctx));
	ASSERT_OK(strait_device_find(ctx, "vgpu:0", &dev));
	file = place_file(v, LEN, SEED, 0);
	gpu_all_free(gpu, before);
	m = gpu_alloc(gpu, PLAIN, LEN);
	handle = ko_import(ko, STRAIT_IMPORT_P2P, m.p, m.len);
	for (unsigned int i = 0; i < ARRAY_SIZE(methods); i++) {
		u[i] = (struct user){ .ko = ko,
				      .file = file,
				      .op = i / 2 % 2 ? STRAIT_OP_WRITE : STRAIT_OP_READ,
				      .handle = handle,
				      .ctx = ctx,
				      .dev = dev,
				      .begun = &begun };
		ASSERT_EQ(pthread_create(&thread[i], NULL, methods[i], &u[i]), 0);
	}
	while (atomic_load(&begun) < (int)ARRAY_SIZE(methods))
		sleep_ms(5);
	outside_ask(answer, sizeof(answer), "unplug drive");
	for (unsigned int i = 0; i < ARRAY_SIZE(methods); i++) {
		ASSERT_EQ(pthread_join(thread[i], NULL), 0);
		ASSERT_LE(u[i].end, v->mkfs || u[i].op == STRAIT_OP_WRITE ? -1 : 0);
	}
	ko_expect_counter("in_flight", 0);
	/* The memory can still be used. */
	fill(m.p, LEN, 3);
	ASSERT_TRUE(filled(m.p, LEN, 3));
	ASSERT_LE(ko_io(ko, STRAIT_OP_READ, handle, file, 0, 0, KIB(64), NULL), 0);
	close(file);
	strait_context_close(ctx);
	place_unmount();
	wait_node(false);
	put_back(v, ko, handle, &m);
	ASSERT_OK(ko_release(ko, handle));
	ASSERT_OK(gpu_free(&m));
	gpu_expect_free(gpu, before);
	ko_expect_counter("device_bytes", 0);
}

static void pull_gpu(int gpu)
{
	char cmd[64];

	snprintf(cmd, sizeof(cmd), "/lab/bin/pull %.16s", gpu_info(gpu).pci);
	ASSERT_EQ(system(cmd), 0);
}

/* Into a mapping of the memory, as any program: afterwards anonymous memory is mapped there. */
static void *by_mapping(void *arg)
{
	struct user *u = arg;
	bool first = true;

	do {
		u->end = pread(u->file, u->p, MIB(1), 0);
		atomic_fetch_add(u->begun, first);
		first = false;
	} while (!atomic_load(u->stop));
	return NULL;
}

static void gpu_back(int ko, int file)
{
	struct gpu_mem m;
	uint32_t handle;
	char answer[64];
	int gpu;

	outside_ask(answer, sizeof(answer), "plug gpu");
	for (int i = 0; i < 6000 && access("/dev/strait_vgpu0", F_OK); i++)
		sleep_ms(10);
	gpu = gpu_open();
	m = gpu_alloc(gpu, PLAIN, LEN);
	handle = ko_import(ko, STRAIT_IMPORT_P2P, m.p, m.len);
	ASSERT_EQ(ko_io(ko, STRAIT_OP_READ, handle, file, 0, 0, LEN, NULL), LEN);
	ASSERT_OK(ko_release(ko, handle));
	close(gpu);
	gpu_unmap(&m);
}

/* Without notice: the drive's DMA goes to memory that is gone. */
TEST_TIMEOUT(the_gpu_is_pulled_in_the_middle_of_io, 180)
{
	static void *(*const uses[])(void *) = { by_ioctl, by_uring, by_ioctl,	 by_uring,
						 by_ioctl, by_uring, by_library, by_mapping };
	int ko = ko_open_p2p(), gpu = gpu_open(), file;
	struct user u[ARRAY_SIZE(uses)];
	pthread_t thread[ARRAY_SIZE(uses)];
	atomic_int begun = 0, stop = 0;
	struct strait_ioc_import imp;
	struct strait_context *ctx;
	struct strait_device *dev;
	uint32_t handle[2];
	struct gpu_mem m;

	if (getenv("LAB_TOPOLOGY") && !strcmp(getenv("LAB_TOPOLOGY"), "flat"))
		SKIP("a device in the root complex is in no slot");
	ASSERT_OK(strait_context_open(NULL, &ctx));
	ASSERT_OK(strait_device_find(ctx, "vgpu:0", &dev));
	file = place_file(&places[0], LEN, SEED, 0);
	m = gpu_alloc(gpu, PLAIN, LEN);
	handle[0] = ko_import(ko, STRAIT_IMPORT_P2P, m.p, m.len);
	handle[1] = ko_import(ko, STRAIT_IMPORT_NVP2P, m.p, m.len);
	for (unsigned int i = 0; i < ARRAY_SIZE(uses); i++) {
		u[i] = (struct user){ .ko = ko,
				      .file = file,
				      .op = i == 4 || i == 5 ? STRAIT_OP_WRITE : STRAIT_OP_READ,
				      .handle = handle[i / 2 % 2],
				      .ctx = ctx,
				      .dev = dev,
				      .begun = &begun,
				      .p = m.p,
				      .stop = &stop };
		ASSERT_EQ(pthread_create(&thread[i], NULL, uses[i], &u[i]), 0);
	}
	while (atomic_load(&begun) < (int)ARRAY_SIZE(uses))
		sleep_ms(5);
	pull_gpu(gpu);
	for (unsigned int i = 0; i < ARRAY_SIZE(uses) - 1; i++) {
		ASSERT_EQ(pthread_join(thread[i], NULL), 0);
		ASSERT_LT(u[i].end, 0);
	}
	atomic_store(&stop, 1);
	ASSERT_EQ(pthread_join(thread[ARRAY_SIZE(uses) - 1], NULL), 0);
	ko_expect_counter("in_flight", 0);
	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(ko_io(ko, STRAIT_OP_READ, handle[i], file, 0, 0, KIB(64), NULL), -ENODEV);
		ASSERT_LT(ko_try_import(ko, i ? STRAIT_IMPORT_NVP2P : STRAIT_IMPORT_P2P, m.p, m.len, &imp), 0);
		ASSERT_OK(ko_release(ko, handle[i]));
	}
	ko_expect_counter("device_bytes", 0);
	strait_context_close(ctx);
	close(gpu);
	gpu_unmap(&m);
	for (int i = 0; i < 6000 && !access("/dev/strait_vgpu0", F_OK); i++)
		sleep_ms(10);
	ASSERT_EQ(access("/dev/strait_vgpu0", F_OK), -1);
	/* The drive can still be used. */
	gpu_back(ko, file);
	close(file);
	close(ko);
}

/*
 * A drive without peer-to-peer support, removed while it is open: its disk has lost its parent, which must not be
 * accessed any more. (KASAN reports it if it is.)
 */
TEST_TIMEOUT(a_virtio_drive_is_taken_out, 120)
{
	int ko = ko_open_p2p(), gpu = gpu_open(), file;
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, MIB(1));
	uint32_t handle = ko_import(ko, STRAIT_IMPORT_P2P, m.p, m.len), reason;
	char answer[64];

	if (getenv("LAB_TOPOLOGY") && !strcmp(getenv("LAB_TOPOLOGY"), "flat"))
		SKIP("a drive in the root complex cannot be taken out");
	/* Some kernels have it built in. */
	if (access("/dev/vda", F_OK))
		load_module("virtio_blk");
	for (int i = 0; i < 500 && access("/dev/vda", F_OK); i++)
		sleep_ms(10);
	file = open("/dev/vda", O_RDWR | O_CLOEXEC);
	ASSERT_GE(file, 0);
	ASSERT_EQ(ko_check(ko, STRAIT_OP_READ, handle, file).reason, STRAIT_REASON_NO_QUEUE);
	outside_ask(answer, sizeof(answer), "unplug virtio");
	for (int i = 0; i < 3000 && !access("/dev/vda", F_OK); i++)
		sleep_ms(10);
	ASSERT_EQ(ko_check(ko, STRAIT_OP_READ, handle, file).reason, STRAIT_REASON_NO_DRIVE);
	ASSERT_EQ(ko_io(ko, STRAIT_OP_READ, handle, file, 0, 0, KIB(4), &reason), -EOPNOTSUPP);
	ASSERT_EQ(reason, STRAIT_REASON_NO_DRIVE);
	close(file);
	outside_ask(answer, sizeof(answer), "plug virtio");
}
