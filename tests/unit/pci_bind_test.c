/* SPDX-License-Identifier: MIT */
/* Taking PCI devices from their drivers, on a machine made of files. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "harness/harness.h"
#include "os/dir.h"
#include "os/os.h"
#include "pci/bind.h"

#define DRIVE "0000:01:00.0"
#define CARD "0000:02:00.0"
#define BRIDGE "0000:00:01.0"

static char sys[256], proc[256], dev[256], run[256], why[512];
static bool stubborn; /* the driver refuses the device */

static char *path(const char *fmt, ...)
{
	static char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return text;
}

static void put(const char *text, const char *file)
{
	char dir[1024];

	snprintf(dir, sizeof(dir), "%s", file);
	*strrchr(dir, '/') = '\0';
	ASSERT_OK(os_make_dirs(dir));
	ASSERT_OK(os_create_text(file, text));
}

static void set_driver(const char *name, const char *driver)
{
	char link[1024];

	snprintf(link, sizeof(link), "%s/bus/pci/devices/%s/driver", sys, name);
	unlink(link);
	if (driver)
		ASSERT_EQ(symlink(path("../../../bus/pci/drivers/%s", driver), link), 0);
}

/* What the kernel would do for a write to this file. */
static int kernel(const char *file, const char *text)
{
	static char override[64];
	char name[32];

	if (strstr(file, "driver_override")) {
		snprintf(override, sizeof(override), "%s", text);
	} else if (strstr(file, "/driver/unbind")) {
		set_driver(text, NULL);
	} else {
		ASSERT_TRUE(strstr(file, "drivers_probe"));
		snprintf(name, sizeof(name), "%s", text);
		if (override[0] == '\n')
			set_driver(name, !strcmp(name, DRIVE) ? "nvme" : NULL);
		else if (!stubborn)
			set_driver(name, override);
	}
	return 0;
}

static struct bind_roots machine(void)
{
	char link[1024];

	snprintf(sys, sizeof(sys), "%s", test_path("sys"));
	snprintf(proc, sizeof(proc), "%s", test_path("proc"));
	snprintf(dev, sizeof(dev), "%s", test_path("dev"));
	snprintf(run, sizeof(run), "%s", test_path("run/a/b"));
	put("0x010802\n", path("%s/bus/pci/devices/" DRIVE "/class", sys));
	put("0x00ff00\n", path("%s/bus/pci/devices/" CARD "/class", sys));
	put("0x060400\n", path("%s/bus/pci/devices/" BRIDGE "/class", sys));
	put("", path("%s/bus/pci/drivers/strait/x", sys));
	put("", path("%s/bus/pci/drivers/vfio-pci/x", sys));
	put("259:0\n", path("%s/devices/pci0000:00/0000:00:01.0/" DRIVE "/nvme/nvme0/nvme0n1/dev", sys));
	ASSERT_OK(os_make_dirs(path("%s/block", sys)));
	snprintf(link, sizeof(link), "%s/block/nvme0n1", sys);
	ASSERT_EQ(symlink("../devices/pci0000:00/0000:00:01.0/" DRIVE "/nvme/nvme0/nvme0n1", link), 0);
	put("23 1 0:21 / / rw - tmpfs none rw\n", path("%s/self/mountinfo", proc));
	put("Filename Type Size Used Priority\n", path("%s/swaps", proc));
	put("", path("%s/x", dev));
	ASSERT_EQ(truncate(path("%s/x", dev), 0), 0);
	close(open(path("%s/nvme0n1", dev), O_CREAT | O_WRONLY, 0600));
	ASSERT_EQ(truncate(path("%s/nvme0n1", dev), MIB(4)), 0);
	set_driver(DRIVE, "nvme");
	return (struct bind_roots){ sys, proc, dev, run, kernel };
}

static const char *disk(const char *sub)
{
	return path("%s/devices/pci0000:00/0000:00:01.0/" DRIVE "/nvme/nvme0/nvme0n1/%s", sys, sub);
}

static int bind_it(const struct bind_roots *at, uint32_t flags)
{
	why[0] = '\0';
	return bind_at(at, DRIVE, "strait", flags, why, sizeof(why));
}

TEST(there_and_back)
{
	struct bind_roots at = machine();
	struct strait_pci_info info = { .size = sizeof(info) };

	ASSERT_OK(bind_info_at(&at, "01:00.0", &info));
	ASSERT_STREQ(info.driver, "nvme");
	ASSERT_EQ(info.saved, 0);
	ASSERT_OK(bind_it(&at, 0));
	ASSERT_OK(bind_info_at(&at, DRIVE, &info));
	ASSERT_STREQ(info.driver, "strait");
	ASSERT_STREQ(info.previous, "nvme");
	ASSERT_EQ(info.saved, 1);
	/* Bound again, then to another driver: the first driver is the one that is recorded. */
	ASSERT_OK(bind_it(&at, 0));
	ASSERT_OK(bind_at(&at, DRIVE, "vfio-pci", 0, why, sizeof(why)));
	ASSERT_OK(bind_info_at(&at, DRIVE, &info));
	ASSERT_STREQ(info.driver, "vfio-pci");
	ASSERT_STREQ(info.previous, "nvme");
	ASSERT_OK(unbind_at(&at, DRIVE, 0, why, sizeof(why)));
	ASSERT_OK(bind_info_at(&at, DRIVE, &info));
	ASSERT_STREQ(info.driver, "nvme");
	ASSERT_EQ(info.saved, 0);
	ASSERT_EQ(unbind_at(&at, DRIVE, 0, why, sizeof(why)), -EINVAL);
	ASSERT_TRUE(strstr(why, "nvme"));
}

TEST(one_without_a_driver)
{
	struct bind_roots at = machine();
	struct strait_pci_info info = { .size = sizeof(info) };

	ASSERT_OK(bind_at(&at, CARD, "strait", 0, why, sizeof(why)));
	ASSERT_OK(bind_info_at(&at, CARD, &info));
	ASSERT_EQ(info.saved, 1);
	ASSERT_STREQ(info.previous, "");
	ASSERT_OK(unbind_at(&at, CARD, 0, why, sizeof(why)));
	ASSERT_OK(bind_info_at(&at, CARD, &info));
	ASSERT_STREQ(info.driver, "");
}

TEST(what_is_refused_at_once)
{
	struct bind_roots at = machine();

	ASSERT_EQ(bind_at(&at, "0000:77:00.0", "strait", 0, why, sizeof(why)), -ENODEV);
	ASSERT_EQ(bind_at(&at, "../../../etc", "strait", 0, why, sizeof(why)), -ENODEV);
	ASSERT_EQ(bind_at(&at, DRIVE, "nvme", STRAIT_PCI_FORCE, why, sizeof(why)), -EINVAL);
	ASSERT_EQ(bind_at(&at, BRIDGE, "strait", STRAIT_PCI_FORCE, why, sizeof(why)), -EINVAL);
	ASSERT_EQ(unlink(path("%s/bus/pci/drivers/strait/x", sys)), 0);
	ASSERT_EQ(rmdir(path("%s/bus/pci/drivers/strait", sys)), 0);
	ASSERT_EQ(bind_it(&at, STRAIT_PCI_FORCE), -ENOENT);
	ASSERT_TRUE(strstr(why, "modprobe strait"));
	/* Without a buffer for the message. */
	ASSERT_EQ(bind_at(&at, DRIVE, "strait", 0, NULL, 0), -ENOENT);
}

TEST(a_driver_that_does_not_take_it)
{
	struct bind_roots at = machine();
	struct strait_pci_info info = { .size = sizeof(info) };

	stubborn = true;
	ASSERT_EQ(bind_it(&at, 0), -EIO);
	ASSERT_TRUE(strstr(why, "as before"));
	ASSERT_OK(bind_info_at(&at, DRIVE, &info));
	ASSERT_STREQ(info.driver, "nvme");
	ASSERT_EQ(info.saved, 0);
}

static void expect_use(const struct bind_roots *at, int rc, const char *text)
{
	struct strait_pci_info info = { .size = sizeof(info) };

	ASSERT_EQ(bind_it(at, 0), rc);
	if (!strstr(why, text))
		FAIL("\"%s\" does not say \"%s\"", why, text);
	/* Nothing was changed. */
	ASSERT_OK(bind_info_at(at, DRIVE, &info));
	ASSERT_STREQ(info.driver, "nvme");
	ASSERT_EQ(info.saved, 0);
}

TEST(in_use)
{
	struct bind_roots at = machine();

	put("30 23 259:0 / /mnt rw - ext4 /dev/other rw\n", path("%s/self/mountinfo", proc));
	expect_use(&at, -EBUSY, "mounted");
	put("30 23 0:40 / /mnt rw shared:1 - btrfs /dev/nvme0n1 rw\n", path("%s/self/mountinfo", proc));
	expect_use(&at, -EBUSY, "mounted");
	put("30 23 0:40 / /mnt rw - btrfs /dev/nvme0n10 rw\n", path("%s/self/mountinfo", proc));
	put("Filename Type\n/dev/nvme0n1 partition 1 0 -2\n", path("%s/swaps", proc));
	expect_use(&at, -EBUSY, "swapoff");
	put("Filename Type\n/dev/nvme0n12 partition 1 0 -2\n", path("%s/swaps", proc));
	put("", disk("holders/dm-3"));
	expect_use(&at, -EBUSY, "dm-3");
	ASSERT_EQ(unlink(disk("holders/dm-3")), 0);
	ASSERT_OK(bind_it(&at, 0));
}

TEST(partitions)
{
	struct bind_roots at = machine();

	put("1\n", disk("nvme0n1p1/partition"));
	put("259:1\n", disk("nvme0n1p1/dev"));
	expect_use(&at, -ENOTEMPTY, "partitions");
	put("", disk("nvme0n1p1/holders/md127"));
	expect_use(&at, -EBUSY, "md127");
	put("30 23 259:1 / /mnt rw - ext4 /dev/other rw\n", path("%s/self/mountinfo", proc));
	expect_use(&at, -EBUSY, "/dev/nvme0n1p1 is mounted");
	ASSERT_OK(bind_it(&at, STRAIT_PCI_FORCE));
}

/* The disk has no parent device: the controller has a path to it. */
TEST(multipath)
{
	struct bind_roots at = machine();

	ASSERT_EQ(unlink(path("%s/block/nvme0n1", sys)), 0);
	put("259:0\n", path("%s/block/nvme0n1/dev", sys));
	put("", path("%s/bus/pci/devices/" DRIVE "/nvme/nvme3/nvme0c3n1/x", sys));
	put("30 23 259:0 / /mnt rw - ext4 /dev/other rw\n", path("%s/self/mountinfo", proc));
	expect_use(&at, -EBUSY, "mounted");
}

TEST(a_network_card)
{
	struct bind_roots at = machine();

	put("up\n", path("%s/bus/pci/devices/" CARD "/net/eth7/operstate", sys));
	ASSERT_EQ(bind_at(&at, CARD, "strait", 0, why, sizeof(why)), -EBUSY);
	ASSERT_TRUE(strstr(why, "ip link set eth7 down"));
	put("down\n", path("%s/bus/pci/devices/" CARD "/net/eth7/operstate", sys));
	ASSERT_OK(bind_at(&at, CARD, "strait", 0, why, sizeof(why)));
}

static const struct sign {
	const char *name;
	uint64_t at;
	const char *bytes;
	size_t len;
} signs[] = {
	{ "gpt", 512, "EFI PART", 8 },
	{ "gpt_4k", 4096, "EFI PART", 8 },
	{ "gpt_copy", MIB(4) - 512, "EFI PART", 8 },
	{ "mbr", 510, "\x55\xaa", 2 },
	{ "ext4", 1080, "\x53\xef", 2 },
	{ "xfs", 0, "XFSB", 4 },
	{ "btrfs", 65600, "_BHRfS_M", 8 },
	{ "luks", 0, "LUKS\xba\xbe", 6 },
	{ "lvm", 512, "LABELONE", 8 },
	{ "swap", 4086, "SWAPSPACE2", 10 },
	{ "md_1_2", 4096, "\xfc\x4e\x2b\xa9", 4 },
	{ "md_0_9", MIB(4) - KIB(64), "\xfc\x4e\x2b\xa9", 4 },
	{ "md_1_0", MIB(4) - KIB(8), "\xfc\x4e\x2b\xa9", 4 },
	{ "zfs", KIB(128) + KIB(17), "\x0c\xb1\xba\0\0\0\0\0", 8 },
	{ "zfs_other_order", KIB(128), "\0\0\0\0\0\xba\xb1\x0c", 8 },
};

static bool hide_library(enum os_call call, int64_t *result)
{
	*result = -ENOENT;
	return call == OS_DLOPEN;
}

TEST_VARIANTS(signatures, struct sign, signs)
{
	struct bind_roots at = machine();
	int fd = open(path("%s/nvme0n1", dev), O_WRONLY);

	ASSERT_EQ(pwrite(fd, v->bytes, v->len, (off_t)v->at), v->len);
	expect_use(&at, -ENOTEMPTY, "/dev/nvme0n1 is not empty: ");
	os_inject = hide_library;
	expect_use(&at, -ENOTEMPTY, "found by the built-in list of signatures (libblkid.so.1 cannot be loaded)");
	os_inject = NULL;
	/* One byte less is refused. */
	ASSERT_EQ(pwrite(fd, "x", 1, (off_t)v->at + (v->bytes[0] ? 0 : 6)), 1);
	close(fd);
	ASSERT_OK(bind_it(&at, 0));
	ASSERT_STREQ(why, "");
}

/* Superblocks, as far as libblkid checks them, of formats that are not in the built-in list. */
static const struct blkid_sign {
	const char *name, *what;
	uint64_t at;
	const char *bytes;
	size_t len;
} blkid_signs[] = {
	{ "oracle_asm", "file system oracleasm", 32, "ORCLDISKVOL1", 12 },
	{ "vmfs_volume", "array or volume member VMFS_volume_member", MIB(1), "\x0d\xd0\x01\xc0", 4 },
	{ "vmfs", "file system VMFS", MIB(2), "\x5e\xf1\xab\x2f", 4 },
	/* version 1, 100 blocks of 4096 bytes, 2^3 sectors of 512 bytes each */
	{ "jfs", "file system jfs", KIB(32), "JFS1\1\0\0\0\x64\0\0\0\0\0\0\0\0\x10\0\0\x0c\0\x03\0\0\x02\0\0\x09\0",
	  30 },
	/* version 9, big endian: magic, metadata of 8 sectors, the activity log's offset, its extents, the bitmap's offset */
	{ "drbd", "array or volume member drbd", MIB(64) - 4096 + 60,
	  "\x83\x74\x02\x6d\0\0\0\x08\0\0\0\x08\0\0\0\x07\xff\xff\xff\xf8\0\0\x10", 23 },
};

TEST_VARIANTS(signatures_of_libblkid, struct blkid_sign, blkid_signs)
{
	struct bind_roots at = machine();
	void *lib = os_dl_open("libblkid.so.1", why, sizeof(why));
	int fd = open(path("%s/nvme0n1", dev), O_WRONLY);
	char text[128];

	if (!lib)
		SKIP("libblkid.so.1 is not installed");
	os_dl_close(lib);
	ASSERT_EQ(ftruncate(fd, MIB(64)), 0);
	ASSERT_EQ(pwrite(fd, v->bytes, v->len, (off_t)v->at), v->len);
	close(fd);
	snprintf(text, sizeof(text), "/dev/nvme0n1 is not empty: %s, found by libblkid", v->what);
	expect_use(&at, -ENOTEMPTY, text);
	/*
	 * Without the library the drive is considered empty, and the caller is told that fewer formats were compared.
	 */
	os_inject = hide_library;
	ASSERT_OK(bind_it(&at, 0));
	os_inject = NULL;
	ASSERT_TRUE(strstr(why, "libblkid.so.1 cannot be loaded: /dev/nvme0n1 was compared with the built-in list"));
}

TEST(a_drive_that_cannot_be_read)
{
	struct bind_roots at = machine();

	ASSERT_EQ(unlink(path("%s/nvme0n1", dev)), 0);
	expect_use(&at, -EBUSY, "cannot be read");
	ASSERT_OK(bind_it(&at, STRAIT_PCI_FORCE));
}

/* The public calls, on this machine, with devices that do not exist. */
TEST(no_such_device)
{
	struct strait_pci_info info = { .size = sizeof(info) };

	ASSERT_EQ(strait_pci_info("fffe:fe:1e.6", &info), -ENODEV);
	ASSERT_EQ(strait_pci_bind("fffe:fe:1e.6", "strait", 0, why, sizeof(why)), -ENODEV);
	ASSERT_TRUE(strstr(why, "fffe:fe:1e.6"));
	ASSERT_EQ(strait_pci_bind("fffe:fe:1e.6", "strait", 2, why, sizeof(why)), -EINVAL);
	ASSERT_EQ(strait_pci_bind("x", "strait", 0, NULL, 100), -ENODEV);
	ASSERT_EQ(strait_pci_unbind("fffe:fe:1e.6", 0, why, sizeof(why)), -ENODEV);
	ASSERT_EQ(strait_pci_unbind("fffe:fe:1e.6", 4, NULL, 0), -EINVAL);
}
