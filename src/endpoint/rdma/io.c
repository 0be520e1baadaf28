/* SPDX-License-Identifier: MIT */
/* RDMA reads and writes of offered memory. */
#include "base/util.h"
#include "endpoint/rdma/mac.h"
#include "endpoint/rdma/session.h"
#include "os/os.h"

#define NS_PER_MS 1000000u

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

/*
 * A short write carries its bytes in the request: the device reads no memory for it. The CPU copies them while it is
 * posted, so the memory must be mapped for certain: an application may unmap what it imported.
 */
static bool may_inline(const struct strait_rdma_session *s, const struct strait_rdma_request *q,
		       const struct registration *reg)
{
	return q->op == STRAIT_WRITE && q->length <= s->inline_max && reg->reach.kind == STRAIT_RDMA_MAPPING &&
	       q->region->mem.caps & STRAIT_REGION_OWNED;
}

/* Post as much of the request as there is room for. */
static int post_some(struct strait_rdma_session *s, const struct strait_rdma_request *q, const struct wire_offer *o,
		     uint64_t *posted)
{
	struct registration *reg;
	uint64_t done = *posted;
	int rc = region_use(q->region, q->region_offset, q->length);

	if (rc)
		return rc;
	rc = reg_local(s, q->region, &reg);
	while (!rc && done < q->length && !qp_is_full(s)) {
		uint64_t n = min_u64(q->length - done, DATA_BYTES);
		struct ibv_sge sge = { .addr = reg->addr + q->region_offset + done,
				       .length = (uint32_t)n,
				       .lkey = reg->mr->lkey };
		struct ibv_send_wr wr = { .opcode = q->op == STRAIT_READ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
					  .sg_list = &sge,
					  .num_sge = 1 };

		if (q->flags & STRAIT_RDMA_AWAITED && n == q->length - done)
			wr.send_flags = IBV_SEND_SIGNALED;
		if (may_inline(s, q, reg))
			wr.send_flags |= IBV_SEND_INLINE;
		wr.wr.rdma.remote_addr = o->addr + q->offer_offset + done;
		wr.wr.rdma.rkey = o->rkey;
		rc = qp_post(s, &wr);
		if (rc)
			break;
		reg->last_ticket = s->posted;
		done += n;
		if (q->op == STRAIT_READ)
			s->bytes_read += n;
		else
			s->bytes_written += n;
	}
	region_unuse(q->region);
	*posted = done;
	return rc;
}

/* The region is in use while requests are posted, and not while the call waits for room: closing it waits for no peer. */
int io_post(struct strait_rdma_session *s, const struct strait_rdma_request *q, uint64_t deadline, uint64_t *ticket)
{
	struct wire_offer o;
	uint64_t done = 0;
	int rc = check_offer(s, q, &o);

	if (rc)
		return rc;
	region_ref(q->region);
	while (!rc && done < q->length) {
		rc = qp_post_room(s, (q->length - done + DATA_BYTES - 1) / DATA_BYTES, deadline);
		if (!rc)
			rc = post_some(s, q, &o, &done);
	}
	region_unref(q->region);
	/* A part of the request is in flight, and the caller cannot know which. */
	if (rc && done)
		session_fail(s, rc);
	if (!rc)
		*ticket = s->posted;
	return rc;
}
