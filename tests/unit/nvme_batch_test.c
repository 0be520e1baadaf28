/* SPDX-License-Identifier: MIT */
/* Queued transfers of namespaces: many commands in flight, whichever thread submits them. */
#include "nvme_common.h"

#define MANY 48u
#define BLOCK 4096u

struct user {
	struct rig r;
	struct strait_endpoint *ep;
	struct strait_region *region;
	struct strait_queue *q;
	uint8_t *cpu, *disk;
};

static void begin(struct user *u, const struct model_config *c, const struct strait_nvme_opts *opts, const char *device)
{
	struct strait_nvme_opts o = *opts;

	o.size = sizeof(o);
	rig_open(&u->r, c, &o);
	u->region = rig_region(&u->r, device, MIB(1));
	u->cpu = rig_cpu(u->region);
	u->disk = u->r.model->disk[0];
	prng_fill(u->disk, MIB(8), 3);
	ASSERT_OK(strait_nvme_endpoint(u->r.nvme, 1, 0, &u->ep));
	ASSERT_OK(strait_queue_open(u->r.ctx, NULL, &u->q));
	/* Verifies the pair first, so that every command from now on is the test's. */
	ASSERT_EQ(strait_read(u->ep, 0, u->region, 0, BLOCK), BLOCK);
}

static void end(struct user *u)
{
	strait_queue_close(u->q);
	strait_endpoint_close(u->ep);
	strait_region_close(u->region);
	rig_close(&u->r);
}

static struct strait_transfer block(struct user *u, uint32_t op, unsigned int i)
{
	return (struct strait_transfer){ .op = op,
					 .endpoint = u->ep,
					 .region = u->region,
					 .endpoint_offset = (uint64_t)(MANY - i) * BLOCK,
					 .region_offset = (uint64_t)i * BLOCK,
					 .length = BLOCK,
					 .user_data = i };
}

static struct {
	atomic_uint n;
	uint16_t sqid[MANY];
	uint8_t sqe[MANY][64];
} held;

/* Holds commands back until there are many. */
static bool keep(struct nvme_model *m, uint16_t sqid, const uint8_t *sqe)
{
	unsigned int n = atomic_load(&held.n);

	(void)m;
	if (n == MANY)
		return false;
	held.sqid[n] = sqid;
	memcpy(held.sqe[n], sqe, 64);
	atomic_store(&held.n, n + 1);
	return true;
}

/* More commands in flight than threads; they complete in another order than they were submitted. */
TEST(many_at_once)
{
	struct strait_transfer t[MANY];
	struct strait_result res[MANY];
	struct user u;

	begin(&u, &(struct model_config){ 0 }, &(struct strait_nvme_opts){ 0 }, "emu:0");
	u.r.model->hook = keep;
	for (unsigned int i = 0; i < MANY; i++)
		t[i] = block(&u, STRAIT_READ, i);
	ASSERT_OK(strait_queue_submit(u.q, t, MANY / 2));
	ASSERT_OK(strait_queue_submit(u.q, t + MANY / 2, MANY / 2));
	for (int i = 0; i < 20000 && atomic_load(&held.n) < MANY; i++)
		os_sleep_ns(1000000);
	ASSERT_EQ(atomic_load(&held.n), MANY);
	pthread_mutex_lock(&u.r.model->lock);
	for (unsigned int i = MANY; i--;) {
		ASSERT_EQ(model_io(u.r.model, held.sqe[i]), 0);
		model_complete(u.r.model, held.sqid[i], (uint16_t)(held.sqe[i][2] | held.sqe[i][3] << 8), 0, 0);
	}
	pthread_mutex_unlock(&u.r.model->lock);
	ASSERT_EQ(strait_queue_wait(u.q, MANY, MANY, STRAIT_FOREVER, res), MANY);
	for (unsigned int i = 0; i < MANY; i++) {
		ASSERT_EQ(res[i].status, 0);
		ASSERT_EQ(res[i].route_bytes[STRAIT_ROUTE_P2P], BLOCK);
		ASSERT_MEMEQ(u.cpu + res[i].user_data * BLOCK, u.disk + (MANY - res[i].user_data) * BLOCK, BLOCK);
	}
	end(&u);
}

static const struct kind {
	const char *name;
	struct model_config c;
	struct strait_nvme_opts o;
	const char *device;
} kinds[] = {
	{ "emu", { 0 }, { 0 }, "emu:0" },
	{ "host", { .dbbuf = true }, { 0 }, "host" },
	{ "threaded", { .threaded = true, .dbbuf = true }, { .queues = 1 }, "emu:0" },
	{ "interrupts", { .threaded = true, .vectors = 3 }, { .flags = STRAIT_NVME_INTERRUPTS }, "emu:0" },
	{ "few", { .entries = 4, .mdts = 1 }, { .queues = 1 }, "emu:0" },
};

#define PART 10000u /* so that neighbours share blocks */
#define PARTS 96u

/* Any offset and length, whole blocks and parts of them at the same time: all bytes arrive and no others change. */
TEST_VARIANTS(mixed, struct kind, kinds)
{
	uint8_t *want = malloc(MIB(8));
	struct strait_transfer t[PARTS];
	struct strait_result res[PARTS];
	uint64_t state = 11;
	struct user u;

	ASSERT_TRUE(want);
	begin(&u, &v->c, &v->o, v->device);
	memcpy(want, u.disk, MIB(8));
	for (int round = 0; round < 20; round++) {
		uint32_t op = round & 1 ? STRAIT_READ : STRAIT_WRITE;

		prng_fill(u.cpu, MIB(1), (uint32_t)(100 + round));
		for (unsigned int i = 0; i < PARTS; i++) {
			uint64_t at = prng_below(&state, PART - 1), len = prng_below(&state, PART - at) + 1;

			if (prng_below(&state, 3)) { /* blocks */
				at = align_up(i * PART, 512) - i * PART;
				len = align_down(PART - at, 512);
			}
			t[i] = (struct strait_transfer){ .op = op,
							 .endpoint = u.ep,
							 .region = u.region,
							 .endpoint_offset = i * PART + at,
							 .region_offset = i * PART + (at & ~3ull),
							 .length = min_u64(len, PART - (at & ~3ull)),
							 .user_data = i };
			if (op == STRAIT_WRITE)
				memcpy(want + t[i].endpoint_offset, u.cpu + t[i].region_offset, t[i].length);
		}
		for (unsigned int i = 0; i < PARTS; i += 32)
			ASSERT_OK(strait_queue_submit(u.q, t + i, 32));
		ASSERT_EQ(strait_queue_wait(u.q, PARTS, PARTS, STRAIT_FOREVER, res), PARTS);
		for (unsigned int i = 0; i < PARTS; i++) {
			const struct strait_transfer *x = &t[res[i].user_data];

			ASSERT_EQ(res[i].status, 0);
			ASSERT_EQ(res[i].bytes, x->length);
			if (op == STRAIT_READ)
				ASSERT_MEMEQ(u.cpu + x->region_offset, want + x->endpoint_offset, x->length);
		}
		ASSERT_MEMEQ(u.disk, want, MIB(8));
	}
	free(want);
	end(&u);
}

static struct strait_result one(struct user *u)
{
	struct strait_transfer t = block(u, STRAIT_READ, 1);
	struct strait_result res;

	ASSERT_OK(strait_queue_submit(u->q, &t, 1));
	ASSERT_EQ(strait_queue_wait(u->q, 1, 1, STRAIT_FOREVER, &res), 1);
	return res;
}

/* The drive's status comes with the errno; transient errors are retried; memory that went away is noticed. */
TEST(errors)
{
	struct strait_result res;
	struct user u;

	begin(&u, &(struct model_config){ 0 }, &(struct strait_nvme_opts){ 0 }, "emu:0");
	u.r.model->status = 0x4281;
	model_break(u.r.model, MODEL_STATUS, 0, 1);
	res = one(&u);
	ASSERT_EQ(res.status, -EIO);
	ASSERT_EQ(res.device_status, 0x4281);
	ASSERT_EQ(res.bytes, 0);
	u.r.model->status = 0x0082;
	model_break(u.r.model, MODEL_STATUS, 0, 2);
	res = one(&u);
	ASSERT_EQ(res.status, 0);
	ASSERT_EQ(res.bytes, BLOCK);
	model_break(u.r.model, MODEL_GOOD, 0, 0);
	u.r.model->revoked = 1;
	ASSERT_EQ(one(&u).status, -ENODEV);
	u.r.model->revoked = 0;
	end(&u);
}

/* Two endpoints of different drives on one queue: neither starves the other. */
TEST(two_endpoints)
{
	struct strait_transfer t[64];
	struct strait_result res[64];
	struct strait_endpoint *second;
	struct user u;

	begin(&u, &(struct model_config){ .namespaces = 2, .threaded = true }, &(struct strait_nvme_opts){ 0 },
	      "emu:0");
	prng_fill(u.r.model->disk[1], MIB(1), 9);
	ASSERT_OK(strait_nvme_endpoint(u.r.nvme, 2, 0, &second));
	for (unsigned int round = 0; round < 20; round++) {
		for (unsigned int i = 0; i < 64; i++) {
			t[i] = block(&u, STRAIT_READ, i % MANY);
			t[i].region_offset = i * BLOCK;
			t[i].user_data = i;
			if (i & 1)
				t[i].endpoint = second;
		}
		memset(u.cpu, 0, MIB(1));
		ASSERT_OK(strait_queue_submit(u.q, t, 64));
		ASSERT_EQ(strait_queue_wait(u.q, 64, 64, STRAIT_FOREVER, res), 64);
		for (unsigned int i = 0; i < 64; i++) {
			ASSERT_EQ(res[i].status, 0);
			ASSERT_MEMEQ(u.cpu + i * BLOCK, u.r.model->disk[i & 1] + t[i].endpoint_offset, BLOCK);
		}
	}
	strait_endpoint_close(second);
	end(&u);
}

/* Closed while a drive holds commands back: ends at their timeout, and everything is released. */
TEST(closed_in_flight)
{
	struct strait_transfer t[MANY];
	struct user u;

	begin(&u, &(struct model_config){ 0 }, &(struct strait_nvme_opts){ .timeout_ns = 100000000u * test_slow() },
	      "emu:0");
	model_break(u.r.model, MODEL_HOLD, 3, 1000);
	for (unsigned int i = 0; i < MANY; i++)
		t[i] = block(&u, i & 1 ? STRAIT_WRITE : STRAIT_READ, i);
	ASSERT_OK(strait_queue_submit(u.q, t, MANY));
	ASSERT_GE(strait_queue_cancel(u.q, 40), 0);
	end(&u);
}
