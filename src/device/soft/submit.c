/* SPDX-License-Identifier: MIT */
/* The operations that put work on a stream: their checks, pins and modelled cost. */
#include <stdlib.h>

#include "base/util.h"
#include "device/soft/engine.h"

/* Lists up to this length need no allocation. */
#define LIST_LOCAL 16

static struct soft_stream *to_stream(struct dev_stream *s)
{
	return container_of(s, struct soft_stream, base);
}

/* Pins the device memory at @addr. Host memory needs no pin, and is -EFAULT if @must be device memory. */
static int pin_range(struct soft_engine *eng, uint64_t addr, uint64_t len, bool must, struct soft_pin **pin)
{
	int rc;

	if (len > UINT64_MAX - addr)
		return -EFAULT;
	if (!eng->pin)
		return 0;
	rc = eng->pin(eng, addr, len, pin);
	if (rc == -ENOENT)
		return must ? -EFAULT : 0;
	return rc;
}

static uint64_t model_cost(struct soft_engine *eng, uint64_t len)
{
	uint64_t rate = atomic_load_explicit(&eng->bytes_per_second, memory_order_relaxed);
	uint64_t cost = atomic_load_explicit(&eng->latency_ns, memory_order_relaxed);

	if (!rate && !cost)
		return 0;
	if (rate)
		cost += (uint64_t)((unsigned __int128)len * 1000000000u / rate);
	return max_u64(cost, 1);
}

int soft_stream_call(struct dev_stream *stream, strait_stream_fn *fn, void *arg)
{
	struct soft_stream *s = to_stream(stream);
	struct soft_op op = { .kind = SOFT_CALL, .call = { fn, arg } };

	if (soft_removed(s->eng))
		return -ENODEV;
	return soft_stream_submit(s, &op);
}

int soft_stream_wait_word(struct dev_stream *stream, _Atomic uint32_t *word, uint64_t dev_addr, uint32_t value)
{
	struct soft_stream *s = to_stream(stream);
	struct soft_op op = { .kind = SOFT_WAIT_WORD, .wait = { word, value } };

	if (soft_removed(s->eng))
		return -ENODEV;
	return soft_stream_submit(s, &op);
}

/* Submits an op of one segment. @dst and @src say which sides must be device memory. */
static int submit_single_seg(struct soft_stream *s, struct soft_op *op, struct soft_seg *seg, bool dst, bool src)
{
	int rc;

	op->stream = s;
	op->segs = seg;
	op->n_segs = 1;
	if (soft_removed(s->eng))
		return -ENODEV;
	if (dst) {
		rc = pin_range(s->eng, seg->dst, seg->len, true, &seg->dst_pin);
		if (rc)
			return rc;
	}
	if (src) {
		rc = pin_range(s->eng, seg->src, seg->len, true, &seg->src_pin);
		if (rc) {
			soft_op_release(op);
			return rc;
		}
	}
	return soft_stream_submit(s, op);
}

int soft_copy_in(struct dev_stream *stream, uint64_t dst, const void *src, uint64_t len)
{
	struct soft_stream *s = to_stream(stream);
	struct soft_seg seg = { .dst = dst, .src = (uint64_t)(uintptr_t)src, .len = len };
	struct soft_op op = { .kind = SOFT_COPY, .host = src, .cost_ns = model_cost(s->eng, len) };

	if (!len)
		return 0;
	if (len > UINT64_MAX - seg.src)
		return -EFAULT;
	seg.file = soft_hostreg_is_file(&s->eng->regs, seg.src, len);
	return submit_single_seg(s, &op, &seg, true, false);
}

int soft_copy_out(struct dev_stream *stream, void *dst, uint64_t src, uint64_t len)
{
	struct soft_stream *s = to_stream(stream);
	struct soft_seg seg = { .dst = (uint64_t)(uintptr_t)dst, .src = src, .len = len };
	struct soft_op op = { .kind = SOFT_COPY, .host = dst, .out = true, .cost_ns = model_cost(s->eng, len) };

	if (!len)
		return 0;
	if (len > UINT64_MAX - seg.dst)
		return -EFAULT;
	return submit_single_seg(s, &op, &seg, false, true);
}

int soft_fill(struct dev_stream *stream, uint64_t dst, uint8_t value, uint64_t len)
{
	struct soft_stream *s = to_stream(stream);
	struct soft_seg seg = { .dst = dst, .len = len };
	struct soft_op op = { .kind = SOFT_FILL, .fill = value, .cost_ns = model_cost(s->eng, len) };

	if (!len)
		return 0;
	return submit_single_seg(s, &op, &seg, true, false);
}

int soft_compare(struct dev_stream *stream, uint64_t a, uint64_t b, uint64_t len, uint64_t *where)
{
	struct soft_seg seg = { .dst = a, .src = b, .len = len };
	struct soft_op op = { .kind = SOFT_COMPARE, .sync = true, .out = true, .where = where };

	if (!len) {
		*where = 0;
		return 0;
	}
	return submit_single_seg(to_stream(stream), &op, &seg, true, true);
}

int soft_crc32c(struct dev_stream *stream, uint64_t addr, uint64_t len, uint32_t *crc)
{
	struct soft_seg seg = { .src = addr, .len = len };
	struct soft_op op = { .kind = SOFT_CRC32C, .sync = true, .out = true, .crc = crc };

	if (!len)
		return 0;
	return submit_single_seg(to_stream(stream), &op, &seg, false, true);
}

int soft_compare_pages(struct dev_stream *stream, uint64_t a, uint64_t b, uint64_t len, uint64_t bits)
{
	struct soft_stream *s = to_stream(stream);
	struct soft_seg seg = { .dst = a, .src = b, .len = len };
	struct soft_op op = { .kind = SOFT_COMPARE_PAGES, .out = true, .bits = (uint32_t *)(uintptr_t)bits };
	uint64_t bytes = (len / COMPARE_PAGE + 31) / 32 * sizeof(uint32_t);

	if (!len)
		return 0;
	if (len % COMPARE_PAGE)
		return -EINVAL;
	if (s->eng->pin && !soft_hostreg_covers(&s->eng->regs, bits, bytes))
		return -EFAULT;
	return submit_single_seg(s, &op, &seg, true, true);
}

/* Pins one segment whose source is memory of device @peer. */
static int pin_peer_seg(struct soft_engine *eng, struct soft_engine *peer, const struct copy_seg *from,
			struct soft_seg *seg)
{
	int rc;

	*seg = (struct soft_seg){ .dst = from->dst, .src = from->src, .len = from->len };
	rc = pin_range(eng, seg->dst, seg->len, true, &seg->dst_pin);
	return rc ? rc : pin_range(peer, seg->src, seg->len, true, &seg->src_pin);
}

/*
 * Pins one segment of a copy list. On a device with memory of its own, host memory must be registered, as hardware
 * requires it.
 */
static int pin_list_seg(struct soft_engine *eng, const struct copy_seg *from, struct soft_seg *seg)
{
	int rc;

	*seg = (struct soft_seg){ .dst = from->dst, .src = from->src, .len = from->len };
	rc = pin_range(eng, seg->dst, seg->len, false, &seg->dst_pin);
	if (rc)
		return rc;
	rc = pin_range(eng, seg->src, seg->len, false, &seg->src_pin);
	if (rc)
		return rc;
	if (eng->pin) {
		if (!seg->dst_pin && (!seg->src_pin || !soft_hostreg_covers(&eng->regs, seg->dst, seg->len)))
			return -EFAULT;
		if (!seg->src_pin && !soft_hostreg_covers(&eng->regs, seg->src, seg->len))
			return -EFAULT;
	}
	seg->file = !seg->src_pin && soft_hostreg_is_file(&eng->regs, seg->src, seg->len);
	return 0;
}

/* @peer: the engine of the device that has the sources, NULL: they are the stream's own or host memory. */
static int copy_segs(struct soft_stream *s, struct soft_engine *peer, const struct copy_seg *segs, unsigned int n)
{
	struct soft_seg local[LIST_LOCAL], *list = local;
	struct soft_op op = { .kind = SOFT_COPY, .stream = s };
	uint64_t total = 0;
	int rc = 0;

	if (soft_removed(s->eng))
		return -ENODEV;
	if (n > LIST_LOCAL) {
		list = malloc(n * sizeof(*list));
		if (!list)
			return -ENOMEM;
	}
	op.segs = list;
	for (unsigned int i = 0; i < n && !rc; i++) {
		if (!segs[i].len)
			continue;
		rc = peer ? pin_peer_seg(s->eng, peer, &segs[i], &list[op.n_segs]) :
			    pin_list_seg(s->eng, &segs[i], &list[op.n_segs]);
		op.n_segs++;
		total += segs[i].len;
	}
	if (rc || !op.n_segs) {
		soft_op_release(&op);
		goto free_list;
	}
	op.out = list->src_pin && !list->dst_pin;
	op.cost_ns = model_cost(s->eng, total);
	rc = soft_stream_submit(s, &op);
free_list:
	if (list != local)
		free(list);
	return rc;
}

int soft_copy_list(struct dev_stream *stream, const struct copy_seg *segs, unsigned int n)
{
	return copy_segs(to_stream(stream), NULL, segs, n);
}

int soft_copy_peer(struct dev_stream *stream, const struct provider_mem *to, struct strait_device *from_dev,
		   const struct provider_mem *from, const struct copy_seg *segs, unsigned int n)
{
	struct soft_engine *peer = soft_engine(from_dev);

	return soft_removed(peer) ? -ENODEV : copy_segs(to_stream(stream), peer, segs, n);
}
