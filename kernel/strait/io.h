/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_IO_H
#define STRAIT_IO_H

/* File I/O: eligibility of a file and a region, and requests. */

#include <linux/fs.h>
#include <linux/pci.h>
#include <linux/uio.h>

struct strait_backing;
struct strait_file;
struct strait_ioc_check;
struct strait_ioc_io;

/* eligible.c: may bytes move between a file and a region, and with which alignment? */
struct strait_eligibility {
	u32 reason;			/* STRAIT_REASON_* */
	u32 offset_align, mem_align;
	int distance;			/* pci_p2pdma_distance(), -1: unknown */
	struct pci_dev *drive;		/* valid as long as the file is open */
};

void strait_check_eligibility(struct strait_backing *b, struct file *file, u32 op,
			      struct strait_eligibility *e);

/* io.c: a request has a reference on a file, and a reference and a use of a backing. */
struct strait_io_request {
	struct strait_backing *backing;
	struct file *file;
};

/* Checks @args and opens @req. */
int strait_io_begin(struct strait_file *f, struct strait_ioc_io *args,
		    struct strait_io_request *req);
ssize_t strait_io_submit(const struct strait_ioc_io *args, struct strait_io_request *req,
			 struct kiocb *kiocb, struct iov_iter *iter);
/*
 * Ends the I/O and drops the backing. May be called in an interrupt. It must not be left to the
 * submitter's task: that task may be freeing the memory of a bridge, and wait for this call.
 */
void strait_io_end(const struct strait_ioc_io *args, struct strait_io_request *req,
		   ssize_t result);
/* Drops what strait_io_end() has not dropped. */
void strait_io_request_close(struct strait_io_request *req);

/* STRAIT_IOC_CHECK and STRAIT_IOC_IO. */
long strait_io_check(struct strait_file *f, struct strait_ioc_check *args);
long strait_io(struct strait_file *f, struct strait_ioc_io *args);

#endif
