/* SPDX-License-Identifier: MIT */
/*
 * The lab's GPU: every allocation of the driver fails once, in every call that makes any. The call is undone without a
 * leak, and succeeds when repeated.
 *
 * On the debug kernel the same with every allocation that the rest of the kernel makes for such a call, and every copy
 * to or from user space.
 */
#include "consumer.h"

#define MOST 64		 /* more allocations than the driver makes in one call */
#define KERNEL_MOST 2000 /* and than all the kernel makes */

struct fixture {
	int fd, c;
	struct gpu_mem m, other;
	uint32_t id, import;
	int buf, other_buf;
	void *map;
};

static void stop_failures(void)
{
	fail_nth(0);
}

/*
 * Repeats the call with its first, second, ... allocation failing, until it makes fewer. It must return -ENOMEM each
 * time, and succeed in the end.
 */
static void each_fails(const char *what, struct fixture *s, int (*call)(struct fixture *s),
		       void (*undo)(struct fixture *s), int least)
{
	uint64_t before[2];

	gpu_all_free(s->fd, before);
	for (unsigned int n = 1; n <= MOST; n++) {
		bool left;
		int rc;

		fail_nth(n);
		rc = call(s);
		left = fail_left();
		stop_failures();
		if (left) {
			if (rc < 0)
				FAIL("%s: %s though nothing failed", what, strerror(-rc));
			undo(s);
			gpu_expect_free(s->fd, before);
			ASSERT_GE(n - 1, least);
			return;
		}
		if (rc != -ENOMEM)
			FAIL("%s: allocation %u failed and it returned %d", what, n, rc);
		gpu_expect_free(s->fd, before);
		ASSERT_EQ(gpu_counters(s->fd).peer_mapped_now, 0);
	}
	FAIL("%s: more than %d allocations", what, MOST);
}

static int call_open(struct fixture *s)
{
	int fd = open("/dev/strait_vgpu0", O_RDWR);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static void nothing(struct fixture *s)
{
}

TEST(opening)
{
	struct fixture s = { .fd = gpu_open() };

	each_fails("open", &s, call_open, nothing, 1);
}

static int call_alloc(struct fixture *s)
{
	return gpu_try_alloc(s->fd, PLAIN, 4 * PAGE, &s->m);
}

static void undo_alloc(struct fixture *s)
{
	ASSERT_OK(gpu_free(&s->m));
}

TEST(allocating)
{
	struct fixture s = { .fd = gpu_open() };

	each_fails("alloc", &s, call_alloc, undo_alloc, 3);
}

static int call_dmabuf(struct fixture *s)
{
	s->buf = gpu_dmabuf(&s->m, 0, PAGE);
	return s->buf < 0 ? s->buf : 0;
}

static void undo_dmabuf(struct fixture *s)
{
	close(s->buf);
}

TEST(exporting)
{
	struct fixture s = { .fd = gpu_open() };

	s.m = gpu_alloc(s.fd, PLAIN, 4 * PAGE);
	each_fails("dmabuf", &s, call_dmabuf, undo_dmabuf, 3);
}

static int call_import_map(struct fixture *s)
{
	return importer_map(s->c, s->import);
}

static void undo_import_map(struct fixture *s)
{
	importer_unmap(s->c, s->import);
}

TEST(mapping_a_dma_buf)
{
	struct fixture s = { .fd = gpu_open(), .c = consumer_open() };

	s.m = gpu_alloc(s.fd, PLAIN, 4 * PAGE);
	s.buf = (int)ASSERT_OK(gpu_dmabuf(&s.m, 0, 4 * PAGE));
	s.import = importer_attach(s.c, s.buf, 0);
	each_fails("dma_buf_map_attachment", &s, call_import_map, undo_import_map, 3);
}

static int get_kind(struct fixture *s, uint32_t flags)
{
	struct vt_get get = { .va = (uintptr_t)s->m.p, .len = s->m.len, .flags = flags };
	int rc = consumer_try_get(s->c, &get);

	s->id = get.id;
	return rc;
}

static int call_get(struct fixture *s)
{
	return get_kind(s, 0);
}

static void undo_get(struct fixture *s)
{
	ASSERT_EQ(consumer_put(s->c, s->id, 0), 0);
}

static int call_get_persistent(struct fixture *s)
{
	return get_kind(s, VT_GET_PERSISTENT);
}

static void undo_get_persistent(struct fixture *s)
{
	ASSERT_EQ(consumer_put(s->c, s->id, VT_PUT_PERSISTENT), 0);
}

TEST(pinning)
{
	struct fixture s = { .fd = gpu_open(), .c = consumer_open() };

	s.m = gpu_alloc(s.fd, PLAIN, 4 * PAGE);
	each_fails("get_pages", &s, call_get, undo_get, 3);
	each_fails("get_pages_persistent", &s, call_get_persistent, undo_get_persistent, 3);
	close(s.c);
	gpu_unmap(&s.m);
}

static int call_map(struct fixture *s)
{
	return consumer_map(s->c, s->id);
}

static void undo_map(struct fixture *s)
{
	ASSERT_EQ(consumer_unmap(s->c, s->id, 0), 0);
}

TEST(mapping_for_a_peer)
{
	struct fixture s = { .fd = gpu_open(), .c = consumer_open() };

	s.m = gpu_alloc(s.fd, PLAIN, 4 * PAGE);
	s.id = consumer_get(s.c, &s.m, 0, VT_CB_FORGET);
	each_fails("dma_map_pages", &s, call_map, undo_map, 6);
}

/* The only allocation without a caller to report to: the kernel tries again, or kills the program. */
TEST(a_zero_page)
{
	struct fixture s = { .fd = gpu_open() };
	unsigned char vec;

	s.m = gpu_alloc(s.fd, PLAIN, PAGE);
	ASSERT_OK(gpu_free(&s.m));
	fail_nth(1);
	/* Requested by a call, so that the failure is an error instead of a signal. */
	ASSERT_EQ(madvise(s.m.p, 4096, 22 /* MADV_POPULATE_READ */), -1);
	ASSERT_EQ(errno, ENOMEM);
	ASSERT_FALSE(fail_left());
	ASSERT_TRUE(all_zero(s.m.p, 4096));
	ASSERT_EQ(mincore(s.m.p, 4096, &vec), 0);
}

/* ---- the kernel's own ---- */

struct kernel_call {
	const char *name;
	void (*prepare)(struct fixture *s);
	int (*call)(struct fixture *s);
	void (*undo)(struct fixture *s);
};

/* A call of the consumer: its error, or the result it has reported. */
static int consumer_result(int rc, int32_t result)
{
	return rc ? rc : result;
}

static int kernel_attach(struct fixture *s)
{
	struct vt_buf buf = { .fd = s->buf };
	int rc = gpu_call(s->c, VT_ATTACH, &buf);

	s->import = buf.id;
	return consumer_result(rc, buf.result);
}

static void undo_attach(struct fixture *s)
{
	importer_detach(s->c, s->import);
}

static int kernel_attach_map(struct fixture *s)
{
	struct vt_buf buf = { .id = s->import };
	int rc = gpu_call(s->c, VT_BUF_MAP, &buf);

	/* Mapped, although the result could not be copied. */
	if (rc && importer_status(s->c, s->import).mapped)
		importer_unmap(s->c, s->import);
	return consumer_result(rc, buf.result);
}

static void prepare_attach(struct fixture *s)
{
	if (!s->import)
		s->import = importer_attach(s->c, s->buf, 0);
}

static int kernel_alloc(struct fixture *s)
{
	return gpu_try_alloc(s->fd, PLAIN, 4 * PAGE, &s->other);
}

static void undo_other(struct fixture *s)
{
	ASSERT_OK(gpu_free(&s->other));
}

static void prepare_free(struct fixture *s)
{
	s->other = gpu_alloc(s->fd, PLAIN, 4 * PAGE);
	s->other_buf = (int)ASSERT_OK(gpu_dmabuf(&s->other, 0, PAGE));
	s->id = consumer_get(s->c, &s->other, 0, VT_CB_FORGET);
}

static void undo_free(struct fixture *s)
{
	gpu_unmap(&s->other);
	close(s->other_buf);
}

/* Freeing must not need memory: only reading the request can fail. */
static int kernel_free(struct fixture *s)
{
	int rc = gpu_free(&s->other);

	if (rc) {
		ASSERT_EQ(rc, -EFAULT);
		ASSERT_OK(gpu_free(&s->other));
		undo_free(s);
	}
	return rc;
}

static int kernel_dmabuf(struct fixture *s)
{
	s->other_buf = gpu_dmabuf(&s->m, PAGE, PAGE);
	return s->other_buf < 0 ? s->other_buf : 0;
}

static void undo_buf(struct fixture *s)
{
	close(s->other_buf);
}

static int kernel_get_kind(struct fixture *s, uint32_t flags)
{
	struct vt_get get = { .va = (uintptr_t)s->m.p, .len = s->m.len, .flags = flags };
	int rc = gpu_call(s->c, VT_GET, &get);

	s->id = get.id;
	return consumer_result(rc, get.result);
}

static int kernel_get(struct fixture *s)
{
	return kernel_get_kind(s, 0);
}

static int kernel_get_persistent(struct fixture *s)
{
	return kernel_get_kind(s, VT_GET_PERSISTENT);
}

static void prepare_map(struct fixture *s)
{
	if (!s->id)
		s->id = consumer_get(s->c, &s->m, 0, VT_CB_FORGET);
}

static int kernel_map(struct fixture *s)
{
	struct vt_op op = { .id = s->id };
	int rc = gpu_call(s->c, VT_MAP, &op);

	/* Mapped, although the result could not be copied. */
	if (rc && gpu_counters(s->fd).peer_mapped_now)
		undo_map(s);
	return consumer_result(rc, op.result);
}

static int kernel_mmap(struct fixture *s)
{
	s->map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, s->fd, (off_t)s->m.offset);
	return s->map == MAP_FAILED ? -errno : 0;
}

static void undo_mmap(struct fixture *s)
{
	ASSERT_EQ(munmap(s->map, PAGE), 0);
}

static const struct kernel_call kernel_calls[] = {
	{ "open", nothing, call_open, nothing },
	{ "alloc", nothing, kernel_alloc, undo_other },
	{ "free", prepare_free, kernel_free, undo_free },
	{ "mmap", nothing, kernel_mmap, undo_mmap },
	{ "dmabuf", nothing, kernel_dmabuf, undo_buf },
	{ "attach", nothing, kernel_attach, undo_attach },
	{ "map_attachment", prepare_attach, kernel_attach_map, undo_import_map },
	{ "get_pages", nothing, kernel_get, undo_get },
	{ "get_pages_persistent", nothing, kernel_get_persistent, undo_get_persistent },
	{ "dma_map_pages", prepare_map, kernel_map, undo_map },
};

/* The thread's fail-nth counter. The file stays open, because opening it allocates too. */
static int nth_open(void)
{
	static const char *const off[] = { "failslab/ignore-gfp-wait", "fail_page_alloc/ignore-gfp-wait",
					   "fail_page_alloc/ignore-gfp-highmem" };
	static const char *const zero[] = { "fail_page_alloc/min-order", "failslab/verbose", "fail_page_alloc/verbose",
					    "fail_usercopy/verbose" };
	char path[96];
	int fd = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);

	ASSERT_GE(fd, 0);
	for (size_t i = 0; i < ARRAY_SIZE(off); i++) {
		snprintf(path, sizeof(path), "/sys/kernel/debug/%s", off[i]);
		ASSERT_OK(write_text(path, "N"));
	}
	for (size_t i = 0; i < ARRAY_SIZE(zero); i++) {
		snprintf(path, sizeof(path), "/sys/kernel/debug/%s", zero[i]);
		ASSERT_OK(write_text(path, "0"));
	}
	return fd;
}

static void nth_set(int fd, unsigned int n)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", n);

	/* The previous setting may hit this very write. */
	for (int i = 0; i < 3; i++)
		if (pwrite(fd, text, (size_t)len, 0) == len)
			return;
	FAIL("fail-nth cannot be set");
}

/* Was the failure not reached? */
static bool nth_left(int fd)
{
	char text[16] = "";

	return pread(fd, text, sizeof(text) - 1, 0) > 0 && strtoul(text, NULL, 10) > 0;
}

/* Only kernels built with fault injection have that file. */
static bool where_the_kernel_fails(__attribute__((unused)) const void *v)
{
	return !access("/proc/thread-self/fail-nth", W_OK);
}

TEST_WHERE(each_allocation_of_the_kernel, where_the_kernel_fails)
TEST_VARIANTS(each_allocation_of_the_kernel, struct kernel_call, kernel_calls)
{
	struct fixture s = { .fd = gpu_open(), .c = consumer_open() };
	uint64_t before[STRAIT_VGPU_MEM_KINDS];
	unsigned int failed = 0;
	int nth = nth_open();

	s.m = gpu_alloc(s.fd, PLAIN, 4 * PAGE);
	s.buf = (int)ASSERT_OK(gpu_dmabuf(&s.m, 0, 4 * PAGE));
	gpu_all_free(s.fd, before);
	for (unsigned int n = 1; n <= KERNEL_MOST; n++) {
		bool left;
		int rc;

		v->prepare(&s);
		nth_set(nth, n);
		rc = v->call(&s);
		left = nth_left(nth);
		nth_set(nth, 0);
		/* The kernel tolerates some of the failures. */
		if (!rc)
			v->undo(&s);
		else
			failed++;
		gpu_expect_free(s.fd, before);
		ASSERT_EQ(gpu_counters(s.fd).peer_mapped_now, 0);
		if (left) {
			ASSERT_OK(rc);
			ASSERT_GT(failed, 0);
			return;
		}
	}
	FAIL("more than %d allocations and copies", KERNEL_MOST);
}
