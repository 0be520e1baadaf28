/* SPDX-License-Identifier: MIT */
/* What all kinds of endpoints share: the operations that a kind does not implement. */
#include "endpoint/endpoint.h"

#include <errno.h>

#include "base/util.h"

static int no_length(struct strait_endpoint *ep, uint64_t *bytes)
{
	return -EOPNOTSUPP;
}

static int no_cached(struct strait_endpoint *ep, uint64_t off, uint64_t len, uint64_t *bytes)
{
	return -EOPNOTSUPP;
}

static ssize_t no_read(struct strait_endpoint *ep, enum io_mode mode, void *buf, size_t len, uint64_t off)
{
	return -EOPNOTSUPP;
}

static ssize_t no_read_cached(struct strait_endpoint *ep, void *buf, size_t len, uint64_t off)
{
	return -EOPNOTSUPP;
}

static ssize_t no_write(struct strait_endpoint *ep, enum io_mode mode, const void *buf, size_t len, uint64_t off)
{
	return -EOPNOTSUPP;
}

static int no_fd(struct strait_endpoint *ep, enum io_mode mode)
{
	return -EBADF;
}

static int no_map(struct strait_endpoint *ep, uint64_t off, size_t len, void **ret)
{
	return -EOPNOTSUPP;
}

static bool never_unchanged(struct strait_endpoint *ep)
{
	return false;
}

static int no_lease(struct strait_endpoint *ep, int tid)
{
	return -EOPNOTSUPP;
}

static void no_unlease(struct strait_endpoint *ep)
{
}

static int no_sync(struct strait_endpoint *ep)
{
	return -EOPNOTSUPP;
}

static int no_dma_map(struct strait_endpoint *ep, struct strait_device *dev, struct strait_region *region,
		      uint32_t *reason)
{
	*reason = STRAIT_WHY_NO_DEVICE_MAP;
	return -EOPNOTSUPP;
}

static uint64_t no_io(struct strait_endpoint *ep, struct endpoint_io *m)
{
	m->err = -EOPNOTSUPP;
	return 0;
}

static int no_batch_open(struct strait_endpoint *ep, unsigned int *room, struct endpoint_batch **ret)
{
	return -EOPNOTSUPP;
}

static int no_batch_start(struct endpoint_batch *b, struct endpoint_io_async *f)
{
	return -EOPNOTSUPP;
}

static unsigned int no_batch_reap(struct endpoint_batch *b, struct endpoint_io_async **completed, unsigned int max)
{
	return 0;
}

static void no_batch(struct endpoint_batch *b)
{
}

static void no_destroy(struct strait_endpoint *ep)
{
}

static const struct endpoint_ops default_ops = {
	.kind = "default",
	.length = no_length,
	.cached = no_cached,
	.read = no_read,
	.read_cached = no_read_cached,
	.write = no_write,
	.fd = no_fd,
	.map = no_map,
	.unchanged = never_unchanged,
	.lease = no_lease,
	.unlease = no_unlease,
	.sync = no_sync,
	.dma_map = no_dma_map,
	.io = no_io,
	.batch_open = no_batch_open,
	.batch_start = no_batch_start,
	.batch_reap = no_batch_reap,
	.batch_wake = no_batch,
	.batch_close = no_batch,
	.destroy = no_destroy,
};

void endpoint_init(struct strait_endpoint *ep, const struct endpoint_ops *has, uint32_t flags)
{
	_Static_assert(sizeof(ep->table) % sizeof(void (*)(void)) == 0,
		       "a member of struct endpoint_ops is no pointer");

	ops_overlay(&ep->table, &default_ops, has, sizeof(ep->table));
	ep->ops = &ep->table;
	ep->flags = flags;
	atomic_init(&ep->refs, 1);
}
