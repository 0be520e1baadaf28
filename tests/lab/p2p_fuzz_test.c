/* SPDX-License-Identifier: MIT */
/*
 * /dev/strait: random calls and io_uring commands. Two threads use one file, which is replaced now and then; each call
 * is valid except for one argument, or random. P2P_FUZZ_CALLS is the number of calls, P2P_FUZZ_SEED the seed. The test
 * checks only that every call returns, that ordinary files stay unchanged, and that all memory is free at the end; the
 * kernel's log is scanned afterwards.
 */
#include "fuzz.h"
#include "p2p.h"

#include <liburing.h>

#define CALLS 50000
#define FILE_CALLS 4000 /* on one file, before it is replaced */
#define LEN MIB(1)
#define SEED 3

static int dmabuf, fds[8];
static _Atomic uint32_t handles[FUZZ_HANDLES];
static unsigned char *device, *host;
static _Atomic uint64_t exported; /* dma-bufs of peer regions */

static int some_fd(struct fuzz *f)
{
	return below(f, 8) ? fds[below(f, ARRAY_SIZE(fds))] : (int)odd(f);
}

union arg {
	union fuzz_arg any;
	struct strait_ioc_info info;
	struct strait_ioc_import import;
	struct strait_ioc_release release;
	struct strait_ioc_check check;
	struct strait_ioc_io io;
	struct strait_ioc_export export;
};

static void good_import(struct fuzz *f, struct strait_ioc_import *a)
{
	*a = (struct strait_ioc_import){ .size = sizeof(*a), .kind = (uint32_t)below(f, 5) + 1, .fd = -1 };
	a->address = below(f, 16) * 4096;
	a->length = (below(f, 16) + 1) * 4096;
	/* A bridge has larger pages; mostly use those. */
	if (a->kind == STRAIT_IMPORT_NVP2P && below(f, 8)) {
		a->address = below(f, 8) * PAGE;
		a->length = (below(f, 8) + 1) * PAGE;
	}
	if (a->kind == STRAIT_IMPORT_DMABUF)
		a->fd = dmabuf;
	else
		a->address += (uintptr_t)(a->kind == STRAIT_IMPORT_USER ? host : device);
}

static void good_io(struct fuzz *f, struct strait_ioc_io *a)
{
	*a = (struct strait_ioc_io){ .size = sizeof(*a),
				     .handle = some(f, handles),
				     .fd = some_fd(f),
				     .op = (uint32_t)below(f, 2),
				     .file_offset = below(f, 64) * 512,
				     .region_offset = below(f, 16) * 512,
				     .length = (below(f, 16) + 1) * 512 };
}

/* A valid call. */
static unsigned long good(struct fuzz *f, union arg *a)
{
	switch (below(f, 10)) {
	case 0:
		a->info = (struct strait_ioc_info){ .size = sizeof(a->info) };
		return STRAIT_IOC_INFO;
	case 1:
	case 2:
		good_import(f, &a->import);
		return STRAIT_IOC_IMPORT;
	case 3:
		a->release = (struct strait_ioc_release){ .size = sizeof(a->release), .handle = some(f, handles) };
		return STRAIT_IOC_RELEASE;
	case 4:
		a->check = (struct strait_ioc_check){ .size = sizeof(a->check),
						      .handle = some(f, handles),
						      .fd = some_fd(f),
						      .op = (uint32_t)below(f, 2) };
		return STRAIT_IOC_CHECK;
	case 5:
		a->export = (struct strait_ioc_export){ .size = sizeof(a->export),
							.handle = some(f, handles),
							.fd_flags = below(f, 2) ? O_CLOEXEC : O_CLOEXEC | O_RDWR,
							.offset = below(f, 4) * 4096,
							.length = (below(f, 4) + 1) * 4096 };
		return STRAIT_IOC_EXPORT;
	default:
		good_io(f, &a->io);
		return STRAIT_IOC_IO;
	}
}

static void one_call(struct fuzz *f)
{
	union arg a = { .any = { .words = { 0 } } };
	unsigned long cmd = good(f, &a);

	if (fuzz_call(f, &cmd, &a.any, 80))
		return;
	if (cmd == STRAIT_IOC_IMPORT)
		keep(f, handles, a.import.handle);
	if (cmd == STRAIT_IOC_EXPORT) {
		atomic_fetch_add(&exported, 1);
		close(a.export.fd);
	}
}

static void one_command(struct fuzz *f, struct io_uring *ring)
{
	struct io_uring_sqe *sqe;
	struct io_uring_cqe *cqe;
	struct strait_ioc_io io;

	good_io(f, &io);
	sqe = ko_sqe(ring, f->fd, io.op ? STRAIT_URING_WRITE : STRAIT_URING_READ, io.handle, io.fd, io.file_offset,
		     io.region_offset, (uint32_t)io.length);
	switch (below(f, 12)) {
	case 0:
		sqe->addr = odd(f);
		break;
	case 1:
		sqe->len = (uint32_t)odd(f);
		break;
	case 2:
		sqe->addr3 = odd(f);
		break;
	case 3:
		sqe->cmd_op = (uint32_t)odd(f);
		break;
	case 4:
		sqe->rw_flags = (int)odd(f);
		break;
	}
	ASSERT_EQ(io_uring_submit(ring), 1);
	/* A few may stay in flight. */
	while (io_uring_cq_ready(ring) || below(f, 4) == 0) {
		if (io_uring_peek_cqe(ring, &cqe))
			break;
		f->good += cqe->res >= 0;
		io_uring_cqe_seen(ring, cqe);
	}
}

static void *worker(void *arg)
{
	struct fuzz *f = arg;
	struct io_uring ring;

	ASSERT_OK(io_uring_queue_init(64, &ring, 0));
	for (uint64_t i = 0; i < f->calls; i++) {
		if (below(f, 4))
			one_call(f);
		else
			one_command(f, &ring);
	}
	io_uring_queue_exit(&ring);
	return NULL;
}

TEST_TIMEOUT(random_calls, 3000)
{
	const struct place ext4 = PLACE_EXT4;
	uint64_t calls = fuzz_env("P2P_FUZZ_CALLS", CALLS), seed = fuzz_env("P2P_FUZZ_SEED", 1), before[2], good = 0;
	int gpu = gpu_open(), file, other, pipes[2];
	unsigned char *have = malloc(LEN), *want = malloc(LEN);
	struct gpu_mem m;
	bool peers;

	other = ko_open_p2p();
	peers = ko_info(other).features & STRAIT_FEATURE_IMPORT_PEER;
	close(other);
	ASSERT_TRUE(have && want);
	file = place_file(&ext4, LEN, SEED, 0);
	other = open("/mnt/untouched", O_RDWR | O_CREAT, 0600);
	file_pattern(want, 0, LEN, SEED + 1);
	ASSERT_EQ(write(other, want, LEN), LEN);
	/* A random number may be that of a file that is open for writing. */
	close(other);
	ASSERT_EQ(pipe(pipes), 0);
	gpu_all_free(gpu, before);
	m = gpu_alloc(gpu, PLAIN, LEN);
	device = m.p;
	dmabuf = (int)ASSERT_OK(gpu_dmabuf(&m, 0, LEN));
	host = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (uint64_t done = 0; done < calls; done += FILE_CALLS) {
		int ko = ko_open(), read_only = open("/mnt/untouched", O_RDONLY),
		    tmp = open("/tmp/x", O_RDWR | O_CREAT, 0600),
		    all[] = { file, file, file, read_only, tmp, pipes[0], ko, dmabuf };

		memcpy(fds, all, sizeof(fds));
		memset(handles, 0, sizeof(handles));
		good += fuzz_pair(ko, worker, FILE_CALLS, &seed, NULL);
		close(ko);
		close(read_only);
		close(tmp);
	}
	printf("# %llu calls, %llu of them successful\n", (unsigned long long)calls, (unsigned long long)good);
	ASSERT_GT(good, calls / 100);
	if (peers)
		ASSERT_GT(exported, 0);
	other = open("/mnt/untouched", O_RDONLY);
	ASSERT_EQ(pread(other, have, LEN, 0), LEN);
	ASSERT_MEMEQ(have, want, LEN);
	ko_expect_counter("in_flight", 0);
	ko_expect_counter("device_bytes", 0);
	ko_expect_counter("pinned_bytes", 0);
	close(dmabuf);
	ASSERT_OK(gpu_free(&m));
	gpu_expect_free(gpu, before);
	close(file);
	close(other);
	place_unmount();
}
