/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_DEVICE_ACCESS_H
#define STRAIT_DEVICE_ACCESS_H

/* Accesses to words of a granule, and those that find it absent. */

#include <strait/device/fault.h>

/* ---- data words: _get as a plain load of global memory, _read past caches of the multiprocessor ---- */

#if defined(__CUDACC__)
#define STRAIT_VC_WORD(type, ptx, reg, wide)                                                                           \
	STRAIT_DEVICE type strait_vc_get_##ptx(const char *p)                                                          \
	{                                                                                                              \
		wide x;                                                                                                \
                                                                                                                       \
		asm volatile("ld.global." #ptx " %0, [%1];" : "=" reg(x) : "l"(p) : "memory");                         \
		return (type)x;                                                                                        \
	}                                                                                                              \
	STRAIT_DEVICE type strait_vc_read_##ptx(const char *p)                                                         \
	{                                                                                                              \
		wide x;                                                                                                \
                                                                                                                       \
		asm volatile("ld.relaxed.gpu.global." #ptx " %0, [%1];" : "=" reg(x) : "l"(p) : "memory");             \
		return (type)x;                                                                                        \
	}                                                                                                              \
	STRAIT_DEVICE void strait_vc_put_##ptx(char *p, type v)                                                        \
	{                                                                                                              \
		asm volatile("st.relaxed.gpu.global." #ptx " [%0], %1;" : : "l"(p), reg((wide)v) : "memory");          \
	}
STRAIT_VC_WORD(unsigned char, u8, "h", unsigned short)
STRAIT_VC_WORD(unsigned short, u16, "h", unsigned short)
STRAIT_VC_WORD(strait_u32, u32, "r", strait_u32)
STRAIT_VC_WORD(strait_u64, u64, "l", strait_u64)
#else
#define STRAIT_VC_WORD(type, ptx)                                                                                      \
	STRAIT_DEVICE type strait_vc_read_##ptx(const char *p)                                                         \
	{                                                                                                              \
		return __atomic_load_n((const type *)(const void *)p, __ATOMIC_ACQUIRE);                               \
	}                                                                                                              \
	STRAIT_DEVICE type strait_vc_get_##ptx(const char *p)                                                          \
	{                                                                                                              \
		return strait_vc_read_##ptx(p);                                                                        \
	}                                                                                                              \
	STRAIT_DEVICE void strait_vc_put_##ptx(char *p, type v)                                                        \
	{                                                                                                              \
		__atomic_store_n((type *)(void *)p, v, __ATOMIC_RELEASE);                                              \
	}
STRAIT_VC_WORD(unsigned char, u8)
STRAIT_VC_WORD(unsigned short, u16)
STRAIT_VC_WORD(strait_u32, u32)
STRAIT_VC_WORD(strait_u64, u64)
#endif
#undef STRAIT_VC_WORD

/* ---- operations ---- */

#define STRAIT_VC_LOAD 0u
#define STRAIT_VC_STORE 1u
#define STRAIT_VC_ADD 2u
#define STRAIT_VC_XOR 3u
#define STRAIT_VC_MIN 4u
#define STRAIT_VC_CAS 5u  /* to the second operand, if it is the first */
#define STRAIT_VC_COPY 6u /* the bytes, as many as the second operand says, to the address that is the first */

struct strait_vc_value {
	strait_u64 x;
	int error;
	int reserved;
};

#if defined(__CUDACC__)
#define STRAIT_VC_FETCH(type, op, p, a, b)                                                                             \
	((op) == STRAIT_VC_ADD ? atomicAdd((type *)(p), (type)(a)) :                                                   \
	 (op) == STRAIT_VC_XOR ? atomicXor((type *)(p), (type)(a)) :                                                   \
	 (op) == STRAIT_VC_MIN ? atomicMin((type *)(p), (type)(a)) :                                                   \
				 atomicCAS((type *)(p), (type)(a), (type)(b)))
#else
STRAIT_DEVICE strait_u64 strait_vc_cas(void *p, strait_u64 expected, strait_u64 x, size_t size)
{
	return size == 4 ? strait_vc_cas32((strait_u32 *)p, (strait_u32)expected, (strait_u32)x) :
			   strait_vc_cas64((strait_u64 *)p, expected, x);
}

STRAIT_DEVICE strait_u64 strait_vc_min(void *p, strait_u64 x, size_t size)
{
	strait_u64 old = size == 4 ? strait_vc_load32((strait_u32 *)p) : strait_vc_load64((strait_u64 *)p), seen;

	for (; x < old; old = seen) {
		seen = strait_vc_cas(p, old, x, size);
		if (seen == old)
			break;
	}
	return old;
}

#define STRAIT_VC_FETCH(type, op, p, a, b)                                                                             \
	((op) == STRAIT_VC_ADD ? __atomic_fetch_add((type *)(void *)(p), (type)(a), __ATOMIC_ACQ_REL) :                \
	 (op) == STRAIT_VC_XOR ? __atomic_fetch_xor((type *)(void *)(p), (type)(a), __ATOMIC_ACQ_REL) :                \
	 (op) == STRAIT_VC_MIN ? (type)strait_vc_min(p, a, sizeof(type)) :                                             \
				 (type)strait_vc_cas(p, a, b, sizeof(type)))
#endif

STRAIT_DEVICE void strait_vc_copy_bytes(const char *from, char *to, strait_u64 n)
{
	for (strait_u64 i = 0; i < n;) {
		if (!((size_t)(from + i) & 7) && !((size_t)(to + i) & 7) && n - i >= 8) {
			*(strait_u64 *)(void *)(to + i) = strait_vc_read_u64(from + i);
			i += 8;
		} else {
			to[i] = (char)strait_vc_read_u8(from + i);
			i++;
		}
	}
}

/* On the bytes at @p, whose page does not leave its frame. Returns the value loaded, or before the operation. */
STRAIT_DEVICE strait_u64 strait_vc_operate(char *p, strait_u32 op, strait_u32 size, strait_u64 a, strait_u64 b)
{
	if (op == STRAIT_VC_COPY) {
		strait_vc_copy_bytes(p, (char *)(size_t)a, b);
		return 0;
	}
	if (op == STRAIT_VC_LOAD)
		return size == 1 ? strait_vc_read_u8(p) :
		       size == 2 ? strait_vc_read_u16(p) :
		       size == 4 ? strait_vc_read_u32(p) :
				   strait_vc_read_u64(p);
	if (op != STRAIT_VC_STORE)
		return size == 4 ? STRAIT_VC_FETCH(strait_u32, op, p, a, b) : STRAIT_VC_FETCH(strait_u64, op, p, a, b);
	if (size == 1)
		strait_vc_put_u8(p, (unsigned char)a);
	else if (size == 2)
		strait_vc_put_u16(p, (unsigned short)a);
	else if (size == 4)
		strait_vc_put_u32(p, (strait_u32)a);
	else
		strait_vc_put_u64(p, a);
	return 0;
}

/* Did the operation, which returned @old, change the bytes? */
STRAIT_DEVICE int strait_vc_changes(strait_u32 op, strait_u64 a, strait_u64 old)
{
	return op != STRAIT_VC_LOAD && op != STRAIT_VC_COPY && (op != STRAIT_VC_CAS || old == a);
}

/* ---- accesses that found the granule absent ---- */

/* Is another attempt to be made? An error of write-back counts once all frames were tried. */
STRAIT_DEVICE int strait_vc_retry(const struct strait_view *v, struct strait_vc_fault *f, struct strait_vc_timer *w,
				  int patient)
{
	if (f->outcome <= 0)
		return 0;
	if (f->outcome == STRAIT_VC_NOFRAME) {
		f->noframe++;
		f->last = f->error != STRAIT_VIEW_ENOBUFS || !f->last ? f->error : f->last;
		if (f->noframe > STRAIT_VC_ATTEMPTS(v) &&
		    (f->last != STRAIT_VIEW_ENOBUFS || (!patient && f->noframe > 8 * STRAIT_VC_ATTEMPTS(v)))) {
			f->outcome = f->last;
			return 0;
		}
	} else {
		f->noframe = 0;
		f->last = 0;
	}
	if (!strait_vc_wait(v, w))
		f->outcome = f->last ? f->last : STRAIT_VIEW_ETIMEDOUT;
	return f->outcome > 0;
}

/* Makes a granule valid and operates on it. The page has a pin for the operation only. @word: struct strait_vc_fault. */
STRAIT_DEVICE struct strait_vc_value strait_vc_miss(const struct strait_view *v, strait_u64 off, strait_u32 op,
						    strait_u32 size, strait_u64 a, strait_u64 b, strait_u64 word)
{
	struct strait_vc_fault f = { off >> STRAIT_VIEW_GRANULE_SHIFT, word, 0, 0, 0, 0, 0, 0, 0, (const char *)0 };
	struct strait_vc_value r = { 0, 0, 0 };
	struct strait_vc_timer w = { 0, 0 };

	do {
		strait_vc_fault_run(v, &f);
		if (f.outcome == STRAIT_VC_DONE) {
			strait_u32 i = strait_vc_index(v, f.granule);

			r.x = strait_vc_operate(strait_vc_data(v, f.frame, i) + (off & (STRAIT_VIEW_GRANULE - 1)), op,
						size, a, b);
			if (strait_vc_changes(op, a, r.x))
				strait_vc_mark_dirty(v, f.frame, i);
			if (op == STRAIT_VC_LOAD)
				strait_vc_unpin_loaded(v, f.granule, (strait_u32)r.x);
			else
				strait_vc_unpin(v, f.granule, 1);
		}
	} while (strait_vc_retry(v, &f, &w, 1));
	r.error = f.outcome;
	return r;
}

/* Two functions: kernels that only load need fewer registers. */
STRAIT_DEVICE_CALL struct strait_vc_value strait_vc_miss_load(const struct strait_view *v, strait_u64 off,
							      strait_u32 size, strait_u64 word)
{
	return strait_vc_miss(v, off, STRAIT_VC_LOAD, size, 0, 0, word);
}

STRAIT_DEVICE_CALL struct strait_vc_value strait_vc_miss_modify(const struct strait_view *v, strait_u64 off,
								strait_u32 op, strait_u32 size, strait_u64 a,
								strait_u64 b)
{
	return strait_vc_miss(v, off, op, size, a, b, STRAIT_VC_UNREAD);
}

/*
 * Makes a granule valid, with a pin on its page for each thread that calls. @patient: wait for a frame while all are pinned.
 * Returns the frame, or an error.
 */
STRAIT_DEVICE_CALL int strait_vc_acquire(const struct strait_view *v, strait_u64 g, int patient)
{
	struct strait_vc_fault f = { g, STRAIT_VC_UNREAD, 0, 0, 0, 0, 0, 0, 0, (const char *)0 };
	struct strait_vc_timer w = { 0, 0 };

	do
		strait_vc_fault_run(v, &f);
	while (strait_vc_retry(v, &f, &w, patient));
	/* Acquire: plain loads of the caller see the bytes. */
	if (!f.outcome)
		(void)strait_vc_load64(strait_vc_page(v, g));
	return f.outcome ? f.outcome : (int)f.frame;
}

#endif
