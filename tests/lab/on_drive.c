/* SPDX-License-Identifier: MIT */
/*
 * For tests that create files in a folder named by the environment: a fresh file system on the lab's drive, set in
 * their environment. Without such a drive, or if it is mounted, nothing changes.
 */
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define DRIVE "/dev/nvme0n1"
#define PLACE "/mnt"

__attribute__((constructor)) static void mount_drive(void)
{
	if (!getenv("LAB_KERNEL") || access(DRIVE, F_OK))
		return;
	mkdir(PLACE, 0755);
	umount(PLACE);
	if (system("modprobe -q ext4; mkfs.ext4 -q -F -E lazy_itable_init=0,nodiscard " DRIVE " >/dev/null 2>&1"))
		return;
	if (!mount(DRIVE, PLACE, "ext4", 0, NULL))
		setenv("TMPDIR", PLACE, 1);
}
