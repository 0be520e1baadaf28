/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_FILE_H
#define STRAIT_FILE_H

/* Open files of /dev/strait and of the device nodes /dev/strait-pci/<address>. */

#include <linux/fs.h>
#include <linux/xarray.h>

struct io_uring_cmd;
struct strait_attach;

struct strait_file {
	struct xarray regions;
	u32 next;			/* handle to try next */
	struct address_space mapping;	/* of this file alone, to unmap its mappings */
	struct strait_attach *attach;	/* the node's device; NULL: /dev/strait */
};

/* main.c */
int strait_file_open(struct inode *inode, struct file *file);
int strait_file_release(struct inode *inode, struct file *file);
long strait_file_ioctl(struct file *file, unsigned int cmd, unsigned long user);
int strait_file_mmap(struct file *file, struct vm_area_struct *vma);

/* uring.c */
int strait_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags);

#endif
