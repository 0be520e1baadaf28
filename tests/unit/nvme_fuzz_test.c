/* SPDX-License-Identifier: MIT */
/*
 * A hostile controller: wrong identifiers, phases, heads and queues, random status, completions twice or never, false
 * identify data. Never a crash, a hang, or success for a command that was not carried out.
 */
#include "nvme_common.h"

#define AREA 4096u
#define DEPTH 16u

static uint64_t state = 1;
static uint16_t stale[64];
static unsigned int n_stale;
/*
 * Limits on commands in flight, and on completions beside theirs. More than the queue holds would overwrite others:
 * then one with a wrong phase could be the one the driver waits for, and the driver could not detect it.
 */
static unsigned int flying, extra;

static unsigned int rounds(unsigned int usual)
{
	const char *n = getenv("NVME_FUZZ_ROUNDS"), *seed = getenv("NVME_FUZZ_SEED");

	if (seed)
		state = strtoull(seed, NULL, 0);
	printf("repeat with NVME_FUZZ_SEED=%llu\n", (unsigned long long)state);
	return n ? (unsigned int)strtoul(n, NULL, 0) : usual;
}

/* An identifier that is not that of any command in flight: another generation, past the end, or an old one. */
static uint16_t wrong_cid(uint16_t cid)
{
	switch (prng_below(&state, 3)) {
	case 0:
		return (uint16_t)(cid ^ (1u << (10 + prng_below(&state, 6))));
	case 1:
		return (uint16_t)((cid & 0xfc00) | (512 + prng_below(&state, 512)));
	default:
		return n_stale ? stale[prng_below(&state, n_stale)] : 0xffff;
	}
}

/* Most commands are carried out. The others are not, and do not complete with success. */
static bool hostile(struct nvme_model *m, uint16_t sqid, const uint8_t *sqe)
{
	uint16_t cid = (uint16_t)(sqe[2] | sqe[3] << 8);
	uint32_t head = m->q[sqid].head, dw2 = head | (uint32_t)sqid << 16;

	switch (prng_below(&state, 40)) {
	case 0:
		model_entry(m, sqid, 0, dw2, wrong_cid(cid));
		return true;
	case 1:
		/* Any status but success. */
		model_entry(m, sqid, 0, dw2,
			    cid | ((uint32_t)(prng_below(&state, 0x1fff) + 1) | (uint32_t)prng_below(&state, 4) << 13)
					    << 17);
		return true;
	case 2:
		model_entry(m, sqid, 0,
			    (uint32_t)(m->q[sqid].sq_size + prng_below(&state, 60000)) | (uint32_t)sqid << 16, cid);
		return true;
	case 3:
		model_entry(m, sqid, 0, head | (uint32_t)((sqid + 1 + prng_below(&state, 60000)) & 0xffff) << 16, cid);
		return true;
	case 4:
		m->q[sqid].phase ^= 1;
		model_entry(m, sqid, 0, dw2, cid);
		m->q[sqid].phase ^= 1;
		return true;
	case 5: /* never */
		return true;
	case 6:
		m->csts |= 2;
		return true;
	case 7: /* an error, twice */
		model_entry(m, sqid, 0, dw2, cid | 0x281u << 17);
		if (flying + extra + 1 < m->q[sqid].cq_size) {
			extra++;
			model_entry(m, sqid, 0, dw2, cid | 0x281u << 17);
		}
		return true;
	case 8:
		model_entry(m, sqid, (uint32_t)prng_next(&state), (uint32_t)prng_next(&state),
			    (uint32_t)prng_next(&state) | 1u << 17);
		return true;
	default:
		if (n_stale < ARRAY_SIZE(stale))
			stale[n_stale++] = cid;
		return false;
	}
}

static void run_batch(struct strait_nvme_queue *q, struct strait_nvme_map *map, uint8_t *cpu, const uint8_t *disk)
{
	struct strait_nvme_command cmd[DEPTH];
	struct strait_nvme_result res[DEPTH];
	uint64_t lba[DEPTH];
	unsigned int n = (unsigned int)prng_below(&state, DEPTH) + 1, done = 0;
	int started;

	flying = n;
	memset(cpu, 0xa5, DEPTH * AREA);
	for (unsigned int i = 0; i < n; i++) {
		lba[i] = prng_below(&state, 1000) * 8;
		cmd[i] = rw(false, lba[i], 8, map, i * AREA, AREA);
		cmd[i].user_data = i;
	}
	started = strait_nvme_queue_submit(q, cmd, n);
	if (started < 0)
		return; /* the controller is gone for good */
	while (done < (unsigned int)started) {
		int got = strait_nvme_queue_wait(q, 1, DEPTH, STRAIT_FOREVER, res);

		ASSERT_GE(got, 1);
		for (int i = 0; i < got; i++) {
			uint64_t k = res[i].user_data;

			ASSERT_LT(k, started);
			if (!res[i].status)
				ASSERT_MEMEQ(cpu + k * AREA, disk + lba[k] * 512, AREA);
			else
				ASSERT_NE(res[i].nvme_status, 0);
		}
		done += (unsigned int)got;
	}
	ASSERT_EQ(done, started);
	ASSERT_EQ(strait_nvme_queue_wait(q, 1, DEPTH, 0, res), 0);
}

TEST_TIMEOUT(hostile_completions, 3600)
{
	unsigned int n = rounds(60);

	for (unsigned int i = 0; i < n; i++) {
		struct strait_nvme_opts o = { .size = sizeof(o), .timeout_ns = 15000000u, .queues = 1 };
		struct strait_nvme_queue_opts qo = { .size = sizeof(qo),
						     .entries = 2 + (uint32_t)prng_below(&state, 30) };
		struct strait_region *region;
		struct strait_nvme_queue *q;
		struct strait_nvme_map *map;
		struct rig r;

		rig_open(&r,
			 &(struct model_config){
				 .sgls = prng_below(&state, 3), .scattered = prng_below(&state, 2), .entries = 64 },
			 &o);
		r.ctx->log.level = STRAIT_LOG_ERROR;
		n_stale = extra = 0; /* an identifier that was old on another controller may be valid on this one */
		prng_fill(r.model->disk[0], MIB(8), 5);
		region = rig_region(&r, "host", DEPTH * AREA);
		ASSERT_OK(strait_nvme_queue_open(r.nvme, &qo, &q));
		ASSERT_OK(strait_nvme_map(r.nvme, region, 0, DEPTH * AREA, &map));
		r.model->hook = hostile;
		for (int k = 0; k < 6; k++)
			run_batch(q, map, rig_cpu(region), r.model->disk[0]);
		/* When the controller behaves again, commands succeed. */
		r.model->hook = NULL;
		run_batch(q, map, rig_cpu(region), r.model->disk[0]);
		run_batch(q, map, rig_cpu(region), r.model->disk[0]);
		strait_nvme_queue_close(q);
		strait_nvme_unmap(map);
		strait_region_close(region);
		rig_close(&r);
	}
}

static uint64_t mutate_state;

static void mutate(struct nvme_model *m, uint8_t *page, size_t len)
{
	if (prng_below(&mutate_state, 3))
		return;
	for (uint64_t i = prng_below(&mutate_state, 8); i--;)
		page[prng_below(&mutate_state, len)] = (uint8_t)prng_next(&mutate_state);
	/* Offsets of fields that matter. */
	if (len == 4096 && prng_below(&mutate_state, 2)) {
		static const uint16_t at[] = { 0,   7,	 24,  25,  26,	29,  77,  78,  128, 136, 138,
					       256, 258, 259, 512, 513, 516, 519, 520, 525, 536, 539 };

		page[at[prng_below(&mutate_state, ARRAY_SIZE(at))]] = (uint8_t)prng_next(&mutate_state);
	}
}

/* A controller with false identify data is refused, or used within what it reports. */
TEST_TIMEOUT(hostile_identity, 3600)
{
	unsigned int n = rounds(400);

	for (unsigned int i = 0; i < n; i++) {
		struct strait_nvme_opts o = { .size = sizeof(o), .timeout_ns = 15000000u };
		struct model_config c = { .namespaces = 2, .mdts = 3, .entries = 64 };
		struct nvme_model *m = model_new(&c);
		struct strait_context *ctx;
		struct strait_nvme *nvme;

		ASSERT_OK(strait_context_open(NULL, &ctx));
		mutate_state = i + 1;
		m->mutate = mutate;
		if (!nvme_adopt(ctx, &m->pci, &o, &nvme)) {
			struct strait_nvme_namespace ns = { .size = sizeof(ns) };
			struct strait_device *dev;
			struct strait_region *region;
			struct strait_endpoint *ep;

			ASSERT_OK(strait_device_find(ctx, "host", &dev));
			ASSERT_OK(strait_region_alloc(dev, KIB(64), &region));
			for (unsigned int k = 0; !strait_nvme_namespace(nvme, k, &ns); k++) {
				if (strait_nvme_endpoint(nvme, ns.nsid, 0, &ep))
					continue;
				strait_read(ep, 0, region, 0, KIB(64));
				strait_write(ep, 1, region, 0, 100);
				strait_endpoint_sync(ep);
				strait_endpoint_close(ep);
			}
			strait_region_close(region);
			strait_nvme_close(nvme);
		}
		strait_context_close(ctx);
		ASSERT_FALSE(m->is_open);
		ASSERT_EQ(m->bus.mapped, 0);
		ASSERT_EQ(m->bus.faults, 0);
		model_free(m);
	}
}
