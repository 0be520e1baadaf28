/* SPDX-License-Identifier: MIT */
/* Loop devices and file systems of a test. */
#include "common.h"

#include <linux/loop.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>

void private_mounts(void)
{
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		SKIP("a mount namespace of one's own is not allowed: %s", strerror(errno));
}

void loop_device(const char *image, uint64_t bytes, uint32_t sector, char *path, size_t len)
{
	struct loop_config config = { .block_size = sector,
				      .info = { .lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO } };
	int control, file, dev = -1;

	control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	if (control < 0)
		SKIP("/dev/loop-control: %s", strerror(errno));
	file = open(image, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ASSERT_GE(file, 0);
	if (file_length(image) < bytes)
		ASSERT_EQ(ftruncate(file, (off_t)bytes), 0);
	config.fd = (uint32_t)file;
	/* Another process may have taken the free device. */
	for (int i = 0; i < 100 && dev < 0; i++) {
		int n = ioctl(control, LOOP_CTL_GET_FREE);

		if (n < 0)
			SKIP("no free loop device: %s", strerror(errno));
		snprintf(path, len, "/dev/loop%d", n);
		dev = open(path, O_RDWR | O_CLOEXEC);
		if (dev < 0 && errno == ENOENT)
			SKIP("%s is not there", path);
		if (dev >= 0 && ioctl(dev, LOOP_CONFIGURE, &config)) {
			close(dev);
			dev = -1;
			sleep_ms(10);
		}
	}
	ASSERT_GE(dev, 0);
	close(file);
	close(control);
	/* @dev stays open: the device is cleared with its last descriptor or mount. */
}

static void make_fs(const char *fs, const char *image)
{
	const char *options = !strcmp(fs, "ext4") ? "-q -F -O ^has_journal -E lazy_itable_init=0" : "-q -f";
	char cmd[4600];

	snprintf(cmd, sizeof(cmd),
		 "PATH=$PATH:/sbin:/usr/sbin; command -v mkfs.%s >/dev/null || exit 99; mkfs.%s %s '%s'", fs, fs,
		 options, image);
	switch (WEXITSTATUS(system(cmd))) {
	case 0:
		return;
	case 99:
		SKIP("mkfs.%s is not installed", fs);
	default:
		FAIL("mkfs.%s failed", fs);
	}
}

const char *mount_new(const char *fs, uint64_t bytes)
{
	const char *folder = test_path("mnt");
	char source[64] = "none", options[4 * 300 + 64] = "";

	private_mounts();
	mkdir(folder, 0755);
	if (!strcmp(fs, "tmpfs")) {
		snprintf(options, sizeof(options), "size=%llu", (unsigned long long)bytes);
	} else if (!strcmp(fs, "overlay")) {
		snprintf(options, sizeof(options), "lowerdir=%s,upperdir=%s,workdir=%s", test_path("lower"),
			 test_path("upper"), test_path("work"));
		mkdir(test_path("lower"), 0755);
		mkdir(test_path("upper"), 0755);
		mkdir(test_path("work"), 0755);
		folder = test_path("mnt");
	} else {
		const char *image = test_path("image");
		int fd = open(image, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

		ASSERT_GE(fd, 0);
		ASSERT_EQ(ftruncate(fd, (off_t)bytes), 0);
		close(fd);
		make_fs(fs, image);
		loop_device(image, bytes, 512, source, sizeof(source));
	}
	if (mount(source, folder, fs, 0, options)) {
		if (errno == EPERM || errno == ENODEV)
			SKIP("%s cannot be mounted: %s", fs, strerror(errno));
		FAIL("mount of %s: %s", fs, strerror(errno));
	}
	return folder;
}
