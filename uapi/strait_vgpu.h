/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR MIT */
#ifndef STRAIT_VGPU_UAPI_H
#define STRAIT_VGPU_UAPI_H

/*
 * /dev/strait_vgpuN: the GPU of Strait's lab, a PCI device whose BAR is its memory.
 *
 * Each open file is an address space of its own: it owns what was allocated through it, whoever
 * holds a descriptor of it. What it owns goes with its last descriptor and mapping.
 *
 * Every struct starts with its size and flags. A size smaller than the struct is -EINVAL; a larger
 * one is taken if what lies past the struct is zero, and refused with -E2BIG otherwise. Unknown
 * flags and reserved fields that are not zero are -EINVAL. Outputs are written only on success.
 * Any call gives -ENODEV once the device is gone. poll() finds the file readable then: everything
 * that was allocated through it has been revoked by that time.
 */

#include <linux/ioctl.h>
#include <linux/types.h>

#define STRAIT_VGPU_ABI 1

#define STRAIT_VGPU_PAGE_SIZE 65536ull

/* The kinds of memory. */
#define STRAIT_VGPU_MEM_PLAIN 0	   /* revocable: free() takes it from everybody */
#define STRAIT_VGPU_MEM_PINNABLE 1 /* may be pinned for long, and is not used again before */
#define STRAIT_VGPU_MEM_KINDS 2

/* What this device on this kernel can do. */
#define STRAIT_VGPU_CAP_P2PDMA (1ull << 0)   /* plain memory takes direct I/O: P2PDMA pages */
#define STRAIT_VGPU_CAP_PINNABLE (1ull << 1) /* there is pinnable memory */
#define STRAIT_VGPU_CAP_DMABUF (1ull << 2)   /* memory can be exported as dma-buf */

/**
 * struct strait_vgpu_info - STRAIT_VGPU_INFO: what the device is
 * @size: sizeof(struct strait_vgpu_info)
 * @flags: 0
 * @abi: STRAIT_VGPU_ABI of the driver
 * @numa_node: -1 if unknown
 * @caps: STRAIT_VGPU_CAP_*
 * @page_size: STRAIT_VGPU_PAGE_SIZE
 * @bar_base: physical address of the memory; 0 without CAP_SYS_ADMIN
 * @mem_total: bytes of each kind
 * @mem_free: bytes of each kind that could be allocated now
 * @mem_offset: where in the BAR each kind starts
 * @token: for nvidia_p2p_get_pages(): this file's p2p_token
 * @va_space: and its va_space_token
 * @pci: "0000:02:00.0"
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
 * struct strait_vgpu_alloc - STRAIT_VGPU_ALLOC: allocate device memory, which reads as zeros
 * @size: sizeof(struct strait_vgpu_alloc)
 * @flags: 0
 * @kind: STRAIT_VGPU_MEM_*
 * @reserved: 0
 * @length: bytes, a multiple of the page size, not 0
 * @handle: out: names it in this file, never 0
 * @reserved2: 0
 * @mmap_offset: out: offset for mmap() of its first byte
 * @identity: out: a number no other allocation ever has
 * @bar_offset: out: where its first byte lies in the BAR. The rest follows, unless the driver was told to scatter
 *	memory, or moves it: see STRAIT_VGPU_QUERY
 *
 * -ENOMEM when there is no such range; -EOPNOTSUPP for a kind the device has not; -ENOSPC when the
 * file owns as many as it may.
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
 * Added to an offset for mmap(): the memory as I/O memory without pages, for who takes only that (VFIO).
 * Such a mapping of memory that was freed raises SIGBUS.
 */
#define STRAIT_VGPU_MMAP_IO (1ull << 39)

/**
 * struct strait_vgpu_free - STRAIT_VGPU_FREE: free an allocation
 * @size: sizeof(struct strait_vgpu_free)
 * @flags: 0
 * @handle: of STRAIT_VGPU_ALLOC
 * @reserved: 0
 *
 * When it returns, mappings of it read as zeros, consumers of nvidia_p2p have had their callback,
 * importers of its dma-bufs theirs and have unmapped it, and no peer reaches it any more. Memory
 * that is pinned by page (direct I/O in flight, a long-term pin) is used again only after that.
 * -ENOENT for a handle that is none.
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
 * The dma-buf takes importers that allow peer-to-peer and can be told to let go. Freeing the
 * allocation tells them; mapping it afterwards gives -ENODEV.
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

#define STRAIT_VGPU_QUERY_MINE (1u << 0)    /* out: it was allocated through this file */
#define STRAIT_VGPU_QUERY_REVOKED (1u << 1) /* out: freed: the mapping reads as zeros */

/**
 * struct strait_vgpu_query - STRAIT_VGPU_QUERY: what lies at an address of the calling process
 * @size: sizeof(struct strait_vgpu_query)
 * @flags: in: 0; out: STRAIT_VGPU_QUERY_*
 * @address: a virtual address
 * @start: out: first byte of the mapping it lies in
 * @length: out: bytes of that mapping
 * @offset: out: where in the allocation the mapping starts
 * @identity: out: of the allocation
 * @kind: out: STRAIT_VGPU_MEM_*
 * @handle: out: in this file, 0 if it is another's
 * @bar_offset: out: where in the BAR the byte at @address lies; 0 if revoked
 * @bar_length: out: how many bytes of the allocation from there on lie in one piece; 0 if revoked
 *
 * -ENOENT when no memory of this device is mapped there.
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
 * struct strait_vgpu_dmabuf_at - STRAIT_VGPU_DMABUF_AT: export what is mapped at an address
 * @size: sizeof(struct strait_vgpu_dmabuf_at)
 * @flags: 0
 * @address: a virtual address of the calling process, a multiple of 4096
 * @length: bytes, a multiple of 4096, inside one mapping
 * @identity: of the allocation that is meant, -ESTALE if it is another by now
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
 * struct strait_vgpu_counters - STRAIT_VGPU_COUNTERS: what the driver knows of the device's memory
 * @size: sizeof(struct strait_vgpu_counters)
 * @flags: 0
 * @allocated_bytes: given out, ever
 * @freed_bytes: taken back, ever
 * @cleared_bytes: written by the CPU to clear them
 * @cpu_mapped_bytes: entered into page tables for the CPU; what a program reads and writes through
 *	them no driver sees
 * @cpu_zero_bytes: zeros entered in place of memory that is gone
 * @p2p_pinned_bytes: handed out by nvidia_p2p_get_pages*()
 * @p2p_mapped_bytes: mapped for a peer by nvidia_p2p_dma_map_pages()
 * @dmabuf_mapped_bytes: mapped for a peer by an importer of a dma-buf
 * @peer_mapped_now: of these two, how much is mapped at this moment
 * @callbacks: free callbacks called
 * @invalidations: dma-bufs whose importers were told to let go
 * @drained_bytes: memory that had to wait for page references when it was freed
 * @draining_bytes: memory that does at this moment
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
 * As a driver does that evicts memory and brings it back. Its contents, identity and address stay. Importers of its
 * dma-bufs are told to unmap, and find it at another place when they map it again. -EBUSY for memory that must stay
 * where it is: pinned by nvidia_p2p, by an importer or by page, or exported as a static dma-buf. Importers may have
 * been told all the same. -ENOMEM when there is no room to move to.
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
