/* SPDX-License-Identifier: MIT */
/* The lab's GPU: its memory as programs see it. */
#include "vgpu.h"

#include <liburing.h>
#include <signal.h>
#include <sys/socket.h>

TEST(tells_what_it_is)
{
	int fd = gpu_open();
	struct strait_vgpu_info info = gpu_info(fd);
	const char *none = getenv("LAB_NO_P2PDMA"), *size = getenv("LAB_BAR_SIZE");

	ASSERT_EQ(info.abi, STRAIT_VGPU_ABI);
	ASSERT_EQ(info.page_size, PAGE);
	ASSERT_EQ(info.reserved, 0);
	ASSERT_TRUE(info.caps & STRAIT_VGPU_CAP_DMABUF);
	ASSERT_TRUE(info.caps & STRAIT_VGPU_CAP_PINNABLE);
	if (size)
		ASSERT_EQ(info.mem_total[PLAIN] + info.mem_total[PINNABLE], strtoull(size, NULL, 10));
	if (none && !*none)
		ASSERT_TRUE(info.caps & STRAIT_VGPU_CAP_P2PDMA);
	ASSERT_EQ(info.mem_offset[PLAIN], 0);
	ASSERT_EQ(info.mem_offset[PINNABLE], info.mem_total[PLAIN]);
	ASSERT_NE(info.bar_base, 0);
	ASSERT_EQ(strlen(info.pci), strlen("0000:00:00.0"));
	ASSERT_NE(info.token, 0);
	close(fd);
}

static const struct kind {
	const char *name;
	uint32_t kind;
} kinds[] = { { "plain", PLAIN }, { "pinnable", PINNABLE } };

TEST_VARIANTS(holds_what_is_written, struct kind, kinds)
{
	int fd = gpu_open();
	uint64_t before[2];
	struct gpu_mem m;

	gpu_all_free(fd, before);
	m = gpu_alloc(fd, v->kind, MIB(2));
	ASSERT_TRUE(all_zero(m.p, m.len));
	fill(m.p, m.len, 7);
	ASSERT_TRUE(filled(m.p, m.len, 7));
	expect_outside(&m, 0, m.len);
	ASSERT_EQ(gpu_info(fd).mem_free[v->kind], before[v->kind] - m.len);
	ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(gpu_free(&m), -ENOENT);
	gpu_expect_free(fd, before);
	/* The next allocation at the same place shows nothing of it. */
	m = gpu_alloc(fd, v->kind, MIB(2));
	ASSERT_TRUE(all_zero(m.p, m.len));
	close(fd);
}

TEST_VARIANTS(reads_as_zeros_when_freed, struct kind, kinds)
{
	int fd = gpu_open();
	struct gpu_mem m = gpu_alloc(fd, v->kind, 4 * PAGE), again;
	uint64_t zeros = gpu_counters(fd).cpu_zero_bytes;

	fill(m.p, m.len, 1);
	ASSERT_OK(gpu_free(&m));
	ASSERT_TRUE(all_zero(m.p, m.len));
	ASSERT_EQ(gpu_counters(fd).cpu_zero_bytes - zeros, m.len);
	/* Writing there neither kills the program nor reaches the new owner of the memory. */
	fill(m.p, m.len, 2);
	again = gpu_alloc(fd, v->kind, 4 * PAGE);
	ASSERT_EQ(again.bar, m.bar);
	ASSERT_TRUE(all_zero(again.p, again.len));
	fill(again.p, again.len, 3);
	ASSERT_TRUE(filled(m.p, m.len, 2));
	gpu_unmap(&m);
	close(fd);
}

/* Mapped only after it was freed, and pages that were never accessed before. */
TEST(never_touched_reads_as_zeros_too)
{
	int fd = gpu_open();
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 2 * PAGE);

	m.p[0] = 1;
	ASSERT_OK(gpu_free(&m));
	ASSERT_TRUE(all_zero(m.p + PAGE, PAGE));
	ASSERT_TRUE(gpu_mmap(fd, PAGE, PROT_READ, MAP_SHARED, m.offset) == MAP_FAILED);
	ASSERT_EQ(errno, EINVAL);
	close(fd);
}

TEST(files_do_not_know_each_other)
{
	int a = gpu_open(), b = gpu_open();
	struct gpu_mem m = gpu_alloc(a, PLAIN, PAGE), other = m;
	struct strait_vgpu_query q;

	other.fd = b;
	ASSERT_EQ(gpu_free(&other), -ENOENT);
	ASSERT_TRUE(gpu_mmap(b, PAGE, PROT_READ, MAP_SHARED, m.offset) == MAP_FAILED);
	ASSERT_EQ(gpu_dmabuf(&other, 0, PAGE), -ENOENT);
	ASSERT_OK(gpu_query(a, m.p, &q));
	ASSERT_EQ(q.flags, STRAIT_VGPU_QUERY_MINE);
	ASSERT_EQ(q.handle, m.handle);
	ASSERT_OK(gpu_query(b, m.p + 100, &q));
	ASSERT_EQ(q.flags, 0);
	ASSERT_EQ(q.handle, 0);
	ASSERT_EQ(q.identity, m.id);
	ASSERT_EQ(q.start, (uintptr_t)m.p);
	ASSERT_EQ(q.length, m.len);
	ASSERT_EQ(gpu_query(b, &q, &q), -ENOENT);
	ASSERT_OK(gpu_free(&m));
	ASSERT_OK(gpu_query(b, m.p, &q));
	ASSERT_EQ(q.flags, STRAIT_VGPU_QUERY_REVOKED);
	close(a);
	close(b);
}

TEST(goes_with_the_file)
{
	int watch = gpu_open(), fd = gpu_open();
	struct gpu_mem m, pinnable;
	uint64_t before[2];

	gpu_all_free(watch, before);
	m = gpu_alloc(fd, PLAIN, MIB(1));
	pinnable = gpu_alloc(fd, PINNABLE, MIB(1));
	fill(m.p, m.len, 5);
	close(fd);
	/* A mapping holds a reference on the file. */
	ASSERT_TRUE(filled(m.p, m.len, 5));
	gpu_unmap(&m);
	ASSERT_EQ(gpu_info(watch).mem_free[PLAIN], before[PLAIN] - m.len);
	gpu_unmap(&pinnable);
	gpu_expect_free(watch, before);
	close(watch);
}

static int hold_forever(void *arg)
{
	struct gpu_mem m[2];
	int fd = open("/dev/strait_vgpu0", O_RDWR);

	if (fd < 0 || gpu_try_alloc(fd, PLAIN, MIB(4), &m[0]) || gpu_try_alloc(fd, PINNABLE, MIB(4), &m[1]))
		return 1;
	gpu_map(&m[0]);
	memset(m[0].p, 1, m[0].len);
	if (write(*(int *)arg, "x", 1) != 1)
		return 1;
	for (;;)
		pause();
}

TEST(goes_with_the_process)
{
	int fd = gpu_open(), pipe_[2];
	uint64_t before[2];
	pid_t pid;
	char c;

	gpu_all_free(fd, before);
	ASSERT_EQ(pipe(pipe_), 0);
	pid = start(hold_forever, &pipe_[1]);
	ASSERT_EQ(read(pipe_[0], &c, 1), 1);
	ASSERT_EQ(gpu_info(fd).mem_free[PLAIN], before[PLAIN] - MIB(4));
	ASSERT_EQ(kill(pid, SIGKILL), 0);
	wait_for(pid);
	gpu_expect_free(fd, before);
	close(fd);
}

static int child_of_fork(void *arg)
{
	struct gpu_mem *m = arg;
	struct strait_vgpu_query q;
	unsigned char seen;

	/* The mapping is not inherited; the descriptor is shared. */
	if (gpu_query(m->fd, m->p, &q) != -ENOENT || mincore(m->p, PAGE, &seen) != -1 || errno != ENOMEM)
		return 1;
	gpu_map(m);
	if (!filled(m->p, m->len, 9))
		return 2;
	m->p[0] ^= 1;
	return close(m->fd) ? 3 : 0;
}

TEST(fork_shares_the_file_and_not_the_mapping)
{
	int fd = gpu_open();
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 2 * PAGE);

	fill(m.p, m.len, 9);
	ASSERT_EQ(wait_for(start(child_of_fork, &m)), 0);
	m.p[0] ^= 1;
	ASSERT_TRUE(filled(m.p, m.len, 9));
	close(fd);
}

static void send_fd(int sock, int fd, const void *data, size_t len)
{
	char room[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { (void *)data, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	ASSERT_EQ(sendmsg(sock, &msg, 0), len);
}

static int receive_fd(int sock, void *data, size_t len)
{
	char room[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { data, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room) };
	int fd = -1;

	if (recvmsg(sock, &msg, 0) == (ssize_t)len && CMSG_FIRSTHDR(&msg))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

/* Allocates, fills, passes the file on, and exits. */
static int giver(void *arg)
{
	int sock = *(int *)arg, fd = open("/dev/strait_vgpu0", O_RDWR);
	struct gpu_mem m;

	if (fd < 0 || gpu_try_alloc(fd, PLAIN, MIB(1), &m))
		return 1;
	gpu_map(&m);
	fill(m.p, m.len, 11);
	send_fd(sock, fd, &m, sizeof(m));
	return 0;
}

TEST(a_file_that_is_passed_on_lives_on)
{
	int watch = gpu_open(), sock[2], fd;
	uint64_t before[2];
	struct gpu_mem m;

	gpu_all_free(watch, before);
	ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sock), 0);
	ASSERT_EQ(wait_for(start(giver, &sock[0])), 0);
	fd = receive_fd(sock[1], &m, sizeof(m));
	ASSERT_GE(fd, 0);
	m.fd = fd;
	gpu_map(&m);
	ASSERT_TRUE(filled(m.p, m.len, 11));
	ASSERT_OK(gpu_free(&m));
	ASSERT_TRUE(all_zero(m.p, m.len));
	gpu_expect_free(watch, before);
	close(m.fd);
	close(watch);
}

TEST(refuses_what_makes_no_sense)
{
	int fd = gpu_open();
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 4 * PAGE);
	struct strait_vgpu_info info = gpu_info(fd);
	struct strait_vgpu_alloc good = { .size = sizeof(good), .length = PAGE }, a;
	struct strait_vgpu_free f = { .size = sizeof(f), .handle = m.handle };
	struct {
		struct strait_vgpu_alloc a;
		char tail[64];
	} longer;
	void *p;

#define REFUSED(err, ...)                                                                                              \
	do {                                                                                                           \
		a = good;                                                                                              \
		__VA_ARGS__;                                                                                           \
		ASSERT_EQ(gpu_call(fd, STRAIT_VGPU_ALLOC, &a), err);                                                   \
	} while (0)
	REFUSED(-EINVAL, a.size = 0);
	REFUSED(-EINVAL, a.size = sizeof(a) - 1);
	REFUSED(-E2BIG, a.size = 1 << 20);
	REFUSED(-EINVAL, a.flags = 1);
	REFUSED(-EINVAL, a.kind = 2);
	REFUSED(-EINVAL, a.reserved = 1);
	REFUSED(-EINVAL, a.reserved2 = 1);
	REFUSED(-EINVAL, a.length = 0);
	REFUSED(-EINVAL, a.length = PAGE + 4096);
	REFUSED(-ENOMEM, a.length = info.mem_total[PLAIN] + PAGE);
	REFUSED(-ENOMEM, a.length = UINT64_MAX & ~(PAGE - 1));
	REFUSED(-ENOMEM, a.kind = PINNABLE; a.length = info.mem_total[PINNABLE] + PAGE);
#undef REFUSED
	/* A longer struct of a later version, with a tail that is zero or not. */
	memset(&longer, 0, sizeof(longer));
	longer.a = good;
	longer.a.size = sizeof(longer);
	ASSERT_OK(gpu_call(fd, STRAIT_VGPU_ALLOC, &longer));
	ASSERT_EQ(longer.a.size, sizeof(longer.a));
	longer.a = good;
	longer.a.size = sizeof(longer);
	longer.tail[63] = 1;
	ASSERT_EQ(gpu_call(fd, STRAIT_VGPU_ALLOC, &longer), -E2BIG);
	ASSERT_EQ(gpu_call(fd, STRAIT_VGPU_ALLOC, NULL), -EFAULT);
	ASSERT_EQ(gpu_call(fd, _IOWR(STRAIT_VGPU_IOC, 0x08, struct strait_vgpu_free), &f), -ENOTTY);
	ASSERT_EQ(gpu_call(fd, _IOWR('x', 0x02, struct strait_vgpu_free), &f), -ENOTTY);
	ASSERT_EQ(gpu_call(fd, _IOR(STRAIT_VGPU_IOC, 0x02, struct strait_vgpu_free), &f), -ENOTTY);
	f.reserved = 1;
	ASSERT_EQ(gpu_call(fd, STRAIT_VGPU_FREE, &f), -EINVAL);
	f = (struct strait_vgpu_free){ .size = sizeof(f), .handle = 0 };
	ASSERT_EQ(gpu_call(fd, STRAIT_VGPU_FREE, &f), -ENOENT);

	ASSERT_TRUE(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, (off_t)m.offset) == MAP_FAILED && errno == EINVAL);
	ASSERT_TRUE(mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, fd, (off_t)m.offset) == MAP_FAILED &&
		    errno == EPERM);
	ASSERT_TRUE(mmap(NULL, m.len + PAGE, PROT_READ, MAP_SHARED, fd, (off_t)m.offset) == MAP_FAILED);
	ASSERT_TRUE(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, (off_t)(m.offset + m.len)) == MAP_FAILED);
	ASSERT_TRUE(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
	ASSERT_TRUE(mremap(m.p, m.len, 2 * m.len, MREMAP_MAYMOVE) == MAP_FAILED);
	p = mmap(NULL, m.len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_TRUE(mremap(m.p, m.len, m.len, MREMAP_MAYMOVE | MREMAP_FIXED, p) == MAP_FAILED);
	ASSERT_EQ(mprotect(m.p, PAGE, PROT_READ | PROT_EXEC), -1);
	close(fd);
}

/* For programs that map a file and know no ioctls: the first mapping allocates. */
TEST(a_fresh_file_is_memory)
{
	int fd = gpu_open(), other = gpu_open();
	struct strait_vgpu_info info = gpu_info(fd);
	struct strait_vgpu_query q;
	struct gpu_mem m = { .fd = fd };
	uint64_t before[2];
	unsigned char *p;

	gpu_all_free(other, before);
	/* What is refused allocates nothing. */
	ASSERT_TRUE(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED && errno == EINVAL);
	ASSERT_TRUE(mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EPERM);
	ASSERT_TRUE(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 4096) == MAP_FAILED && errno == EINVAL);
	ASSERT_TRUE(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, (off_t)STRAIT_VGPU_MMAP_IO) == MAP_FAILED &&
		    errno == EINVAL);
	ASSERT_TRUE(mmap(NULL, info.mem_total[PINNABLE] + PAGE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED &&
		    errno == ENOMEM);
	gpu_expect_free(other, before);
	m.len = 3 * PAGE + 4096;
	p = gpu_mmap(fd, m.len, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
	ASSERT_TRUE(p != MAP_FAILED);
	ASSERT_EQ(gpu_info(fd).mem_free[PINNABLE], before[PINNABLE] - 4 * PAGE);
	ASSERT_EQ(gpu_info(fd).mem_free[PLAIN], before[PLAIN]);
	ASSERT_TRUE(all_zero(p, m.len));
	fill(p, m.len, 9);
	ASSERT_OK(gpu_query(fd, p, &q));
	ASSERT_EQ(q.kind, PINNABLE);
	ASSERT_EQ(q.flags, STRAIT_VGPU_QUERY_MINE);
	ASSERT_EQ(q.offset, 0);
	m.handle = q.handle;
	m.p = p;
	expect_outside(&m, 0, m.len);
	/* The file is fresh no more. Another one is. */
	ASSERT_TRUE(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EINVAL);
	ASSERT_TRUE(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, other, 0) != MAP_FAILED);
	/* The mapping keeps it, and it goes with the last of both. */
	close(fd);
	ASSERT_TRUE(filled(p, m.len, 9));
	ASSERT_OK(munmap(p, m.len));
	before[PINNABLE] -= PAGE;
	gpu_expect_free(other, before);
	close(other);
	/* Freed by its handle it reads as zeros, as all memory does. */
	fd = gpu_open();
	p = gpu_mmap(fd, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
	fill(p, PAGE, 3);
	ASSERT_OK(gpu_query(fd, p, &q));
	m = (struct gpu_mem){ .fd = fd, .handle = q.handle, .len = PAGE, .p = p };
	ASSERT_OK(gpu_free(&m));
	ASSERT_TRUE(all_zero(p, PAGE));
	close(fd);
}

/* Pieces of a mapping are still the same memory. */
TEST(a_mapping_can_be_cut)
{
	int fd = gpu_open();
	struct gpu_mem m = gpu_alloc(fd, PLAIN, 8 * PAGE);
	struct strait_vgpu_query q;

	fill(m.p, m.len, 3);
	ASSERT_EQ(munmap(m.p + 4096, 4096), 0);
	ASSERT_EQ(mprotect(m.p + 3 * PAGE, PAGE, PROT_READ), 0);
	ASSERT_EQ(madvise(m.p + 4 * PAGE, PAGE, MADV_DONTNEED), 0);
	ASSERT_OK(gpu_query(fd, m.p + 3 * PAGE, &q));
	ASSERT_EQ(q.offset, 3 * PAGE);
	ASSERT_EQ(q.length, PAGE);
	ASSERT_TRUE(filled(m.p, 4096, 3));
	ASSERT_EQ(mprotect(m.p + 3 * PAGE, PAGE, PROT_READ | PROT_WRITE), 0);
	ASSERT_EQ(munmap(m.p, PAGE), 0);
	gpu_map(&m);
	ASSERT_TRUE(filled(m.p, m.len, 3));
	close(fd);
}

TEST(all_of_it_can_be_had)
{
	int fd = gpu_open();
	struct strait_vgpu_info info = gpu_info(fd);
	const uint64_t total[2] = { info.mem_total[PLAIN], info.mem_total[PINNABLE] };
	struct gpu_mem m;

	/* No test runs at the same time: memory in use was leaked by an earlier one. */
	gpu_expect_free(fd, total);
	for (uint32_t kind = 0; kind < 2; kind++) {
		m = gpu_alloc(fd, kind, info.mem_total[kind]);
		ASSERT_EQ(m.bar, info.mem_offset[kind]);
		m.p[m.len - 1] = 1;
		ASSERT_EQ(gpu_try_alloc(fd, kind, PAGE, &m), -ENOMEM);
	}
	close(fd);
}

/* A block device of the lab to read from, with known content at @off. */
static int open_drive(const void *content, size_t len, uint64_t off)
{
	int fd = open("/dev/nvme0n1", O_RDWR | O_CLOEXEC);
	void *buf = NULL;

	if (fd < 0)
		SKIP("there is no /dev/nvme0n1");
	ASSERT_EQ(posix_memalign(&buf, 4096, len), 0);
	memcpy(buf, content, len);
	ASSERT_EQ(pwrite(fd, buf, len, (off_t)off), len);
	ASSERT_EQ(fdatasync(fd), 0);
	close(fd);
	free(buf);
	fd = open("/dev/nvme0n1", O_RDWR | O_DIRECT | O_CLOEXEC);
	ASSERT_GE(fd, 0);
	return fd;
}

/* The drive writes to and reads from a mapping directly, where the pages allow that. */
TEST_VARIANTS(direct_io, struct kind, kinds)
{
	int fd = gpu_open(), drive;
	struct strait_vgpu_info info = gpu_info(fd);
	unsigned char content[KIB(128)];
	struct gpu_mem m;

	fill(content, sizeof(content), 77);
	drive = open_drive(content, sizeof(content), MIB(8));
	m = gpu_alloc(fd, v->kind, 4 * PAGE);
	if (v->kind == PLAIN && !(info.caps & STRAIT_VGPU_CAP_P2PDMA)) {
		ASSERT_EQ(pread(drive, m.p, sizeof(content), MIB(8)), -1);
		ASSERT_TRUE(errno == EFAULT || errno == EEXIST);
		SKIP("plain memory has no pages on this kernel: refused, as it should be");
	}
	if (v->kind == PLAIN && getenv("LAB_NO_P2PDMA") && *getenv("LAB_NO_P2PDMA"))
		SKIP("%s", getenv("LAB_NO_P2PDMA"));
	ASSERT_EQ(pread(drive, m.p + PAGE, sizeof(content), MIB(8)), sizeof(content));
	ASSERT_TRUE(filled(m.p + PAGE, sizeof(content), 77));
	ASSERT_TRUE(all_zero(m.p, PAGE));
	expect_outside(&m, 0, m.len);
	fill(m.p, KIB(64), 78);
	ASSERT_EQ(pwrite(drive, m.p, KIB(64), MIB(9)), KIB(64));
	ASSERT_EQ(pread(drive, m.p + PAGE, KIB(64), MIB(9)), KIB(64));
	ASSERT_TRUE(filled(m.p + PAGE, KIB(64), 78));
	close(drive);
	close(fd);
}

/* Long-term pins: refused for plain memory, allowed for the other kind, and waited for. */
TEST_VARIANTS(long_term_pins, struct kind, kinds)
{
	int fd = gpu_open();
	struct gpu_mem m = gpu_alloc(fd, v->kind, 4 * PAGE), next;
	struct iovec iov = { m.p, m.len };
	uint64_t before[2];
	struct io_uring ring;
	int rc;

	gpu_all_free(fd, before);
	ASSERT_OK(io_uring_queue_init(4, &ring, 0));
	rc = io_uring_register_buffers(&ring, &iov, 1);
	if (v->kind == PLAIN) {
		ASSERT_LT(rc, 0);
		close(fd);
		return;
	}
	if (rc == -EOPNOTSUPP)
		SKIP("this kernel registers no pages of a file");
	ASSERT_OK(rc);
	fill(m.p, m.len, 21);
	ASSERT_OK(gpu_free(&m));
	ASSERT_TRUE(all_zero(m.p, m.len));
	ASSERT_EQ(gpu_counters(fd).draining_bytes, m.len);
	/* It is not allocated again meanwhile. */
	next = gpu_alloc(fd, PINNABLE, m.len);
	ASSERT_NE(next.bar, m.bar);
	ASSERT_OK(gpu_free(&next));
	ASSERT_OK(io_uring_unregister_buffers(&ring));
	io_uring_queue_exit(&ring);
	before[PINNABLE] += m.len;
	gpu_expect_free(fd, before);
	ASSERT_EQ(gpu_counters(fd).draining_bytes, 0);
	close(fd);
}
