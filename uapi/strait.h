/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR MIT */
#ifndef STRAIT_UAPI_H
#define STRAIT_UAPI_H

/*
 * /dev/strait: file I/O between a drive and the memory of another device, without a detour.
 *
 * All state hangs on the open file: the regions imported through it go with its last descriptor,
 * whichever process holds that one. A region whose memory goes away is revoked: every later use of
 * it gives -ENODEV until it is released.
 *
 * Every struct starts with its size and flags. A size smaller than the struct is -EINVAL; a larger
 * one is taken if what lies past the struct is zero, and refused with -E2BIG otherwise. Unknown
 * flags and reserved fields that are not zero are -EINVAL. Outputs are written only on success, with
 * one exception: strait_ioc_io.reason.
 */

#include <linux/ioctl.h>
#include <linux/types.h>

#define STRAIT_ABI 1

/* What this module on this kernel can do: strait_ioc_info.features. */
#define STRAIT_FEATURE_P2PDMA (1ull << 0)     /* the kernel has PCI P2PDMA */
#define STRAIT_FEATURE_IMPORT_P2P (1ull << 1) /* STRAIT_IMPORT_P2P */
#define STRAIT_FEATURE_IMPORT_USER (1ull << 2)
#define STRAIT_FEATURE_IMPORT_DMABUF (1ull << 3)
#define STRAIT_FEATURE_IMPORT_NVP2P (1ull << 4) /* the bridge strait_nvp2p is loaded */
#define STRAIT_FEATURE_URING (1ull << 5)	/* file I/O as io_uring commands */

/* The most bytes of one request, and the most regions of one file. */
#define STRAIT_IO_MAX (1ull << 30)
#define STRAIT_REGIONS_MAX 4096

/**
 * struct strait_ioc_info - STRAIT_IOC_INFO: what the module is
 * @size: sizeof(struct strait_ioc_info)
 * @flags: 0
 * @abi: STRAIT_ABI of the module
 * @reserved: 0
 * @features: STRAIT_FEATURE_*
 * @device_bytes_max: device memory that may be imported, by all together
 * @device_bytes: of that, how much is now
 * @version: of the module, "0.1.0"
 */
struct strait_ioc_info {
	__u32 size;
	__u32 flags;
	__u32 abi;
	__u32 reserved;
	__u64 features;
	__u64 device_bytes_max;
	__u64 device_bytes;
	char version[24];
};

/* Kinds of memory: how a region is named to the module. */
#define STRAIT_IMPORT_P2P 1    /* a mapping whose pages are PCI P2PDMA pages: memory of a PCI device */
#define STRAIT_IMPORT_USER 2   /* ordinary memory of the process, pinned: counts for RLIMIT_MEMLOCK */
#define STRAIT_IMPORT_DMABUF 3 /* a dma-buf */
#define STRAIT_IMPORT_NVP2P 4  /* an address of a GPU whose driver speaks nvidia_p2p */

/* What a region can be used for: strait_ioc_import.can. */
#define STRAIT_CAN_FILE_IO (1ull << 0)

/**
 * struct strait_ioc_import - STRAIT_IOC_IMPORT: make a region of memory
 * @size: sizeof(struct strait_ioc_import)
 * @flags: 0
 * @kind: STRAIT_IMPORT_*
 * @fd: STRAIT_IMPORT_DMABUF: the dma-buf; otherwise -1
 * @address: of the calling process; for a dma-buf the offset in it. A multiple of the page size (of
 *	64 KiB for STRAIT_IMPORT_NVP2P), and so is
 * @length: bytes, not 0
 * @handle: out: names the region in this file, never 0
 * @reserved: 0
 * @can: out: STRAIT_CAN_*
 * @pci: out: the device that owns the memory, "0000:02:00.0"; empty if that is none or not known
 *
 * Memory of a process is named by where it is mapped, writable. The region is revoked when any part
 * of that mapping goes away or is replaced; what protection it has later does not matter.
 *
 * -EOPNOTSUPP for a kind the module has not, or memory that is not of that kind; -EFAULT where
 * nothing is mapped; -ENOMEM past RLIMIT_MEMLOCK; -ENOSPC past device_bytes_max or when the file has
 * as many regions as it may; -ENODEV when the memory went away meanwhile.
 */
struct strait_ioc_import {
	__u32 size;
	__u32 flags;
	__u32 kind;
	__s32 fd;
	__u64 address;
	__u64 length;
	__u32 handle;
	__u32 reserved;
	__u64 can;
	char pci[16];
};

/**
 * struct strait_ioc_release - STRAIT_IOC_RELEASE: forget a region
 * @size: sizeof(struct strait_ioc_release)
 * @flags: 0
 * @handle: of STRAIT_IOC_IMPORT
 * @reserved: 0
 *
 * I/O in flight goes on and keeps the memory until it ends. -ENOENT for a handle that is none.
 */
struct strait_ioc_release {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__u32 reserved;
};

/* Why the module does not move bytes between a file and a region. */
#define STRAIT_REASON_NONE 0
#define STRAIT_REASON_NOT_A_FILE 1   /* neither a regular file nor a block device */
#define STRAIT_REASON_NO_DIRECT 2    /* the file has no direct I/O */
#define STRAIT_REASON_FILE_SYSTEM 3  /* not one that keeps a file's bytes as they are on one drive */
#define STRAIT_REASON_TRANSFORMED 4  /* encrypted, compressed, inline, journaled or otherwise not as is */
#define STRAIT_REASON_OTHER_DRIVE 5  /* on a drive the file system does not name: realtime */
#define STRAIT_REASON_NO_DRIVE 6     /* no block device below the file */
#define STRAIT_REASON_NOT_PCI 7	     /* the drive is no PCI device: dm, md, multipath, loop, network */
#define STRAIT_REASON_NO_QUEUE 8     /* the drive's driver does not take peer-to-peer memory */
#define STRAIT_REASON_CHECKSUMS 9    /* the CPU would read the bytes for checksums */
#define STRAIT_REASON_NO_PATH 10     /* the kernel knows no way from the drive to the memory's device */
#define STRAIT_REASON_NO_PAGES 11    /* the region has addresses and no pages: a dma-buf */
#define STRAIT_REASON_NO_P2PDMA 12   /* the kernel was built without PCI P2PDMA */
#define STRAIT_REASON_APPEND 13	     /* open for appending: offsets of writes would not count */
#define STRAIT_REASON_ALIGNMENT 14   /* offset, length or memory not aligned; -EINVAL, all others -EOPNOTSUPP */
#define STRAIT_REASON_COUNT 15

#define STRAIT_OP_READ 0  /* from the file to the region */
#define STRAIT_OP_WRITE 1 /* from the region to the file */

/**
 * struct strait_ioc_check - STRAIT_IOC_CHECK: would I/O between a file and a region be taken?
 * @size: sizeof(struct strait_ioc_check)
 * @flags: 0
 * @handle: the region
 * @fd: the file
 * @op: STRAIT_OP_*
 * @reason: out: STRAIT_REASON_NONE, or why not
 * @offset_align: out: what file offset and length must be multiples of
 * @mem_align: out: what the offset in the region must be a multiple of
 * @distance: out: hops between drive and device as the kernel counts them, -1 if that is unknown
 * @reserved: 0
 * @drive: out: the drive, "0000:01:00.0"; empty if it is none on PCI
 *
 * Yes means that nothing known speaks against it. Whether the bytes arrive is known only after they have.
 */
struct strait_ioc_check {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__s32 fd;
	__u32 op;
	__u32 reason;
	__u32 offset_align;
	__u32 mem_align;
	__s32 distance;
	__u32 reserved;
	char drive[16];
};

/**
 * struct strait_ioc_io - STRAIT_IOC_IO: move bytes, and wait for it
 * @size: sizeof(struct strait_ioc_io)
 * @flags: 0
 * @handle: the region
 * @fd: the file, open for what @op needs; with or without O_DIRECT
 * @op: STRAIT_OP_*
 * @reason: out: STRAIT_REASON_*; also when it fails with -EOPNOTSUPP or -EINVAL
 * @file_offset: in the file
 * @region_offset: in the region
 * @length: bytes, at most STRAIT_IO_MAX
 * @done: out: bytes moved; fewer than asked for where the file ends
 *
 * Direct I/O, always: past the page cache, whose dirty pages are written first. Holes of the file and
 * blocks that were never written are zeroed by the CPU, as there is nothing on the drive to read.
 * A call that has started cannot be interrupted: the drive has the addresses.
 */
struct strait_ioc_io {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__s32 fd;
	__u32 op;
	__u32 reason;
	__u64 file_offset;
	__u64 region_offset;
	__u64 length;
	__u64 done;
};

#define STRAIT_IOC 0xF7

/**
 * struct strait_uring - the same as a command of io_uring on /dev/strait
 * @file_offset: in the file
 * @region_offset: in the region
 *
 * This is what the 16 bytes sqe->cmd hold. The rest: opcode IORING_OP_URING_CMD; cmd_op
 * STRAIT_URING_READ or STRAIT_URING_WRITE; addr the region; len the bytes; file_index the descriptor
 * of the file, by its number. The result is the bytes moved or a negative errno; STRAIT_IOC_CHECK
 * tells the reason behind -EOPNOTSUPP.
 */
struct strait_uring {
	__u64 file_offset;
	__u64 region_offset;
};

#define STRAIT_URING_READ _IO(STRAIT_IOC, 0x20)
#define STRAIT_URING_WRITE _IO(STRAIT_IOC, 0x21)

#define STRAIT_IOC_INFO _IOWR(STRAIT_IOC, 0x00, struct strait_ioc_info)
#define STRAIT_IOC_IMPORT _IOWR(STRAIT_IOC, 0x01, struct strait_ioc_import)
#define STRAIT_IOC_RELEASE _IOWR(STRAIT_IOC, 0x02, struct strait_ioc_release)
#define STRAIT_IOC_CHECK _IOWR(STRAIT_IOC, 0x03, struct strait_ioc_check)
#define STRAIT_IOC_IO _IOWR(STRAIT_IOC, 0x04, struct strait_ioc_io)

#endif
