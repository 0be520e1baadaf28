/* SPDX-License-Identifier: MIT */
/* The card's memory as an endpoint. */
#include <stdlib.h>

#include "base/util.h"
#include "endpoint/dma/dma.h"

struct card {
	struct strait_endpoint ep;
	struct strait_dma *d;
};

static struct card *to_card(struct strait_endpoint *ep)
{
	return container_of(ep, struct card, ep);
}

static int card_length(struct strait_endpoint *ep, uint64_t *bytes)
{
	int rc = atomic_load(&to_card(ep)->d->dead);

	if (!rc)
		*bytes = to_card(ep)->d->card_bytes;
	return rc;
}

/* Memory of the card has no cache to flush. */
static int card_sync(struct strait_endpoint *ep)
{
	return atomic_load(&to_card(ep)->d->dead);
}

static int run(struct strait_dma *d, bool write, uint64_t off, uint64_t len)
{
	struct dma_job job = {
		.pm = d->bounce_map, .card = off, .length = len, .to_card = write, .deadline = UINT64_MAX
	};

	dma_move(d, &job);
	return job.err;
}

static ssize_t card_read(struct strait_endpoint *ep, enum io_mode mode, void *buf, size_t len, uint64_t off)
{
	struct strait_dma *d = to_card(ep)->d;
	uint64_t first = align_down(off, d->align), end;
	int rc;

	if (off >= d->card_bytes)
		return 0;
	len = min_u64(min_u64(len, d->card_bytes - off), DMA_BOUNCE - (off - first));
	end = min_u64(align_up(off + len, d->align), d->card_bytes);
	pthread_mutex_lock(&d->bounce_lock);
	rc = run(d, false, first, end - first);
	if (!rc)
		memcpy(buf, (char *)d->bounce + (off - first), len);
	pthread_mutex_unlock(&d->bounce_lock);
	return rc ? rc : (ssize_t)len;
}

/* Partially written words are a read-modify-write cycle. */
static ssize_t card_write(struct strait_endpoint *ep, enum io_mode mode, const void *buf, size_t len, uint64_t off)
{
	struct strait_dma *d = to_card(ep)->d;
	uint64_t first = align_down(off, d->align), end;
	int rc = 0;

	if (off >= d->card_bytes)
		return -ENOSPC;
	len = min_u64(min_u64(len, d->card_bytes - off), DMA_BOUNCE - (off - first));
	end = min_u64(align_up(off + len, d->align), d->card_bytes);
	pthread_mutex_lock(&d->bounce_lock);
	if (end - first != len)
		rc = run(d, false, first, end - first);
	if (!rc) {
		memcpy((char *)d->bounce + (off - first), buf, len);
		rc = run(d, true, first, end - first);
	}
	pthread_mutex_unlock(&d->bounce_lock);
	return rc ? rc : (ssize_t)len;
}

static int card_dma_map(struct strait_endpoint *ep, struct strait_device *dev, struct strait_region *region,
			uint32_t *reason)
{
	return dma_map_device(to_card(ep)->d, dev, region, reason);
}

static uint64_t card_io(struct strait_endpoint *ep, struct endpoint_io *m)
{
	struct strait_dma *d = to_card(ep)->d;
	struct dma_job job = { .offset = m->region_offset,
			       .card = m->offset,
			       .length = m->length,
			       .to_card = m->write,
			       .deadline = m->deadline,
			       .cancel = m->cancel };
	uint64_t done;

	m->err = range_inside(m->offset, m->length, d->card_bytes) ? dma_map(d, m->region, &job.pm) : -ENOSPC;
	if (m->err)
		return 0;
	done = dma_move(d, &job);
	m->err = job.err;
	m->device_status = job.status;
	return done;
}

static void card_destroy(struct strait_endpoint *ep)
{
	struct card *c = to_card(ep);

	dma_unref(c->d);
	free(c);
}

static const struct endpoint_ops card_ops = {
	.kind = "dma",
	.length = card_length,
	.read = card_read,
	.write = card_write,
	.sync = card_sync,
	.dma_map = card_dma_map,
	.io = card_io,
	.destroy = card_destroy,
};

int dma_endpoint_open(struct strait_dma *d, struct strait_endpoint **ret)
{
	struct card *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	endpoint_init(&c->ep, &card_ops, 0);
	c->ep.facts = (struct endpoint_facts){
		.fs = "dma",
		.direct_reason = STRAIT_WHY_NO_FILE_SYSTEM,
		.can_read = true,
		.can_write = true,
		.can_buffered = true,
		.self_dma = true,
		.dio_align = d->align,
		.dio_mem_align = d->align,
	};
	c->d = d;
	dma_ref(d);
	*ret = &c->ep;
	return 0;
}
