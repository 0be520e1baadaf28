/* SPDX-License-Identifier: MIT */
/*
 * A drive that is used by dm, md or swap, or that has partitions, is not taken from its driver. The test makes the
 * calls itself: neither guest nor host needs tools for it.
 */
#include <strait/pci.h>

#include "nvme.h"

#include <linux/blkpg.h>
#include <linux/dm-ioctl.h>
#include <linux/fs.h>
#include <linux/major.h>
#include <linux/raid/md_p.h>
#include <linux/raid/md_u.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/sysmacros.h>

#define DISK "/dev/nvme0n1"
#define PART DISK "p1"

static char name[PCI_NAME];

/* The drive is bound to the kernel's driver and is empty. */
static int start_empty(void)
{
	static const unsigned char zero[MIB(1)];
	int fd;

	close(ko_open());
	pci_find(DRIVE_ID, name);
	drive_give_back();
	fd = open(DISK, O_RDWR | O_CLOEXEC);
	ASSERT_GE(fd, 0);
	ASSERT_EQ(pwrite(fd, zero, sizeof(zero), 0), sizeof(zero));
	ASSERT_EQ(pwrite(fd, zero, sizeof(zero), (off_t)(strtoull(getenv("LAB_DRIVE_SIZE"), NULL, 0) - sizeof(zero))),
		  sizeof(zero));
	ASSERT_EQ(fsync(fd), 0);
	ioctl(fd, BLKRRPART);
	return fd;
}

/* With that error, and a message that contains both words. */
static void expect_refused(int err, const char *what, const char *more)
{
	char why[512] = "";
	int rc = strait_pci_bind(name, "strait", 0, why, sizeof(why));

	printf("# %s\n", why);
	ASSERT_EQ(rc, err);
	ASSERT_TRUE(strstr(why, what) && strstr(why, more));
	ASSERT_STREQ(pci_driver(name), "nvme");
}

/* With the obstacle removed the drive can be taken. */
static void expect_taken(void)
{
	char why[512] = "";

	ASSERT_OK(strait_pci_bind(name, "strait", 0, why, sizeof(why)));
	ASSERT_STREQ(pci_driver(name), "strait");
	ASSERT_OK(strait_pci_unbind(name, 0, why, sizeof(why)));
	ASSERT_STREQ(pci_driver(name), "nvme");
	drive_give_back();
}

static dev_t device_of(const char *path)
{
	struct stat st;

	ASSERT_EQ(stat(path, &st), 0);
	return st.st_rdev;
}

struct dm_call {
	struct dm_ioctl head;
	struct dm_target_spec spec;
	char text[64];
};

static int dm_ioctl_of(int ctl, unsigned long what, struct dm_call *c)
{
	c->head.version[0] = DM_VERSION_MAJOR;
	c->head.data_size = sizeof(*c);
	c->head.data_start = offsetof(struct dm_call, spec);
	strcpy(c->head.name, "held");
	return ioctl(ctl, what, c) ? -errno : 0;
}

/* Creates and starts one linear target on @path. */
static int dm_start(const char *path)
{
	struct dm_call c = { .head = { .target_count = 1 } };
	dev_t dev = device_of(path);
	int ctl;

	if (system("modprobe dm_mod 2>/dev/null; test -e /dev/mapper/control"))
		SKIP("this kernel has no device mapper");
	ctl = open("/dev/mapper/control", O_RDWR | O_CLOEXEC);
	ASSERT_GE(ctl, 0);
	ASSERT_OK(dm_ioctl_of(ctl, DM_DEV_CREATE, &(struct dm_call){ 0 }));
	c.spec.length = 2048;
	strcpy(c.spec.target_type, "linear");
	snprintf(c.text, sizeof(c.text), "%u:%u 0", major(dev), minor(dev));
	ASSERT_OK(dm_ioctl_of(ctl, DM_TABLE_LOAD, &c));
	ASSERT_OK(dm_ioctl_of(ctl, DM_DEV_SUSPEND, &(struct dm_call){ 0 })); /* without the flag: go on */
	return ctl;
}

static void dm_stop(int ctl)
{
	ASSERT_OK(dm_ioctl_of(ctl, DM_DEV_REMOVE, &(struct dm_call){ 0 }));
	close(ctl);
}

TEST(held_by_dm)
{
	int ctl;

	close(start_empty());
	ctl = dm_start(DISK);
	expect_refused(-EBUSY, DISK, "held by /dev/dm-");
	dm_stop(ctl);
	expect_taken();
}

/* A mirror of one disk, without metadata on it. */
static int md_start(const char *path)
{
	mdu_array_info_t array = {
		.major_version = 0, .minor_version = 90, .level = 1, .nr_disks = 1, .raid_disks = 1, .not_persistent = 1
	};
	mdu_disk_info_t disk = { .state = 1 << MD_DISK_ACTIVE | 1 << MD_DISK_SYNC };
	dev_t dev = device_of(path);
	int md;

	if (system("modprobe raid1 2>/dev/null; grep -q raid1 /proc/mdstat 2>/dev/null"))
		SKIP("this kernel has no md with mirrors");
	if (mknod("/tmp/md7", S_IFBLK | 0600, makedev(MD_MAJOR, 7)) && errno != EEXIST)
		FAIL("mknod: %s", strerror(errno));
	if (access("/sys/block/md7", F_OK))
		write_text("/sys/module/md_mod/parameters/new_array", "md7");
	md = open("/tmp/md7", O_RDWR | O_CLOEXEC);
	if (md < 0)
		SKIP("this kernel makes no array: %s", strerror(errno));
	ASSERT_EQ(ioctl(md, SET_ARRAY_INFO, &array), 0);
	disk.major = (int)major(dev);
	disk.minor = (int)minor(dev);
	ASSERT_EQ(ioctl(md, ADD_NEW_DISK, &disk), 0);
	ASSERT_EQ(ioctl(md, RUN_ARRAY, NULL), 0);
	return md;
}

static void md_stop(int md)
{
	ASSERT_EQ(ioctl(md, STOP_ARRAY, NULL), 0);
	close(md);
}

TEST(held_by_md)
{
	int md;

	close(start_empty());
	md = md_start(DISK);
	expect_refused(-EBUSY, DISK, "held by /dev/md7");
	md_stop(md);
	expect_taken();
}

TEST(used_for_swapping)
{
	static const unsigned char zero[4096];
	uint32_t head[3] = { 1, 255, 0 }; /* version, last page, bad pages: behind the first 1024 bytes */
	int fd = start_empty();

	ASSERT_EQ(pwrite(fd, head, sizeof(head), 1024), sizeof(head));
	ASSERT_EQ(pwrite(fd, "SWAPSPACE2", 10, 4086), 10);
	ASSERT_EQ(fsync(fd), 0);
	expect_refused(-ENOTEMPTY, DISK, "not empty: swap");
	if (swapon(DISK, 0) && errno == ENOSYS)
		SKIP("this kernel does not swap");
	expect_refused(-EBUSY, DISK, "swapoff " DISK);
	ASSERT_EQ(swapoff(DISK), 0);
	ASSERT_EQ(pwrite(fd, zero, sizeof(zero), 0), sizeof(zero));
	ASSERT_EQ(fsync(fd), 0);
	close(fd);
	expect_taken();
}

/* Refused also if only a partition is in use; and a partition table means that the drive is not empty. */
TEST(partitions)
{
	/* One entry of the table: Linux, from block 2048, 8 MiB. */
	static const unsigned char entry[16] = { [4] = 0x83, [9] = 8, [13] = 64 };
	static const unsigned char zero[512];
	char why[512] = "";
	int fd = start_empty(), ctl;

	ASSERT_EQ(pwrite(fd, entry, sizeof(entry), 446), sizeof(entry));
	ASSERT_EQ(pwrite(fd, "\x55\xaa", 2, 510), 2);
	ASSERT_EQ(fsync(fd), 0);
	expect_refused(-ENOTEMPTY, DISK, "partition table");
	ASSERT_EQ(ioctl(fd, BLKRRPART), 0);
	for (int i = 0; i < 500 && access(PART, F_OK); i++)
		sleep_ms(10);
	expect_refused(-ENOTEMPTY, DISK, "has partitions");
	close(fd);
	ctl = dm_start(PART);
	expect_refused(-EBUSY, PART, "held by /dev/dm-");
	dm_stop(ctl);
	ASSERT_OK(strait_pci_bind(name, "strait", STRAIT_PCI_FORCE, why, sizeof(why)));
	ASSERT_STREQ(pci_driver(name), "strait");
	ASSERT_OK(strait_pci_unbind(name, 0, why, sizeof(why)));
	drive_give_back();
	fd = open(DISK, O_RDWR | O_CLOEXEC);
	ASSERT_EQ(pwrite(fd, zero, sizeof(zero), 0), sizeof(zero));
	ASSERT_EQ(fsync(fd), 0);
	ASSERT_EQ(ioctl(fd, BLKRRPART), 0);
	close(fd);
	expect_taken();
}
