/* SPDX-License-Identifier: MIT */
/* Execution of ops, in the submitting thread or in a thread of a pool. */
#include "base/crc32c.h"
#include "base/util.h"
#include "device/soft/engine.h"
#include "os/os.h"

/* Removal of the device is checked between pieces of this size. */
#define PIECE MIB(4)
#define COMPARE_BLOCK KIB(16)

static void *addr_ptr(uint64_t addr)
{
	return (void *)(uintptr_t)addr;
}

/* The file may be truncated at any time: process_vm_readv() then fails with -EFAULT, where a load raises SIGBUS. */
static int copy_from_file(char *dst, const char *src, size_t len)
{
	while (len) {
		ssize_t n = os_vm_read(dst, src, len);

		if (n <= 0)
			return n < 0 ? (int)n : -EFAULT;
		dst += n;
		src += n;
		len -= (size_t)n;
	}
	return 0;
}

static int op_copy_seg(struct soft_engine *eng, const struct soft_seg *seg)
{
	for (uint64_t at = 0; at < seg->len; at += PIECE) {
		size_t len = min_u64(seg->len - at, PIECE);
		int rc;

		if (soft_removed(eng))
			return -ENODEV;
		if (seg->file) {
			rc = copy_from_file(addr_ptr(seg->dst + at), addr_ptr(seg->src + at), len);
			if (rc)
				return rc;
		} else if (seg->dst_pin) {
			soft_copy_streaming(addr_ptr(seg->dst + at), addr_ptr(seg->src + at), len);
		} else {
			memcpy(addr_ptr(seg->dst + at), addr_ptr(seg->src + at), len);
		}
	}
	return 0;
}

/* The error to inject into this copy, 0: none. */
static int take_injected_error(struct soft_engine *eng)
{
	if (!atomic_load_explicit(&eng->inject_on, memory_order_acquire))
		return 0;
	if (atomic_fetch_sub_explicit(&eng->inject_left, 1, memory_order_relaxed) != 0)
		return 0;
	atomic_store_explicit(&eng->inject_on, false, memory_order_relaxed);
	return atomic_load_explicit(&eng->inject_err, memory_order_relaxed);
}

static int op_run_copy(struct soft_engine *eng, struct soft_op *op)
{
	int rc = take_injected_error(eng);

	for (unsigned int i = 0; !rc && i < op->n_segs; i++)
		rc = op_copy_seg(eng, &op->segs[i]);
	return rc;
}

static int op_run_fill(struct soft_engine *eng, struct soft_op *op)
{
	const struct soft_seg *seg = op->segs;

	for (uint64_t at = 0; at < seg->len; at += PIECE) {
		if (soft_removed(eng))
			return -ENODEV;
		memset(addr_ptr(seg->dst + at), op->fill, min_u64(seg->len - at, PIECE));
	}
	return 0;
}

static size_t first_difference(const unsigned char *a, const unsigned char *b, size_t len)
{
	size_t at = 0;

	while (len - at >= COMPARE_BLOCK && !memcmp(a + at, b + at, COMPARE_BLOCK))
		at += COMPARE_BLOCK;
	while (len - at >= sizeof(uint64_t) && !memcmp(a + at, b + at, sizeof(uint64_t)))
		at += sizeof(uint64_t);
	while (at < len && a[at] == b[at])
		at++;
	return at;
}

static int op_run_compare(struct soft_engine *eng, struct soft_op *op)
{
	const struct soft_seg *seg = op->segs;

	for (uint64_t at = 0; at < seg->len; at += PIECE) {
		size_t len = min_u64(seg->len - at, PIECE), same;

		if (soft_removed(eng))
			return -ENODEV;
		same = first_difference(addr_ptr(seg->dst + at), addr_ptr(seg->src + at), len);
		if (same < len) {
			*op->where = at + same;
			return 0;
		}
	}
	*op->where = seg->len;
	return 0;
}

static int op_run_compare_pages(struct soft_engine *eng, struct soft_op *op)
{
	const struct soft_seg *seg = op->segs;
	uint64_t pages = seg->len / COMPARE_PAGE;

	for (uint64_t first = 0; first < pages; first += 32) {
		uint32_t word = 0;

		if (soft_removed(eng))
			return -ENODEV;
		for (uint64_t i = first; i < pages && i < first + 32; i++)
			if (memcmp(addr_ptr(seg->dst + i * COMPARE_PAGE), addr_ptr(seg->src + i * COMPARE_PAGE),
				   COMPARE_PAGE) != 0)
				word |= 1u << (i - first);
		op->bits[first / 32] = word;
	}
	return 0;
}

static int op_run_crc32c(struct soft_engine *eng, struct soft_op *op)
{
	const struct soft_seg *seg = op->segs;
	uint32_t crc = *op->crc;

	for (uint64_t at = 0; at < seg->len; at += PIECE) {
		if (soft_removed(eng))
			return -ENODEV;
		crc = crc32c_update(crc, addr_ptr(seg->src + at), min_u64(seg->len - at, PIECE));
	}
	*op->crc = crc;
	return 0;
}

int soft_op_run(struct soft_op *op)
{
	struct soft_engine *eng = op->stream->eng;

	switch (op->kind) {
	case SOFT_COPY:
		return op_run_copy(eng, op);
	case SOFT_FILL:
		return op_run_fill(eng, op);
	case SOFT_COMPARE:
		return op_run_compare(eng, op);
	case SOFT_CRC32C:
		return op_run_crc32c(eng, op);
	case SOFT_COMPARE_PAGES:
		return op_run_compare_pages(eng, op);
	case SOFT_CALL:
		/* Called on a removed device too: stream_call promises that, and it may free its argument. */
		op->call.fn(op->call.arg);
		return 0;
	case SOFT_WAIT_WORD:
	case SOFT_RECORD:
		break; /* the stream completes these without running them */
	}
	return 0;
}

void soft_op_release(struct soft_op *op)
{
	struct soft_engine *eng = op->stream->eng;

	for (unsigned int i = 0; i < op->n_segs; i++) {
		if (op->segs[i].dst_pin)
			eng->unpin(op->segs[i].dst_pin);
		if (op->segs[i].src_pin)
			eng->unpin(op->segs[i].src_pin);
	}
	if (op->kind == SOFT_RECORD)
		soft_event_unref(op->record.event);
}
