/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef RDMA_PEER_MEM_H
#define RDMA_PEER_MEM_H

/*
 * Peer memory clients: the kernel interface by which a driver offers memory that
 * get_user_pages() does not know, by its address in a process, for DMA of other devices. The same
 * names, values and layouts as in vendors' versions of ib_core. Written from a description of the
 * interface; the rules below are those of strait_peer, which has the other side of it.
 *
 * For each range and device the core makes one client context:
 *
 *	acquire -> get_pages -> dma_map ... dma_unmap -> put_pages -> release
 *
 * All of them are called in process context and may sleep; acquire, get_pages and dma_map in the
 * process that has the range mapped. dma_unmap, put_pages and release may be called in another
 * process, in a worker, and by ib_unregister_peer_memory_client().
 */

#include <linux/build_bug.h>
#include <linux/scatterlist.h>
#include <linux/stddef.h>
#include <linux/types.h>

struct device;

#define IB_PEER_MEMORY_NAME_MAX 64
#define IB_PEER_MEMORY_VER_MAX 16

/* core_context is a u64 that fits in 32 bits. Older headers had a pointer. */
#define PEER_MEM_U64_CORE_CONTEXT

/**
 * struct peer_memory_client - A client
 * @name: name, with a terminator
 * @version: version, with a terminator. A last byte of 1 says that the struct is the first member
 *	of a struct peer_memory_client_ex
 * @acquire: 1 if all of [addr, addr + size) is memory of this client, and sets *client_context;
 *	0 or an error otherwise. The two arguments in between are NULL. Pins nothing
 * @get_pages: pins the memory. write is 1, force is 0, sg_head is NULL. core_context is what the
 *	client passes to the invalidate callback; that may happen before get_pages returns
 * @dma_map: fills sg_head with DMA addresses for a PCI device, and sets *nmap to their number. The
 *	entries begin at addr rounded down to get_page_size(), and cover the range. The client
 *	frees the entries in release; the core does not change them. dmasync is 0
 * @dma_unmap: undoes dma_map, with the same sg_head
 * @put_pages: undoes get_pages, with the sg_head of dma_map
 * @get_page_size: size of the client's pages, valid after get_pages; NULL: that of the CPU
 * @release: frees the context. No thread is inside the invalidate callback for it
 *
 * All functions but the last two are mandatory.
 */
struct peer_memory_client {
	char name[IB_PEER_MEMORY_NAME_MAX];
	char version[IB_PEER_MEMORY_VER_MAX];
	int (*acquire)(unsigned long addr, size_t size, void *peer_mem_private_data,
		       char *peer_mem_name, void **client_context);
	int (*get_pages)(unsigned long addr, size_t size, int write, int force,
			 struct sg_table *sg_head, void *client_context, u64 core_context);
	int (*dma_map)(struct sg_table *sg_head, void *client_context, struct device *dma_device,
		       int dmasync, int *nmap);
	int (*dma_unmap)(struct sg_table *sg_head, void *client_context,
			 struct device *dma_device);
	void (*put_pages)(struct sg_table *sg_head, void *client_context);
	unsigned long (*get_page_size)(void *client_context);
	void (*release)(void *client_context);
};

/* After the callback the client unmaps and unpins by itself: the core calls only release. */
#define PEER_MEM_INVALIDATE_UNMAPS 1

/**
 * struct peer_memory_client_ex - An extended client
 * @client: with a last byte of its version of 1
 * @ex_size: bytes of this struct that the client knows
 * @flags: PEER_MEM_*
 */
struct peer_memory_client_ex {
	struct peer_memory_client client;
	size_t ex_size;
	u32 flags;
};

static_assert(offsetof(struct peer_memory_client, version) == 64);
static_assert(offsetof(struct peer_memory_client, acquire) == 80);
static_assert(offsetof(struct peer_memory_client, get_pages) == 80 + sizeof(void *));
static_assert(offsetof(struct peer_memory_client, dma_map) == 80 + 2 * sizeof(void *));
static_assert(offsetof(struct peer_memory_client, dma_unmap) == 80 + 3 * sizeof(void *));
static_assert(offsetof(struct peer_memory_client, put_pages) == 80 + 4 * sizeof(void *));
static_assert(offsetof(struct peer_memory_client, get_page_size) == 80 + 5 * sizeof(void *));
static_assert(offsetof(struct peer_memory_client, release) == 80 + 6 * sizeof(void *));
static_assert(sizeof(struct peer_memory_client) == 80 + 7 * sizeof(void *));
static_assert(offsetof(struct peer_memory_client_ex, ex_size) == 80 + 7 * sizeof(void *));
static_assert(offsetof(struct peer_memory_client_ex, flags) ==
	      80 + 7 * sizeof(void *) + sizeof(size_t));

/*
 * The invalidate callback. A client calls it, in process context, when memory goes away that
 * get_pages pinned with @core_context. When it returns the device accesses the memory no more.
 *
 * The caller may hold locks that the client's functions take: the callback does not wait for a call
 * of any of them. For a client without PEER_MEM_INVALIDATE_UNMAPS it calls dma_unmap and put_pages
 * itself, unless another thread is inside a function of this context: then that thread does, when
 * the function returns. release is called after the calling task has left the callback and
 * returned to user space. Returns 0.
 */
typedef int (*invalidate_peer_memory)(void *reg_handle, u64 core_context);

/*
 * Registers a client, valid until it is unregistered. @invalidate_callback: set to the callback;
 * NULL: the client's memory stays valid until put_pages. Returns a handle, or NULL.
 */
void *ib_register_peer_memory_client(const struct peer_memory_client *peer_client,
				     invalidate_peer_memory *invalidate_callback);
/*
 * Unregisters a client. Devices are stopped, and all contexts are unmapped and released when it
 * returns. Not called from the callback, nor with a lock that the client's functions take.
 */
void ib_unregister_peer_memory_client(void *reg_handle);

#endif
