/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR MIT */
#ifndef STRAIT_UAPI_H
#define STRAIT_UAPI_H

/*
 * /dev/strait: file I/O between a drive and the memory of another device, by the drive's DMA.
 * /dev/strait-pci/<address>: the same, and a PCI device driven by the program that opens it.
 *
 * All state belongs to the open file: its regions are released when its last descriptor is closed,
 * in whichever process. A region whose memory goes away is revoked: every later use of it returns
 * -ENODEV until it is released.
 *
 * Every struct starts with its size, as the program knows it, and flags. Structs grow at their end,
 * and old programs work with new modules: fields that the program does not know read as zero and
 * are not written. A size below STRAIT_*_SIZE_MIN, the size of the first published version, is
 * -EINVAL. A struct that is larger than the module's is accepted if the rest is zero, and refused
 * with -E2BIG otherwise; in a result, @size says how much of the struct the module knows. Unknown
 * flags and reserved fields that are not zero are -EINVAL. Outputs are written only on success,
 * except for fields named reason and the fields that say so.
 */

#include <linux/ioctl.h>
#include <linux/types.h>

/*
 * The version of this interface, and the oldest version that this header is compatible with. The
 * number changes when something is removed or changes its meaning; additions have a feature bit or
 * enlarge a struct. STRAIT_ABI_FITS(): is the module that filled @info compatible with this header?
 */
#define STRAIT_ABI 1
#define STRAIT_ABI_MIN 1
#define STRAIT_ABI_FITS(info) ((info)->abi >= STRAIT_ABI_MIN && (info)->abi_min <= STRAIT_ABI)

/* Features of this module on this kernel: strait_ioc_info.features. */
#define STRAIT_FEATURE_P2PDMA (1ull << 0)     /* the kernel has PCI P2PDMA */
#define STRAIT_FEATURE_IMPORT_P2P (1ull << 1) /* STRAIT_IMPORT_P2P */
#define STRAIT_FEATURE_IMPORT_USER (1ull << 2)
#define STRAIT_FEATURE_IMPORT_DMABUF (1ull << 3)
#define STRAIT_FEATURE_IMPORT_NVP2P (1ull << 4) /* the bridge strait_nvp2p is loaded */
#define STRAIT_FEATURE_URING (1ull << 5)	/* file I/O as io_uring commands */
#define STRAIT_FEATURE_ATTACH (1ull << 6)	/* STRAIT_IOC_ATTACH and later calls */
#define STRAIT_FEATURE_IMPORT_PEER (1ull << 7)	/* strait_peer is loaded; STRAIT_IOC_EXPORT */

/* Bytes of one request, and regions of one file, at most. */
#define STRAIT_IO_MAX (1ull << 30)
#define STRAIT_REGIONS_MAX 4096

/**
 * struct strait_ioc_info - STRAIT_IOC_INFO: version, features and limits of the module
 * @size: sizeof(struct strait_ioc_info)
 * @flags: 0
 * @abi: out: STRAIT_ABI of the module
 * @abi_min: out: the oldest STRAIT_ABI of a program that the module is compatible with
 * @features: out: STRAIT_FEATURE_*
 * @device_bytes_max: out: device memory that all files together may import
 * @device_bytes: out: device memory that is imported now
 * @version: out: version of the module, "0.1.0"
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

/* Kinds of memory that can be imported. */
#define STRAIT_IMPORT_P2P 1    /* a mapping of PCI P2PDMA pages: memory of a PCI device */
#define STRAIT_IMPORT_USER 2   /* host memory of the process, charged to RLIMIT_MEMLOCK */
#define STRAIT_IMPORT_DMABUF 3 /* a dma-buf */
#define STRAIT_IMPORT_NVP2P 4  /* an address of a GPU whose driver exports nvidia_p2p */
#define STRAIT_IMPORT_PEER 5   /* an address that a peer memory client knows */
#define STRAIT_IMPORT_KINDS 6

/* Uses of a region: strait_ioc_import.can. */
#define STRAIT_CAN_FILE_IO (1ull << 0)
#define STRAIT_CAN_DMA (1ull << 1) /* mapping for an attached device: STRAIT_IOC_MAP */

/**
 * struct strait_ioc_import - STRAIT_IOC_IMPORT: import memory as a region
 * @size: sizeof(struct strait_ioc_import)
 * @flags: 0
 * @kind: STRAIT_IMPORT_*
 * @fd: STRAIT_IMPORT_DMABUF: the dma-buf; otherwise -1
 * @address: address in the calling process; for a dma-buf the offset in it. A multiple of the page
 *	size, of 64 KiB for STRAIT_IMPORT_NVP2P
 * @length: bytes, not 0, with the alignment of @address
 * @handle: out: names the region in this file, never 0
 * @reserved: 0
 * @can: out: STRAIT_CAN_*
 * @pci: out: the device that owns the memory, "0000:02:00.0"; empty: host memory, or unknown
 *
 * Memory of a process must be mapped writable at @address. The region is revoked when any part of
 * that mapping is unmapped or replaced; later changes of its protection have no effect.
 *
 * STRAIT_IMPORT_PEER pins nothing: the region is a range of the calling process, and STRAIT_IOC_MAP
 * maps the memory that the client has there at that time. Only the process that imported it may
 * map it; another gets -EACCES. -EFAULT: no client has memory there.
 *
 * -EOPNOTSUPP: the module does not support the kind, or the memory is of another kind. -EFAULT:
 * nothing is mapped there. -ENOMEM: RLIMIT_MEMLOCK is exceeded. -ENOSPC: device_bytes_max or
 * STRAIT_REGIONS_MAX is exceeded. -ENODEV: the memory was unmapped or freed during the call.
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
 * struct strait_ioc_release - STRAIT_IOC_RELEASE: release a region
 * @size: sizeof(struct strait_ioc_release)
 * @flags: 0
 * @handle: of STRAIT_IOC_IMPORT
 * @reserved: 0
 *
 * I/O in flight continues and keeps the memory pinned until it ends. -ENOENT: no such handle.
 */
struct strait_ioc_release {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__u32 reserved;
};

#define STRAIT_RELEASE_SIZE_MIN 16

/* Why the module refuses I/O between a file and a region. */
#define STRAIT_REASON_NONE 0
#define STRAIT_REASON_NOT_A_FILE 1  /* neither a regular file nor a block device */
#define STRAIT_REASON_NO_DIRECT 2   /* the file does not support direct I/O */
#define STRAIT_REASON_FILE_SYSTEM 3 /* file systems other than ext4 with extents and XFS */
#define STRAIT_REASON_TRANSFORMED 4 /* encrypted, compressed, inline, journaled, verity, DAX */
#define STRAIT_REASON_OTHER_DRIVE 5 /* on a second drive of the file system: XFS realtime */
#define STRAIT_REASON_NO_DRIVE 6    /* no block device below the file */
#define STRAIT_REASON_NOT_PCI 7	    /* not a PCI drive: dm, md, NVMe multipath, loop, network */
#define STRAIT_REASON_NO_QUEUE 8    /* the drive's driver does not support P2PDMA */
#define STRAIT_REASON_CHECKSUMS 9   /* the CPU would read the data for checksums */
#define STRAIT_REASON_NO_PATH 10    /* pci_p2pdma_distance(): the drive does not reach the device */
#define STRAIT_REASON_NO_PAGES 11   /* the region has no pages: a dma-buf, some GPU memory */
#define STRAIT_REASON_NO_P2PDMA 12  /* the kernel lacks CONFIG_PCI_P2PDMA */
#define STRAIT_REASON_APPEND 13	    /* a write to a file opened with O_APPEND */
#define STRAIT_REASON_ALIGNMENT 14  /* misaligned; -EINVAL, all others are -EOPNOTSUPP */
#define STRAIT_REASON_COUNT 15

#define STRAIT_OP_READ 0  /* from the file to the region */
#define STRAIT_OP_WRITE 1 /* from the region to the file */

/**
 * struct strait_ioc_check - STRAIT_IOC_CHECK: is I/O between a file and a region possible?
 * @size: sizeof(struct strait_ioc_check)
 * @flags: 0
 * @handle: the region
 * @fd: the file
 * @op: STRAIT_OP_*
 * @reason: out: STRAIT_REASON_NONE, or why not
 * @offset_align: out: alignment of file offset and length
 * @mem_align: out: alignment of the offset in the region
 * @distance: out: pci_p2pdma_distance() of drive and device, -1: unknown
 * @reserved: 0
 * @drive: out: the drive, "0000:01:00.0"; empty: not a PCI drive
 *
 * STRAIT_REASON_NONE means that the kernel knows no obstacle. Some platforms drop peer-to-peer
 * writes silently: only data that arrived proves that the path works.
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
 * struct strait_ioc_io - STRAIT_IOC_IO: read or write, and wait for it
 * @size: sizeof(struct strait_ioc_io)
 * @flags: 0
 * @handle: the region
 * @fd: the file, open for @op; with or without O_DIRECT
 * @op: STRAIT_OP_*
 * @reason: out: STRAIT_REASON_*; also on -EOPNOTSUPP and -EINVAL
 * @file_offset: offset in the file
 * @region_offset: offset in the region
 * @length: bytes, at most STRAIT_IO_MAX
 * @done: out: bytes moved; fewer than @length where the file ends
 *
 * Always direct I/O, past the page cache, whose dirty pages are written first. Holes of the file
 * and unwritten blocks are zeroed by the CPU. If the file ends inside the range, memory past @done
 * is overwritten: the drive writes the whole last block, and some file systems zero the rest. Do
 * not read past the end of the file. A call that has started cannot be interrupted.
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

/**
 * struct strait_ioc_export - STRAIT_IOC_EXPORT: export a part of a region as a dma-buf
 * @size: sizeof(struct strait_ioc_export)
 * @flags: 0
 * @handle: a region of STRAIT_IMPORT_PEER; -EOPNOTSUPP: another region
 * @fd_flags: O_CLOEXEC, O_RDWR or 0
 * @offset: offset in the region, a multiple of the page size
 * @length: bytes, a multiple of the page size, not 0
 * @fd: out: the dma-buf
 * @reserved: 0
 *
 * Importers must be PCI devices, allow peer-to-peer, and attach in the process that imported the
 * region: -EACCES otherwise. An importer that cannot be told of a move gets memory of clients that
 * never invalidate it, and -EOPNOTSUPP where no such client has it; the kernel's log says so. The
 * dma-buf outlives the region. It is not for STRAIT_IMPORT_DMABUF: a device of this module maps the
 * region.
 */
struct strait_ioc_export {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__u32 fd_flags;
	__u64 offset;
	__u64 length;
	__s32 fd;
	__u32 reserved;
};

#define STRAIT_EXPORT_SIZE_MIN 40

#define STRAIT_IOC 0xF7

/**
 * struct strait_uring - STRAIT_IOC_IO as an io_uring command on /dev/strait
 * @file_offset: offset in the file
 * @region_offset: offset in the region
 *
 * The 16 bytes of sqe->cmd. Other fields of the SQE: opcode IORING_OP_URING_CMD; cmd_op
 * STRAIT_URING_READ or STRAIT_URING_WRITE; addr the region's handle; len the bytes; file_index the
 * file's descriptor. The result is the bytes moved or a negative errno; for -EOPNOTSUPP
 * STRAIT_IOC_CHECK returns the reason.
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
#define STRAIT_IOC_EXPORT _IOWR(STRAIT_IOC, 0x05, struct strait_ioc_export)

/*
 * PCI devices in user space.
 *
 * A device bound to the driver "strait" has a node, /dev/strait-pci/0000:01:00.0. Permission to
 * open it is the right to drive that device. STRAIT_IOC_ATTACH attaches the device to one open
 * file, until that file's last descriptor and mapping are gone. Then, also when the process is
 * killed, bus mastering is switched off, the device is reset if it can be, and all its mappings are
 * unmapped.
 *
 * The device reaches only memory that was mapped for it: an IOMMU translates its addresses and
 * remaps its interrupts. When memory behind a mapping goes away, the mapping is removed from the
 * IOMMU and its IOTLB before the memory is given back; later accesses by the device fault. Bus
 * mastering is switched off (STRAIT_CONTROL_BUS_MASTER switches it on again), and calls on the
 * mapping return -ENODEV.
 *
 * The device is lost when it is removed or unbound, when an error or an administrator resets it,
 * and when the machine is suspended. Then strait_status.gone is 1, calls on the device return
 * -ENODEV except STRAIT_IOC_UNMAP, and its registers read as ones. If the device is still bound, a
 * program that closes the file can open it again.
 */

#define STRAIT_BARS 6
#define STRAIT_MAPS_MAX 16384 /* of one device */
#define STRAIT_IRQS_MAX 256

/* Why a device is not attached, or memory not mapped for it. Always with -EOPNOTSUPP. */
#define STRAIT_ATTACH_NONE 0
#define STRAIT_ATTACH_NO_IOMMU 1     /* no IOMMU translates its addresses */
#define STRAIT_ATTACH_IDENTITY 2     /* the IOMMU is in passthrough mode */
#define STRAIT_ATTACH_DOMAIN 3	     /* another driver manages its IOMMU domain */
#define STRAIT_ATTACH_GROUP 4	     /* its IOMMU group contains other devices */
#define STRAIT_ATTACH_UNTRUSTED 5    /* an external device: the kernel bounces its DMA */
#define STRAIT_ATTACH_NOT_COHERENT 6 /* its DMA is not coherent with CPU caches */
#define STRAIT_ATTACH_NO_PATH 7	     /* pci_p2pdma_distance(): it does not reach the memory */
#define STRAIT_ATTACH_EXPORTER 8     /* the exporter or the peer client refuses this device */
#define STRAIT_ATTACH_INTERRUPTS 9   /* no interrupt remapping: it could raise any interrupt */
#define STRAIT_ATTACH_RESERVED 10    /* firmware reserves memory for it: RMRR, IVMD */
#define STRAIT_ATTACH_NO_P2PDMA 11   /* no CONFIG_PCI_P2PDMA: see the parameter assume_peers */
#define STRAIT_ATTACH_COUNT 12

/* Offsets for mmap(): a BAR from its first byte, and the status page, which is read-only. */
#define STRAIT_MMAP_BAR(bar) ((__u64)(bar) << 40)
#define STRAIT_MMAP_STATUS ((__u64)8 << 40)

/**
 * struct strait_status - the status page
 * @revoked: mappings revoked since the device was attached
 * @gone: 1: the device is lost
 *
 * While @revoked is unchanged no mapping was revoked; STRAIT_IOC_MAPPED need not be called.
 */
struct strait_status {
	__u32 revoked;
	__u32 gone;
};

/**
 * struct strait_ioc_attach - STRAIT_IOC_ATTACH: attach the node's device to this file
 * @size: sizeof(struct strait_ioc_attach)
 * @flags: 0
 * @pci: out: address of the device, "0000:01:00.0"
 * @reason: out: STRAIT_ATTACH_*; also on -EOPNOTSUPP
 * @group: out: the IOMMU group, -1: none; also on -EOPNOTSUPP
 * @vendor: out: PCI vendor ID
 * @device: out: PCI device ID
 * @class_code: out: PCI class, 24 bits
 * @node: out: NUMA node, -1: unknown
 * @vectors: out: number of interrupt vectors
 * @irq_bar: out: the BAR with the MSI-X table, -1: none. mmap() of the MSI-X table's pages gives a
 *	private dummy page
 * @irq_offset: out: first page of the MSI-X table in that BAR
 * @irq_length: out: bytes of the table, whole pages
 * @bar_length: out: 0: no memory BAR, or one that shares a page with other registers
 *
 * -ENXIO: the file is /dev/strait, not the node of a device. -ENODEV: the device is not bound any
 * more. -EBUSY: it is attached, to another file or to this one. Bus mastering is off.
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

/* Location of the mapped memory: strait_ioc_map.where. */
#define STRAIT_WHERE_UNKNOWN 0
#define STRAIT_WHERE_HOST 1   /* host memory, at least in part */
#define STRAIT_WHERE_DEVICE 2 /* memory of a device */

/**
 * struct strait_ioc_map - STRAIT_IOC_MAP: map a part of a region for the device
 * @size: sizeof(struct strait_ioc_map)
 * @flags: STRAIT_MAP_READ, STRAIT_MAP_WRITE, at least one
 * @region: handle of STRAIT_IOC_IMPORT, of this file
 * @reason: out: STRAIT_ATTACH_*; also on -EOPNOTSUPP
 * @offset: offset in the region, a multiple of the page size
 * @length: bytes, a multiple of the page size, not 0
 * @handle: out: names the mapping in this file, never 0
 * @runs: out: number of contiguous runs of DMA addresses
 * @bus: out: DMA address of the first run
 * @contiguous: out: bytes of the first run
 * @access: out: STRAIT_MAP_READ, STRAIT_MAP_WRITE: the access that the device has. More than @flags
 *	only for a dma-buf of a static exporter, on kernels that cache such mappings
 * @where: out: STRAIT_WHERE_*. An exporter may migrate GPU memory to the host for a device that
 *	does not reach the GPU: then transfers do not access GPU memory
 *
 * Releasing the region revokes the mapping. -ENOSPC: STRAIT_MAPS_MAX or device_bytes_max is
 * exceeded. -ENODEV: the memory was revoked. STRAIT_IMPORT_PEER: -EACCES: the region belongs to
 * another process; -EFAULT: the client has no memory there any more.
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

/* One contiguous run of DMA addresses. */
struct strait_run {
	__u64 bus;
	__u64 length;
};

/**
 * struct strait_ioc_runs - STRAIT_IOC_RUNS: all DMA addresses of a mapping
 * @size: sizeof(struct strait_ioc_runs)
 * @flags: 0
 * @handle: the mapping
 * @first: index of the first run to copy
 * @count: in: entries of @runs; out: entries written
 * @reserved: 0
 * @runs: address of an array of struct strait_run
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
 * STRAIT_IOC_UNMAP: when it returns the device does not reach the memory through this mapping.
 * STRAIT_IOC_MAPPED: 0, or -ENODEV if the mapping was revoked. -ENOENT: no such handle.
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
 * struct strait_ioc_irq - STRAIT_IOC_IRQ: signal an eventfd on an interrupt
 * @size: sizeof(struct strait_ioc_irq)
 * @flags: 0
 * @vector: interrupt vector
 * @fd: an eventfd that replaces the vector's current one, -1: none. The vector keeps its current
 *	eventfd if the call fails
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
 * @offset: offset in configuration space, a multiple of @width
 * @width: 1, 2 or 4 bytes
 * @value: out: the value
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

#define STRAIT_CONTROL_BUS_MASTER 0   /* @value 1: bus mastering on; 0: off */
#define STRAIT_CONTROL_RESET 1	      /* reset the function; -EOPNOTSUPP: it has no reset */
#define STRAIT_CONTROL_ADDRESS_BITS 2 /* width of DMA addresses of new mappings, 24 to 64 bits */

/**
 * struct strait_ioc_control - STRAIT_IOC_CONTROL: bus mastering, reset, address width
 * @size: sizeof(struct strait_ioc_control)
 * @flags: 0
 * @what: STRAIT_CONTROL_*
 * @value: argument of @what, 0 for STRAIT_CONTROL_RESET
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
