/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR MIT */
#ifndef STRAIT_VGPU_TEST_H
#define STRAIT_VGPU_TEST_H

/*
 * /dev/strait_vgpu_test: a consumer of nvidia_p2p and an importer of dma-bufs that a test controls,
 * with QEMU's "edu" device as its DMA engine. For tests only.
 *
 * An ioctl returns 0 if the call was made; its return value is in @result. IDs are those of an open
 * file, from 1 to VT_SLOTS for each kind. Closing the file releases all objects.
 */

#include <linux/ioctl.h>
#include <linux/types.h>

#define VT_SLOTS 32
#define VT_DMA_MAX 2048 /* the engine's own limit in QEMU 7.2 is below a page */

/* What the callback does, in this order. Return values are in vt_status.results. */
#define VT_CB_QUIESCE (1u << 0) /* wait until the engine is idle */
#define VT_CB_GET (1u << 1)	/* nvidia_p2p_get_pages() of it */
#define VT_CB_PUT (1u << 2)	/* nvidia_p2p_put_pages() */
#define VT_CB_MAP (1u << 3)	/* nvidia_p2p_dma_map_pages() */
#define VT_CB_UNMAP (1u << 4)	/* nvidia_p2p_dma_unmap_pages() */
#define VT_CB_FREE (1u << 5)	/* nvidia_p2p_free_dma_mapping(), nvidia_p2p_free_page_table() */
#define VT_CB_FORGET (1u << 6)	/* clear the pointers at its start, not at its end */
#define VT_CB_KEEP (1u << 7)	/* do not clear them, which is a consumer's mistake */

enum vt_cb_result {
	VT_R_GET,
	VT_R_PUT,
	VT_R_MAP,
	VT_R_UNMAP,
	VT_R_FREE_MAP,
	VT_R_FREE_TABLE,
	VT_RESULTS
};

#define VT_GET_PERSISTENT (1u << 0)
#define VT_GET_NO_CALLBACK (1u << 1)
#define VT_GET_NO_TABLE (1u << 2)
#define VT_GET_FLAG_1 (1u << 3) /* flag 1 of the persistent form */
#define VT_GET_FLAG_2 (1u << 4) /* flag 2, which does not exist */

struct vt_get {
	__u32 flags;
	__u32 cb_flags;
	__u64 va;
	__u64 len;
	__u64 token;
	__u32 va_space;
	__u32 cb_sleep_ms;
	__s32 result;
	__u32 id;
	__u32 version;
	__u32 page_size;
	__u32 entries;
	__u32 table_flags;
	__u64 first; /* physical address of the first page */
	__u64 last;  /* physical address of the last page */
	__u32 runs;  /* physically contiguous runs of pages */
	__u32 reserved;
	__u8 uuid[16];
};

#define VT_PUT_PERSISTENT (1u << 0) /* call the persistent form */
#define VT_PUT_KEEP (1u << 1)	    /* keep the pointer, to put it again */
#define VT_PUT_WRONG_VA (1u << 2)
#define VT_PUT_NULL (1u << 3)
#define VT_PUT_FLAG (1u << 4) /* with a flag that does not exist */

/* Put, map or unmap. */
struct vt_op {
	__u32 id;
	__u32 flags;
	__s32 result;
	__u32 entries; /* of a mapping */
	__u32 version;
	__u32 reserved;
};

#define VT_MAP_NULL (1u << 0) /* without a page table */

struct vt_status {
	__u32 id;
	__u32 called; /* number of calls of the callback */
	__s32 tgid;   /* process that it was called in */
	__u32 order;  /* sequence number among all callbacks */
	__s32 results[VT_RESULTS];
	__u64 quiesced_ms; /* time that the callback waited for the engine */
};

#define VT_DMA_WRITE (1u << 0) /* write to the memory, else read from it */
#define VT_DMA_START (1u << 1) /* return while it runs; VT_DMA_WAIT waits for it */
#define VT_DMA_BUF (1u << 2)   /* @id names a dma-buf */

struct vt_dma {
	__u32 id;
	__u32 flags;
	__u64 offset;
	__u32 len;
	__s32 result;
	__u64 data; /* address in the caller, @len bytes */
};

#define VT_BUF_NO_PEER (1u << 0) /* an importer that does not allow peer-to-peer */
#define VT_BUF_STATIC (1u << 1)	 /* an importer without move notification */
#define VT_BUF_LATE (1u << 2)	 /* unmaps 300 ms after the notification, not at once */
#define VT_BUF_PIN (1u << 3)	 /* pins the dma-buf while attached */

struct vt_buf {
	__s32 fd;
	__u32 flags;
	__u32 id;
	__s32 result;
	__u32 notified; /* number of move notifications */
	__u32 mapped;
	__u32 entries; /* of the mapped scatterlist */
	__u32 reserved;
	__u64 first; /* DMA address of the first entry */
};

#define VT_PIN_LONGTERM (1u << 0)
#define VT_PIN_PEER (1u << 1) /* allow P2PDMA pages */

struct vt_pin {
	__u64 va;
	__u64 len;
	__u32 flags;
	__u32 id;
	__s32 result;
	__u32 reserved;
};

/* Return values of the functions without a use, in the order of nv-p2p.h. */
struct vt_old {
	__s32 init_mapping;
	__s32 destroy_mapping;
	__s32 rsync_null;
	__s32 rsync_version;
	__s32 rsync_good;
	__s32 rsync_again;
	__s32 rsync_registers;
	__u32 reserved;
};

#define VT_IOC 0xF7
#define VT_GET _IOWR(VT_IOC, 0x00, struct vt_get)
#define VT_PUT _IOWR(VT_IOC, 0x01, struct vt_op)
#define VT_MAP _IOWR(VT_IOC, 0x02, struct vt_op)
#define VT_UNMAP _IOWR(VT_IOC, 0x03, struct vt_op)
#define VT_STATUS _IOWR(VT_IOC, 0x04, struct vt_status)
#define VT_DMA _IOWR(VT_IOC, 0x05, struct vt_dma)
#define VT_DMA_WAIT _IO(VT_IOC, 0x06)
#define VT_ATTACH _IOWR(VT_IOC, 0x07, struct vt_buf)
#define VT_BUF_MAP _IOWR(VT_IOC, 0x08, struct vt_buf)
#define VT_BUF_UNMAP _IOWR(VT_IOC, 0x09, struct vt_buf)
#define VT_BUF_STATUS _IOWR(VT_IOC, 0x0a, struct vt_buf)
#define VT_DETACH _IOWR(VT_IOC, 0x0b, struct vt_buf)
#define VT_PIN _IOWR(VT_IOC, 0x0c, struct vt_pin)
#define VT_UNPIN _IOWR(VT_IOC, 0x0d, struct vt_pin)
#define VT_OLD _IOWR(VT_IOC, 0x0e, struct vt_old)
#define VT_DMA_BUSY _IO(VT_IOC, 0x0f) /* 1: a transfer is running; else 0 */
/* Drops a reference of the first page that the module does not have. */
#define VT_FOREIGN_PUT _IOWR(VT_IOC, 0x10, struct vt_op)

#endif
