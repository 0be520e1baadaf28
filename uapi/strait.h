/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR MIT */
#ifndef STRAIT_UAPI_H
#define STRAIT_UAPI_H

/*
 * /dev/strait: file I/O between a drive and the memory of another device, without a detour.
 * /dev/strait-pci/<address>: the same, and a PCI device driven by the program that opens it.
 *
 * All state hangs on the open file: the regions imported through it go with its last descriptor,
 * whichever process holds that one. A region whose memory goes away is revoked: every later use of
 * it gives -ENODEV until it is released.
 *
 * Every struct starts with its size, as the program knows it, and flags. Structs grow at their end, and
 * old programs work with new modules: what the program does not know of is taken for zero and not
 * written. A size below STRAIT_*_SIZE_MIN, the least that any program has known of, is -EINVAL. A struct
 * that is larger than the module knows is taken if the rest is zero, and refused with -E2BIG otherwise;
 * where there is an answer, its size is how much of the struct the module knows. Unknown flags and
 * reserved fields that are not zero are -EINVAL. Outputs are written only on success, with one exception:
 * fields called reason, and what belongs to them.
 */

#include <linux/ioctl.h>
#include <linux/types.h>

/*
 * The interface of this header, and the oldest that a module or program of this header works with. A new
 * number means that something was taken away or changed its meaning; what is added has a feature bit or a
 * larger struct. STRAIT_ABI_FITS(): does the module that gave @info serve a program of this header?
 */
#define STRAIT_ABI 1
#define STRAIT_ABI_MIN 1
#define STRAIT_ABI_FITS(info) ((info)->abi >= STRAIT_ABI_MIN && (info)->abi_min <= STRAIT_ABI)

/* What this module on this kernel can do: strait_ioc_info.features. */
#define STRAIT_FEATURE_P2PDMA (1ull << 0)     /* the kernel has PCI P2PDMA */
#define STRAIT_FEATURE_IMPORT_P2P (1ull << 1) /* STRAIT_IMPORT_P2P */
#define STRAIT_FEATURE_IMPORT_USER (1ull << 2)
#define STRAIT_FEATURE_IMPORT_DMABUF (1ull << 3)
#define STRAIT_FEATURE_IMPORT_NVP2P (1ull << 4) /* the bridge strait_nvp2p is loaded */
#define STRAIT_FEATURE_URING (1ull << 5)	/* file I/O as io_uring commands */
#define STRAIT_FEATURE_ATTACH (1ull << 6)	/* STRAIT_IOC_ATTACH and what follows it */

/* The most bytes of one request, and the most regions of one file. */
#define STRAIT_IO_MAX (1ull << 30)
#define STRAIT_REGIONS_MAX 4096

/**
 * struct strait_ioc_info - STRAIT_IOC_INFO: what the module is
 * @size: sizeof(struct strait_ioc_info)
 * @flags: 0
 * @abi: out: STRAIT_ABI of the module
 * @abi_min: out: programs with an older STRAIT_ABI than this are not served
 * @features: STRAIT_FEATURE_*
 * @device_bytes_max: device memory that may be imported, by all together
 * @device_bytes: of that, how much is now
 * @version: of the module, "0.1.0"
 */
struct strait_ioc_info {
	__u32 size;
	__u32 flags;
	__u32 abi;
	__u32 abi_min;
	__u64 features;
	__u64 device_bytes_max;
	__u64 device_bytes;
	char version[24];
};

#define STRAIT_INFO_SIZE_MIN 40 /* up to @device_bytes */

/* Kinds of memory: how a region is named to the module. */
#define STRAIT_IMPORT_P2P 1    /* a mapping whose pages are PCI P2PDMA pages: memory of a PCI device */
#define STRAIT_IMPORT_USER 2   /* ordinary memory of the process, pinned: counts for RLIMIT_MEMLOCK */
#define STRAIT_IMPORT_DMABUF 3 /* a dma-buf */
#define STRAIT_IMPORT_NVP2P 4  /* an address of a GPU whose driver speaks nvidia_p2p */

/* What a region can be used for: strait_ioc_import.can. */
#define STRAIT_CAN_FILE_IO (1ull << 0)
#define STRAIT_CAN_DMA (1ull << 1) /* can be mapped for an attached device: STRAIT_IOC_MAP */

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

#define STRAIT_IMPORT_SIZE_MIN 48 /* up to @can */

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

#define STRAIT_RELEASE_SIZE_MIN 16

/* Why the module does not move bytes between a file and a region. */
#define STRAIT_REASON_NONE 0
#define STRAIT_REASON_NOT_A_FILE 1  /* neither a regular file nor a block device */
#define STRAIT_REASON_NO_DIRECT 2   /* the file has no direct I/O */
#define STRAIT_REASON_FILE_SYSTEM 3 /* not one that keeps a file's bytes as they are on one drive */
#define STRAIT_REASON_TRANSFORMED 4 /* encrypted, compressed, inline, journaled or otherwise not as is */
#define STRAIT_REASON_OTHER_DRIVE 5 /* on a drive the file system does not name: realtime */
#define STRAIT_REASON_NO_DRIVE 6    /* no block device below the file */
#define STRAIT_REASON_NOT_PCI 7	    /* the drive is no PCI device: dm, md, multipath, loop, network */
#define STRAIT_REASON_NO_QUEUE 8    /* the drive's driver does not take peer-to-peer memory */
#define STRAIT_REASON_CHECKSUMS 9   /* the CPU would read the bytes for checksums */
#define STRAIT_REASON_NO_PATH 10    /* the kernel knows no way from the drive to the memory's device */
#define STRAIT_REASON_NO_PAGES 11   /* the region has addresses and no pages: a dma-buf, a GPU's */
#define STRAIT_REASON_NO_P2PDMA 12  /* the kernel was built without PCI P2PDMA */
#define STRAIT_REASON_APPEND 13	    /* open for appending: offsets of writes would not count */
#define STRAIT_REASON_ALIGNMENT 14  /* offset, length or memory not aligned; -EINVAL, all others -EOPNOTSUPP */
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

#define STRAIT_CHECK_SIZE_MIN 40 /* up to @reserved */

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
 * Where the file ends before the range does, memory past @done is not left alone: the drive writes the
 * whole last block, and some file systems zero what follows. Ask for no more than the file has.
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

#define STRAIT_IO_SIZE_MIN 56

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

/*
 * A PCI device in user space.
 *
 * A device that is bound to the driver "strait" has a node, /dev/strait-pci/0000:01:00.0. The permission to
 * open it is the right to drive that device. STRAIT_IOC_ATTACH gives the device to the open file: to that file
 * alone, until its last descriptor and mapping are gone. Then, as when the process is killed, the device may
 * start no more transfers, is reset if it can be, and everything that was mapped for it is unmapped.
 *
 * The device reaches what was mapped for it and nothing else: an IOMMU translates its addresses and remaps
 * its interrupts. When memory behind a mapping goes away, the mapping is removed from the IOMMU and flushed
 * from its caches before the memory is given back; what the device still does there faults. Then it is kept
 * from starting transfers (STRAIT_CONTROL_BUS_MASTER says otherwise again), and the mapping gives -ENODEV.
 *
 * The device is lost when it is removed or its driver unbound, when an error or the administrator resets it,
 * or when the machine is suspended. Then strait_status.gone is 1, every call gives -ENODEV but those that
 * undo something, and its registers read as ones. If it is still bound, a program that closes the file can
 * open it again.
 */

#define STRAIT_BARS 6
#define STRAIT_MAPS_MAX 16384 /* of one device */
#define STRAIT_IRQS_MAX 256

/* Why a device cannot be attached, or memory not mapped for it. Always with -EOPNOTSUPP. */
#define STRAIT_ATTACH_NONE 0
#define STRAIT_ATTACH_NO_IOMMU 1     /* no IOMMU looks at its addresses */
#define STRAIT_ATTACH_IDENTITY 2     /* one does, and is told to let all of them pass */
#define STRAIT_ATTACH_DOMAIN 3	     /* another driver manages its IOMMU domain */
#define STRAIT_ATTACH_GROUP 4	     /* the IOMMU cannot tell it from another device */
#define STRAIT_ATTACH_UNTRUSTED 5    /* the kernel copies what external devices get: nothing would be in place */
#define STRAIT_ATTACH_NOT_COHERENT 6 /* it does not see what is in the CPU's caches */
#define STRAIT_ATTACH_NO_PATH 7	     /* the kernel knows no way from it to the memory's device */
#define STRAIT_ATTACH_EXPORTER 8     /* the exporter of the dma-buf does not let this device have it */
#define STRAIT_ATTACH_INTERRUPTS 9   /* interrupts are not remapped: it could raise any of them */
#define STRAIT_ATTACH_RESERVED 10    /* firmware demands memory that it always reaches: RMRR, IVMD */
#define STRAIT_ATTACH_NO_P2PDMA 11   /* without PCI P2PDMA the kernel knows of no way: see assume_peers */
#define STRAIT_ATTACH_COUNT 12

/* Offsets for mmap(): a BAR from its first byte, and the status page, which is only read. */
#define STRAIT_MMAP_BAR(bar) ((__u64)(bar) << 40)
#define STRAIT_MMAP_STATUS ((__u64)8 << 40)

/**
 * struct strait_status - the status page
 * @revoked: how many mappings have been revoked since the device was attached
 * @gone: 1: the device is lost
 *
 * While @revoked is unchanged no mapping was revoked; STRAIT_IOC_MAPPED need not be called.
 */
struct strait_status {
	__u32 revoked;
	__u32 gone;
};

/**
 * struct strait_ioc_attach - STRAIT_IOC_ATTACH: have the device of this node, alone
 * @size: sizeof(struct strait_ioc_attach)
 * @flags: 0
 * @pci: out: "0000:01:00.0"
 * @reason: out: STRAIT_ATTACH_*; also when it fails with -EOPNOTSUPP
 * @group: out: the IOMMU group, -1 for none; also when it fails with -EOPNOTSUPP
 * @vendor: out: PCI vendor ID
 * @device: out: PCI device ID
 * @class_code: out: 24 bits
 * @node: out: NUMA node, -1 unknown
 * @vectors: out: interrupts it can raise
 * @irq_bar: out: the BAR with its MSI-X table, -1: there is none. mmap() of the table's pages gives a
 *	private dummy page
 * @irq_offset: out: first page of it
 * @irq_length: out: bytes, whole pages
 * @bar_length: out: 0: none, or one that cannot be mapped as it shares pages with others
 *
 * -ENXIO: the file is /dev/strait, not the node of a device. -ENODEV: the device is not bound any more;
 * -EBUSY: it is attached, to another file or to this one. The device may not start transfers yet.
 */
struct strait_ioc_attach {
	__u32 size;
	__u32 flags;
	char pci[16];
	__u32 reason;
	__s32 group;
	__u32 vendor;
	__u32 device;
	__u32 class_code;
	__s32 node;
	__u32 vectors;
	__s32 irq_bar;
	__u64 irq_offset;
	__u64 irq_length;
	__u64 bar_length[STRAIT_BARS];
};

#define STRAIT_ATTACH_SIZE_MIN 120

#define STRAIT_MAP_READ (1u << 0)  /* the device reads the memory */
#define STRAIT_MAP_WRITE (1u << 1) /* the device writes it */

/* Where the memory behind a mapping lies: strait_ioc_map.where. */
#define STRAIT_WHERE_UNKNOWN 0
#define STRAIT_WHERE_HOST 1   /* in the host's memory, all or part of it */
#define STRAIT_WHERE_DEVICE 2 /* in memory of a device */

/**
 * struct strait_ioc_map - STRAIT_IOC_MAP: let the device reach a part of a region
 * @size: sizeof(struct strait_ioc_map)
 * @flags: STRAIT_MAP_READ, STRAIT_MAP_WRITE, one at least
 * @region: handle of STRAIT_IOC_IMPORT, of this file
 * @reason: out: STRAIT_ATTACH_*; also when it fails with -EOPNOTSUPP
 * @offset: in the region, a multiple of the page size, and so is
 * @length: bytes, not 0
 * @handle: out: names the mapping in this file, never 0
 * @runs: out: of how many runs of addresses it consists
 * @bus: out: where the device sees its first byte
 * @contiguous: out: how many bytes follow each other from there
 * @access: out: STRAIT_MAP_READ, STRAIT_MAP_WRITE: what the device can do. More than was asked for only
 *	where the kernel maps a dma-buf for both directions: one of an exporter that cannot move it, on
 *	kernels that cache such mappings
 * @where: out: STRAIT_WHERE_*. An exporter may move a dma-buf of a GPU's memory to the host for a device
 *	that does not reach the GPU: then transfers do not touch the GPU
 *
 * Releasing the region revokes the mapping.
 * -ENOSPC past STRAIT_MAPS_MAX, or the limit for device memory; -ENODEV: the memory is gone.
 */
struct strait_ioc_map {
	__u32 size;
	__u32 flags;
	__u32 region;
	__u32 reason;
	__u64 offset;
	__u64 length;
	__u32 handle;
	__u32 runs;
	__u64 bus;
	__u64 contiguous;
	__u32 access;
	__u32 where;
};

#define STRAIT_MAP_SIZE_MIN 56 /* up to @contiguous */

/* One run of addresses as the device sees it. */
struct strait_run {
	__u64 bus;
	__u64 length;
};

/**
 * struct strait_ioc_runs - STRAIT_IOC_RUNS: all addresses of a mapping
 * @size: sizeof(struct strait_ioc_runs)
 * @flags: 0
 * @handle: the mapping
 * @first: which run to begin with
 * @count: in: how many there is room for; out: how many were written
 * @reserved: 0
 * @runs: pointer to struct strait_run
 */
struct strait_ioc_runs {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__u32 first;
	__u32 count;
	__u32 reserved;
	__u64 runs;
};

#define STRAIT_RUNS_SIZE_MIN 32

/**
 * struct strait_ioc_mapping - STRAIT_IOC_UNMAP, STRAIT_IOC_MAPPED
 * @size: sizeof(struct strait_ioc_mapping)
 * @flags: 0
 * @handle: the mapping
 * @reserved: 0
 *
 * STRAIT_IOC_UNMAP: when it returns, nothing the device does reaches the memory through this mapping.
 * STRAIT_IOC_MAPPED: 0, or -ENODEV when it has been revoked. -ENOENT for a handle that is none.
 */
struct strait_ioc_mapping {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__u32 reserved;
};

#define STRAIT_UNMAP_SIZE_MIN 16
#define STRAIT_MAPPED_SIZE_MIN 16

/**
 * struct strait_ioc_irq - STRAIT_IOC_IRQ: an interrupt as an eventfd
 * @size: sizeof(struct strait_ioc_irq)
 * @flags: 0
 * @vector: which
 * @fd: an eventfd, in place of the one it had, which it keeps when the call fails; -1: none
 */
struct strait_ioc_irq {
	__u32 size;
	__u32 flags;
	__u32 vector;
	__s32 fd;
};

#define STRAIT_IRQ_SIZE_MIN 16

/**
 * struct strait_ioc_config - STRAIT_IOC_CONFIG: read configuration space
 * @size: sizeof(struct strait_ioc_config)
 * @flags: 0
 * @offset: a multiple of
 * @width: 1, 2 or 4 bytes
 * @value: out
 * @reserved: 0
 */
struct strait_ioc_config {
	__u32 size;
	__u32 flags;
	__u32 offset;
	__u32 width;
	__u32 value;
	__u32 reserved;
};

#define STRAIT_CONFIG_SIZE_MIN 24

#define STRAIT_CONTROL_BUS_MASTER 0   /* @value 1: it may start transfers; 0: it may not */
#define STRAIT_CONTROL_RESET 1	      /* reset the function; -EOPNOTSUPP where that is not possible */
#define STRAIT_CONTROL_ADDRESS_BITS 2 /* how wide its addresses are, 24 to 64: for what is mapped from now on */

/**
 * struct strait_ioc_control - STRAIT_IOC_CONTROL
 * @size: sizeof(struct strait_ioc_control)
 * @flags: 0
 * @what: STRAIT_CONTROL_*
 * @value: for it, 0 otherwise
 */
struct strait_ioc_control {
	__u32 size;
	__u32 flags;
	__u32 what;
	__u32 value;
};

#define STRAIT_CONTROL_SIZE_MIN 16

#define STRAIT_IOC_ATTACH _IOWR(STRAIT_IOC, 0x10, struct strait_ioc_attach)
#define STRAIT_IOC_MAP _IOWR(STRAIT_IOC, 0x11, struct strait_ioc_map)
#define STRAIT_IOC_UNMAP _IOWR(STRAIT_IOC, 0x12, struct strait_ioc_mapping)
#define STRAIT_IOC_MAPPED _IOWR(STRAIT_IOC, 0x13, struct strait_ioc_mapping)
#define STRAIT_IOC_RUNS _IOWR(STRAIT_IOC, 0x14, struct strait_ioc_runs)
#define STRAIT_IOC_IRQ _IOWR(STRAIT_IOC, 0x15, struct strait_ioc_irq)
#define STRAIT_IOC_CONFIG _IOWR(STRAIT_IOC, 0x16, struct strait_ioc_config)
#define STRAIT_IOC_CONTROL _IOWR(STRAIT_IOC, 0x17, struct strait_ioc_control)

#endif
