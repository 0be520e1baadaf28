/* SPDX-License-Identifier: MIT */
/* What can be opened or imported as a file endpoint, and that the application's descriptor is left unchanged. */
#include "common.h"

#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>

#define LEN (MIB(1) + 100)

struct rig {
	struct strait_context *ctx;
	struct strait_region *r;
	const char *path;
	unsigned char *want, *other;
};

static void rig_open(struct rig *g, const char *device)
{
	g->ctx = context_new(NULL);
	g->r = region_new(device_named(g->ctx, device), LEN);
	g->path = strdup(make_file("file", LEN, 1));
	g->want = pattern_new(0, LEN, 1);
	g->other = pattern_new(0, LEN, 2);
}

static void rig_close(struct rig *g)
{
	strait_region_close(g->r);
	strait_context_close(g->ctx);
	free((char *)g->path);
	free(g->want);
	free(g->other);
}

/* Reads the whole file, and a small unaligned piece of it. */
static void reads_well(struct rig *g, struct strait_endpoint *ep)
{
	ASSERT_OK(strait_region_fill(g->r, 0, 0, LEN));
	ASSERT_EQ(strait_read(ep, 0, g->r, 0, LEN), (ssize_t)LEN);
	region_expect(g->r, 0, g->want, LEN);
	ASSERT_OK(strait_region_fill(g->r, 0, 0, LEN));
	ASSERT_EQ(strait_read(ep, 333, g->r, 1, 1000), 1000);
	region_expect(g->r, 1, g->want + 333, 1000);
}

static void writes_well(struct rig *g, struct strait_endpoint *ep, const char *path)
{
	region_put_bytes(g->r, 0, g->other, LEN);
	ASSERT_EQ(strait_write(ep, 0, g->r, 0, LEN - 100), (ssize_t)LEN - 100);
	ASSERT_EQ(strait_write(ep, LEN - 100, g->r, LEN - 100, 50), 50);
	if (path) {
		ASSERT_EQ(file_length(path), LEN);
		file_expect(path, 0, g->other, LEN - 50);
		file_expect(path, LEN - 50, g->want + LEN - 50, 50);
		write_at(path, g->want, LEN, 0);
	}
}

static const struct kind {
	const char *name;
	const char *device;
	int oflags;
	uint32_t flags;
} kinds[] = {
	{ "rdonly", "emu:0", O_RDONLY, 0 },
	{ "wronly", "emu:0", O_WRONLY, 0 },
	{ "rdwr", "emu:0", O_RDWR, 0 },
	{ "append", "emu:0", O_RDWR | O_APPEND, 0 },
	{ "append-rdonly", "emu:0", O_RDONLY | O_APPEND, 0 },
	{ "direct", "emu:0", O_RDWR | O_DIRECT, 0 },
	{ "direct-buffered", "emu:0", O_RDWR | O_DIRECT, STRAIT_FILE_BUFFERED },
	{ "nonblock", "emu:0", O_RDWR | O_NONBLOCK, 0 },
	{ "sync", "emu:0", O_RDWR | O_SYNC, 0 },
	{ "dsync-direct", "emu:0", O_RDWR | O_DSYNC | O_DIRECT, 0 },
	{ "path", "emu:0", O_PATH, 0 },
	{ "everything", "emu:0", O_RDWR | O_APPEND | O_DIRECT | O_NONBLOCK | O_SYNC | O_NOATIME, 0 },
	{ "host-rdwr", "host", O_RDWR, 0 },
	{ "host-append-direct", "host", O_RDWR | O_APPEND | O_DIRECT, 0 },
	{ "host-path", "host", O_PATH, 0 },
};

/* With descriptors of any kind, offsets are obeyed, and the descriptor is unchanged afterwards. */
TEST_VARIANTS(descriptors_of_any_kind, struct kind, kinds)
{
	int acc = v->oflags & O_PATH ? O_RDWR : v->oflags & O_ACCMODE, flags, fd;
	struct strait_endpoint *ep;
	struct rig g;

	rig_open(&g, v->device);
	fd = open(g.path, v->oflags | O_CLOEXEC);
	if (fd < 0 && errno == EINVAL)
		SKIP("no O_DIRECT in %s", test_dir());
	ASSERT_GE(fd, 0);
	flags = fcntl(fd, F_GETFL);
	if (!(v->oflags & O_PATH))
		ASSERT_EQ(lseek(fd, 12345, SEEK_SET), 12345);
	ASSERT_OK(strait_file_import(g.ctx, fd, v->flags, &ep));
	for (int i = 0; i < 2; i++) {
		struct strait_file_info info = file_info(ep);

		ASSERT_EQ(info.length, LEN);
		ASSERT_EQ(!!(info.caps & STRAIT_FILE_CAN_READ), acc != O_WRONLY);
		ASSERT_EQ(!!(info.caps & STRAIT_FILE_CAN_WRITE), acc != O_RDONLY);
		ASSERT_EQ(!!(info.caps & STRAIT_FILE_CAN_MAP), acc != O_WRONLY);
		if (acc != O_WRONLY)
			reads_well(&g, ep);
		else
			ASSERT_EQ(strait_read(ep, 0, g.r, 0, LEN), -EBADF);
		if (acc != O_RDONLY)
			writes_well(&g, ep, g.path);
		else
			ASSERT_EQ(strait_write(ep, 0, g.r, 0, LEN), -EBADF);
		if (!i) {
			ASSERT_EQ(fcntl(fd, F_GETFL), flags);
			if (!(v->oflags & O_PATH))
				ASSERT_EQ(lseek(fd, 0, SEEK_CUR), 12345);
			/* The second time the application's descriptor is closed. */
			close(fd);
		}
	}
	strait_endpoint_close(ep);
	rig_close(&g);
}

TEST(descriptors_do_not_leak)
{
	struct strait_endpoint *ep;
	unsigned int before;
	struct rig g;
	int fd;

	rig_open(&g, "emu:0");
	for (int i = 0; i < 3; i++) {
		before = descriptors_now();
		fd = open(g.path, i == 1 ? O_RDWR | O_APPEND : O_RDONLY);
		ASSERT_OK(strait_file_import(g.ctx, fd, i == 2 ? STRAIT_FILE_LEASE : 0, &ep));
		close(fd);
		ASSERT_GT(descriptors_now(), before);
		strait_endpoint_close(ep);
		ASSERT_EQ(descriptors_now(), before);
		ASSERT_EQ(strait_file_open(g.ctx, test_dir(), O_RDONLY, 0, 0, &ep), -EISDIR);
		ASSERT_EQ(strait_file_open(g.ctx, "/dev/null", O_RDONLY, 0, 0, &ep), -ENOTSUP);
		ASSERT_EQ(descriptors_now(), before);
	}
	rig_close(&g);
}

struct reader {
	struct rig *g;
	struct strait_endpoint *ep;
};

static void *read_a_little(void *arg)
{
	struct reader *reader = arg;

	ASSERT_EQ(strait_read(reader->ep, 333, reader->g->r, 1, 1000), 1000);
	return NULL;
}

/* Threads have descriptors of their own for reading; later threads reuse those of threads that ended. */
TEST(one_thread_after_another)
{
	struct strait_endpoint *ep;
	unsigned int before;
	pthread_t thread;
	struct rig g;

	rig_open(&g, "host"); /* a driver may open descriptors */
	ep = file_new(g.ctx, g.path, O_RDONLY, 0);
	reads_well(&g, ep);
	before = descriptors_now();
	for (int i = 0; i < 40; i++) {
		ASSERT_OK(pthread_create(&thread, NULL, read_a_little, &(struct reader){ &g, ep }));
		ASSERT_OK(pthread_join(thread, NULL));
	}
	ASSERT_LE(descriptors_now(), before + 1);
	region_expect(g.r, 1, g.want + 333, 1000);
	strait_endpoint_close(ep);
	rig_close(&g);
}

static void refused(struct strait_context *ctx, const char *path, int rc)
{
	struct strait_endpoint *ep = (void *)&ctx;
	int fd;

	ASSERT_EQ(strait_file_open(ctx, path, O_RDONLY, 0, 0, &ep), rc);
	ASSERT_EQ(strait_file_open(ctx, path, O_RDWR, 0, 0, &ep), rc);
	fd = open(path, O_PATH);
	ASSERT_GE(fd, 0);
	ASSERT_EQ(strait_file_import(ctx, fd, 0, &ep), rc);
	close(fd);
	ASSERT_EQ(ep, (void *)&ctx);
}

TEST(what_is_no_file_is_refused)
{
	struct strait_context *ctx = context_new(NULL);
	struct strait_endpoint *ep;
	int fds[2];

	refused(ctx, test_dir(), -EISDIR);
	refused(ctx, "/dev/null", -ENOTSUP);
	refused(ctx, "/dev/zero", -ENOTSUP);
	/* Opening a pipe would wait for its other end. */
	ASSERT_EQ(mkfifo(test_path("fifo"), 0600), 0);
	refused(ctx, test_path("fifo"), -ENOTSUP);

	ASSERT_EQ(pipe(fds), 0);
	ASSERT_EQ(strait_file_import(ctx, fds[0], 0, &ep), -ENOTSUP);
	ASSERT_EQ(strait_file_import(ctx, fds[1], 0, &ep), -ENOTSUP);
	close(fds[0]);
	close(fds[1]);
	ASSERT_EQ(strait_file_import(ctx, fds[0], 0, &ep), -EBADF);
	ASSERT_EQ(strait_file_import(ctx, -1, 0, &ep), -EBADF);
	ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	ASSERT_EQ(strait_file_import(ctx, fds[0], 0, &ep), -ENOTSUP);
	close(fds[0]);
	close(fds[1]);
	ASSERT_EQ(strait_file_open(ctx, test_path("none"), O_RDONLY, 0, 0, &ep), -ENOENT);
	ASSERT_EQ(strait_file_open(ctx, test_path("none/none"), O_RDWR | O_CREAT, 0600, 0, &ep), -ENOENT);
	ASSERT_EQ(strait_file_open(ctx, make_file("there", 1, 1), O_RDWR | O_CREAT | O_EXCL, 0600, 0, &ep), -EEXIST);
	ASSERT_EQ(strait_file_open(ctx, test_path("there/none"), O_RDONLY, 0, 0, &ep), -ENOTDIR);
	strait_context_close(ctx);
}

TEST(flags_that_exclude_each_other)
{
	struct strait_context *ctx = context_new(NULL);
	const char *path = make_file("file", 100, 1);
	int fd = open(path, O_RDONLY);
	struct strait_endpoint *ep;

	ASSERT_EQ(strait_file_open(ctx, path, O_RDONLY, 0, STRAIT_FILE_BUFFERED | STRAIT_FILE_DIRECT, &ep), -EINVAL);
	ASSERT_EQ(strait_file_open(ctx, path, O_RDONLY | O_DIRECT, 0, STRAIT_FILE_BUFFERED, &ep), -EINVAL);
	ASSERT_EQ(strait_file_open(ctx, path, O_RDONLY, 0, 1u << 4, &ep), -EINVAL);
	ASSERT_EQ(strait_file_open(ctx, path, O_RDONLY, 0, 1u << 31, &ep), -EINVAL);
	ASSERT_EQ(strait_file_open(ctx, path, O_RDWR | O_APPEND, 0, 0, &ep), -EINVAL);
	ASSERT_EQ(strait_file_open(ctx, path, O_PATH, 0, 0, &ep), -EINVAL);
	ASSERT_EQ(strait_file_import(ctx, fd, STRAIT_FILE_BUFFERED | STRAIT_FILE_DIRECT, &ep), -EINVAL);
	ASSERT_EQ(strait_file_import(ctx, fd, 1u << 8, &ep), -EINVAL);
	close(fd);
	strait_context_close(ctx);
}

TEST(opening_creates_and_truncates_as_asked)
{
	struct strait_endpoint *ep;
	struct stat st;
	struct rig g;

	rig_open(&g, "emu:0");
	umask(022);
	ASSERT_OK(strait_file_open(g.ctx, test_path("new"), O_RDWR | O_CREAT | O_EXCL, 0640, 0, &ep));
	ASSERT_EQ(stat(test_path("new"), &st), 0);
	ASSERT_EQ(st.st_mode & 0777, 0640);
	region_put_bytes(g.r, 0, g.other, LEN);
	ASSERT_EQ(strait_write(ep, 10, g.r, 0, LEN), (ssize_t)LEN);
	strait_endpoint_close(ep);
	ASSERT_EQ(file_length(test_path("new")), LEN + 10);
	ASSERT_OK(strait_file_open(g.ctx, test_path("new"), O_WRONLY | O_TRUNC | O_SYNC, 0, 0, &ep));
	ASSERT_EQ(file_info(ep).length, 0);
	ASSERT_EQ(strait_write(ep, 0, g.r, 0, 10), 10);
	strait_endpoint_close(ep);
	ASSERT_EQ(file_length(test_path("new")), 10);
	/* Direct I/O, requested by either flag. */
	ep = file_new(g.ctx, g.path, O_RDONLY | O_DIRECT, 0);
	reads_well(&g, ep);
	if (file_info(ep).caps & STRAIT_FILE_CAN_DIRECT)
		ASSERT_GE(stats_of(g.ctx).direct_bytes, MIB(1));
	strait_endpoint_close(ep);
	rig_close(&g);
}

/* Requested direct I/O is used for everything aligned, long or short, cached or not. */
static const struct kind devices[] = { { "emu", "emu:0", 0, 0 }, { "host", "host", 0, 0 } };

TEST_VARIANTS(direct_means_direct, struct kind, devices)
{
	struct strait_endpoint *ep;
	struct strait_file_info info;
	struct strait_stats before, after;
	struct rig g;

	rig_open(&g, v->device);
	ep = file_new(g.ctx, g.path, O_RDWR, STRAIT_FILE_DIRECT);
	info = file_info(ep);
	if (!(info.caps & STRAIT_FILE_CAN_DIRECT))
		SKIP("%s", strait_reason_text(info.direct_reason));
	ASSERT_EQ(info.direct_reason, STRAIT_WHY_NONE);
	ASSERT_TRUE(is_pow2(info.dio_align) && is_pow2(info.dio_mem_align));
	warm(g.path);
	for (uint64_t len = 4096; len <= MIB(1); len *= 4) {
		before = stats_of(g.ctx);
		ASSERT_EQ(strait_read(ep, 0, g.r, 0, len), (ssize_t)len);
		after = stats_of(g.ctx);
		ASSERT_EQ(after.direct_bytes - before.direct_bytes, len);
		region_expect(g.r, 0, g.want, len);
		ASSERT_EQ(strait_write(ep, 0, g.r, 0, len), (ssize_t)len);
		ASSERT_EQ(stats_of(g.ctx).direct_bytes - after.direct_bytes, len);
	}
	file_expect(g.path, 0, g.want, LEN);
	strait_endpoint_close(ep);

	/* With the other flag it is never used. */
	ep = file_new(g.ctx, g.path, O_RDWR, STRAIT_FILE_BUFFERED);
	ASSERT_NE(file_info(ep).direct_reason, STRAIT_WHY_NONE);
	ASSERT_EQ(file_info(ep).dio_align, 0);
	before = stats_of(g.ctx);
	evict(g.path, 0, 0);
	reads_well(&g, ep);
	writes_well(&g, ep, g.path);
	ASSERT_EQ(stats_of(g.ctx).direct_bytes, before.direct_bytes);
	strait_endpoint_close(ep);
	rig_close(&g);
}

TEST(files_without_a_name)
{
	struct strait_endpoint *ep;
	struct rig g;
	int fd;

	rig_open(&g, "emu:0");
	/* Deleted while in use. */
	ep = file_new(g.ctx, g.path, O_RDWR, 0);
	unlink(g.path);
	reads_well(&g, ep);
	writes_well(&g, ep, NULL);
	strait_endpoint_close(ep);
	/* Deleted before. */
	make_file("file", LEN, 1);
	fd = open(g.path, O_RDWR);
	unlink(g.path);
	ASSERT_OK(strait_file_import(g.ctx, fd, 0, &ep));
	close(fd);
	reads_well(&g, ep);
	strait_endpoint_close(ep);
	/* It never had a name. */
	fd = open(test_dir(), O_TMPFILE | O_RDWR, 0600);
	if (fd >= 0) {
		ASSERT_EQ(pwrite(fd, g.want, LEN, 0), (ssize_t)LEN);
		ASSERT_OK(strait_file_import(g.ctx, fd, 0, &ep));
		close(fd);
		reads_well(&g, ep);
		writes_well(&g, ep, NULL);
		strait_endpoint_close(ep);
	}
	fd = memfd_create("test", MFD_CLOEXEC);
	ASSERT_EQ(pwrite(fd, g.want, LEN, 0), (ssize_t)LEN);
	ASSERT_OK(strait_file_import(g.ctx, fd, 0, &ep));
	close(fd);
	ASSERT_STREQ(file_info(ep).fs, "tmpfs");
	ASSERT_FALSE(file_info(ep).caps & STRAIT_FILE_CAN_DIRECT);
	reads_well(&g, ep);
	writes_well(&g, ep, NULL);
	strait_endpoint_close(ep);
	rig_close(&g);
}

static void use_without_proc(void *arg)
{
	int plain, append, append_ro, direct, path;
	struct strait_endpoint *ep;
	struct rig g;

	(void)arg;
	rig_open(&g, "emu:0");
	plain = open(g.path, O_RDWR);
	append = open(g.path, O_RDWR | O_APPEND);
	append_ro = open(g.path, O_RDONLY | O_APPEND);
	direct = open(g.path, O_RDWR | O_DIRECT);
	path = open(g.path, O_PATH);
	private_mounts();
	ASSERT_EQ(umount2("/proc", MNT_DETACH), 0);
	ASSERT_NE(access("/proc/self/fd", F_OK), 0);

	ASSERT_OK(strait_file_import(g.ctx, plain, 0, &ep));
	ASSERT_FALSE(file_info(ep).caps & STRAIT_FILE_CAN_DIRECT);
	ASSERT_EQ(file_info(ep).direct_reason, STRAIT_WHY_NOT_REOPENED);
	ASSERT_EQ(file_info(ep).direct_error, -ENOENT);
	evict(g.path, 0, 0);
	reads_well(&g, ep);
	writes_well(&g, ep, g.path);
	ASSERT_EQ(stats_of(g.ctx).direct_bytes, 0);
	strait_endpoint_close(ep);

	ASSERT_EQ(strait_file_import(g.ctx, append, 0, &ep), -ENOTSUP);
	ASSERT_EQ(strait_file_import(g.ctx, path, 0, &ep), -ENOTSUP);
	ASSERT_OK(strait_file_import(g.ctx, append_ro, 0, &ep));
	reads_well(&g, ep);
	strait_endpoint_close(ep);
	/* By path another descriptor can be opened. */
	ep = file_new(g.ctx, g.path, O_RDWR, STRAIT_FILE_DIRECT);
	reads_well(&g, ep);
	writes_well(&g, ep, g.path);
	strait_endpoint_close(ep);
	if (direct >= 0) {
		/* Direct I/O only: aligned requests work, buffered I/O does not. */
		ASSERT_EQ(strait_file_import(g.ctx, direct, STRAIT_FILE_BUFFERED, &ep), -ENOTSUP);
		ASSERT_OK(strait_file_import(g.ctx, direct, 0, &ep));
		reads_well(&g, ep);
		region_put_bytes(g.r, 0, g.other, LEN);
		ASSERT_EQ(strait_write(ep, 4096, g.r, 0, MIB(1) - 4096), (ssize_t)MIB(1) - 4096);
		ASSERT_EQ(strait_write(ep, 0, g.r, 0, 4096), 4096);
		ASSERT_EQ(strait_write(ep, 1, g.r, 0, 4096), -EINVAL);
		file_expect(g.path, 4096, g.other, MIB(1) - 4096);
		strait_endpoint_close(ep);
	}
	rig_close(&g);
}

/* Without /proc, a descriptor that cannot be reopened is used as it is, or refused. */
TEST(without_proc)
{
	/* In a child, because the leak check at the end of this process needs /proc. */
	int status = child_wait(child_start(use_without_proc, NULL));

	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		SKIP("a mount namespace of one's own is not allowed");
	ASSERT_EQ(status, 0);
}
