/* SPDX-License-Identifier: MIT */
/*
 * The lab's GPU: every allocation of the driver fails once, in every call that makes any. What was done
 * before it is undone: the memory is all there afterwards, and the same call goes through.
 */
#include "consumer.h"

#define MOST 64 /* allocations in one call, by far */

struct scene {
	int fd, c;
	struct gpu_mem m;
	uint32_t id, import;
	int buf;
};

static void forget_failures(void)
{
	fail_nth(0);
}

/*
 * The call is made with its first, second, ... allocation failing until it does not get as far as that
 * one. It must say -ENOMEM each time, and succeed in the end.
 */
static void each_fails(const char *what, struct scene *s, int (*call)(struct scene *s), void (*undo)(struct scene *s),
		       int least)
{
	uint64_t before[2];

	gpu_all_free(s->fd, before);
	for (unsigned int n = 1; n <= MOST; n++) {
		bool left;
		int rc;

		fail_nth(n);
		rc = call(s);
		left = fail_left();
		forget_failures();
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

static int call_open(struct scene *s)
{
	int fd = open("/dev/strait_vgpu0", O_RDWR);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static void nothing(struct scene *s)
{
}

TEST(opening)
{
	struct scene s = { .fd = gpu_open() };

	each_fails("open", &s, call_open, nothing, 1);
}

static int call_alloc(struct scene *s)
{
	return gpu_try_alloc(s->fd, PLAIN, 4 * PAGE, &s->m);
}

static void undo_alloc(struct scene *s)
{
	ASSERT_OK(gpu_free(&s->m));
}

TEST(allocating)
{
	struct scene s = { .fd = gpu_open() };

	each_fails("alloc", &s, call_alloc, undo_alloc, 3);
}

static int call_dmabuf(struct scene *s)
{
	s->buf = gpu_dmabuf(&s->m, 0, PAGE);
	return s->buf < 0 ? s->buf : 0;
}

static void undo_dmabuf(struct scene *s)
{
	close(s->buf);
}

TEST(exporting)
{
	struct scene s = { .fd = gpu_open() };

	s.m = gpu_alloc(s.fd, PLAIN, 4 * PAGE);
	each_fails("dmabuf", &s, call_dmabuf, undo_dmabuf, 3);
}

static int call_import_map(struct scene *s)
{
	return importer_map(s->c, s->import);
}

static void undo_import_map(struct scene *s)
{
	importer_unmap(s->c, s->import);
}

TEST(mapping_a_dma_buf)
{
	struct scene s = { .fd = gpu_open(), .c = consumer_open() };

	s.m = gpu_alloc(s.fd, PLAIN, 4 * PAGE);
	s.buf = (int)ASSERT_OK(gpu_dmabuf(&s.m, 0, 4 * PAGE));
	s.import = importer_attach(s.c, s.buf, 0);
	each_fails("dma_buf_map_attachment", &s, call_import_map, undo_import_map, 3);
}

static int get_kind(struct scene *s, uint32_t flags)
{
	struct vt_get get = { .va = (uintptr_t)s->m.p, .len = s->m.len, .flags = flags };
	int rc = consumer_try_get(s->c, &get);

	s->id = get.id;
	return rc;
}

static int call_get(struct scene *s)
{
	return get_kind(s, 0);
}

static void undo_get(struct scene *s)
{
	ASSERT_EQ(consumer_put(s->c, s->id, 0), 0);
}

static int call_get_persistent(struct scene *s)
{
	return get_kind(s, VT_GET_PERSISTENT);
}

static void undo_get_persistent(struct scene *s)
{
	ASSERT_EQ(consumer_put(s->c, s->id, VT_PUT_PERSISTENT), 0);
}

TEST(pinning)
{
	struct scene s = { .fd = gpu_open(), .c = consumer_open() };

	s.m = gpu_alloc(s.fd, PLAIN, 4 * PAGE);
	each_fails("get_pages", &s, call_get, undo_get, 3);
	each_fails("get_pages_persistent", &s, call_get_persistent, undo_get_persistent, 3);
	close(s.c);
	gpu_unmap(&s.m);
}

static int call_map(struct scene *s)
{
	return consumer_map(s->c, s->id);
}

static void undo_map(struct scene *s)
{
	ASSERT_EQ(consumer_unmap(s->c, s->id, 0), 0);
}

TEST(mapping_for_a_peer)
{
	struct scene s = { .fd = gpu_open(), .c = consumer_open() };

	s.m = gpu_alloc(s.fd, PLAIN, 4 * PAGE);
	s.id = consumer_get(s.c, &s.m, 0, VT_CB_FORGET);
	each_fails("dma_map_pages", &s, call_map, undo_map, 6);
}

/* The one place where there is nobody to tell: the kernel tries again, or ends the program. */
TEST(a_zero_page)
{
	struct scene s = { .fd = gpu_open() };
	unsigned char vec;

	s.m = gpu_alloc(s.fd, PLAIN, PAGE);
	ASSERT_OK(gpu_free(&s.m));
	fail_nth(1);
	/* Asked for by a call, so that it is told in place of a signal. */
	ASSERT_EQ(madvise(s.m.p, 4096, 22 /* MADV_POPULATE_READ */), -1);
	ASSERT_EQ(errno, ENOMEM);
	ASSERT_FALSE(fail_left());
	ASSERT_TRUE(all_zero(s.m.p, 4096));
	ASSERT_EQ(mincore(s.m.p, 4096, &vec), 0);
}
