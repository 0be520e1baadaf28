/* SPDX-License-Identifier: MIT */
#include "engine/p2p/pair.h"

#include <stdlib.h>

#include "base/util.h"
#include "device/verify.h"
#include "module/module.h"
#include "os/os.h"

#define TRIES 3 /* if the file changes meanwhile */

/* Three blocks of host memory, aligned for direct I/O. */
struct blocks {
	unsigned char *truth, *back, *again;
	uint64_t len;
};

static int blocks_get(struct blocks *b, const struct strait_endpoint *ep)
{
	void *p;
	int rc;

	b->len = max_u64(ep->facts.dio_align, os_page_size());
	rc = os_map_anon(3 * b->len, -1, &p);
	if (rc)
		return rc;
	b->truth = p;
	b->back = b->truth + b->len;
	b->again = b->back + b->len;
	return 0;
}

static bool read_block(struct strait_endpoint *ep, void *buf, uint64_t len, uint64_t off)
{
	return ep->ops->read(ep, IO_DIRECT, buf, len, off) == (ssize_t)len;
}

struct drive_read {
	const struct p2p_scratch *s;
	struct strait_ioc_io io;
};

/* Makes the drive write the block. That it refuses counts as not arriving. */
static int drive_read(void *arg)
{
	struct drive_read *d = arg;
	int rc = module_io(d->s->ctx->p2p.fd, &d->io);

	return rc || d->io.done != d->io.length ? -EREMOTEIO : 0;
}

/* Verifies one block: as verify_block(), or -EAGAIN where the file changed meanwhile. */
static int try_block(const struct p2p_scratch *s, struct dev_stream *stream, struct blocks *b, uint64_t off)
{
	struct drive_read d = { .s = s,
				.io = { .handle = s->handle,
					.fd = s->ep->ops->fd(s->ep, IO_DIRECT),
					.op = STRAIT_OP_READ,
					.file_offset = off,
					.region_offset = s->start,
					.length = b->len } };
	int rc;

	if (!read_block(s->ep, b->truth, b->len, off))
		return -ENODATA;
	rc = verify_block(stream, s->mem.addr, b->truth, b->back, b->len, drive_read, &d);
	if (rc && rc != -EREMOTEIO)
		return rc;
	if (!read_block(s->ep, b->again, b->len, off) || memcmp(b->again, b->truth, b->len))
		return -EAGAIN;
	return rc;
}

static int try_pair(const struct p2p_scratch *s)
{
	struct lane_stream *ls;
	struct blocks b;
	uint64_t off = 0;
	int rc;

	if (!s->ep->facts.can_read)
		return -EBADF;
	rc = blocks_get(&b, s->ep);
	if (rc)
		return rc;
	/* For a hole the kernel writes zeros itself, which proves nothing about the drive. */
	rc = s->ep->facts.is_block ? 0 : os_data_on_drive(s->ep->ops->fd(s->ep, IO_DIRECT), b.len, &off);
	if (rc)
		goto unmap;
	rc = engine_stream_get(s->dev, &s->mem, true, &ls);
	if (rc)
		goto unmap;
	rc = -EAGAIN;
	for (int i = 0; rc == -EAGAIN && i < TRIES; i++)
		rc = try_block(s, ls->stream, &b, off);
	engine_stream_put(s->dev, ls, rc && rc != -EREMOTEIO);
unmap:
	os_unmap(b.truth, 3 * b.len);
	return rc;
}

static struct p2p_pair *pair_find(struct p2p *p, const char *drive, const char *device)
{
	list_for_each(it, &p->pairs) {
		struct p2p_pair *pair = list_entry(it, struct p2p_pair, node);

		if (!strcmp(pair->drive, drive) && !strcmp(pair->device, device))
			return pair;
	}
	return NULL;
}

enum route_reason p2p_pair_verify(struct p2p *p, const struct p2p_scratch *s, const char *drive, const char *device)
{
	struct p2p_pair *pair = pair_find(p, drive, device);
	int rc;

	if (pair)
		return pair->good ? ROUTE_OK : ROUTE_PAIR;
	rc = try_pair(s);
	if (rc && rc != -EREMOTEIO)
		return ROUTE_UNVERIFIED;
	pair = calloc(1, sizeof(*pair));
	if (!pair)
		return ROUTE_UNVERIFIED;
	str_copy(pair->drive, sizeof(pair->drive), drive);
	str_copy(pair->device, sizeof(pair->device), device);
	pair->good = !rc;
	list_add_tail(&p->pairs, &pair->node);
	if (pair->good)
		log_info(&s->ctx->log, "p2p: drive %s reaches the memory of %s", drive, device);
	else
		log_warn(&s->ctx->log,
			 "p2p: writes of drive %s to the memory of %s do not arrive: the route is not used", drive,
			 device);
	return pair->good ? ROUTE_OK : ROUTE_PAIR;
}
