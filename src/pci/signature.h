/* SPDX-License-Identifier: MIT */
#ifndef PCI_SIGNATURE_H
#define PCI_SIGNATURE_H

/* What lies on a drive: file systems, volumes, partition tables. Asked before the drive is taken from its driver. */

#include <stdbool.h>
#include <stddef.h>

struct drive_contents {
	char what[96];	 /* "file system ext4"; empty if nothing was found */
	bool from_blkid; /* libblkid found it; otherwise the built-in list */
	bool no_blkid;	 /* libblkid cannot be loaded: only the built-in list was compared */
};

/*
 * Look at the drive @path. libblkid is asked first, then the built-in list: what either of them finds counts, so that
 * a superblock too damaged for the one still protects the drive.
 *
 * Return: 0 with @c filled in, or a negative errno if the drive cannot be read.
 */
int drive_contents_read(const char *path, struct drive_contents *c);

/*
 * Ask libblkid for the first signature on @fd.
 *
 * Return: 1 with @what filled in; 0 if there is none; -ENOENT if libblkid cannot be used; another negative errno if
 * it cannot read the drive.
 */
int blkid_signature(int fd, char *what, size_t len);

#endif
