/* SPDX-License-Identifier: MIT */
/* Opening objects, with every system call failing once at every place: no crash, no leak. */
#include "common.h"

static const struct fault {
	const char *name;
	enum os_call call;
	int64_t rets[4];
} faults[] = {
	{ "open", OS_OPEN, { -EMFILE, -ENOENT, -EACCES, -EINVAL } },
	{ "fstat", OS_FSTAT, { -EIO } },
	{ "statfs", OS_STATFS, { -EIO } },
	{ "statx", OS_STATX, { -ENOSYS, -EOPNOTSUPP, -EIO } },
	{ "fcntl", OS_FCNTL, { -EMFILE, -EAGAIN, -EACCES } },
	{ "ioctl", OS_IOCTL, { -ENOTTY } },
	{ "mmap", OS_MMAP, { -ENOMEM } },
	{ "madvise", OS_MADVISE, { -EINVAL } },
	{ "mbind", OS_MBIND, { -EPERM } },
	{ "memfd", OS_MEMFD, { -EMFILE, -ENOMEM } },
	{ "fallocate", OS_FALLOCATE, { -ENOMEM } },
	{ "vm-read", OS_VM_READ, { -EPERM } },
	{ "thread", OS_THREAD, { -EAGAIN } },
	{ "dlopen", OS_DLOPEN, { -ENOENT } },
	{ "fdatasync", OS_FDATASYNC, { -EIO } },
};

#define LEN (KIB(700) + 3)

/* Opens one of each object, and uses it once if that worked. Returns how many steps failed. */
static int everything(const char *path, int fd)
{
	struct strait_context *ctx = NULL;
	struct strait_endpoint *ep = NULL, *imported = NULL, *leased = NULL;
	struct strait_region *r = NULL, *over = NULL;
	struct strait_queue *q = NULL;
	struct strait_stream *s = NULL;
	struct strait_device *dev = NULL;
	void *mem = NULL, *map;
	int failed = 0;

#define TRY(call)                                                                                                      \
	do {                                                                                                           \
		int rc_ = (call);                                                                                      \
		if (rc_ < 0) {                                                                                         \
			ASSERT_GT(rc_, -4096);                                                                         \
			failed++;                                                                                      \
		}                                                                                                      \
	} while (0)

	TRY(strait_context_open(NULL, &ctx));
	if (!ctx)
		return failed;
	TRY(strait_device_find(ctx, "emu", &dev));
	ASSERT_TRUE(dev);
	TRY(strait_region_alloc(dev, LEN, &r));
	TRY(strait_emu_malloc(dev, LEN, &mem));
	if (mem)
		TRY(strait_region_import(ctx, NULL, mem, LEN, &over));
	TRY(strait_file_open(ctx, path, O_RDWR, 0, 0, &ep));
	TRY(strait_file_open(ctx, path, O_RDONLY, 0, STRAIT_FILE_LEASE, &leased));
	TRY(strait_file_import(ctx, fd, STRAIT_FILE_DIRECT, &imported));
	TRY(strait_queue_open(ctx, NULL, &q));
	TRY(strait_stream_open(dev, &s));
	if (r)
		TRY(strait_region_map(r, &map));
	if (ep && r) {
		ssize_t n = strait_read(ep, 0, r, 0, LEN);

		if (n < 0)
			failed++;
		else
			ASSERT_LE(n, (ssize_t)LEN);
		TRY(strait_endpoint_sync(ep));
	}
	strait_stream_close(s);
	strait_queue_close(q);
	strait_endpoint_close(imported);
	strait_endpoint_close(leased);
	strait_endpoint_close(ep);
	strait_region_close(over);
	if (mem)
		ASSERT_OK(strait_emu_free(dev, mem));
	strait_region_close(r);
	strait_context_close(ctx);
	return failed;
}

TEST_WHERE(opening_everything, where_emulated)

TEST_VARIANTS(opening_everything, struct fault, faults)
{
	const char *path = make_file("file", LEN, 1);
	int fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC), base;
	unsigned int descriptors = descriptors_now(), threads = threads_now();

	/* A lease is refused while the file is open for writing: not a failure. */
	base = everything(path, fd);
	ASSERT_EQ(base, 0);
	for (size_t i = 0; i < ARRAY_SIZE(v->rets) && v->rets[i]; i++) {
		unsigned int calls, nth = 0;

		do {
			nth++;
			inject(v->call, nth, 0, v->rets[i]);
			everything(path, fd);
			inject_off();
			calls = inject_calls();
			ASSERT_EQ(descriptors_now(), descriptors);
			ASSERT_EQ(threads_now(), threads);
		} while (calls >= nth);
		/* The same with a fault that stays. */
		inject(v->call, 1, UINT32_MAX, v->rets[i]);
		everything(path, fd);
		inject_off();
		ASSERT_EQ(descriptors_now(), descriptors);
	}
	ASSERT_EQ(everything(path, fd), 0);
	close(fd);
}

/* The calls that take a lease, with no writer of the file. */
TEST_VARIANTS(opening_with_a_lease, struct fault, faults)
{
	const char *path = make_file("file", LEN, 1);
	struct strait_context *ctx = context_new(NULL);
	unsigned char *want = pattern_new(0, LEN, 1);
	struct strait_region *r = region_new(device_named(ctx, "emu"), LEN);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, STRAIT_FILE_LEASE);
	unsigned int calls, nth = 0, descriptors;

	/* What the first read opens is kept in the context. */
	ASSERT_EQ(strait_read(ep, 0, r, 0, LEN), (ssize_t)LEN);
	strait_endpoint_close(ep);
	descriptors = descriptors_now();
	do {
		int rc;

		ep = NULL;
		inject(v->call, ++nth, 0, v->rets[0]);
		rc = strait_file_open(ctx, path, O_RDONLY, 0, STRAIT_FILE_LEASE, &ep);
		inject_off();
		calls = inject_calls();
		if (!rc) {
			ASSERT_EQ(strait_read(ep, 0, r, 0, LEN), (ssize_t)LEN);
			region_expect(r, 0, want, LEN);
		} else {
			ASSERT_EQ(ep, NULL);
		}
		strait_endpoint_close(ep);
		/* So is the ring of a direct read. */
		ASSERT_LE(descriptors_now(), descriptors + 2);
	} while (calls >= nth);
	strait_region_close(r);
	strait_context_close(ctx);
	free(want);
}
