/* SPDX-License-Identifier: MIT */
#ifndef CUFILE_MEM_H
#define CUFILE_MEM_H

/* Memory of the application: mem.c, and buffer.c for what is registered. */

#include "core.h"

/* A range of memory that Strait knows as a region. */
struct cf_mem {
	atomic_uint refs;
	uintptr_t addr;
	size_t len;	       /* of the region */
	size_t registered_len; /* of a registered buffer; what is past @len is not mapped yet */
	struct strait_region *region;
	struct strait_device *dev;
	bool host;
	bool remappable;   /* the application may map more memory behind it */
	bool identity;	   /* reuse of the address is noticed: the region may be kept */
	bool to_end;	   /* goes to the end of its allocation */
	bool stale;	   /* registered, freed, and not all of its range is memory again */
	int gpu;	   /* number of the CUDA device, -1 for other memory */
	uint64_t last_use; /* when, counted in uses */
};

/* Between cf_enter() and cf_leave(). @on: the device, or NULL to ask every provider. 0 or a negative errno. */
int cf_mem_import_on(struct strait_context *ctx, struct strait_device *on, const void *base, size_t len,
		     struct cf_mem **ret);
int cf_mem_import(struct strait_context *ctx, const void *base, size_t len, struct cf_mem **ret);
/* As much of [base, base + len) as is mapped now. -EFAULT if it is memory of which the rest cannot be mapped later. */
int cf_mem_import_mapped(struct strait_context *ctx, const void *base, size_t len, struct cf_mem **ret);

/*
 * Memory that holds [base + off, base + off + size) and how far that lies from its
 * start. TO_END: all of the allocation behind @base, since the range is not known yet (host memory: its
 * first byte). CHECK: look whether the memory is still the same. 0, a CUfileOpError or a negative errno.
 */
#define CF_MEM_TO_END 1u
#define CF_MEM_CHECK 2u
#define CF_MEM_TRIES 4 /* with memory that another thread frees and allocates meanwhile */
int cf_mem_get(const void *base, off_t off, size_t size, unsigned int how, struct cf_mem **ret, uint64_t *offset);
void cf_mem_ref(struct cf_mem *m, unsigned int n);
void cf_mem_put(struct cf_mem *m, unsigned int n);
/* Is [addr, addr + len) in it? */
static inline bool cf_mem_holds(const struct cf_mem *m, uintptr_t addr, size_t len)
{
	return addr >= m->addr && addr - m->addr <= m->len && len <= m->len - (addr - m->addr);
}
/*
 * The memory behind @m was freed: neither @m nor any cached range that overlaps it is found again. True if another try
 * makes sense.
 */
bool cf_mem_stale(struct cf_mem *m);
/* Has the application mapped more memory of the same device behind @m? */
bool cf_mem_grew(const struct cf_mem *m);
void cf_mem_drop_all(void);
uint64_t cf_buffers_registered_bytes(int gpu);
void cf_mem_forked(void);

/* buffer.c: the buffer registered at @addr; the one with the next lower base than @base, if it holds a range; or NULL. */
struct cf_mem *cf_buffer_at_locked(uintptr_t addr);
struct cf_mem *cf_buffer_holding_locked(uintptr_t base, uintptr_t addr, size_t len);
bool cf_buffer_is_listed_locked(const struct cf_mem *m);
/*
 * The memory of buffer @m was freed or replaced. The buffer stands for what is mapped in its range now; if that is
 * nothing, it is stale until it is deregistered. False if @m is no longer registered.
 */
bool cf_buffer_reimport(struct cf_mem *m);
/* The application may have mapped more of the range of buffer @m. True if it did. */
bool cf_buffer_grow(struct cf_mem *m);
void cf_buffers_drop_all(void);
void cf_buffers_forked(void);

#endif
