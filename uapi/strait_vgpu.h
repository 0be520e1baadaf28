/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR MIT */
#ifndef STRAIT_VGPU_UAPI_H
#define STRAIT_VGPU_UAPI_H

/*
 * /dev/strait_vgpuN: the GPU of Strait's lab, a PCI device whose BAR is its memory.
 *
 * Each open file is an address space: it owns the memory allocated through it, in whichever
 * process. The memory is freed with the file's last descriptor and mapping.
 *
 * Every struct starts with its size and flags. A size smaller than the struct is -EINVAL; a larger
 * one is accepted if the rest is zero, and refused with -E2BIG otherwise. Unknown flags and
 * reserved fields that are not zero are -EINVAL. Outputs are written only on success. When the
 * device is gone all calls return -ENODEV, and poll() reports the file as readable: all its memory
 * was revoked.
 */

#include <linux/ioctl.h>
#include <linux/types.h>

#define STRAIT_VGPU_ABI 1

#define STRAIT_VGPU_PAGE_SIZE 65536ull

/* Kinds of memory. */
#define STRAIT_VGPU_MEM_PLAIN 0	   /* revocable: freeing it revokes all access */
#define STRAIT_VGPU_MEM_PINNABLE 1 /* may be pinned long-term, and is not reused while pinned */
#define STRAIT_VGPU_MEM_KINDS 2

/* Capabilities of this device on this kernel. */
#define STRAIT_VGPU_CAP_P2PDMA (1ull << 0)   /* plain memory has P2PDMA pages, for direct I/O */
#define STRAIT_VGPU_CAP_PINNABLE (1ull << 1) /* there is pinnable memory */
#define STRAIT_VGPU_CAP_DMABUF (1ull << 2)   /* memory can be exported as dma-buf */

/**
 * struct strait_vgpu_info - STRAIT_VGPU_INFO: properties of the device
 * @size: sizeof(struct strait_vgpu_info)
 * @flags: 0
 * @abi: STRAIT_VGPU_ABI of the driver
 * @numa_node: -1 if unknown
 * @caps: STRAIT_VGPU_CAP_*
 * @page_size: STRAIT_VGPU_PAGE_SIZE
 * @bar_base: physical address of the memory; 0 without CAP_SYS_ADMIN
 * @mem_total: bytes of each kind
 * @mem_free: bytes of each kind that can be allocated now
 * @mem_offset: offset in the BAR of each kind
 * @token: p2p_token of this file for nvidia_p2p_get_pages()
 * @va_space: va_space_token of this file for nvidia_p2p_get_pages()
 * @pci: address of the device, "0000:02:00.0"
 */
struct strait_vgpu_info {
	__u32 size;
	__u32 flags;
	__u32 abi;
	__s32 numa_node;
	__u64 caps;
	__u64 page_size;
	__u64 bar_base;
	__u64 mem_total[STRAIT_VGPU_MEM_KINDS];
	__u64 mem_free[STRAIT_VGPU_MEM_KINDS];
	__u64 mem_offset[STRAIT_VGPU_MEM_KINDS];
	__u64 token;
	__u32 va_space;
	__u32 reserved;
	char pci[16];
};

/**
 * struct strait_vgpu_alloc - STRAIT_VGPU_ALLOC: allocate zeroed device memory
 * @size: sizeof(struct strait_vgpu_alloc)
 * @flags: 0
 * @kind: STRAIT_VGPU_MEM_*
 * @reserved: 0
 * @length: bytes, a multiple of the page size, not 0
 * @handle: out: names the allocation in this file, never 0
 * @reserved2: 0
 * @mmap_offset: out: offset for mmap() of its first byte
 * @identity: out: unique among all allocations
 * @bar_offset: out: offset in the BAR of its first byte. The rest is contiguous, unless the driver
 *	scatters memory or moves it: see STRAIT_VGPU_QUERY
 *
 * -ENOMEM: not enough memory. -EOPNOTSUPP: the device does not have this kind. -ENOSPC: the file
 * has the maximum number of allocations.
 */
struct strait_vgpu_alloc {
	__u32 size;
	__u32 flags;
	__u32 kind;
	__u32 reserved;
	__u64 length;
	__u32 handle;
	__u32 reserved2;
	__u64 mmap_offset;
	__u64 identity;
	__u64 bar_offset;
};

/*
 * Added to an offset for mmap(): maps the memory as I/O memory without struct pages, as VFIO needs.
 * An access to freed memory through such a mapping raises SIGBUS.
 */
#define STRAIT_VGPU_MMAP_IO (1ull << 39)

/**
 * struct strait_vgpu_free - STRAIT_VGPU_FREE: free an allocation
 * @size: sizeof(struct strait_vgpu_free)
 * @flags: 0
 * @handle: of STRAIT_VGPU_ALLOC
 * @reserved: 0
 *
 * When it returns mappings of it read as zeros, the callbacks of nvidia_p2p consumers were called,
 * importers of its dma-bufs were notified and have unmapped it, and no peer reaches it. Pages with
 * references (direct I/O in flight, long-term pins) are reused only after these are dropped.
 * -ENOENT: no such handle.
 */
struct strait_vgpu_free {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__u32 reserved;
};

/**
 * struct strait_vgpu_dmabuf - STRAIT_VGPU_DMABUF: export a part of an allocation
 * @size: sizeof(struct strait_vgpu_dmabuf)
 * @flags: 0
 * @handle: the allocation
 * @fd_flags: O_CLOEXEC, O_RDWR or 0
 * @offset: first byte in it, a multiple of 4096
 * @length: bytes, a multiple of 4096, not 0
 * @fd: out: the dma-buf
 * @reserved: 0
 *
 * Importers must allow peer-to-peer and implement the move notification. Freeing the allocation
 * revokes the dma-buf; mapping it afterwards returns -ENODEV.
 */
struct strait_vgpu_dmabuf {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__u32 fd_flags;
	__u64 offset;
	__u64 length;
	__s32 fd;
	__u32 reserved;
};

#define STRAIT_VGPU_QUERY_MINE (1u << 0)    /* out: allocated through this file */
#define STRAIT_VGPU_QUERY_REVOKED (1u << 1) /* out: freed: the mapping reads as zeros */

/**
 * struct strait_vgpu_query - STRAIT_VGPU_QUERY: the allocation at an address of the process
 * @size: sizeof(struct strait_vgpu_query)
 * @flags: in: 0; out: STRAIT_VGPU_QUERY_*
 * @address: a virtual address
 * @start: out: first byte of the mapping that contains it
 * @length: out: bytes of that mapping
 * @offset: out: offset in the allocation of the mapping's first byte
 * @identity: out: of the allocation
 * @kind: out: STRAIT_VGPU_MEM_*
 * @handle: out: in this file, 0: allocated through another file
 * @bar_offset: out: offset in the BAR of the byte at @address; 0 if revoked
 * @bar_length: out: contiguous bytes of the allocation from there on; 0 if revoked
 *
 * -ENOENT: no memory of this device is mapped there.
 */
struct strait_vgpu_query {
	__u32 size;
	__u32 flags;
	__u64 address;
	__u64 start;
	__u64 length;
	__u64 offset;
	__u64 identity;
	__u32 kind;
	__u32 handle;
	__u64 bar_offset;
	__u64 bar_length;
};

/**
 * struct strait_vgpu_dmabuf_at - STRAIT_VGPU_DMABUF_AT: export memory by its address
 * @size: sizeof(struct strait_vgpu_dmabuf_at)
 * @flags: 0
 * @address: a virtual address of the calling process, a multiple of 4096
 * @length: bytes, a multiple of 4096, inside one mapping
 * @identity: of the allocation; -ESTALE: another allocation is mapped there
 * @fd_flags: O_CLOEXEC, O_RDWR or 0
 * @fd: out: the dma-buf
 *
 * For memory that was allocated through another file of the process.
 */
struct strait_vgpu_dmabuf_at {
	__u32 size;
	__u32 flags;
	__u64 address;
	__u64 length;
	__u64 identity;
	__u32 fd_flags;
	__s32 fd;
};

/**
 * struct strait_vgpu_counters - STRAIT_VGPU_COUNTERS: counters of the device's memory
 * @size: sizeof(struct strait_vgpu_counters)
 * @flags: 0
 * @allocated_bytes: allocated since the device was bound
 * @freed_bytes: freed since the device was bound
 * @cleared_bytes: cleared by the CPU
 * @cpu_mapped_bytes: inserted into page tables of processes
 * @cpu_zero_bytes: zeroed pages inserted in place of revoked memory
 * @p2p_pinned_bytes: pinned by nvidia_p2p_get_pages*()
 * @p2p_mapped_bytes: mapped for a peer by nvidia_p2p_dma_map_pages()
 * @dmabuf_mapped_bytes: mapped for a peer by an importer of a dma-buf
 * @peer_mapped_now: bytes mapped for peers now, by either
 * @callbacks: free callbacks called
 * @invalidations: dma-bufs whose importers were notified
 * @drained_bytes: memory that had page references when it was freed
 * @draining_bytes: freed memory that has page references now
 * @moves: allocations moved to other pages
 * @foreign_puts: pages whose last reference was dropped by a module that had none
 */
struct strait_vgpu_counters {
	__u32 size;
	__u32 flags;
	__u64 allocated_bytes;
	__u64 freed_bytes;
	__u64 cleared_bytes;
	__u64 cpu_mapped_bytes;
	__u64 cpu_zero_bytes;
	__u64 p2p_pinned_bytes;
	__u64 p2p_mapped_bytes;
	__u64 dmabuf_mapped_bytes;
	__u64 peer_mapped_now;
	__u64 callbacks;
	__u64 invalidations;
	__u64 drained_bytes;
	__u64 draining_bytes;
	__u64 moves;
	__u64 foreign_puts;
};

/**
 * struct strait_vgpu_move - STRAIT_VGPU_MOVE: move an allocation to other pages of its kind
 * @size: sizeof(struct strait_vgpu_move)
 * @flags: 0
 * @handle: of STRAIT_VGPU_ALLOC
 * @reserved: 0
 *
 * As a driver does that evicts memory and brings it back. Contents, identity and virtual address
 * stay the same. Importers of its dma-bufs are notified and find it at other DMA addresses when
 * they map it again. -EBUSY: the memory is pinned by nvidia_p2p, by an importer or by page, or
 * exported as a static dma-buf; importers may have been notified. -ENOMEM: no memory to move to.
 */
struct strait_vgpu_move {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__u32 reserved;
};

#define STRAIT_VGPU_IOC 0xF5

#define STRAIT_VGPU_INFO _IOWR(STRAIT_VGPU_IOC, 0x00, struct strait_vgpu_info)
#define STRAIT_VGPU_ALLOC _IOWR(STRAIT_VGPU_IOC, 0x01, struct strait_vgpu_alloc)
#define STRAIT_VGPU_FREE _IOWR(STRAIT_VGPU_IOC, 0x02, struct strait_vgpu_free)
#define STRAIT_VGPU_DMABUF _IOWR(STRAIT_VGPU_IOC, 0x03, struct strait_vgpu_dmabuf)
#define STRAIT_VGPU_QUERY _IOWR(STRAIT_VGPU_IOC, 0x04, struct strait_vgpu_query)
#define STRAIT_VGPU_DMABUF_AT _IOWR(STRAIT_VGPU_IOC, 0x05, struct strait_vgpu_dmabuf_at)
#define STRAIT_VGPU_COUNTERS _IOWR(STRAIT_VGPU_IOC, 0x06, struct strait_vgpu_counters)
#define STRAIT_VGPU_MOVE _IOWR(STRAIT_VGPU_IOC, 0x07, struct strait_vgpu_move)

#endif
