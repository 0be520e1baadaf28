/* SPDX-License-Identifier: MIT */
/*
 * RDMA reads and writes of offered memory: a request is divided into work requests, each of up to DATA_BYTES and as many
 * ranges of memory as the device takes.
 */
#include "base/util.h"
#include "endpoint/rdma/mac.h"
#include "endpoint/rdma/session.h"
#include "os/os.h"

#define NS_PER_MS 1000000u

/* A request, and how far it is posted. */
struct io {
	const struct strait_rdma_request *q;
	struct wire_offer offer;
	struct strait_rdma_piece whole; /* of a request without pieces */
	const struct strait_rdma_piece *piece;
	uint32_t pieces;
	uint32_t at;   /* the piece that is to be posted next */
	uint64_t used; /* bytes of it that are posted */
	uint64_t done; /* bytes of the request that are posted */
};

static int check_offer(struct strait_rdma_session *s, const struct strait_rdma_request *q, struct wire_offer *o)
{
	uint32_t right = q->op == STRAIT_READ ? STRAIT_RDMA_PEER_READS : STRAIT_RDMA_PEER_WRITES;
	size_t len = strnlen(q->offer, WIRE_OFFER_TEXT);
	int rc = 0;

	/* Computing a MAC takes longer than posting a request: most requests name the same offer as the one before. */
	if (len != WIRE_OFFER_TEXT - 1 || memcmp(q->offer, s->offer_text, len)) {
		rc = wire_offer_decode(mac_hmac, s->offer_key, s->session, q->offer, len, &s->offer_seen);
		memcpy(s->offer_text, q->offer, rc ? 0 : len);
	}
	if (rc)
		s->offer_text[0] = '\0';
	*o = s->offer_seen;
	return rc ? rc : wire_offer_allows(o, right, q->offer_offset, q->length, (os_now_ns() - s->began) / NS_PER_MS);
}

/* The pieces of the request, checked and registered: from here on only their end can fail it. */
static int prepare(struct strait_rdma_session *s, struct io *io)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < io->pieces; i++) {
		const struct strait_rdma_piece *p = &io->piece[i];
		struct registration *reg;
		int rc;

		if (p->length > io->q->length - sum)
			return -EINVAL;
		sum += p->length;
		rc = region_use(p->region, p->offset, p->length);
		if (rc)
			return rc;
		rc = reg_local(s, p->region, &reg);
		region_unuse(p->region);
		if (rc)
			return rc;
	}
	return sum == io->q->length ? 0 : -EINVAL;
}

/*
 * A short write carries its bytes in the request: the device reads no memory for it. The CPU copies them while it is
 * posted, so the memory must be mapped for certain: an application may unmap what it imported.
 */
static bool may_inline(const struct strait_rdma_piece *p, const struct registration *reg)
{
	return reg->reach.kind == STRAIT_RDMA_MAPPING && p->region->mem.caps & STRAIT_REGION_OWNED;
}

/* A work request being made. Its regions are in use. */
struct batch {
	struct ibv_sge sge[SGES_MAX];
	struct registration *reg[SGES_MAX];
	struct strait_region *region[SGES_MAX];
	uint32_t n;
	uint64_t bytes;
	bool may_inline;
};

/* Take the next ranges of the request, and advance it behind them. */
static int fill_batch(struct strait_rdma_session *s, struct io *io, struct batch *b)
{
	uint32_t most = io->q->op == STRAIT_READ ? s->sges_read : s->sges;

	*b = (struct batch){ .may_inline = io->q->op == STRAIT_WRITE };
	while (b->n < most && b->bytes < DATA_BYTES && io->at < io->pieces) {
		const struct strait_rdma_piece *p = &io->piece[io->at];
		uint64_t off = p->offset + io->used, n = min_u64(p->length - io->used, DATA_BYTES - b->bytes);
		struct registration *reg;
		int rc = region_use(p->region, off, n);

		if (rc)
			return rc;
		b->region[b->n] = p->region;
		rc = reg_local(s, p->region, &reg);
		b->n++;
		if (rc)
			return rc;
		b->reg[b->n - 1] = reg;
		b->sge[b->n - 1] =
			(struct ibv_sge){ .addr = reg->addr + off, .length = (uint32_t)n, .lkey = reg->mr->lkey };
		b->bytes += n;
		b->may_inline &= may_inline(p, reg);
		io->used += n;
		if (io->used == p->length) {
			io->at++;
			io->used = 0;
		}
	}
	return 0;
}

static int post_batch(struct strait_rdma_session *s, struct io *io, struct batch *b)
{
	const struct strait_rdma_request *q = io->q;
	struct ibv_send_wr wr = { .opcode = q->op == STRAIT_READ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
				  .sg_list = b->sge,
				  .num_sge = (int)b->n };
	int rc;

	if (q->flags & STRAIT_RDMA_AWAITED && b->bytes == q->length - io->done)
		wr.send_flags = IBV_SEND_SIGNALED;
	if (b->may_inline && b->bytes <= s->inline_max)
		wr.send_flags |= IBV_SEND_INLINE;
	wr.wr.rdma.remote_addr = io->offer.addr + q->offer_offset + io->done;
	wr.wr.rdma.rkey = io->offer.rkey;
	rc = qp_post(s, &wr);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < b->n; i++)
		b->reg[i]->last_ticket = s->posted;
	io->done += b->bytes;
	if (q->op == STRAIT_READ)
		s->bytes_read += b->bytes;
	else
		s->bytes_written += b->bytes;
	return 0;
}

/* Post as much of the request as there is room for. */
static int post_some(struct strait_rdma_session *s, struct io *io)
{
	int rc = 0;

	while (!rc && io->done < io->q->length && !qp_is_full(s)) {
		struct batch b;

		rc = fill_batch(s, io, &b);
		if (!rc)
			rc = post_batch(s, io, &b);
		for (uint32_t i = 0; i < b.n; i++)
			region_unuse(b.region[i]);
	}
	return rc;
}

/* At most so many work requests are left. */
static uint64_t left(const struct strait_rdma_session *s, const struct io *io)
{
	uint64_t n = (io->q->length - io->done + DATA_BYTES - 1) / DATA_BYTES, more = io->pieces - io->at - 1;

	/* One ends when it is full, and divides a piece, or when it has all the ranges it can have. */
	return more ? n + (more + n) / (io->q->op == STRAIT_READ ? s->sges_read : s->sges) : n;
}

/* Regions are in use while requests are posted, and not while the call waits for room: closing one waits for no peer. */
int io_post(struct strait_rdma_session *s, const struct strait_rdma_request *q, uint64_t deadline, uint64_t *ticket)
{
	struct io io = { .q = q, .whole = { q->region, q->region_offset, q->length } };
	int rc = check_offer(s, q, &io.offer);

	if (rc)
		return rc;
	io.piece = q->pieces ? q->pieces : &io.whole;
	io.pieces = q->pieces ? q->piece_count : 1;
	for (uint32_t i = 0; i < io.pieces; i++)
		region_ref(io.piece[i].region);
	rc = prepare(s, &io);
	while (!rc && io.done < q->length) {
		rc = qp_post_room(s, left(s, &io), deadline);
		if (!rc)
			rc = post_some(s, &io);
	}
	for (uint32_t i = 0; i < io.pieces; i++)
		region_unref(io.piece[i].region);
	/* A part of the request is in flight, and the caller cannot know which. */
	if (rc && io.done)
		session_fail(s, rc);
	if (!rc)
		*ticket = s->posted;
	return rc;
}
