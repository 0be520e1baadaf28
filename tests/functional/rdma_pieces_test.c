/* SPDX-License-Identifier: MIT */
/* Requests of several ranges of memory: every byte, how many work requests they take, what is refused, memory that goes away. */
#include <sys/mman.h>

#include "endpoint/rdma/session.h"
#include "rdma.h"

TEST_PROGRAM_NEEDS(rdma_missing)

#define SECOND 1000000000ll
#define LEN MIB(2)
#define SOON (5ull * SECOND * test_slow())

struct rig {
	struct rdma_pair p;
	struct strait_region *far, *near[3]; /* offered; of the initiator: of the device, of the host, imported */
	struct strait_rdma_offer *offer;
	char text[STRAIT_RDMA_OFFER_TEXT];
	uint8_t *mine; /* memory of the last one */
};

static void rig_open(struct rig *r)
{
	struct strait_device *host;

	rdma_pair_open(&r->p);
	r->far = rdma_memory(r->p.ctx, LEN, 0x11);
	r->near[0] = rdma_memory(r->p.ctx, LEN, 0x22);
	ASSERT_OK(strait_device_find(r->p.ctx, "host", &host));
	ASSERT_OK(strait_region_alloc(host, LEN, &r->near[1]));
	r->mine = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_TRUE(r->mine != MAP_FAILED);
	ASSERT_OK(strait_region_import(r->p.ctx, host, r->mine, LEN, &r->near[2]));
	ASSERT_OK(strait_rdma_offer(r->p.offers, r->far, 0, LEN, STRAIT_RDMA_PEER_WRITES | STRAIT_RDMA_PEER_READS,
				    STRAIT_FOREVER, &r->offer));
	ASSERT_OK(strait_rdma_offer_text(r->offer, r->text, NULL));
}

static void rig_close(struct rig *r)
{
	strait_rdma_offer_close(r->offer);
	rdma_pair_close(&r->p);
	for (unsigned int i = 0; i < 3; i++)
		strait_region_close(r->near[i]);
	strait_region_close(r->far);
	munmap(r->mine, LEN);
}

static uint64_t sum(const struct strait_rdma_piece *piece, uint32_t n)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n; i++)
		bytes += piece[i].length;
	return bytes;
}

static int request(struct rig *r, uint32_t op, const struct strait_rdma_piece *piece, uint32_t n, uint64_t far)
{
	struct strait_rdma_request q = { .op = op,
					 .offer = r->text,
					 .offer_offset = far,
					 .length = sum(piece, n),
					 .pieces = piece,
					 .piece_count = n };
	uint64_t ticket;
	int rc = strait_rdma_post(r->p.initiates, &q, 20 * SECOND, &ticket);

	return rc ? rc : strait_rdma_wait(r->p.initiates, ticket, 60 * SECOND);
}

/* Pieces of all regions, from 1 byte on, some longer than a work request. They do not overlap: a read would not say which wins. */
static uint32_t random_pieces(struct rig *r, uint64_t *state, struct strait_rdma_piece *piece)
{
	uint32_t n = 1 + (uint32_t)prng_below(state, 40);
	uint64_t used[3] = { 0 }, longest = prng_below(state, 2) ? 300 : LEN / 3;
	uint32_t i;

	for (i = 0; i < n; i++) {
		uint32_t k = (uint32_t)prng_below(state, 3);
		uint64_t skip = prng_below(state, 100), len = 1 + prng_below(state, longest);

		if (skip + len > LEN - used[k] || sum(piece, i) + len > LEN)
			break;
		piece[i] = (struct strait_rdma_piece){ r->near[k], used[k] + skip, len };
		used[k] += skip + len;
	}
	if (i)
		return i;
	piece[0] = (struct strait_rdma_piece){ r->near[0], 5, 5 };
	return 1;
}

static uint32_t index_of(const struct rig *r, const struct strait_region *region)
{
	return region == r->near[0] ? 0 : region == r->near[1] ? 1 : 2;
}

TEST_TIMEOUT(pieces_are_gathered_and_scattered, 240)
{
	uint8_t *near[3], *far = malloc(LEN), *have = malloc(LEN);
	struct strait_rdma_piece piece[40];
	uint64_t state = 5;
	struct rig r;

	rig_open(&r);
	memset(far, 0x11, LEN);
	for (unsigned int k = 0; k < 3; k++) {
		near[k] = pattern_new(0, LEN, k + 20);
		ASSERT_OK(strait_region_copy_in(r.near[k], 0, near[k], LEN));
	}
	for (unsigned int round = 0; round < (very_slow() ? 6 : 30); round++) {
		uint32_t n = random_pieces(&r, &state, piece);
		uint64_t at = prng_below(&state, LEN - sum(piece, n) + 1);
		bool write = round % 2;

		ASSERT_OK(request(&r, write ? STRAIT_WRITE : STRAIT_READ, piece, n, at));
		for (uint32_t i = 0; i < n; i++) {
			uint8_t *part = near[index_of(&r, piece[i].region)] + piece[i].offset;

			if (write)
				memcpy(far + at, part, piece[i].length);
			else
				memcpy(part, far + at, piece[i].length);
			at += piece[i].length;
		}
		ASSERT_OK(strait_rdma_offer_flush(r.offer));
		ASSERT_OK(strait_region_copy_out(r.far, 0, have, LEN));
		ASSERT_MEMEQ(have, far, LEN);
		for (unsigned int k = 0; k < 3; k++) {
			ASSERT_OK(strait_region_copy_out(r.near[k], 0, have, LEN));
			ASSERT_MEMEQ(have, near[k], LEN);
		}
	}
	for (unsigned int k = 0; k < 3; k++)
		free(near[k]);
	free(far);
	free(have);
	rig_close(&r);
}

static __typeof__(verbs.ibv_query_device) real_query;
static int limit, limit_read;

static int query_limited(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	int rc = real_query(ctx, attr);

	attr->max_sge = limit;
	attr->max_sge_rd = limit_read;
	return rc;
}

static const struct device {
	const char *name;
	int limit, limit_read;
	unsigned int writes, reads;
} devices[] = {
	{ "many", 1000, 1000, 4, 4 },
	{ "5, and 2 of a read", 5, 2, 13, 32 },
	{ "1", 1, 1, 64, 64 },
	{ "a read's are not known", 8, 0, 8, 64 },
};

static uint64_t work_requests(struct rig *r)
{
	struct strait_rdma_info info = { .size = sizeof(info) };

	ASSERT_OK(strait_rdma_info(r->p.initiates, &info));
	return info.requests;
}

/* 64 short pieces, in as few work requests as the device allows; 16 ranges at most. */
TEST_VARIANTS(work_requests_have_the_ranges_that_the_device_takes, struct device, devices)
{
	struct strait_rdma_piece piece[64];
	char why[256];
	uint64_t before;
	struct rig r;

	ASSERT_OK(verbs_load(why, sizeof(why)));
	real_query = verbs.ibv_query_device;
	limit = v->limit;
	limit_read = v->limit_read;
	verbs.ibv_query_device = query_limited;
	rig_open(&r);
	verbs.ibv_query_device = real_query;
	for (uint32_t i = 0; i < 64; i++)
		piece[i] = (struct strait_rdma_piece){ r.near[i % 3], 100 * i, 50 };
	for (unsigned int op = 0; op < 2; op++) {
		unsigned int want = op ? v->writes : v->reads;

		before = work_requests(&r);
		ASSERT_OK(request(&r, op ? STRAIT_WRITE : STRAIT_READ, piece, 64, 77));
		/* And those that are posted for the wait: one for each queue pair. */
		ASSERT_GE(work_requests(&r) - before, want);
		ASSERT_LE(work_requests(&r) - before, want + r.p.initiates->lanes);
	}
	rig_close(&r);
}

/* Bytes in the request itself: from memory that Strait allocated, and not from what was imported. */
TEST(short_pieces_are_gathered)
{
	uint8_t want[300], have[300];
	struct rig r;

	rig_open(&r);
	for (uint32_t n = 1; n <= 16; n++) {
		for (uint32_t last = 0; last < 3; last++) {
			struct strait_rdma_piece piece[16];

			for (uint32_t i = 0; i < n; i++) {
				piece[i] = (struct strait_rdma_piece){ r.near[i + 1 == n ? last : i % 2], 40 * i, n };
				prng_fill(want + i * n, n, n * 16 + i);
				ASSERT_OK(strait_region_copy_in(piece[i].region, piece[i].offset, want + i * n, n));
			}
			ASSERT_OK(request(&r, STRAIT_WRITE, piece, n, 3));
			ASSERT_OK(strait_rdma_offer_flush(r.offer));
			ASSERT_OK(strait_region_copy_out(r.far, 3, have, n * n));
			ASSERT_MEMEQ(have, want, n * n);
		}
	}
	rig_close(&r);
}

TEST(pieces_are_checked_before_any_is_posted)
{
	struct strait_rdma_piece good = { 0 }, piece[STRAIT_RDMA_PIECES_MAX + 1];
	struct strait_context *other = context_new(NULL);
	struct strait_rdma_request q = { .op = STRAIT_WRITE };
	struct strait_region *foreign = rdma_memory(other, 4096, 0);
	uint64_t ticket, before;
	struct rig r;

	rig_open(&r);
	before = work_requests(&r);
	good = (struct strait_rdma_piece){ r.near[0], 0, 1000 };
	for (uint32_t i = 0; i <= STRAIT_RDMA_PIECES_MAX; i++)
		piece[i] = (struct strait_rdma_piece){ r.near[0], i, 1 };
	ASSERT_EQ(request(&r, STRAIT_WRITE, piece, STRAIT_RDMA_PIECES_MAX + 1, 0), -EINVAL);
	for (unsigned int i = 0; i < 6; i++) {
		struct strait_rdma_piece bad = good;

		bad.region = i == 0 ? NULL : i == 1 ? foreign : good.region;
		bad.length = i == 2 ? 0 : i == 3 ? LEN + 1 : i == 4 ? UINT64_MAX - 500 : 1000;
		bad.offset = i == 5 ? LEN - 999 : 0;
		memcpy(piece, (struct strait_rdma_piece[]){ good, bad }, sizeof(good) * 2);
		ASSERT_EQ(request(&r, STRAIT_WRITE, piece, 2, 0), -EINVAL);
	}
	q = (struct strait_rdma_request){
		.op = STRAIT_WRITE, .offer = r.text, .length = 1000, .pieces = &good, .piece_count = 1
	};
	q.region = r.near[0]; /* both */
	ASSERT_EQ(strait_rdma_post(r.p.initiates, &q, 0, &ticket), -EINVAL);
	q.region = NULL;
	q.length = 999;
	ASSERT_EQ(strait_rdma_post(r.p.initiates, &q, 0, &ticket), -EINVAL);
	q.length = 1001;
	ASSERT_EQ(strait_rdma_post(r.p.initiates, &q, 0, &ticket), -EINVAL);
	q.length = 1000;
	q.reserved = 1;
	ASSERT_EQ(strait_rdma_post(r.p.initiates, &q, 0, &ticket), -EINVAL);
	q.reserved = 0;
	q.piece_count = 0;
	ASSERT_EQ(strait_rdma_post(r.p.initiates, &q, 0, &ticket), -EINVAL);
	q.pieces = NULL;
	ASSERT_EQ(strait_rdma_post(r.p.initiates, &q, 0, &ticket), -EINVAL);
	/* Outside the offer. */
	ASSERT_EQ(request(&r, STRAIT_WRITE, &good, 1, LEN - 999), -EINVAL);
	ASSERT_EQ(work_requests(&r), before);
	ASSERT_OK(request(&r, STRAIT_WRITE, &good, 1, LEN - 1000));
	strait_region_close(foreign);
	strait_context_close(other);
	rig_close(&r);
}

struct poster {
	struct rig *r;
	atomic_uint posted;
	int rc;
};

static void *post_until_error(void *arg)
{
	struct poster *v = arg;
	struct strait_rdma_piece piece[2] = { { v->r->near[0], 0, 30000 }, { v->r->near[1], 7, 30000 } };
	struct strait_rdma_request q = {
		.op = STRAIT_WRITE, .offer = v->r->text, .length = 60000, .pieces = piece, .piece_count = 2
	};
	uint64_t ticket;

	do {
		v->rc = strait_rdma_post(v->r->p.initiates, &q, STRAIT_FOREVER, &ticket);
		atomic_fetch_add(&v->posted, 1);
	} while (!v->rc);
	return NULL;
}

/* The send queue is full behind messages that the peer does not take; requests in it name both regions. */
TEST_TIMEOUT(closing_the_region_of_a_piece_waits_for_no_peer, 120)
{
	struct poster v = { 0 };
	unsigned int before;
	pthread_t thread;
	uint64_t start;
	struct rig r;

	rig_open(&r);
	v.r = &r;
	for (unsigned int i = 0; i < 2 * CONTROL_SLOTS; i++)
		if (strait_rdma_send(r.p.initiates, "x", 1, SECOND))
			break;
	ASSERT_EQ(pthread_create(&thread, NULL, post_until_error, &v), 0);
	do {
		before = atomic_load(&v.posted);
		usleep(500000);
	} while (atomic_load(&v.posted) != before);
	start = os_now_ns();
	strait_region_close(r.near[1]);
	r.near[1] = NULL;
	ASSERT_LT(os_now_ns() - start, SOON);
	pthread_join(thread, NULL);
	ASSERT_EQ(v.rc, -ENODEV);
	rig_close(&r);
}
