/* SPDX-License-Identifier: MIT */
/* What is on a drive, by the marks that file systems, volumes and partition tables leave on it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "base/util.h"
#include "os/os.h"
#include "pci/bind.h"

#define LOOK KIB(256)

struct mark {
	const char *what;
	uint64_t at;
	const char *bytes;
	size_t len;
};

#define MARK(what, at, bytes)                                                                                          \
	{                                                                                                              \
		what, at, bytes, sizeof(bytes) - 1                                                                     \
	}

static const struct mark marks[] = {
	MARK("a GUID partition table", 512, "EFI PART"),
	MARK("a GUID partition table", 4096, "EFI PART"),
	MARK("LUKS encryption", 0, "LUKS\xba\xbe"),
	MARK("an XFS file system", 0, "XFSB"),
	MARK("an ext2, ext3 or ext4 file system", 1080, "\x53\xef"),
	MARK("a Btrfs file system", 65600, "_BHRfS_M"),
	MARK("an F2FS file system", 1024, "\x10\x20\xf5\xf2"),
	MARK("an EROFS file system", 1024, "\xe2\xe1\xf5\xe0"),
	MARK("a SquashFS file system", 0, "hsqs"),
	MARK("an ISO 9660 file system", 32769, "CD001"),
	MARK("an NTFS file system", 3, "NTFS    "),
	MARK("a bcachefs or bcache superblock", 4120,
	     "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
	MARK("a bcachefs or bcache superblock", 4120,
	     "\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"),
	MARK("an LVM physical volume", 0, "LABELONE"),
	MARK("an LVM physical volume", 512, "LABELONE"),
	MARK("an LVM physical volume", 1024, "LABELONE"),
	MARK("an LVM physical volume", 1536, "LABELONE"),
	MARK("swap space", 4086, "SWAPSPACE2"),
	MARK("a member of an md array", 0, "\xfc\x4e\x2b\xa9"),
	MARK("a member of an md array", 4096, "\xfc\x4e\x2b\xa9"),
	MARK("a Ceph object store", 0, "bluestore block device"),
	MARK("a file system or a partition table", 510, "\x55\xaa"),
};

static const char *find_mark(const unsigned char *p, size_t len)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(marks); i++)
		if (marks[i].at + marks[i].len <= len && !memcmp(p + marks[i].at, marks[i].bytes, marks[i].len))
			return marks[i].what;
	/* ZFS keeps rings of blocks with a number at their start, in either order of bytes. */
	for (size_t at = KIB(128); at + 8 <= len; at += KIB(1))
		if (!memcmp(p + at, "\x0c\xb1\xba\0\0\0\0", 8) || !memcmp(p + at, "\0\0\0\0\0\xba\xb1\x0c", 8))
			return "a ZFS pool";
	return NULL;
}

/* Those that stand at the end. */
static const char *find_last(int fd, uint64_t size)
{
	const uint64_t at[] = { align_down(size, KIB(64)) - KIB(64), align_down(size - KIB(8), KIB(4)), size - 512,
				size - 4096 };
	unsigned char p[8];

	if (size < KIB(256))
		return NULL;
	for (unsigned int i = 0; i < ARRAY_SIZE(at); i++) {
		if (os_pread(fd, p, sizeof(p), at[i]) != (ssize_t)sizeof(p))
			continue;
		if (!memcmp(p, "\xfc\x4e\x2b\xa9", 4))
			return "a member of an md array";
		if (!memcmp(p, "EFI PART", 8))
			return "a GUID partition table";
	}
	return NULL;
}

const char *bind_signature(const char *path, int *err)
{
	unsigned char *p = malloc(LOOK);
	const char *what = NULL;
	uint64_t size = 0;
	struct stat st;
	ssize_t n;
	int fd;

	fd = p ? os_open(path, O_RDONLY | O_CLOEXEC, 0) : -ENOMEM;
	if (fd < 0) {
		free(p);
		*err = fd;
		return NULL;
	}
	n = os_pread(fd, p, LOOK, 0);
	*err = n < 0 ? (int)n : 0;
	if (n > 0)
		what = find_mark(p, (size_t)n);
	if (!what && n > 0) {
		if (os_block_size(fd, &size) && !os_fstat(fd, &st))
			size = (uint64_t)st.st_size;
		what = find_last(fd, size);
	}
	os_close(fd);
	free(p);
	return what;
}
