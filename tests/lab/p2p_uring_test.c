/* SPDX-License-Identifier: MIT */
/* /dev/strait: file I/O as io_uring commands. */
#include "p2p.h"

#include <liburing.h>
#include <linux/fs.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define SEED 31
#define LEN MIB(8)
#define DEPTH 64

static const struct place places[] = PLACES;

static struct io_uring_sqe *prepare(struct io_uring *ring, int ko, uint32_t op, uint32_t handle, int file, uint64_t off,
				    uint64_t at, uint32_t len, uint64_t tag)
{
	struct io_uring_sqe *sqe = ko_sqe(ring, ko, op, handle, file, off, at, len);

	sqe->user_data = tag;
	return sqe;
}

static int32_t reap(struct io_uring *ring, uint64_t *tag)
{
	struct io_uring_cqe *cqe;
	int32_t res;

	ASSERT_OK(io_uring_wait_cqe(ring, &cqe));
	res = cqe->res;
	if (tag)
		*tag = cqe->user_data;
	io_uring_cqe_seen(ring, cqe);
	return res;
}

static uint64_t any(uint64_t n)
{
	static uint64_t state = 1;

	return prng_below(&state, n);
}

/* Many at once, each to its own slot. */
TEST_VARIANTS_TIMEOUT(many_at_once, struct place, places, 120)
{
	const uint64_t slot = LEN / DEPTH;
	int ko = ko_open_p2p(), gpu = gpu_open(), file = place_file(v, LEN, SEED, 0);
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN);
	uint32_t handle = ko_import(ko, STRAIT_IMPORT_P2P, m.p, m.len);
	unsigned char *want = malloc(LEN), *have = malloc(LEN);
	uint64_t off[DEPTH], len[DEPTH], tag;
	struct io_uring ring;

	ASSERT_TRUE(want && have);
	ASSERT_OK(io_uring_queue_init(DEPTH, &ring, 0));
	for (int round = 0; round < 4; round++) {
		fill(m.p, LEN, 1);
		fill(want, LEN, 1);
		for (unsigned int i = 0; i < DEPTH; i++) {
			len[i] = (any(slot / 512) + 1) * 512;
			off[i] = any((LEN - len[i]) / 512 + 1) * 512;
			prepare(&ring, ko, STRAIT_URING_READ, handle, file, off[i], i * slot, (uint32_t)len[i], i);
			file_pattern(want + i * slot, off[i], len[i], SEED);
		}
		ASSERT_EQ(io_uring_submit(&ring), DEPTH);
		for (unsigned int i = 0; i < DEPTH; i++) {
			int32_t res = reap(&ring, &tag);

			ASSERT_EQ(res, len[tag]);
		}
		ASSERT_MEMEQ(m.p, want, LEN);
	}
	/* And back, every slot to its own place in the file. */
	fill(m.p, LEN, 9);
	fill(want, LEN, 9);
	for (unsigned int i = 0; i < DEPTH; i++)
		prepare(&ring, ko, STRAIT_URING_WRITE, handle, file, i * slot, i * slot, (uint32_t)slot, i);
	ASSERT_EQ(io_uring_submit(&ring), DEPTH);
	for (unsigned int i = 0; i < DEPTH; i++)
		ASSERT_EQ(reap(&ring, &tag), slot);
	ASSERT_EQ(pread(file, have, LEN, 0), LEN);
	ASSERT_MEMEQ(have, want, LEN);
	/* Extending a file, which cannot be done without blocking. */
	if (v->mkfs) {
		ASSERT_EQ(ftruncate(file, 0), 0);
		for (unsigned int i = 0; i < DEPTH; i++)
			prepare(&ring, ko, STRAIT_URING_WRITE, handle, file, i * slot, i * slot, (uint32_t)slot, i);
		ASSERT_EQ(io_uring_submit(&ring), DEPTH);
		for (unsigned int i = 0; i < DEPTH; i++)
			ASSERT_EQ(reap(&ring, &tag), slot);
		ASSERT_EQ(pread(file, have, LEN, 0), LEN);
		ASSERT_MEMEQ(have, want, LEN);
		/* No write remains that the file system would have to wait for. */
		ASSERT_EQ(ioctl(file, FIFREEZE, 0), 0);
		ASSERT_EQ(ioctl(file, FITHAW, 0), 0);
	}
	ko_expect_counter("in_flight", 0);
	io_uring_queue_exit(&ring);
	close(file);
	place_unmount();
}

static const struct place raw = { "raw", NULL };

static int32_t once(struct io_uring *ring)
{
	ASSERT_EQ(io_uring_submit(ring), 1);
	return reap(ring, NULL);
}

TEST(wrong_commands)
{
	int ko = ko_open_p2p(), gpu = gpu_open(), file = place_file(&raw, LEN, SEED, 0);
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, MIB(1));
	uint32_t handle = ko_import(ko, STRAIT_IMPORT_P2P, m.p, m.len);
	struct io_uring ring;
	struct io_uring_sqe *sqe;

	ASSERT_OK(io_uring_queue_init(4, &ring, 0));
	prepare(&ring, ko, 1, handle, file, 0, 0, KIB(4), 0);
	ASSERT_EQ(once(&ring), -EOPNOTSUPP);
	prepare(&ring, ko, STRAIT_URING_READ, handle, file, 512, 0, 100, 0);
	ASSERT_EQ(once(&ring), -EINVAL);
	prepare(&ring, ko, STRAIT_URING_READ, handle, file, 0, 0, 0, 0);
	ASSERT_EQ(once(&ring), -EINVAL);
	prepare(&ring, ko, STRAIT_URING_READ, handle, file, 0, MIB(1), KIB(4), 0);
	ASSERT_EQ(once(&ring), -EINVAL);
	prepare(&ring, ko, STRAIT_URING_READ, handle + 1, file, 0, 0, KIB(4), 0);
	ASSERT_EQ(once(&ring), -ENOENT);
	prepare(&ring, ko, STRAIT_URING_READ, handle, -1, 0, 0, KIB(4), 0);
	ASSERT_EQ(once(&ring), -EBADF);
	prepare(&ring, ko, STRAIT_URING_READ, handle, gpu, 0, 0, KIB(4), 0);
	ASSERT_EQ(once(&ring), -EOPNOTSUPP);
	sqe = prepare(&ring, ko, STRAIT_URING_READ, handle, file, 0, 0, KIB(4), 0);
	sqe->addr |= 1ull << 40;
	ASSERT_EQ(once(&ring), -EINVAL);
	ko_fail_nth(1);
	prepare(&ring, ko, STRAIT_URING_READ, handle, file, 0, 0, KIB(4), 0);
	ASSERT_EQ(once(&ring), -ENOMEM);
	ko_fail_nth(0);
	prepare(&ring, ko, STRAIT_URING_READ, handle, file, 0, 0, KIB(4), 0);
	ASSERT_EQ(once(&ring), KIB(4));
	ASSERT_OK(gpu_free(&m));
	prepare(&ring, ko, STRAIT_URING_READ, handle, file, 0, 0, KIB(4), 0);
	ASSERT_EQ(once(&ring), -ENODEV);
	io_uring_queue_exit(&ring);
}

static const struct place ext4 = PLACE_EXT4;

struct user {
	int ko, file, gpu;
	uint64_t past; /* result of the write past the limit: files have a limit, block devices do not */
};

/* As a user that may write files of 512 KiB: what would block is done by a worker, which runs as root. */
static int write_as_user(void *arg)
{
	struct user *u = arg;
	struct gpu_mem m = gpu_alloc(u->gpu, PLAIN, MIB(1));
	uint32_t handle = ko_import(u->ko, STRAIT_IMPORT_P2P, m.p, m.len);
	struct rlimit limit = { KIB(512), KIB(512) };
	struct io_uring ring;

	signal(SIGXFSZ, SIG_IGN);
	ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
	ASSERT_EQ(syscall(SYS_setresuid, 1, 1, 1), 0);
	fill(m.p, MIB(1), 5);
	ASSERT_OK(io_uring_queue_init(4, &ring, 0));
	prepare(&ring, u->ko, STRAIT_URING_WRITE, handle, u->file, 0, 0, MIB(1), 0);
	ASSERT_EQ(once(&ring), KIB(512));
	prepare(&ring, u->ko, STRAIT_URING_WRITE, handle, u->file, KIB(512), 0, KIB(512), 0);
	ASSERT_EQ(once(&ring), -EFBIG);
	io_uring_queue_exit(&ring);
	return 0;
}

/* The submitter's limit and credentials apply: writes as root would leave a file set-user-ID. */
TEST(limits_and_rights_are_the_submitters)
{
	struct user u = { .ko = ko_open_p2p(), .gpu = gpu_open() };
	unsigned char *want = malloc(MIB(1)), *have = malloc(MIB(1));
	struct stat st;

	ASSERT_TRUE(want && have);
	u.file = place_file(&ext4, MIB(1), SEED, 0);
	ASSERT_EQ(fchmod(u.file, 04777), 0);
	ASSERT_EQ(wait_for(start(write_as_user, &u)), 0);
	ASSERT_EQ(fstat(u.file, &st), 0);
	ASSERT_EQ(st.st_mode & 07777, 0777);
	file_pattern(want, 0, MIB(1), SEED);
	fill(want, KIB(512), 5);
	ASSERT_EQ(pread(u.file, have, MIB(1), 0), MIB(1));
	ASSERT_MEMEQ(have, want, MIB(1));
	close(u.file);
	place_unmount();
	free(want);
	free(have);
}

#define REQUESTS "/sys/block/nvme0n1/queue/nr_requests"

static unsigned int drive_requests(void)
{
	unsigned int n = 0;
	FILE *f = fopen(REQUESTS, "re");

	ASSERT_TRUE(f);
	ASSERT_EQ(fscanf(f, "%u", &n), 1);
	fclose(f);
	return n;
}

/* The number of requests of the drive's queue: a nonblocking command gets -EAGAIN when none is free. */
static void drive_set_requests(unsigned int n)
{
	FILE *f = fopen(REQUESTS, "we");

	ASSERT_TRUE(f);
	ASSERT_TRUE(fprintf(f, "%u", n) > 0);
	ASSERT_EQ(fclose(f), 0);
}

#define SMALL KIB(4)

/* Of all commands submitted at once only the first find room in the drive's queue; the last exceeds the limit. */
static int write_past_the_limit(void *arg)
{
	struct user *u = arg;
	struct gpu_mem m = gpu_alloc(u->gpu, PLAIN, MIB(1));
	uint32_t handle = ko_import(u->ko, STRAIT_IMPORT_P2P, m.p, m.len);
	struct rlimit limit = { KIB(512), KIB(512) };
	struct io_uring ring;
	uint64_t tag;

	signal(SIGXFSZ, SIG_IGN);
	ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
	ASSERT_EQ(syscall(SYS_setresuid, 1, 1, 1), 0);
	fill(m.p, MIB(1), 5);
	ASSERT_OK(io_uring_queue_init(DEPTH, &ring, 0));
	for (unsigned int i = 0; i < DEPTH - 1; i++)
		prepare(&ring, u->ko, STRAIT_URING_WRITE, handle, u->file, i * SMALL, i * SMALL, SMALL, i);
	prepare(&ring, u->ko, STRAIT_URING_WRITE, handle, u->file, KIB(512) - SMALL, KIB(512) - SMALL, 2 * SMALL,
		DEPTH - 1);
	ASSERT_EQ(io_uring_submit(&ring), DEPTH);
	for (unsigned int i = 0; i < DEPTH; i++) {
		int32_t res = reap(&ring, &tag);

		ASSERT_EQ(res, tag == DEPTH - 1 ? u->past : SMALL);
	}
	io_uring_queue_exit(&ring);
	return 0;
}

/*
 * A command to a block device that finds no room in the drive's queue is resubmitted by a worker. File systems let the
 * submitter wait for room.
 */
TEST_VARIANTS_TIMEOUT(a_full_queue_of_the_drive, struct place, places, 120)
{
	int ko = ko_open_p2p(), gpu = gpu_open(), file = place_file(v, MIB(1), SEED, 0);
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, MIB(1));
	uint32_t handle = ko_import(ko, STRAIT_IMPORT_P2P, m.p, m.len);
	unsigned char *want = malloc(MIB(1)), *have = malloc(MIB(1));
	struct user u = { .ko = ko, .gpu = gpu, .file = file };
	unsigned int requests = drive_requests();
	uint64_t before = ko_counter("retried"), tag;
	struct io_uring ring;

	ASSERT_TRUE(want && have);
	ASSERT_OK(io_uring_queue_init(DEPTH, &ring, 0));
	drive_set_requests(4);
	file_pattern(want, 0, MIB(1), SEED);
	for (unsigned int i = 0; i < DEPTH; i++)
		prepare(&ring, ko, STRAIT_URING_READ, handle, file, i * KIB(16), i * KIB(16), KIB(16), i);
	ASSERT_EQ(io_uring_submit(&ring), DEPTH);
	for (unsigned int i = 0; i < DEPTH; i++)
		ASSERT_EQ(reap(&ring, &tag), KIB(16));
	if (!v->mkfs)
		ASSERT_TRUE(ko_counter("retried") > before);
	ASSERT_MEMEQ(m.p, want, MIB(1));
	before = ko_counter("retried");
	u.past = v->mkfs ? SMALL : 2 * SMALL;
	ASSERT_EQ(wait_for(start(write_past_the_limit, &u)), 0);
	if (!v->mkfs)
		ASSERT_TRUE(ko_counter("retried") > before);
	fill(have, MIB(1), 5);
	memcpy(want, have, (DEPTH - 1) * SMALL);
	memcpy(want + KIB(512) - SMALL, have + KIB(512) - SMALL, u.past);
	ASSERT_EQ(pread(file, have, MIB(1), 0), MIB(1));
	ASSERT_MEMEQ(have, want, MIB(1));
	drive_set_requests(requests);
	ko_expect_counter("in_flight", 0);
	io_uring_queue_exit(&ring);
	close(file);
	place_unmount();
	free(want);
	free(have);
}

struct job {
	int ko, file;
	int go[2];
};

static int flooder(void *arg)
{
	struct job *j = arg;
	struct gpu_mem m = gpu_alloc(gpu_open(), PLAIN, LEN);
	uint32_t handle = ko_import(j->ko, STRAIT_IMPORT_P2P, m.p, m.len);
	struct io_uring ring;

	ASSERT_OK(io_uring_queue_init(DEPTH, &ring, 0));
	for (int n = 0;; n++) {
		for (unsigned int i = 0; i < DEPTH / 2; i++)
			prepare(&ring, j->ko, i % 2 ? STRAIT_URING_WRITE : STRAIT_URING_READ, handle, j->file, 0,
				i * KIB(128), KIB(128), i);
		ASSERT_EQ(io_uring_submit(&ring), DEPTH / 2);
		if (n == 3)
			ASSERT_EQ(write(j->go[1], "x", 1), 1);
		for (unsigned int i = 0; n < 3 && i < DEPTH / 2; i++)
			reap(&ring, NULL);
		if (n == 3)
			pause();
	}
	return 0;
}

/* Killed with commands in flight: the memory is given back when they have ended. */
TEST(killed_with_commands_in_flight)
{
	struct job j = { .ko = ko_open_p2p(), .file = place_file(&raw, LEN, SEED, 0) };
	int gpu = gpu_open();
	uint64_t before[2];
	pid_t pid;
	char c;

	gpu_all_free(gpu, before);
	ASSERT_EQ(pipe(j.go), 0);
	for (int i = 0; i < 3; i++) {
		pid = start(flooder, &j);
		ASSERT_EQ(read(j.go[0], &c, 1), 1);
		ASSERT_EQ(kill(pid, SIGKILL), 0);
		wait_for(pid);
		gpu_expect_free(gpu, before);
		ko_expect_counter("in_flight", 0);
		ko_expect_counter("device_bytes", 0);
	}
}

static void *neighbour(void *arg)
{
	struct job *j = arg;
	unsigned char *buf, *want = malloc(KIB(64));
	int fd = open("/dev/nvme0n1", O_RDONLY | O_DIRECT);

	ASSERT_TRUE(want && fd >= 0 && !posix_memalign((void **)&buf, 4096, KIB(64)));
	for (unsigned int i = 0; i < 400; i++) {
		uint64_t off = i % (LEN / KIB(64)) * KIB(64);

		ASSERT_EQ(pread(fd, buf, KIB(64), (off_t)off), KIB(64));
		file_pattern(want, off, KIB(64), SEED);
		ASSERT_MEMEQ(buf, want, KIB(64));
	}
	j->go[0] = 1;
	close(fd);
	free(buf);
	free(want);
	return NULL;
}

/* Ordinary direct I/O to neighbouring blocks at the same time: neither disturbs the other. */
TEST_TIMEOUT(neighbours, 120)
{
	int ko = ko_open_p2p(), gpu = gpu_open(), file = place_file(&raw, LEN, SEED, 0);
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN);
	uint32_t handle = ko_import(ko, STRAIT_IMPORT_P2P, m.p, m.len);
	unsigned char *want = malloc(LEN);
	struct job j = { .ko = ko };
	struct io_uring ring;
	pthread_t thread;

	ASSERT_TRUE(want);
	file_pattern(want, 0, LEN, SEED);
	ASSERT_OK(io_uring_queue_init(DEPTH, &ring, 0));
	ASSERT_EQ(pthread_create(&thread, NULL, neighbour, &j), 0);
	for (int round = 0; round < 6; round++) {
		fill(m.p, LEN, (uint64_t)round);
		for (unsigned int i = 0; i < DEPTH; i++)
			prepare(&ring, ko, STRAIT_URING_READ, handle, file, i * (LEN / DEPTH), i * (LEN / DEPTH),
				LEN / DEPTH, i);
		ASSERT_EQ(io_uring_submit(&ring), DEPTH);
		for (unsigned int i = 0; i < DEPTH; i++)
			ASSERT_EQ(reap(&ring, NULL), LEN / DEPTH);
		ASSERT_MEMEQ(m.p, want, LEN);
	}
	ASSERT_EQ(pthread_join(thread, NULL), 0);
	ASSERT_EQ(j.go[0], 1);
	io_uring_queue_exit(&ring);
}

#define SMALL KIB(4)

static void prepare_plain(struct io_uring *ring, bool write, int file, void *buf, uint64_t off, uint64_t tag)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	ASSERT_TRUE(sqe);
	if (write)
		io_uring_prep_write(sqe, file, buf, SMALL, off);
	else
		io_uring_prep_read(sqe, file, buf, SMALL, off);
	sqe->user_data = tag;
}

static void all_of(struct io_uring *ring)
{
	ASSERT_EQ(io_uring_submit(ring), DEPTH);
	for (unsigned int i = 0; i < DEPTH; i++)
		ASSERT_EQ(reap(ring, NULL), SMALL);
}

/*
 * Adjacent blocks, alternately for device memory and host memory, submitted together: the block layer must not merge
 * them into one request.
 */
TEST_VARIANTS_TIMEOUT(neighbours_in_one_batch, struct place, places, 120)
{
	int ko = ko_open_p2p(), gpu = gpu_open(), file = place_file(v, MIB(1), SEED, O_DIRECT);
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, MIB(1));
	uint32_t handle = ko_import(ko, STRAIT_IMPORT_P2P, m.p, m.len);
	unsigned char *want = malloc(MIB(1)), *ram;
	struct io_uring ring;

	ASSERT_TRUE(want && !posix_memalign((void **)&ram, 4096, MIB(1)));
	ASSERT_OK(io_uring_queue_init(DEPTH, &ring, 0));
	for (unsigned int round = 0; round < 20; round++) {
		bool write = round % 2;

		fill(m.p, MIB(1), round);
		fill(ram, MIB(1), round + 100);
		for (unsigned int i = 0; i < DEPTH; i++) {
			uint64_t off = i * SMALL;

			if ((i + round / 2) % 2)
				prepare_plain(&ring, write, file, ram + off, off, i);
			else
				prepare(&ring, ko, write ? STRAIT_URING_WRITE : STRAIT_URING_READ, handle, file, off,
					off, SMALL, i);
			if (write)
				memcpy(want + off, (i + round / 2) % 2 ? ram + off : m.p + off, SMALL);
		}
		all_of(&ring);
		if (write)
			continue;
		/* What the previous round wrote, or the initial contents. */
		if (!round)
			file_pattern(want, 0, MIB(1), SEED);
		for (unsigned int i = 0; i < DEPTH; i++)
			ASSERT_MEMEQ(((i + round / 2) % 2 ? ram : m.p) + i * SMALL, want + i * SMALL, SMALL);
	}
	ASSERT_EQ(pread(file, ram, DEPTH * SMALL, 0), DEPTH * SMALL);
	ASSERT_MEMEQ(ram, want, DEPTH * SMALL);
	io_uring_queue_exit(&ring);
	free(ram);
	close(file);
	place_unmount();
}
