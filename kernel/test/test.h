/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef VGPU_TEST_H
#define VGPU_TEST_H

#include <linux/kref.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "nv-p2p.h"
#include "strait_vgpu_test.h"

#define VT_PAGE 65536ull

struct vt_consumer;
struct vt_import;
struct vt_pages;

/* An open file. Calls that race on purpose do not take the lock. */
struct vt_file {
	struct mutex lock;	/* the slots */
	struct vt_consumer *consumers[VT_SLOTS];
	struct vt_import *imports[VT_SLOTS];
	struct vt_pages *pages[VT_SLOTS];
};

/* edu.c. One transfer at a time; all but vt_edu_start() and vt_edu_busy() wait until it ends. */
int vt_edu_register(void);
void vt_edu_unregister(void);
struct pci_dev *vt_edu_get(void);
int vt_edu_transfer(dma_addr_t addr, void *data, u32 len, bool write);
int vt_edu_start(dma_addr_t addr, const void *data, u32 len);
void vt_edu_wait(void);
bool vt_edu_busy(void);

/* p2p.c */
int vt_get(struct vt_file *f, struct vt_get *req);
int vt_put(struct vt_file *f, struct vt_op *req);
int vt_map(struct vt_file *f, struct vt_op *req);
int vt_unmap(struct vt_file *f, struct vt_op *req);
int vt_status(struct vt_file *f, struct vt_status *req);
int vt_old(struct vt_file *f, struct vt_old *req);
int vt_foreign_put(struct vt_file *f, struct vt_op *req);
/* DMA address of a byte of the mapping of consumer @id; -EINVAL: not mapped. */
int vt_p2p_addr(struct vt_file *f, u32 id, u64 offset, u32 len, dma_addr_t *addr);
void vt_p2p_release(struct vt_file *f);

/* dmabuf.c */
int vt_attach(struct vt_file *f, struct vt_buf *req);
int vt_buf_map(struct vt_file *f, struct vt_buf *req);
int vt_buf_unmap(struct vt_file *f, struct vt_buf *req);
int vt_buf_status(struct vt_file *f, struct vt_buf *req);
int vt_detach(struct vt_file *f, struct vt_buf *req);
int vt_buf_addr(struct vt_file *f, u32 id, u64 offset, u32 len, dma_addr_t *addr);
void vt_buf_release(struct vt_file *f);

/* pin.c */
int vt_pin(struct vt_file *f, struct vt_pin *req);
int vt_unpin(struct vt_file *f, struct vt_pin *req);
void vt_pin_release(struct vt_file *f);

#endif
