/* SPDX-License-Identifier: MIT */
#ifndef CUFILE_MEM_H
#define CUFILE_MEM_H

/* Memory of the application: mem.c for any memory, buffer.c for registered buffers. */

#include "core.h"

/* A range of memory and its region. */
struct cf_mem {
	atomic_uint refs;
	uintptr_t addr;
	size_t len;	       /* of the region */
	size_t registered_len; /* of a registered buffer; the part past @len was not mapped at its import */
	struct strait_region *region;
	struct strait_device *dev;
	bool host;
	bool remappable;   /* the application may map more memory behind it */
	bool identity;	   /* reuse of the address is detected, so the region may be cached */
	bool to_end;	   /* imported to the end of its allocation */
	bool stale;	   /* a registered buffer whose range is not all memory any more */
	int gpu;	   /* ordinal of the CUDA device, -1 for other memory */
	uint64_t last_use; /* value of the use counter, for eviction */
};

/* Between cf_enter() and cf_leave(). @on: the device, or NULL to ask every provider. 0 or a negative errno. */
int cf_mem_import_on(struct strait_context *ctx, struct strait_device *on, const void *base, size_t len,
		     struct cf_mem **ret);
int cf_mem_import(struct strait_context *ctx, const void *base, size_t len, struct cf_mem **ret);
/* As much of [base, base + len) as is mapped now. -EFAULT if it is memory of which the rest cannot be mapped later. */
int cf_mem_import_mapped(struct strait_context *ctx, const void *base, size_t len, struct cf_mem **ret);

/*
 * A reference to memory that holds [base + off, base + off + size). @offset is that of @base in it, modulo 2^64.
 *
 * CF_MEM_TO_END: the range is not known yet; memory from @base to the end of its allocation.
 * CF_MEM_CHECK: check that the memory was not freed or replaced since its import.
 *
 * Return: 0, a CUfileOpError, or a negative errno.
 */
#define CF_MEM_TO_END 1u
#define CF_MEM_CHECK 2u
#define CF_MEM_TRIES 4 /* if another thread frees and allocates the memory concurrently */
int cf_mem_get(const void *base, off_t off, size_t size, unsigned int how, struct cf_mem **ret, uint64_t *offset);
void cf_mem_ref(struct cf_mem *m, unsigned int n);
void cf_mem_put(struct cf_mem *m, unsigned int n);
/* Is [addr, addr + len) inside @m? */
static inline bool cf_mem_holds(const struct cf_mem *m, uintptr_t addr, size_t len)
{
	return addr >= m->addr && addr - m->addr <= m->len && len <= m->len - (addr - m->addr);
}
/*
 * The memory of @m was freed or replaced. Evicts it and all cached ranges that overlap it; a registered buffer is
 * imported again. Another thread may have done so before. True if the caller should look the memory up again: always,
 * unless reuse of its addresses is not detected.
 */
bool cf_mem_stale(struct cf_mem *m);
/* Has the application mapped more memory of the same device behind @m? */
bool cf_mem_grew(const struct cf_mem *m);
void cf_mem_drop_all(void);
uint64_t cf_buffers_registered_bytes(int gpu);
void cf_mem_forked(void);

/* buffer.c: the buffer registered at @addr; the buffer with the closest base below @base, if it holds the range. */
struct cf_mem *cf_buffer_at_locked(uintptr_t addr);
struct cf_mem *cf_buffer_holding_locked(uintptr_t base, uintptr_t addr, size_t len);
bool cf_buffer_is_listed_locked(const struct cf_mem *m);
/*
 * The memory of buffer @m was freed or replaced. The buffer stands for what is mapped in its range now; if that is
 * nothing, it is stale until it is deregistered. Nothing happens if @m is no longer registered.
 */
void cf_buffer_reimport(struct cf_mem *m);
/* The application may have mapped more of the range of buffer @m. True if it did. */
bool cf_buffer_grow(struct cf_mem *m);
void cf_buffers_drop_all(void);
void cf_buffers_forked(void);

#endif
