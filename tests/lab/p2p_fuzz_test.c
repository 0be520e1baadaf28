/* SPDX-License-Identifier: MIT */
/*
 * /dev/strait: calls and io_uring commands nobody would make. Two threads on one file, which is replaced now and
 * then; each call is right but for one thing, or noise altogether. P2P_FUZZ_CALLS says how many, P2P_FUZZ_SEED
 * which. Nothing is asked of the answers but that the module gives one, that ordinary files stay as they are, and
 * that all memory is back in the end; the kernel's log is looked at behind it.
 */
#include "p2p.h"

#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>

#define CALLS 50000
#define FILE_CALLS 4000 /* on one file, before it is replaced */
#define KEPT 16
#define LEN MIB(1)
#define SEED 3

struct fuzz {
	int ko, dmabuf;
	int fds[8];
	uint64_t seed, calls, good;
	_Atomic uint32_t *handles;
	unsigned char *device, *host;
	struct io_uring ring;
};

static uint64_t below(struct fuzz *f, uint64_t n)
{
	return prng_below(&f->seed, n);
}

static uint64_t odd(struct fuzz *f)
{
	static const uint64_t edge[] = { 0,
					 1,
					 511,
					 512,
					 4095,
					 4096,
					 4097,
					 65535,
					 65536,
					 INT32_MAX,
					 UINT32_MAX,
					 1ull << 30,
					 1ull << 40,
					 INT64_MAX,
					 1ull << 63,
					 UINT64_MAX,
					 UINT64_MAX - 511,
					 UINT64_MAX - 4095 };

	switch (below(f, 4)) {
	case 0:
		return prng_next(&f->seed);
	case 1:
		return prng_next(&f->seed) >> below(f, 64);
	case 2:
		return below(f, 64) * 512;
	default:
		return edge[below(f, ARRAY_SIZE(edge))];
	}
}

static uint32_t some_handle(struct fuzz *f)
{
	return below(f, 8) ? atomic_load(&f->handles[below(f, KEPT)]) : (uint32_t)odd(f);
}

static int some_fd(struct fuzz *f)
{
	return below(f, 8) ? f->fds[below(f, ARRAY_SIZE(f->fds))] : (int)odd(f);
}

union arg {
	uint32_t size;
	uint64_t words[32];
	struct strait_ioc_info info;
	struct strait_ioc_import import;
	struct strait_ioc_release release;
	struct strait_ioc_check check;
	struct strait_ioc_io io;
};

static void good_import(struct fuzz *f, struct strait_ioc_import *a)
{
	*a = (struct strait_ioc_import){ .size = sizeof(*a), .kind = (uint32_t)below(f, 4) + 1, .fd = -1 };
	a->address = below(f, 16) * 4096;
	a->length = (below(f, 16) + 1) * 4096;
	/* What a bridge takes is of larger pages; mostly it gets those. */
	if (a->kind == STRAIT_IMPORT_NVP2P && below(f, 8)) {
		a->address = below(f, 8) * PAGE;
		a->length = (below(f, 8) + 1) * PAGE;
	}
	if (a->kind == STRAIT_IMPORT_DMABUF)
		a->fd = f->dmabuf;
	else
		a->address += (uintptr_t)(a->kind == STRAIT_IMPORT_USER ? f->host : f->device);
}

static void good_io(struct fuzz *f, struct strait_ioc_io *a)
{
	*a = (struct strait_ioc_io){ .size = sizeof(*a),
				     .handle = some_handle(f),
				     .fd = some_fd(f),
				     .op = (uint32_t)below(f, 2),
				     .file_offset = below(f, 64) * 512,
				     .region_offset = below(f, 16) * 512,
				     .length = (below(f, 16) + 1) * 512 };
}

/* A call as it should be. */
static unsigned long good(struct fuzz *f, union arg *a)
{
	switch (below(f, 8)) {
	case 0:
		a->info = (struct strait_ioc_info){ .size = sizeof(a->info) };
		return STRAIT_IOC_INFO;
	case 1:
	case 2:
		good_import(f, &a->import);
		return STRAIT_IOC_IMPORT;
	case 3:
		a->release = (struct strait_ioc_release){ .size = sizeof(a->release), .handle = some_handle(f) };
		return STRAIT_IOC_RELEASE;
	case 4:
		a->check = (struct strait_ioc_check){ .size = sizeof(a->check),
						      .handle = some_handle(f),
						      .fd = some_fd(f),
						      .op = (uint32_t)below(f, 2) };
		return STRAIT_IOC_CHECK;
	default:
		good_io(f, &a->io);
		return STRAIT_IOC_IO;
	}
}

static void one_call(struct fuzz *f)
{
	static const size_t room = sizeof(union arg);
	union arg a = { .words = { 0 } };
	unsigned long cmd = good(f, &a);
	int rc;

	if (!below(f, 4))
		a.words[below(f, 10)] = odd(f);
	else if (!below(f, 8))
		((uint32_t *)a.words)[below(f, 20)] = (uint32_t)odd(f);
	if (!below(f, 64))
		cmd = _IOC(_IOC_READ | _IOC_WRITE, STRAIT_IOC, below(f, 64), below(f, room));
	if (a.size > room && below(f, 16))
		a.size = (uint32_t)below(f, room + 1);
	rc = ko_call(f->ko, cmd, below(f, 256) ? (void *)&a : (void *)(uintptr_t)odd(f));
	f->good += !rc;
	if (!rc && cmd == STRAIT_IOC_IMPORT)
		atomic_store(&f->handles[below(f, KEPT)], a.import.handle);
}

static void one_command(struct fuzz *f)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&f->ring);
	struct io_uring_cqe *cqe;
	struct strait_ioc_io io;

	ASSERT_TRUE(sqe);
	good_io(f, &io);
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = f->ko;
	sqe->cmd_op = io.op ? STRAIT_URING_WRITE : STRAIT_URING_READ;
	sqe->addr = io.handle;
	sqe->len = (uint32_t)io.length;
	sqe->file_index = (uint32_t)io.fd;
	memcpy(&sqe->addr3, &(struct strait_uring){ io.file_offset, io.region_offset }, sizeof(struct strait_uring));
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
	ASSERT_EQ(io_uring_submit(&f->ring), 1);
	/* Up to a few stay in flight. */
	while (io_uring_cq_ready(&f->ring) || below(f, 4) == 0) {
		if (io_uring_peek_cqe(&f->ring, &cqe))
			break;
		f->good += cqe->res >= 0;
		io_uring_cqe_seen(&f->ring, cqe);
	}
}

static void *worker(void *arg)
{
	struct fuzz *f = arg;

	ASSERT_OK(io_uring_queue_init(64, &f->ring, 0));
	for (uint64_t i = 0; i < f->calls; i++) {
		if (below(f, 4))
			one_call(f);
		else
			one_command(f);
	}
	io_uring_queue_exit(&f->ring);
	return NULL;
}

static uint64_t from_env(const char *name, uint64_t value)
{
	return getenv(name) ? strtoull(getenv(name), NULL, 0) : value;
}

TEST_TIMEOUT(calls_nobody_would_make, 3000)
{
	const struct place ext4 = { "ext4", "mkfs.ext4 -q -F -E nodiscard /dev/nvme0n1" };
	uint64_t calls = from_env("P2P_FUZZ_CALLS", CALLS), seed = from_env("P2P_FUZZ_SEED", 1), before[2], good = 0;
	int gpu = gpu_open(), file, other, pipes[2], dmabuf;
	unsigned char *host, *have = malloc(LEN), *want = malloc(LEN);
	struct gpu_mem m;

	close(ko_open_p2p());
	ASSERT_TRUE(have && want);
	file = place_file(&ext4, LEN, SEED, 0);
	other = open("/mnt/untouched", O_RDWR | O_CREAT, 0600);
	file_pattern(want, 0, LEN, SEED + 1);
	ASSERT_EQ(write(other, want, LEN), LEN);
	/* Any number may be the one of a file that is open for writing. */
	close(other);
	ASSERT_EQ(pipe(pipes), 0);
	gpu_all_free(gpu, before);
	m = gpu_alloc(gpu, PLAIN, LEN);
	dmabuf = (int)ASSERT_OK(gpu_dmabuf(&m, 0, LEN));
	host = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (uint64_t done = 0; done < calls;) {
		_Atomic uint32_t handles[KEPT] = { 0 };
		struct fuzz f[2];
		pthread_t thread[2];
		int ko = ko_open(), read_only = open("/mnt/untouched", O_RDONLY),
		    tmp = open("/tmp/x", O_RDWR | O_CREAT, 0600);

		for (unsigned int i = 0; i < 2; i++) {
			f[i] = (struct fuzz){ .ko = ko,
					      .dmabuf = dmabuf,
					      .fds = { file, file, file, read_only, tmp, pipes[0], ko, dmabuf },
					      .seed = seed++,
					      .calls = min_u64(FILE_CALLS, calls - done) / 2 + 1,
					      .handles = handles,
					      .device = m.p,
					      .host = host };
			ASSERT_EQ(pthread_create(&thread[i], NULL, worker, &f[i]), 0);
		}
		for (unsigned int i = 0; i < 2; i++) {
			ASSERT_EQ(pthread_join(thread[i], NULL), 0);
			done += f[i].calls;
			good += f[i].good;
		}
		close(ko);
		close(read_only);
		close(tmp);
	}
	printf("# %llu calls, %llu of them successful\n", (unsigned long long)calls, (unsigned long long)good);
	ASSERT_GT(good, calls / 100);
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
