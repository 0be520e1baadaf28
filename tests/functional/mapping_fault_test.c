/* SPDX-License-Identifier: MIT */
/* Coherent mappings when something goes wrong: files that change or fail, processes that die, devices that go. */
#include <signal.h>
#include <sys/prctl.h>

#include "mapping_rig.h"

static const struct mapping_mode modes[] = { MAPPING_MODES };

#define LEN MIB(3)

static void expect_zeros(const struct mapping_rig *r, const void *at, size_t len)
{
	char *zeros = calloc(1, len);

	device_expect(r->ctx, at, zeros, len);
	free(zeros);
}

/* A device gets an error for what a truncation removed, and zeros past the end in the last granule. */
TEST_VARIANTS(truncated_file, struct mapping_mode, modes)
{
	const uint64_t end = MIB(1) + 100;
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;
	char *at;

	mapping_rig_open(&r, v, LEN, NULL);
	ASSERT_EQ(truncate(r.path, (off_t)end), 0);
	ASSERT_EQ(strait_mapping_acquire(r.m, r.dev, 0, LEN, STRAIT_INTENT_READ, NULL), -EFAULT);
	ASSERT_EQ(strait_mapping_acquire(r.m, r.dev, MIB(2), G, STRAIT_INTENT_READ, NULL), -EFAULT);
	ASSERT_EQ(strait_mapping_acquire(r.m, r.dev, MIB(2), 3 * G, STRAIT_INTENT_WRITE, NULL), -EFAULT);
	ASSERT_EQ(mapping_info_of(r.m).acquired, 0);
	ASSERT_OK(strait_mapping_acquire(r.m, r.dev, 0, MIB(1) + G, STRAIT_INTENT_READ, (void **)&at));
	device_expect(r.ctx, at, want, end);
	expect_zeros(&r, at + end, G - 100);
	ASSERT_OK(strait_mapping_release(r.m, r.dev, 0, MIB(1) + G, STRAIT_INTENT_READ));
	/* The file grew again: the bytes are there again. */
	ASSERT_EQ(truncate(r.path, (off_t)LEN), 0);
	ASSERT_OK(strait_mapping_refresh(r.m, 0, LEN));
	memset(want + end, 0, LEN - end);
	side_expect(&r, r.dev, 0, want, LEN);
	free(want);
	mapping_rig_close(&r);
}

/* Write-back never extends the file. */
TEST_VARIANTS(write_back_is_clipped, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 2);
	struct mapping_rig r;
	void *at;

	mapping_rig_open(&r, v, LEN, NULL);
	ASSERT_OK(strait_mapping_acquire(r.m, r.dev, 0, LEN, STRAIT_INTENT_OVERWRITE, &at));
	device_store(r.ctx, at, want, LEN);
	ASSERT_OK(strait_mapping_release(r.m, r.dev, 0, LEN, STRAIT_INTENT_OVERWRITE));
	ASSERT_EQ(truncate(r.path, (off_t)MIB(1) + 77), 0);
	ASSERT_OK(strait_mapping_sync(r.m, 0, LEN));
	ASSERT_EQ(file_length(r.path), MIB(1) + 77);
	file_expect(r.path, 0, want, MIB(1) + 77);
	free(want);
	mapping_rig_close(&r);
}

/* The CPU gets what mmap(2) promises for a truncated file: SIGBUS. Calls of the library do not. */
static void touch_past_end(void *arg)
{
	struct mapping_rig *r = arg;

	signal(SIGBUS, SIG_DFL);
	prctl(PR_SET_DUMPABLE, 0);
	((volatile unsigned char *)r->cpu)[MIB(2)] = 1;
}

TEST_VARIANTS(cpu_of_a_truncated_file, struct mapping_mode, modes)
{
	struct mapping_rig r;
	int status;

	if (test_slow() > 1)
		SKIP("a sanitizer handles SIGBUS");
	mapping_rig_open(&r, v, LEN, NULL);
	if (mapping_info_of(r.m).backing != STRAIT_BACKING_SHARED)
		SKIP("the CPU has copies: mapping_copy_test");
	ASSERT_OK(strait_mapping_acquire(r.m, NULL, 0, LEN, STRAIT_INTENT_WRITE, NULL));
	r.cpu[5] ^= 1;
	ASSERT_EQ(truncate(r.path, (off_t)MIB(1)), 0);
	status = child_wait(child_start(touch_past_end, &r));
	ASSERT_TRUE(WIFSIGNALED(status));
	ASSERT_EQ(WTERMSIG(status), SIGBUS);
	ASSERT_OK(strait_mapping_release(r.m, NULL, 0, LEN, STRAIT_INTENT_WRITE));
	mapping_rig_close(&r);
}

static const struct fault {
	const char *name;
	int error;
} write_faults[] = { { "ENOSPC", -ENOSPC }, { "EIO", -EIO }, { "EDQUOT", -EDQUOT } };

/* A write-back that fails keeps the bytes on the device, says so, and can be repeated. */
TEST_VARIANTS(write_back_fails, struct fault, write_faults)
{
	static const struct mapping_mode emu = { "emu", "emu:0", 0, false };
	unsigned char *want = pattern_new(0, LEN, 1), *old = pattern_new(0, LEN, 1);
	struct mapping_rig r;

	mapping_rig_open(&r, &emu, LEN, NULL);
	memset(want + MIB(1), 7, 20 * G);
	side_write(&r, r.dev, MIB(1), want + MIB(1), 20 * G);
	inject(OS_PWRITE, 1, 1000000, v->error);
	ASSERT_EQ(strait_mapping_sync(r.m, 0, LEN), v->error);
	ASSERT_EQ(mapping_info_of(r.m).error, v->error);
	ASSERT_EQ(strait_mapping_acquire(r.m, NULL, MIB(1), 1, STRAIT_INTENT_READ, NULL), v->error);
	/* Elsewhere the mapping works. */
	ASSERT_OK(strait_mapping_acquire(r.m, NULL, 0, G, STRAIT_INTENT_READ, NULL));
	ASSERT_OK(strait_mapping_release(r.m, NULL, 0, G, STRAIT_INTENT_READ));
	/* The device still has the bytes. */
	side_expect(&r, r.dev, 0, want, LEN);
	ASSERT_EQ(strait_mapping_refresh(r.m, MIB(1), 1), -EBUSY);
	file_expect(r.path, 0, old, LEN);
	inject_off();
	ASSERT_OK(strait_mapping_sync(r.m, 0, LEN));
	ASSERT_EQ(mapping_info_of(r.m).error, 0);
	file_expect(r.path, 0, want, LEN);
	side_expect(&r, NULL, 0, want, LEN);
	free(want);
	free(old);
	mapping_rig_close(&r);
}

/* A full file system, for real: the file has holes, and no room to fill them. */
TEST_VARIANTS(full_file_system, struct mapping_mode, modes)
{
	char path[256], fill[256];
	struct mapping_rig r;
	unsigned char *want = pattern_new(0, LEN, 2), *block = calloc(1, MIB(1));
	const char *dir;
	int fd;

	private_mounts();
	dir = mount_new("tmpfs", MIB(4));
	snprintf(path, sizeof(path), "%s/sparse", dir);
	snprintf(fill, sizeof(fill), "%s/fill", dir);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	ASSERT_EQ(ftruncate(fd, (off_t)LEN), 0);
	close(fd);
	mapping_rig_map(&r, v, path);
	fd = open(fill, O_RDWR | O_CREAT, 0600);
	while (write(fd, block, MIB(1)) > 0)
		continue;
	while (write(fd, block, G) > 0)
		continue;
	side_write(&r, r.dev, 0, want, LEN);
	ASSERT_EQ(strait_mapping_sync(r.m, 0, LEN), -ENOSPC);
	ASSERT_EQ(unlink(fill), 0);
	close(fd);
	ASSERT_OK(strait_mapping_sync(r.m, 0, LEN));
	file_expect(path, 0, want, LEN);
	mapping_rig_close(&r);
	free(want);
	free(block);
}

/* An unreadable page is an error of acquire, and no more. */
TEST_VARIANTS(read_fails, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;

	mapping_rig_open(&r, v, LEN, NULL);
	inject(OS_PREAD, 1, 1000000, -EIO);
	ASSERT_EQ(strait_mapping_acquire(r.m, r.dev, 0, 20 * G, STRAIT_INTENT_READ, NULL), -EIO);
	ASSERT_EQ(strait_mapping_acquire(r.m, r.dev, 0, 20 * G, STRAIT_INTENT_WRITE, NULL), -EIO);
	ASSERT_EQ(strait_mapping_acquire(r.m, r.dev, 5, 20 * G, STRAIT_INTENT_OVERWRITE, NULL), -EIO);
	inject_off();
	ASSERT_EQ(mapping_info_of(r.m).acquired, 0);
	side_expect(&r, r.dev, 0, want, LEN);
	free(want);
	mapping_rig_close(&r);
}

/* Changes by other processes are seen after refresh, which refuses to run over changes of a device. */
TEST_VARIANTS(foreign_writes, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;
	uint64_t before;

	mapping_rig_open(&r, v, LEN, NULL);
	side_expect(&r, r.dev, 0, want, LEN);
	memset(want + MIB(1), 3, G);
	write_at(r.path, want + MIB(1), G, MIB(1));
	/* The CPU's mapping is the page cache, or not filled yet. */
	side_expect(&r, NULL, MIB(1), want + MIB(1), G);
	before = mapping_info_of(r.m).to_device_bytes;
	ASSERT_OK(strait_mapping_refresh(r.m, MIB(1), 1));
	side_expect(&r, r.dev, 0, want, LEN);
	ASSERT_EQ(mapping_info_of(r.m).to_device_bytes - before, G);

	memset(want + MIB(2), 4, G);
	side_write(&r, r.dev, MIB(2), want + MIB(2), G);
	ASSERT_EQ(strait_mapping_refresh(r.m, 0, LEN), -EBUSY);
	ASSERT_OK(strait_mapping_refresh(r.m, 0, MIB(2)));
	ASSERT_OK(strait_mapping_flush(r.m, 0, LEN));
	ASSERT_OK(strait_mapping_acquire(r.m, NULL, MIB(1), 1, STRAIT_INTENT_WRITE, NULL));
	ASSERT_EQ(strait_mapping_refresh(r.m, 0, LEN), -EBUSY);
	ASSERT_OK(strait_mapping_release(r.m, NULL, MIB(1), 1, STRAIT_INTENT_WRITE));
	ASSERT_OK(strait_mapping_refresh(r.m, 0, LEN));
	side_expect(&r, r.dev, 0, want, LEN);
	free(want);
	mapping_rig_close(&r);
}

/* Fills every page with one value, again and again, until it is killed. */
static void write_forever(void *arg)
{
	const struct mapping_mode *v = arg;
	unsigned char *bytes = malloc(LEN);
	struct mapping_rig r;
	void *at;

	mapping_rig_map(&r, v, test_path("victim"));
	for (unsigned int i = 0;; i++) {
		memset(bytes, (int)(i % 250 + 1), LEN);
		ASSERT_OK(strait_mapping_acquire(r.m, r.dev, 0, LEN, STRAIT_INTENT_OVERWRITE, &at));
		device_store(r.ctx, at, bytes, LEN);
		ASSERT_OK(strait_mapping_release(r.m, r.dev, 0, LEN, STRAIT_INTENT_OVERWRITE));
		ASSERT_OK(strait_mapping_flush(r.m, 0, LEN));
	}
}

TEST_VARIANTS(killed_processes_leave_whole_pages, struct mapping_mode, modes)
{
	const char *path = test_path("victim");
	unsigned char *bytes = calloc(1, LEN);
	uint64_t state = 6;

	write_at(path, bytes, LEN, 0);
	for (int i = 0; i < 12; i++) {
		pid_t pid = child_start(write_forever, (void *)v);
		int status;

		usleep((unsigned int)(20000 + prng_below(&state, 60000)));
		kill(pid, SIGKILL);
		status = child_wait(pid);
		ASSERT_TRUE(WIFSIGNALED(status));
		ASSERT_EQ(WTERMSIG(status), SIGKILL);
		ASSERT_EQ(file_length(path), LEN);
		read_at(path, bytes, LEN, 0);
		for (uint64_t g = 0; g < LEN / G; g++)
			ASSERT_EQ(memcmp(bytes + g * G, bytes + g * G + 1, G - 1), 0);
	}
	free(bytes);
}

static void as_ordinary_user(void *arg)
{
	struct mapping_mode v = *(const struct mapping_mode *)arg;
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;

	v.user = true;
	mapping_rig_open(&r, &v, LEN, NULL);
	for (int i = 0; i < 20; i++) {
		memset(want + i * 9999, i, 4000);
		side_write(&r, i % 2 ? r.dev : NULL, (uint64_t)i * 9999, want + i * 9999, 4000);
		side_expect(&r, i % 2 ? NULL : r.dev, 0, want, LEN);
	}
	mapping_rig_close(&r);
	free(want);
}

TEST_VARIANTS(ordinary_user, struct mapping_mode, modes)
{
	in_child(as_ordinary_user, (void *)v);
}

static const struct refusal {
	const char *name;
	enum os_call call;
} refusals[] = { { "userfaultfd", OS_USERFAULTFD }, { "ioctl", OS_IOCTL } };

/* Where the kernel or a sandbox refuses the tracking, comparison takes its place. */
TEST_VARIANTS(compares_where_tracking_is_refused, struct refusal, refusals)
{
	static const struct mapping_mode emu = { "emu", "emu:0", 0, false };
	struct strait_mapping *m;
	struct mapping_rig r;

	mapping_rig_open(&r, &emu, LEN, NULL);
	inject(v->call, 1, 1000, -EPERM);
	ASSERT_OK(strait_mapping_open(r.ctx, r.ep, 0, 0, NULL, &m));
	inject_off();
	ASSERT_EQ(mapping_info_of(m).tracking, STRAIT_TRACKING_COMPARE);
	strait_mapping_close(m);
	mapping_rig_close(&r);
}

static void use_in_child(void *arg)
{
	struct mapping_rig *r = arg;

	ASSERT_EQ(strait_mapping_acquire(r->m, NULL, 0, 1, STRAIT_INTENT_READ, NULL), -EOWNERDEAD);
	ASSERT_EQ(strait_mapping_release(r->m, NULL, 0, 1, STRAIT_INTENT_READ), -EOWNERDEAD);
	ASSERT_EQ(strait_mapping_sync(r->m, 0, 1), -EOWNERDEAD);
	strait_mapping_close(r->m);
}

TEST_VARIANTS(forked_child, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;

	mapping_rig_open(&r, v, LEN, NULL);
	side_write(&r, r.dev, 0, "x", 1);
	want[0] = 'x';
	in_child(use_in_child, &r);
	side_expect(&r, NULL, 0, want, LEN);
	free(want);
	mapping_rig_close(&r);
}

/* A copy that the device refuses ends the call with its error, and the next one succeeds. */
TEST_VARIANTS(copies_fail, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;

	mapping_rig_open(&r, v, LEN, NULL);
	for (int nth = 0; nth < 4; nth++) {
		want[nth * MIB(1) / 2] ^= 1;
		emu_inject_copy_error(r.dev, nth, -EIO);
		for (int i = 0; i < 8; i++) {
			struct strait_device *dev = i % 2 ? r.dev : NULL;

			if (!strait_mapping_acquire(r.m, dev, 0, LEN, STRAIT_INTENT_WRITE, NULL))
				ASSERT_OK(strait_mapping_release(r.m, dev, 0, LEN, STRAIT_INTENT_WRITE));
		}
		emu_inject_copy_error(r.dev, -1, 0);
		side_write(&r, nth % 2 ? NULL : r.dev, nth * MIB(1) / 2, want + nth * MIB(1) / 2, 1);
		side_expect(&r, r.dev, 0, want, LEN);
		side_expect(&r, NULL, 0, want, LEN);
		ASSERT_EQ(mapping_info_of(r.m).acquired, 0);
	}
	free(want);
	mapping_rig_close(&r);
}

static bool on_emulated(const void *v)
{
	return where_emulated(v) && !strncmp(((const struct mapping_mode *)v)->device, "emu", 3);
}

TEST_WHERE(copies_fail, on_emulated)

/* A device that is removed takes its unwritten bytes along; the mapping works without it. */
TEST_VARIANTS(removed_device, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;

	mapping_rig_open(&r, v, LEN, NULL);
	side_expect(&r, r.dev, 0, want, LEN);
	side_write(&r, r.dev, 0, "lost", 4);
	strait_emu_remove(r.dev);
	ASSERT_EQ(strait_mapping_acquire(r.m, r.dev, MIB(1), 1, STRAIT_INTENT_WRITE, NULL), -ENODEV);
	ASSERT_LT(strait_mapping_acquire(r.m, NULL, 0, 1, STRAIT_INTENT_READ, NULL), 0);
	ASSERT_LT(strait_mapping_sync(r.m, 0, LEN), 0);
	side_expect(&r, NULL, G, want + G, LEN - G);
	mapping_rig_close(&r);
	free(want);
}

TEST_WHERE(removed_device, on_emulated)
