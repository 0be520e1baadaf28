/* SPDX-License-Identifier: MIT */
/* The operations of a provider that does not implement them. */
#include "base/util.h"
#include "device/provider.h"

static int no_open(struct provider *p)
{
	return -EOPNOTSUPP;
}

static void no_close(struct provider *p)
{
}

static int default_info(struct strait_device *dev, struct strait_device_info *info)
{
	device_info_common(dev, info);
	return 0;
}

static int no_mem_alloc(struct strait_device *dev, uint64_t len, struct provider_mem *m)
{
	return -EOPNOTSUPP;
}

static void no_mem_free(struct strait_device *dev, struct provider_mem *m)
{
}

static int no_ptr_device(struct provider *p, uint64_t addr, struct strait_device **ret)
{
	return -ENOENT;
}

static int no_ptr_extent(struct strait_device *dev, uint64_t addr, uint64_t *len)
{
	return -EOPNOTSUPP;
}

static int no_mem_import(struct strait_device *dev, uint64_t addr, uint64_t len, uint32_t flags, struct provider_mem *m)
{
	return -EOPNOTSUPP;
}

/* A provider without identities cannot detect a free: its memory is valid until the device is removed. */
static int no_mem_check(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len)
{
	return atomic_load_explicit(&dev->removed, memory_order_acquire) ? -ENODEV : 0;
}

static int no_mem_dmabuf(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len, int *fd)
{
	return -EOPNOTSUPP;
}

static int no_mem_import_dmabuf(struct strait_device *dev, int fd, uint64_t off, uint64_t len, uint32_t flags,
				struct provider_mem *m)
{
	return -EOPNOTSUPP;
}

static int default_mem_dmabuf_part(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len,
				   int *fd, uint64_t *at)
{
	*at = 0;
	return dev->ops->mem_dmabuf(dev, m, off, len, fd);
}

static int no_mem_map(struct strait_device *dev, const struct provider_mem *m, void **cpu)
{
	return -EOPNOTSUPP;
}

static int no_mem_map_io(struct strait_device *dev, const struct provider_mem *m, uint64_t off, uint64_t len, void **io)
{
	return -EOPNOTSUPP;
}

static void no_mem_unmap_io(struct strait_device *dev, void *io, uint64_t len)
{
}

static int no_mem_sync_memops(struct strait_device *dev, const struct provider_mem *m, bool on)
{
	return -EOPNOTSUPP;
}

static int no_flush_peer_writes(struct strait_device *dev)
{
	return -EOPNOTSUPP;
}

static int no_mmio_map(struct strait_device *dev, void *mmio, size_t len, struct host_reg *ret)
{
	return -EOPNOTSUPP;
}

static bool always_ready(struct strait_device *dev, uint64_t staged)
{
	return true;
}

static void no_host_unregister(struct strait_device *dev, struct host_reg *reg)
{
}

static int no_host_register(struct strait_device *dev, void *ptr, size_t len, uint32_t flags, struct host_reg *ret)
{
	return -EOPNOTSUPP;
}

static int no_stream_open(struct strait_device *dev, const struct provider_mem *m, struct dev_stream **ret)
{
	return -EOPNOTSUPP;
}

static int no_stream_import(struct strait_device *dev, void *native, struct dev_stream **ret)
{
	return -EOPNOTSUPP;
}

static int no_stream_scratch(struct dev_stream *s, uint64_t len, uint64_t *addr)
{
	return -EOPNOTSUPP;
}

static void no_stream_close(struct dev_stream *s)
{
}

static void default_stream_detach(struct dev_stream *s)
{
	s->dev->ops->stream_close(s);
}

static int no_stream_wait(struct dev_stream *s, int64_t timeout_ns)
{
	return -EOPNOTSUPP;
}

static int no_stream_call(struct dev_stream *s, strait_stream_fn *fn, void *arg)
{
	return -EOPNOTSUPP;
}

static int default_stream_notify(struct dev_stream *s, strait_stream_fn *fn, void *arg)
{
	return s->dev->ops->stream_call(s, fn, arg);
}

static int default_context_get(struct strait_device *dev, struct provider_mem *m)
{
	*m = (struct provider_mem){ 0 };
	return 0;
}

static void default_context_put(struct strait_device *dev, struct provider_mem *m)
{
}

static void default_no_action(struct strait_device *dev)
{
}

static bool no_stream_lost(struct dev_stream *s)
{
	return false;
}

static void no_stream_poll_notices(struct dev_stream *s)
{
}

static int no_stream_wait_word(struct dev_stream *s, _Atomic uint32_t *word, uint64_t dev_addr, uint32_t value)
{
	return -EOPNOTSUPP;
}

/* A device that polls the word needs no more than the store. */
static void default_word_post(struct strait_device *dev, _Atomic uint32_t *word, uint32_t value)
{
	atomic_store_explicit(word, value, memory_order_release);
}

static int no_mark_open(struct dev_stream *s)
{
	return -EOPNOTSUPP;
}

static int no_copy_marked(struct dev_stream *s, const struct marked_copy *copies, unsigned int n)
{
	return -EOPNOTSUPP;
}

static int default_stream_wait_soon(struct dev_stream *s)
{
	return s->dev->ops->stream_wait(s, STRAIT_FOREVER);
}

static int no_copy_in(struct dev_stream *s, uint64_t dst, const void *src, uint64_t len)
{
	return -EOPNOTSUPP;
}

static int no_copy_out(struct dev_stream *s, void *dst, uint64_t src, uint64_t len)
{
	return -EOPNOTSUPP;
}

static int default_copy_pages(struct dev_stream *s, uint64_t dst, const struct host_reg *reg, uint64_t off,
			      uint64_t len)
{
	return s->dev->ops->copy_in(s, dst, (char *)reg->ptr + off, len);
}

static int no_copy_list(struct dev_stream *s, const struct copy_seg *segs, unsigned int n)
{
	return -EOPNOTSUPP;
}

static int no_copy_peer(struct dev_stream *s, const struct provider_mem *to, struct strait_device *from_dev,
			const struct provider_mem *from, const struct copy_seg *segs, unsigned int n)
{
	return -EOPNOTSUPP;
}

static int no_fill(struct dev_stream *s, uint64_t dst, uint8_t value, uint64_t len)
{
	return -EOPNOTSUPP;
}

static int no_compare(struct dev_stream *s, uint64_t a, uint64_t b, uint64_t len, uint64_t *where)
{
	return -EOPNOTSUPP;
}

static int no_crc32c(struct dev_stream *s, uint64_t addr, uint64_t len, uint32_t *crc)
{
	return -EOPNOTSUPP;
}

static int no_compare_pages(struct dev_stream *s, uint64_t a, uint64_t b, uint64_t len, uint64_t bits)
{
	return -EOPNOTSUPP;
}

static int no_event_open(struct dev_stream *s, struct dev_event **ret)
{
	return -EOPNOTSUPP;
}

static void no_event_close(struct dev_event *e)
{
}

static int no_event_record(struct dev_event *e, struct dev_stream *s)
{
	return -EOPNOTSUPP;
}

static int no_event_wait(struct dev_event *e, int64_t timeout_ns)
{
	return -EOPNOTSUPP;
}

static int default_stream_open_isolated(struct strait_device *dev, const struct provider_mem *m,
					struct dev_stream **ret)
{
	return dev->ops->stream_open(dev, m, ret);
}

static int no_copy_within_now(struct dev_stream *s, uint64_t dst, uint64_t src, uint64_t len)
{
	return -EOPNOTSUPP;
}

static int default_copy_now(struct dev_stream *s, uint64_t addr, void *host, uint64_t len, bool out)
{
	const struct provider_ops *ops = s->dev->ops;
	int rc;

	rc = out ? ops->copy_out(s, host, addr, len) : ops->copy_in(s, addr, host, len);
	return rc ? rc : ops->stream_wait(s, STRAIT_FOREVER);
}

const struct provider_ops provider_default_ops = {
	.name = "default",
	.open = no_open,
	.close = no_close,
	.info = default_info,
	.mem_alloc = no_mem_alloc,
	.mem_alloc_pinnable = no_mem_alloc,
	.mem_free = no_mem_free,
	.ptr_device = no_ptr_device,
	.ptr_extent = no_ptr_extent,
	.mem_import = no_mem_import,
	.mem_release = no_mem_free,
	.mem_check = no_mem_check,
	.mem_dmabuf = no_mem_dmabuf,
	.mem_dmabuf_part = default_mem_dmabuf_part,
	.mem_import_dmabuf = no_mem_import_dmabuf,
	.mem_map = no_mem_map,
	.mem_map_io = no_mem_map_io,
	.mem_unmap_io = no_mem_unmap_io,
	.mem_sync_memops = no_mem_sync_memops,
	.flush_peer_writes = no_flush_peer_writes,
	.mmio_map = no_mmio_map,
	.mmio_unmap = no_host_unregister,
	.host_register = no_host_register,
	.host_unregister = no_host_unregister,
	.register_ready = always_ready,
	.context_get = default_context_get,
	.context_put = default_context_put,
	.stream_open = no_stream_open,
	.stream_open_isolated = default_stream_open_isolated,
	.stream_scratch = no_stream_scratch,
	.stream_import = no_stream_import,
	.stream_close = no_stream_close,
	.stream_detach = default_stream_detach,
	.stream_wait = no_stream_wait,
	.stream_call = no_stream_call,
	.stream_notify = default_stream_notify,
	.stream_lost = no_stream_lost,
	.stream_poll_notices = no_stream_poll_notices,
	.stream_wait_word = no_stream_wait_word,
	.word_post = default_word_post,
	.mark_open = no_mark_open,
	.copy_marked = no_copy_marked,
	.stream_wait_soon = default_stream_wait_soon,
	.copy_in = no_copy_in,
	.copy_pages = default_copy_pages,
	.copy_out = no_copy_out,
	.copy_list = no_copy_list,
	.copy_peer = no_copy_peer,
	.prepare_copy_lists = default_no_action,
	.stream_waits_begin = default_no_action,
	.stream_waits_end = default_no_action,
	.fill = no_fill,
	.compare = no_compare,
	.crc32c = no_crc32c,
	.compare_pages = no_compare_pages,
	.event_open = no_event_open,
	.event_close = no_event_close,
	.event_record = no_event_record,
	.event_wait = no_event_wait,
	.copy_now = default_copy_now,
	.copy_within_now = no_copy_within_now,
};

void provider_ops_overlay(struct provider_ops *table, const struct provider_ops *has)
{
	_Static_assert(sizeof(*table) % sizeof(void (*)(void)) == 0,
		       "a member of struct provider_ops is not a pointer");

	ops_overlay(table, &provider_default_ops, has, sizeof(*table));
}
