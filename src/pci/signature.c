/* SPDX-License-Identifier: MIT */
/* What lies on a drive, by libblkid and by a list of the signatures that matter most. */
#include "pci/signature.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "base/util.h"
#include "os/os.h"

#define HEAD_BYTES KIB(256)

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
	MARK("GUID partition table", 512, "EFI PART"),
	MARK("GUID partition table", 4096, "EFI PART"),
	MARK("LUKS encryption", 0, "LUKS\xba\xbe"),
	MARK("XFS file system", 0, "XFSB"),
	MARK("ext2, ext3 or ext4 file system", 1080, "\x53\xef"),
	MARK("Btrfs file system", 65600, "_BHRfS_M"),
	MARK("F2FS file system", 1024, "\x10\x20\xf5\xf2"),
	MARK("EROFS file system", 1024, "\xe2\xe1\xf5\xe0"),
	MARK("SquashFS file system", 0, "hsqs"),
	MARK("ISO 9660 file system", 32769, "CD001"),
	MARK("NTFS file system", 3, "NTFS    "),
	MARK("bcachefs or bcache superblock", 4120, "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
	MARK("bcachefs or bcache superblock", 4120, "\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"),
	MARK("LVM physical volume", 0, "LABELONE"),
	MARK("LVM physical volume", 512, "LABELONE"),
	MARK("LVM physical volume", 1024, "LABELONE"),
	MARK("LVM physical volume", 1536, "LABELONE"),
	MARK("swap space", 4086, "SWAPSPACE2"),
	MARK("member of an md array", 0, "\xfc\x4e\x2b\xa9"),
	MARK("member of an md array", 4096, "\xfc\x4e\x2b\xa9"),
	MARK("Ceph object store", 0, "bluestore block device"),
	MARK("file system or a partition table", 510, "\x55\xaa"),
};

static const char *find_mark(const unsigned char *p, size_t len)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(marks); i++)
		if (marks[i].at + marks[i].len <= len && !memcmp(p + marks[i].at, marks[i].bytes, marks[i].len))
			return marks[i].what;
	/* ZFS: any of the uberblocks, each with its magic number first, in the byte order of the machine that wrote it. */
	for (size_t at = KIB(128); at + 8 <= len; at += KIB(1))
		if (!memcmp(p + at, "\x0c\xb1\xba\0\0\0\0", 8) || !memcmp(p + at, "\0\0\0\0\0\xba\xb1\x0c", 8))
			return "ZFS pool";
	return NULL;
}

/* Signatures at the end of the drive: md 0.90 and 1.0, the backup of a GUID partition table. */
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
			return "member of an md array";
		if (!memcmp(p, "EFI PART", 8))
			return "GUID partition table";
	}
	return NULL;
}

static int find_built_in(int fd, struct drive_contents *c)
{
	unsigned char *p = malloc(HEAD_BYTES);
	const char *what = NULL;
	uint64_t size = 0;
	struct stat st;
	ssize_t n = p ? os_pread(fd, p, HEAD_BYTES, 0) : -ENOMEM;

	if (n > 0)
		what = find_mark(p, (size_t)n);
	if (!what && n > 0) {
		if (os_block_size(fd, &size) && !os_fstat(fd, &st))
			size = (uint64_t)st.st_size;
		what = find_last(fd, size);
	}
	if (what)
		str_copy(c->what, sizeof(c->what), what);
	free(p);
	return n < 0 ? (int)n : 0;
}

int drive_contents_read(const char *path, struct drive_contents *c)
{
	int err, rc, fd = os_open(path, O_RDONLY | O_CLOEXEC, 0);

	*c = (struct drive_contents){ 0 };
	if (fd < 0)
		return fd;
	err = blkid_signature(fd, c->what, sizeof(c->what));
	c->from_blkid = err > 0;
	c->no_blkid = err == -ENOENT;
	rc = c->from_blkid ? 0 : find_built_in(fd, c);
	/* A drive that libblkid cannot read is not known to be empty. */
	if (!rc && !c->what[0] && err < 0 && !c->no_blkid)
		rc = err;
	os_close(fd);
	return rc;
}
