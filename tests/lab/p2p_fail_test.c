/* SPDX-License-Identifier: MIT */
/*
 * /dev/strait when the kernel itself is out of memory: each allocation that a call makes, in any part of the kernel,
 * and each copy to or from user space fails once. On kernels with fault injection: the lab's debug kernel.
 */
#include "p2p.h"

#include <liburing.h>

#define SEED 41
#define LEN KIB(256)
#define NTH "/proc/thread-self/fail-nth"
#define MOST 2000

static const struct place raw = { "raw", NULL };
static const struct place ext4 = PLACE_EXT4;

struct fixture {
	int ko, gpu, file, dmabuf;
	struct gpu_mem m;
	unsigned char *host;
	uint32_t handle; /* of the device's memory */
	struct io_uring ring;
};

static void no_fault_injection(char *text, size_t len)
{
	if (access(NTH, W_OK))
		snprintf(text, len, "the kernel was built without fault injection");
}
TEST_PROGRAM_NEEDS(no_fault_injection)

/* Allocations that may sleep fail too, without a message for each. */
static void set_up(void)
{
	static const char *const on[] = { "failslab/ignore-gfp-wait",
					  "fail_page_alloc/ignore-gfp-wait",
					  "fail_page_alloc/ignore-gfp-highmem",
					  "fail_page_alloc/min-order",
					  "failslab/verbose",
					  "fail_page_alloc/verbose",
					  "fail_usercopy/verbose" };
	char path[96];

	for (size_t i = 0; i < ARRAY_SIZE(on); i++) {
		snprintf(path, sizeof(path), "/sys/kernel/debug/%s", on[i]);
		write_text(path, i < 3 ? "N" : "0");
	}
}

static struct fixture open_scene(const struct place *place)
{
	struct fixture s = { .ko = ko_open_p2p(), .gpu = gpu_open() };

	set_up();
	s.file = place_file(place, LEN, SEED, 0);
	s.m = gpu_alloc(s.gpu, PLAIN, LEN);
	s.dmabuf = (int)ASSERT_OK(gpu_dmabuf(&s.m, 0, LEN));
	s.host = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	ASSERT_TRUE(s.host != MAP_FAILED);
	s.handle = ko_import(s.ko, STRAIT_IMPORT_P2P, s.m.p, s.m.len);
	ASSERT_OK(io_uring_queue_init(4, &s.ring, 0));
	return s;
}

static int import(struct fixture *s, uint32_t kind)
{
	struct strait_ioc_import imp = { .size = sizeof(imp), .kind = kind, .fd = -1, .length = LEN };
	int rc;

	if (kind == STRAIT_IMPORT_DMABUF)
		imp.fd = s->dmabuf;
	else
		imp.address = (uintptr_t)(kind == STRAIT_IMPORT_USER ? s->host : s->m.p);
	rc = ko_call(s->ko, STRAIT_IOC_IMPORT, &imp);
	/* If the handle cannot be copied to the program there is no region; releasing one must not need memory. */
	return rc ? rc : ko_release(s->ko, imp.handle);
}

static int import_p2p(struct fixture *s)
{
	return import(s, STRAIT_IMPORT_P2P);
}

static int import_user(struct fixture *s)
{
	return import(s, STRAIT_IMPORT_USER);
}

static int import_dmabuf(struct fixture *s)
{
	return import(s, STRAIT_IMPORT_DMABUF);
}

static int import_nvp2p(struct fixture *s)
{
	return import(s, STRAIT_IMPORT_NVP2P);
}

static int open_file(struct fixture *s)
{
	int fd = open("/dev/strait", O_RDWR | O_CLOEXEC);

	(void)s;
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static int check(struct fixture *s)
{
	struct strait_ioc_check c = { .size = sizeof(c), .handle = s->handle, .fd = s->file };

	return ko_call(s->ko, STRAIT_IOC_CHECK, &c);
}

static int io(struct fixture *s, uint32_t op)
{
	int64_t n = ko_io(s->ko, op, s->handle, s->file, 0, 0, LEN, NULL);

	return n == LEN ? 0 : n < 0 ? (int)n : -ENODATA;
}

static int read_call(struct fixture *s)
{
	return io(s, STRAIT_OP_READ);
}

static int write_call(struct fixture *s)
{
	return io(s, STRAIT_OP_WRITE);
}

static int command(struct fixture *s, uint32_t op)
{
	struct io_uring_cqe *cqe;
	int rc;

	ko_sqe(&s->ring, s->ko, op, s->handle, s->file, 0, 0, LEN);
	rc = io_uring_submit(&s->ring);
	/* The ring itself may have failed: then the command is still in it. */
	while (rc < 1)
		rc = io_uring_submit(&s->ring);
	while (io_uring_wait_cqe(&s->ring, &cqe))
		;
	rc = cqe->res;
	io_uring_cqe_seen(&s->ring, cqe);
	return rc == (int)LEN ? 0 : rc < 0 ? rc : -ENODATA;
}

static int read_command(struct fixture *s)
{
	return command(s, STRAIT_URING_READ);
}

static int write_command(struct fixture *s)
{
	return command(s, STRAIT_URING_WRITE);
}

static const struct call {
	const char *name;
	int (*fn)(struct fixture *s);
	const struct place *place;
} calls[] = {
	{ "open", open_file, &raw },
	{ "import p2p", import_p2p, &raw },
	{ "import user", import_user, &raw },
	{ "import dma-buf", import_dmabuf, &raw },
	{ "import nvp2p", import_nvp2p, &raw },
	{ "check", check, &ext4 },
	{ "read", read_call, &raw },
	{ "write", write_call, &raw },
	{ "read ext4", read_call, &ext4 },
	{ "read command", read_command, &raw },
	{ "write command", write_command, &raw },
	{ "read command ext4", read_command, &ext4 },
};

/* Has the fault happened? Ends injection. A fault that happens here did not happen before. */
static bool happened(int fd)
{
	char text[16] = "";
	bool yes = pread(fd, text, sizeof(text) - 1, 0) > 0 && text[0] == '0';

	while (pwrite(fd, "0", 1, 0) != 1)
		;
	return yes;
}

TEST_VARIANTS_TIMEOUT(each_allocation_of_the_kernel_fails, struct call, calls, 300)
{
	struct fixture s = open_scene(v->place);
	unsigned int n, failed = 0;
	char text[16];
	int rc, fd;

	ASSERT_OK(v->fn(&s));
	fd = open(NTH, O_RDWR | O_CLOEXEC);
	ASSERT_GE(fd, 0);
	for (n = 1; n < MOST; n++) {
		int len = snprintf(text, sizeof(text), "%u", n);

		ASSERT_EQ(pwrite(fd, text, (size_t)len, 0), len);
		rc = v->fn(&s);
		if (!happened(fd)) {
			ASSERT_OK(rc);
			break;
		}
		failed += rc != 0;
		/* It still works. */
		ASSERT_OK(v->fn(&s));
	}
	close(fd);
	ASSERT_LT(n, MOST);
	ASSERT_GT(failed, 0);
	ko_expect_counter("in_flight", 0);
	io_uring_queue_exit(&s.ring);
	close(s.ko);
	ko_expect_counter("device_bytes", 0);
	ko_expect_counter("pinned_bytes", 0);
	close(s.file);
	place_unmount();
}
