/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_VIEW_H
#define STRAIT_VIEW_H

/*
 * Loads and stores of a mapping by code that runs on a device: threads touch any byte of a file, and what is not in device
 * memory is read when it is touched. docs/view.md is the guide, strait/frames.h has the calls of the host, and
 * strait/device/core.h the protocol. Experimental, and not part of the stable interface.
 *
 *	__global__ void sum(const __grid_constant__ struct strait_view v, strait_u64 n, strait_u64 *total)
 *	{
 *		struct strait_cursor c = STRAIT_CURSOR_INIT;
 *		strait_u64 i = blockIdx.x * blockDim.x + threadIdx.x, x;
 *
 *		if (i < n) {
 *			x = strait_load_u64(&v, &c, i * 8);
 *			if (!c.error)
 *				atomicAdd(total, x);
 *		}
 *	}
 *
 * Callers: every function may be called by any thread, also in divergent code. The threads of a warp that miss at the same
 * time are served together: their granules are requested before any is waited for, and each is copied by all of them.
 *
 * Order: a load sees what this device's threads stored before, as loads and stores of global memory do: relaxed, at device
 * scope. Other sides see stores after strait_view_end(), or strait_view_flush(), and acquire.
 *
 * Accesses are aligned to their size, so none straddles a granule of 4 KiB.
 *
 * A kernel's parameter of this type is const __grid_constant__: without that each thread has a copy of it in local memory.
 */

#include <strait/device/access.h>

/**
 * struct strait_cursor - What a thread remembers of its last load
 * @base: where a run of granules of a page begins that were valid then, in the mapping
 * @size: bytes of the run, up to 64 KiB
 * @error: of the first access that failed, 0: none. The value of such a load is 0
 * @at: the run in its frame
 * @page: the page's word
 * @word: what it was
 *
 * Not a pin: the frame may be taken at any time, which the next load notices. Set to STRAIT_CURSOR_INIT.
 */
struct strait_cursor {
	strait_u64 base;
	strait_u32 size;
	int error;
	char *at;
	strait_u64 *page;
	strait_u64 word;
};

#define STRAIT_CURSOR_INIT                                                                                             \
	{                                                                                                              \
		0, 0, 0, (char *)0, (strait_u64 *)0, 0                                                                 \
	}

/* ---- cursors ---- */

STRAIT_DEVICE int strait_vc_check(const struct strait_view *v, strait_u64 off, strait_u32 size)
{
	return off < v->length && size <= v->length - off && !(off & (size - 1));
}

STRAIT_DEVICE void strait_vc_refuse(struct strait_cursor *c, int error)
{
	if (!c->error)
		c->error = error;
}

/* Is a word in the cursor's run? The run ends with the mapping, and words are aligned. */
STRAIT_DEVICE int strait_vc_hit(const struct strait_cursor *c, strait_u64 off, strait_u32 size)
{
	return off - c->base < c->size && !((strait_u32)off & (size - 1));
}

/* Points the cursor to a granule that is valid now, and those beside it. 0: it is not. */
STRAIT_DEVICE int strait_vc_look(const struct strait_view *v, struct strait_cursor *c, strait_u64 off)
{
	strait_u64 g = off >> STRAIT_VIEW_GRANULE_SHIFT, *page = strait_vc_page(v, g),
		   word = strait_vc_load64_first(page);
	strait_u32 frame = (strait_u32)(word & STRAIT_PAGE_FRAME), mask = (1u << v->block_shift) - 1;
	strait_u32 i = strait_vc_index(v, g), k = i & mask, state, valid, all;

	c->size = 0;
	c->word = word;
	if (!(v->flags & STRAIT_VIEW_FITS ? !!(word & STRAIT_PAGE_BOUND) : strait_vc_is_bound(word)))
		return 0;
	/* Acquire: loads by the cursor see what was stored before the granules became valid, also from a cache. */
	state = (strait_u32)(strait_vc_load64(strait_vc_state_word(v, frame, i)) >> (i % 32 - k) * 2);
	/* The upper bit of two without the lower one is VALID. */
	all = 0xaaaaaaaau >> (30 - 2 * mask);
	valid = state & ~(state << 1) & all;
	if (!(valid >> (2 * k + 1) & 1))
		return 0;
	/* All of the block, or the one granule. */
	if (valid == all)
		i -= k;
	c->base = (valid == all ? g - k : g) << STRAIT_VIEW_GRANULE_SHIFT;
	c->size = STRAIT_VIEW_GRANULE << (valid == all ? v->block_shift : 0);
	/* Words that the mapping ends in are not in the run. */
	if (c->size > v->length - c->base)
		c->size = (strait_u32)(v->length - c->base) & ~7u;
	c->at = strait_vc_data(v, frame, i);
	c->page = page;
	c->word = (word & STRAIT_PAGE_STATE) | STRAIT_PAGE_USED;
	strait_vc_touch(page, word);
	return 1;
}

/*
 * Was the frame still the page's when @x was loaded? The address of the word depends on @x, so that a GPU reads it after.
 * Relaxed loads are performed where all multiprocessors see the same. 0 also if the hand of the clock has passed since.
 */
STRAIT_DEVICE int strait_vc_still(const struct strait_view *v, const struct strait_cursor *c, strait_u32 x)
{
	return v->flags & STRAIT_VIEW_FITS ||
	       (strait_vc_load64_relaxed(c->page + (x & v->zero)) & (STRAIT_PAGE_STATE | STRAIT_PAGE_USED)) == c->word;
}

/* What an access to a granule that was absent gave. */
STRAIT_DEVICE strait_u64 strait_vc_result(struct strait_cursor *c, struct strait_vc_value r)
{
	c->size = 0;
	if (r.error)
		strait_vc_refuse(c, r.error);
	return r.x;
}

/* ---- loads ---- */

/**
 * strait_load_u8(), _u16(), _u32(), _u64() - Load from a mapping
 * @v: the view
 * @c: the thread's cursor
 * @off: bytes from the start of the mapping, a multiple of the size
 *
 * Return: the value; 0 with @c->error set: -EINVAL for an offset outside the mapping or not aligned; -EIO and others of the
 * file; -ETIMEDOUT; -ENOBUFS when all frames are pinned.
 */
#define STRAIT_VC_LOADS(type, name)                                                                                    \
	STRAIT_DEVICE type strait_load_##name(const struct strait_view *v, struct strait_cursor *c, strait_u64 off)    \
	{                                                                                                              \
		type x;                                                                                                \
                                                                                                                       \
		if (!strait_vc_hit(c, off, sizeof(type))) {                                                            \
			if (!strait_vc_check(v, off, sizeof(type))) {                                                  \
				strait_vc_refuse(c, STRAIT_VIEW_EINVAL);                                               \
				return 0;                                                                              \
			}                                                                                              \
			if (!strait_vc_look(v, c, off))                                                                \
				return (type)strait_vc_result(c, strait_vc_miss_load(v, off, sizeof(type), c->word));  \
		}                                                                                                      \
		x = strait_vc_get_##name(c->at + (off - c->base));                                                     \
		if (strait_vc_still(v, c, (strait_u32)x))                                                              \
			return x;                                                                                      \
		return (type)strait_vc_result(c, strait_vc_miss_load(v, off, sizeof(type), STRAIT_VC_UNREAD));         \
	}
STRAIT_VC_LOADS(unsigned char, u8)
STRAIT_VC_LOADS(unsigned short, u16)
STRAIT_VC_LOADS(strait_u32, u32)
STRAIT_VC_LOADS(strait_u64, u64)
#undef STRAIT_VC_LOADS

/* ---- stores and atomic operations: each pins the page for the one access ---- */

STRAIT_DEVICE strait_u64 strait_vc_modify(const struct strait_view *v, struct strait_cursor *c, strait_u64 off,
					  strait_u32 op, strait_u32 size, strait_u64 a, strait_u64 b)
{
	strait_u64 g = off >> STRAIT_VIEW_GRANULE_SHIFT, old;
	strait_u32 frame = 0, i = strait_vc_index(v, g);

	if (!strait_vc_check(v, off, size) || !(v->flags & STRAIT_VIEW_WRITE)) {
		strait_vc_refuse(c, v->flags & STRAIT_VIEW_WRITE ? STRAIT_VIEW_EINVAL : STRAIT_VIEW_EACCES);
		return 0;
	}
	if (v->flags & STRAIT_VIEW_FITS) {
		/* No frame is evicted, so none needs a pin. */
		if (strait_vc_hit(c, off, size) || strait_vc_look(v, c, off)) {
			old = strait_vc_operate(c->at + (off - c->base), op, size, a, b);
			if (strait_vc_changes(op, a, old))
				strait_vc_mark_dirty(v, (strait_u32)(c->word & STRAIT_PAGE_FRAME), i);
			return old;
		}
	} else if (strait_vc_pin(v, g, 1, &frame)) {
		if (strait_vc_state(v, frame, i) == STRAIT_GRANULE_VALID) {
			old = strait_vc_operate(strait_vc_data(v, frame, i) + (off & (STRAIT_VIEW_GRANULE - 1)), op,
						size, a, b);
			if (strait_vc_changes(op, a, old))
				strait_vc_mark_dirty(v, frame, i);
			strait_vc_unpin(v, g, 1);
			return old;
		}
		strait_vc_unpin(v, g, 1);
	}
	return strait_vc_result(c, strait_vc_miss_modify(v, off, op, size, a, b));
}

/**
 * strait_store_u8(), _u16(), _u32(), _u64() - Store to a mapping
 * @v: the view, begun for writing
 * @c: the thread's cursor: @c->error is set as by loads; -EACCES for a view that is not for writing
 * @off: bytes from the start of the mapping, a multiple of the size
 * @x: the value
 *
 * The rest of a granule that is absent is read first.
 */
#define STRAIT_VC_STORES(type, name)                                                                                   \
	STRAIT_DEVICE void strait_store_##name(const struct strait_view *v, struct strait_cursor *c, strait_u64 off,   \
					       type x)                                                                 \
	{                                                                                                              \
		strait_vc_modify(v, c, off, STRAIT_VC_STORE, sizeof(type), x, 0);                                      \
	}
STRAIT_VC_STORES(unsigned char, u8)
STRAIT_VC_STORES(unsigned short, u16)
STRAIT_VC_STORES(strait_u32, u32)
STRAIT_VC_STORES(strait_u64, u64)
#undef STRAIT_VC_STORES

/**
 * strait_atomic_add_u32(), _u64(), xor, min, cas - Atomic among the threads of this device
 * @v: the view, begun for writing
 * @c: the thread's cursor, as of stores
 * @off: bytes from the start of the mapping, a multiple of the size
 *
 * Return: the value before; 0 with @c->error set.
 */
#define STRAIT_VC_ATOMIC(op, OP, type, name)                                                                           \
	STRAIT_DEVICE type strait_atomic_##op##_##name(const struct strait_view *v, struct strait_cursor *c,           \
						       strait_u64 off, type x)                                         \
	{                                                                                                              \
		return (type)strait_vc_modify(v, c, off, OP, sizeof(type), x, 0);                                      \
	}
STRAIT_VC_ATOMIC(add, STRAIT_VC_ADD, strait_u32, u32)
STRAIT_VC_ATOMIC(add, STRAIT_VC_ADD, strait_u64, u64)
STRAIT_VC_ATOMIC(xor, STRAIT_VC_XOR, strait_u32, u32)
STRAIT_VC_ATOMIC(xor, STRAIT_VC_XOR, strait_u64, u64)
STRAIT_VC_ATOMIC(min, STRAIT_VC_MIN, strait_u32, u32)
STRAIT_VC_ATOMIC(min, STRAIT_VC_MIN, strait_u64, u64)
#undef STRAIT_VC_ATOMIC

#define STRAIT_VC_SWAP(type, name)                                                                                     \
	STRAIT_DEVICE type strait_atomic_cas_##name(const struct strait_view *v, struct strait_cursor *c,              \
						    strait_u64 off, type expected, type x)                             \
	{                                                                                                              \
		return (type)strait_vc_modify(v, c, off, STRAIT_VC_CAS, sizeof(type), expected, x);                    \
	}
STRAIT_VC_SWAP(strait_u32, u32)
STRAIT_VC_SWAP(strait_u64, u64)
#undef STRAIT_VC_SWAP

/* ---- ranges ---- */

/**
 * strait_view_pin() - Get a raw pointer to a range inside one page of the mapping
 * @v: the view
 * @off: bytes from the start of the mapping
 * @len: bytes, at least 1; the range lies in one page, of the frame size
 * @ptr: set to the address, valid until strait_view_unpin()
 *
 * A thread that waits for a frame while threads hold pins may wait for itself. Unless the host reserved frames for pins
 * (struct strait_frames_opts), the call therefore fails when no frame is free of pins.
 *
 * Return: 0; -ENOBUFS; -EINVAL; errors of the file; -ETIMEDOUT.
 */
STRAIT_DEVICE_CALL int strait_view_pin(const struct strait_view *v, strait_u64 off, strait_u32 len, void **ptr)
{
	strait_u64 g = off >> STRAIT_VIEW_GRANULE_SHIFT, last = (off + len - 1) >> STRAIT_VIEW_GRANULE_SHIFT;
	strait_u32 frame = 0, pins = 0;
	int rc = 0;

	if (!len || off >= v->length || len > v->length - off || g >> v->page_shift != last >> v->page_shift)
		return STRAIT_VIEW_EINVAL;
	for (; pins <= last - g && !rc; pins++) {
		rc = strait_vc_acquire(v, g + pins, v->flags & STRAIT_VIEW_RESERVED ? 1 : 0);
		if (rc < 0)
			break;
		frame = (strait_u32)rc;
		rc = 0;
	}
	/* One pin of the page is enough for all of its granules. */
	if (pins > (rc ? 0u : 1u))
		strait_vc_unpin(v, g, pins - (rc ? 0u : 1u));
	if (!rc)
		*ptr = strait_vc_data(v, frame, strait_vc_index(v, g)) + (off & (STRAIT_VIEW_GRANULE - 1));
	return rc;
}

/**
 * strait_view_unpin() - Give up a raw pointer
 * @v: the view
 * @off: as pinned
 * @len: as pinned
 * @written: the thread has stored to it: all granules of the range are written back
 */
STRAIT_DEVICE_CALL void strait_view_unpin(const struct strait_view *v, strait_u64 off, strait_u32 len, int written)
{
	strait_u64 g = off >> STRAIT_VIEW_GRANULE_SHIFT, last = (off + len - 1) >> STRAIT_VIEW_GRANULE_SHIFT;
	strait_u32 frame = (strait_u32)(strait_vc_load64(strait_vc_page(v, g)) & STRAIT_PAGE_FRAME);

	for (strait_u64 i = g; written && i <= last; i++)
		strait_vc_mark_dirty(v, frame, strait_vc_index(v, i));
	strait_vc_unpin(v, g, 1);
}

/**
 * strait_view_read() - Copy a range to memory of the thread
 * @v: the view
 * @off: bytes from the start of the mapping, any alignment
 * @buf: where to
 * @len: bytes
 *
 * Return: 0; errors as of loads.
 */
STRAIT_DEVICE_CALL int strait_view_read(const struct strait_view *v, strait_u64 off, void *buf, strait_u64 len)
{
	char *to = (char *)buf;

	if (off > v->length || len > v->length - off)
		return STRAIT_VIEW_EINVAL;
	while (len) {
		strait_u64 in = off & (STRAIT_VIEW_GRANULE - 1);
		strait_u64 n = STRAIT_VIEW_GRANULE - in < len ? STRAIT_VIEW_GRANULE - in : len;
		int rc = strait_vc_miss_modify(v, off, STRAIT_VC_COPY, 1, (strait_u64)(size_t)to, n).error;

		if (rc)
			return rc;
		off += n;
		to += n;
		len -= n;
	}
	return 0;
}

/*
 * Sets BUSY of the page of a granule: one thread at a time writes back, so what an earlier one has requested is in the file then,
 * or dirty again. The page may have pins. Returns 1; 0: the page has no frame; or an error.
 */
STRAIT_DEVICE int strait_vc_flush_begin(const struct strait_view *v, strait_u64 g, strait_u32 *frame)
{
	struct strait_vc_timer w = { 0, 0 };
	strait_u64 *at = strait_vc_page(v, g), word;

	do {
		word = strait_vc_load64(at);
		if (!(word & (STRAIT_PAGE_BOUND | STRAIT_PAGE_BUSY)))
			return 0;
		/* In one operation: the pins of other threads change all the time. */
		if (word & STRAIT_PAGE_BUSY || strait_vc_or64(at, STRAIT_PAGE_BUSY) & STRAIT_PAGE_BUSY)
			continue;
		word = strait_vc_load64(at);
		if (word & STRAIT_PAGE_BOUND) {
			*frame = (strait_u32)(word & STRAIT_PAGE_FRAME);
			return 1;
		}
		/* It was evicted in between. */
		strait_vc_give64_release(at, 0 - STRAIT_PAGE_BUSY);
		return 0;
	} while (strait_vc_wait(v, &w));
	return STRAIT_VIEW_ETIMEDOUT;
}

/**
 * strait_view_flush() - Have the host store what is dirty in a range, and wait
 * @v: the view
 * @off: bytes from the start of the mapping
 * @len: bytes
 *
 * Stores that this thread, or one it has synchronized with, made before are in the file when the call returns. The frames
 * stay valid.
 *
 * Return: 0; errors of the file: the granules stay dirty; -ETIMEDOUT.
 */
STRAIT_DEVICE_CALL int strait_view_flush(const struct strait_view *v, strait_u64 off, strait_u64 len)
{
	strait_u64 g = off >> STRAIT_VIEW_GRANULE_SHIFT, end;
	int rc = 0;

	if (off > v->length || len > v->length - off || !len)
		return len ? STRAIT_VIEW_EINVAL : 0;
	end = ((off + len - 1) >> STRAIT_VIEW_GRANULE_SHIFT) + 1;
	for (; g < end && !rc; g++) {
		strait_u32 frame = 0, i = strait_vc_index(v, g);
		int begun = strait_vc_flush_begin(v, g, &frame);

		if (begun < 0)
			return begun;
		if (!begun)
			continue;
		if (strait_vc_load32(&v->dirty[(strait_u64)frame * v->words + i / 32]) >> i % 32 & 1)
			rc = strait_vc_store_granule(v, g, frame, i);
		strait_vc_give64_release(strait_vc_page(v, g), 0 - STRAIT_PAGE_BUSY);
	}
	return rc;
}

/**
 * strait_view_peek() - Load from a registered window without a frame
 * @v: the view
 * @off: bytes from the start of the mapping, a multiple of 8
 * @to: where to
 * @len: bytes, a multiple of 8, inside one granule
 *
 * For data that is touched once. What device threads have stored, and not flushed, is not seen.
 *
 * Return: 0; -EINVAL; -EIO when there is no window of the range.
 */
STRAIT_DEVICE int strait_view_peek(const struct strait_view *v, strait_u64 off, strait_u64 *to, strait_u32 len)
{
	strait_u64 in = off & (STRAIT_VIEW_GRANULE - 1);
	const char *from;

	if ((off | len) & 7 || in + len > STRAIT_VIEW_GRANULE || off > v->length || len > v->length - off)
		return STRAIT_VIEW_EINVAL;
	from = strait_vc_window(v, off >> STRAIT_VIEW_GRANULE_SHIFT);
	if (!from)
		return STRAIT_VIEW_EIO;
	for (strait_u32 i = 0; i < len / 8; i++)
		to[i] = strait_vc_read_u64(from + in + i * 8);
	return 0;
}

#if defined(__cplusplus)
/* An array of elements of 1, 2, 4 or 8 bytes in a mapping, with a cursor of the thread. */
template <typename T> struct strait_array {
	struct strait_view view;
	strait_u64 base; /* of element 0, in bytes */

	struct reference {
		const strait_array *a;
		struct strait_cursor c;

		STRAIT_VC_MEMBER T load(strait_u64 i)
		{
			union {
				strait_u64 wide;
				T value;
			} u;
			strait_u64 off = a->base + i * sizeof(T);

			u.wide = sizeof(T) == 1 ? strait_load_u8(&a->view, &c, off) :
				 sizeof(T) == 2 ? strait_load_u16(&a->view, &c, off) :
				 sizeof(T) == 4 ? strait_load_u32(&a->view, &c, off) :
						  strait_load_u64(&a->view, &c, off);
			return u.value;
		}

		STRAIT_VC_MEMBER void store(strait_u64 i, T x)
		{
			union {
				strait_u64 wide;
				T value;
			} u;
			strait_u64 off = a->base + i * sizeof(T);

			u.wide = 0;
			u.value = x;
			if (sizeof(T) == 1)
				strait_store_u8(&a->view, &c, off, (unsigned char)u.wide);
			else if (sizeof(T) == 2)
				strait_store_u16(&a->view, &c, off, (unsigned short)u.wide);
			else if (sizeof(T) == 4)
				strait_store_u32(&a->view, &c, off, (strait_u32)u.wide);
			else
				strait_store_u64(&a->view, &c, off, u.wide);
		}
	};

	STRAIT_VC_MEMBER reference thread() const
	{
		static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8,
			      "an element of another size");
		reference r = { this, STRAIT_CURSOR_INIT };

		return r;
	}
};
#endif

#endif
