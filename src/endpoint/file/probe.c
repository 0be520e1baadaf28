/* SPDX-License-Identifier: MIT */
/* Facts about the file system: its name, and whether direct I/O works. */
#include <errno.h>
#include <fcntl.h>

#include "endpoint/file/file.h"
#include "os/os.h"

static const struct fs_name {
	uint64_t magic;
	const char *name;
	bool in_memory; /* no drive below it: no direct I/O */
} fs_names[] = {
	{ 0xef53, "ext4", false },     { 0x58465342, "xfs", false },	  { 0x9123683e, "btrfs", false },
	{ 0xf2f52010, "f2fs", false }, { 0x2fc12fc1, "zfs", false },	  { 0x794c7630, "overlayfs", false },
	{ 0x01021994, "tmpfs", true }, { 0x858458f6, "ramfs", true },	  { 0x958458f6, "hugetlbfs", true },
	{ 0x6969, "nfs", false },      { 0xff534d42, "cifs", false },	  { 0xfe534d42, "smb2", false },
	{ 0x65735546, "fuse", false }, { 0x01021997, "9p", false },	  { 0x0bd00bd0, "lustre", false },
	{ 0x00c36400, "ceph", false }, { 0x73717368, "squashfs", false }, { 0xe0f5e1e2, "erofs", false },
	{ 0x4d44, "vfat", false },     { 0x2011bab0, "exfat", false },	  { 0x5346544e, "ntfs", false },
	{ 0x47504653, "gpfs", false }, { 0x19830326, "beegfs", false },	  { 0xca451a4e, "bcachefs", false },
	{ 0x9fa0, "proc", true },      { 0x62656572, "sysfs", true },	  { 0x6a656a63, "virtiofs", false },
};

static const struct fs_name *fs_find(uint64_t magic)
{
	for (size_t i = 0; i < ARRAY_SIZE(fs_names); i++)
		if (fs_names[i].magic == magic)
			return &fs_names[i];
	return NULL;
}

/* Alignment for direct I/O. */
static int find_alignment(struct file *f, uint32_t *mem, uint32_t *off)
{
	int rc = os_dio_align(f->fd, mem, off);

	if (!rc) {
		if (*off && *mem)
			return 0;
		f->ep.facts.direct_reason = STRAIT_WHY_FS_NO_DIRECT;
		return -EOPNOTSUPP;
	}
	/* Not reported, by a kernel before 6.1 or by this file system: the sector size, or a page, is safe. */
	*mem = *off = 4096;
	if (f->ep.facts.is_block && !os_block_sector(f->fd, off))
		*mem = *off;
	return 0;
}

/* Open the same file with O_DIRECT: through /proc, or by its path if that still names the same file. */
static int open_direct(struct file *f, const struct stat *st, const char *path, int oflags)
{
	int want = (oflags & (O_ACCMODE | O_SYNC | O_DSYNC)) | O_DIRECT;
	int fd = os_reopen(f->fd, want);
	struct stat now;

	if (fd >= 0 || !path)
		return fd;
	fd = os_open(path, want | O_NONBLOCK, 0);
	if (fd < 0)
		return fd;
	if (os_fstat(fd, &now) || now.st_dev != st->st_dev || now.st_ino != st->st_ino) {
		os_close(fd);
		return -ESTALE;
	}
	return fd;
}

static void probe_direct(struct file *f, const struct stat *st, const char *path, int oflags)
{
	struct endpoint_facts *facts = &f->ep.facts;
	uint32_t mem = 0, off = 0;

	if (f->ep.flags & STRAIT_FILE_BUFFERED) {
		facts->direct_reason = STRAIT_WHY_BUFFERED_REQUESTED;
		return;
	}
	if (find_alignment(f, &mem, &off))
		return;
	if (!is_pow2(mem) || !is_pow2(off) || off > KIB(64) || mem > KIB(64)) {
		facts->direct_reason = STRAIT_WHY_DIRECT_ALIGNMENT;
		return;
	}
	if (oflags & O_DIRECT) {
		/* The application's descriptor has O_DIRECT and could not be reopened without it. */
		f->fd_direct = os_dup(f->fd);
	} else {
		f->fd_direct = open_direct(f, st, path, oflags);
	}
	if (f->fd_direct < 0) {
		if (f->fd_direct == -EINVAL) {
			facts->direct_reason = STRAIT_WHY_FS_REFUSES_DIRECT;
		} else {
			facts->direct_reason = STRAIT_WHY_NOT_REOPENED;
			facts->direct_error = f->fd_direct;
		}
		f->fd_direct = -1;
		return;
	}
	facts->can_direct = true;
	facts->dio_align = off;
	facts->dio_mem_align = mem;
}

int file_probe(struct file *f, const struct stat *st, const char *path, int oflags)
{
	const struct fs_name *fs = NULL;
	uint64_t magic = 0;

	if (f->ep.facts.is_block) {
		str_copy(f->fs, sizeof(f->fs), "block");
	} else {
		int rc = os_fs_magic(f->fd, &magic);

		if (rc)
			return rc;
		fs = fs_find(magic);
		if (fs)
			str_copy(f->fs, sizeof(f->fs), fs->name);
		else
			str_format(f->fs, sizeof(f->fs), "0x%llx", (unsigned long long)magic);
	}
	if (fs && fs->in_memory) {
		f->ep.facts.direct_reason = STRAIT_WHY_FS_IN_MEMORY;
		f->ep.facts.can_buffered = true; /* O_DIRECT has no effect there, if it is accepted */
	} else {
		probe_direct(f, st, path, oflags);
	}
	f->ep.facts.fs = f->fs;
	return 0;
}
