/* SPDX-License-Identifier: MIT */
/* Controllers, queue pairs and raw commands, on a model of a controller. */
#include <pthread.h>

#include "nvme_common.h"

static const struct shape {
	const char *name;
	struct model_config c;
	uint32_t flags;
	const char *device; /* where data is */
	const char *queues; /* where the queues are; NULL: host memory of the driver */
	uint32_t entries;
} shapes[] = {
	{ "plain", { 0 }, 0, "host", NULL, 0 },
	{ "device-memory", { 0 }, 0, "emu:0", NULL, 0 },
	{ "queues-in-device-memory", { 0 }, 0, "emu:0", "emu:0", 0 },
	{ "scattered", { .scattered = true, .entries = 64 }, 0, "emu:0", NULL, 0 },
	{ "scattered-sgl", { .scattered = true, .entries = 64, .sgls = 1 }, 0, "emu:0", NULL, 0 },
	{ "sgl", { .sgls = 1 }, 0, "host", NULL, 0 },
	{ "sgl-dwords", { .sgls = 2 }, 0, "host", NULL, 0 },
	{ "sgl-not-wanted", { .sgls = 1 }, STRAIT_NVME_NO_SGL, "host", NULL, 0 },
	{ "shadow", { .dbbuf = true }, 0, "host", NULL, 0 },
	{ "shadow-not-wanted", { .dbbuf = true }, STRAIT_NVME_NO_SHADOW, "host", NULL, 0 },
	{ "threaded", { .threaded = true }, 0, "emu:0", NULL, 0 },
	{ "threaded-shadow", { .threaded = true, .dbbuf = true }, 0, "emu:0", NULL, 0 },
	{ "interrupts", { .threaded = true, .vectors = 4 }, STRAIT_NVME_INTERRUPTS, "emu:0", NULL, 0 },
	{ "interrupts-shared", { .threaded = true, .vectors = 1 }, STRAIT_NVME_INTERRUPTS, "emu:0", "emu:0", 0 },
	{ "interrupts-inline", { .vectors = 2 }, STRAIT_NVME_INTERRUPTS, "emu:0", NULL, 0 },
	{ "4096", { .lba = 4096, .blocks = 2048 }, 0, "emu:0", NULL, 0 },
	{ "mdts-3", { .mdts = 3 }, 0, "emu:0", NULL, 0 },
	{ "two-entries", { .entries = 2 }, 0, "emu:0", NULL, 0 },
	{ "few-entries", { .entries = 5 }, 0, "emu:0", NULL, 4 },
	{ "old", { .old = true, .namespaces = 2 }, 0, "host", NULL, 0 },
};

struct user {
	struct rig r;
	struct strait_region *data, *queues;
	struct strait_nvme_queue *q;
	struct strait_nvme_map *map;
	uint8_t *cpu;
};

#define DATA MIB(2)

static void begin(struct user *u, const struct shape *v)
{
	struct strait_nvme_opts o = {
		.size = sizeof(o), .flags = v->flags, .queues = 1, .entries = v->entries, .timeout_ns = 5000000000u
	};
	struct strait_nvme_queue_opts qo = { .size = sizeof(qo),
					     .flags = v->flags & STRAIT_NVME_INTERRUPTS,
					     .entries = v->entries };

	rig_open(&u->r, &v->c, &o);
	u->data = rig_region(&u->r, v->device, DATA);
	u->cpu = rig_cpu(u->data);
	u->queues = v->queues ? rig_region(&u->r, v->queues, MIB(1)) : NULL;
	qo.region = u->queues;
	qo.offset = v->queues ? 8192 : 0;
	ASSERT_OK(strait_nvme_queue_open(u->r.nvme, &qo, &u->q));
	ASSERT_OK(strait_nvme_map(u->r.nvme, u->data, 0, DATA, &u->map));
}

static void end(struct user *u)
{
	strait_nvme_queue_close(u->q);
	strait_nvme_unmap(u->map);
	strait_region_close(u->queues);
	strait_region_close(u->data);
	rig_close(&u->r);
}

/* Submits one command and waits for it. */
static struct strait_nvme_result one(struct user *u, struct strait_nvme_command cmd)
{
	struct strait_nvme_result res = { 0 };

	ASSERT_EQ(strait_nvme_queue_submit(u->q, &cmd, 1), 1);
	ASSERT_EQ(strait_nvme_queue_wait(u->q, 1, 1, STRAIT_FOREVER, &res), 1);
	ASSERT_EQ(res.user_data, cmd.user_data);
	return res;
}

TEST_VARIANTS(every_length_and_place, struct shape, shapes)
{
	struct user u;
	uint32_t lba = v->c.lba ? v->c.lba : 512;
	uint64_t state = 7, most;
	uint8_t *want;

	begin(&u, v);
	most = rig_info(&u.r).max_transfer;
	ASSERT_EQ(most, v->c.mdts ? 4096ull << v->c.mdts : MIB(1));
	want = malloc(DATA);
	ASSERT_TRUE(want);
	memcpy(want, u.cpu, DATA);
	for (int i = 0; i < 60; i++) {
		uint64_t n = i < 6 ? most >> i : (prng_below(&state, most / lba) + 1) * lba;
		uint64_t off = prng_below(&state, (DATA - n) / 4 + 1) * 4;
		uint64_t at = prng_below(&state, (v->c.blocks ? v->c.blocks : 16384) - n / lba);
		uint64_t from, len;
		bool write = i & 1;
		struct strait_nvme_result res;

		n = n < lba ? lba : n;
		/* The block and a page on either side each time; everything, where that does not take long. */
		from = off > 4096 ? off - 4096 : 0;
		len = min_u64(off + n + 4096, DATA) - from;
		prng_fill(u.cpu + from, len, (uint64_t)i);
		prng_fill(u.r.model->disk[0] + at * lba, n, 1000 + (uint64_t)i);
		memcpy(want + from, u.cpu + from, len);
		if (!write)
			memcpy(want + off, u.r.model->disk[0] + at * lba, n);
		res = one(&u, rw(write, at, (uint32_t)(n / lba), u.map, off, n));
		ASSERT_EQ(res.status, 0);
		ASSERT_MEMEQ(u.cpu + from, want + from, len);
		if (test_slow() <= 4 || i % 10 == 9)
			ASSERT_MEMEQ(u.cpu, want, DATA);
		ASSERT_MEMEQ(u.r.model->disk[0] + at * lba, want + off, n);
	}
	if (v->c.sgls && !v->flags && !v->c.scattered)
		ASSERT_GT(u.r.model->sgls, 0);
	else
		ASSERT_EQ(u.r.model->sgls, 0);
	ASSERT_EQ(!!(rig_info(&u.r).has & STRAIT_NVME_HAS_SHADOW), v->c.dbbuf && !v->flags);
	free(want);
	end(&u);
}

/* Many at a time, more than the queue holds, repeatedly: the queues wrap around. */
TEST_VARIANTS(many, struct shape, shapes)
{
	uint32_t lba = v->c.lba ? v->c.lba : 512, n = 4096 / lba;
	struct strait_nvme_command cmd[64];
	struct strait_nvme_result res[64];
	uint64_t state = 1, left = 3000, expected = 0;
	unsigned int flying = 0;
	struct user u;

	begin(&u, v);
	prng_fill(u.r.model->disk[0], MIB(8), 3);
	while (left || flying) {
		unsigned int want = (unsigned int)min_u64(prng_below(&state, 64) + 1, left);
		int done;

		for (unsigned int i = 0; i < want; i++) {
			uint64_t block = prng_below(&state, 2048);

			cmd[i] = rw(false, block * n, n, u.map, block % 512 * 4096, 4096);
		}
		done = want ? strait_nvme_queue_submit(u.q, cmd, want) : 0;
		if (done == -EAGAIN)
			done = 0;
		ASSERT_GE(done, 0);
		left -= (unsigned int)done;
		flying += (unsigned int)done;
		expected += (unsigned int)done;
		done = strait_nvme_queue_wait(u.q, min_u64(flying, 1), 64, STRAIT_FOREVER, res);
		ASSERT_GE(done, flying ? 1 : 0);
		flying -= (unsigned int)done;
		for (int i = 0; i < done; i++) {
			ASSERT_EQ(res[i].status, 0);
			ASSERT_EQ(res[i].nvme_status, 0);
		}
	}
	ASSERT_EQ(strait_nvme_queue_wait(u.q, 64, 64, STRAIT_FOREVER, res), 0);
	ASSERT_EQ(u.r.model->io, expected);
	ASSERT_EQ(rig_info(&u.r).failed, 0);
	ASSERT_EQ(rig_info(&u.r).resets, 0);
	end(&u);
}

/* Bytes at addresses that PRP entries cannot name. */
TEST(odd_addresses)
{
	static const struct shape any = { "sgl", { .sgls = 1 }, 0, "emu:0", NULL, 0 };
	static const struct shape none = { "prp", { 0 }, 0, "emu:0", NULL, 0 };
	static const struct shape dwords = { "dwords", { .sgls = 2 }, 0, "emu:0", NULL, 0 };
	static const struct shape pieces = { "pieces", { .sgls = 1, .scattered = true, .entries = 64 },
					     0,	       "emu:0",
					     NULL,     0 };
	struct strait_nvme_command cmd;
	struct user u;

	for (int i = 0; i < 2; i++) {
		begin(&u, i ? &pieces : &any);
		prng_fill(u.r.model->disk[0], KIB(64), 9);
		ASSERT_EQ(one(&u, rw(false, 0, 16, u.map, 13, 8192)).status, 0);
		ASSERT_MEMEQ(u.cpu + 13, u.r.model->disk[0], 8192);
		ASSERT_EQ(u.cpu[12], 0);
		ASSERT_EQ(u.cpu[13 + 8192], 0);
		ASSERT_EQ(u.r.model->sgls, 1);
		end(&u);
	}
	begin(&u, &none);
	cmd = rw(false, 0, 16, u.map, 13, 8192);
	ASSERT_EQ(strait_nvme_queue_submit(u.q, &cmd, 1), -EINVAL);
	end(&u);
	begin(&u, &dwords);
	cmd = rw(false, 0, 16, u.map, 13, 8192);
	ASSERT_EQ(strait_nvme_queue_submit(u.q, &cmd, 1), -EINVAL);
	end(&u);
}

TEST(what_is_refused)
{
	static const struct shape plain = { "plain", { 0 }, 0, "host", NULL, 0 };
	struct strait_nvme_queue_opts qo = { .size = sizeof(qo) };
	struct strait_nvme_command cmd;
	struct strait_nvme_result res;
	struct strait_nvme_queue *q[8];
	struct strait_nvme_map *map;
	struct user u;
	uint64_t bus, run;

	begin(&u, &plain);
	cmd = rw(false, 0, 8, u.map, DATA - 4095, 4096);
	ASSERT_EQ(strait_nvme_queue_submit(u.q, &cmd, 1), -EINVAL);
	cmd = rw(false, 0, 8, u.map, UINT64_MAX - 2, 4096);
	ASSERT_EQ(strait_nvme_queue_submit(u.q, &cmd, 1), -EINVAL);
	cmd = rw(false, 0, 8, u.map, 0, 0);
	ASSERT_EQ(strait_nvme_queue_submit(u.q, &cmd, 1), -EINVAL);
	cmd = rw(false, 0, 8, u.map, 0, MIB(1) + 512);
	ASSERT_EQ(strait_nvme_queue_submit(u.q, &cmd, 1), -EINVAL);
	cmd = rw(false, 0, 8, u.map, 0, 4096);
	cmd.flags = 2;
	ASSERT_EQ(strait_nvme_queue_submit(u.q, &cmd, 1), -EINVAL);
	cmd.flags = 0;
	cmd.timeout_ns = UINT64_MAX;
	ASSERT_EQ(strait_nvme_queue_submit(u.q, &cmd, 1), -EINVAL);
	ASSERT_EQ(strait_nvme_queue_wait(u.q, 2, 1, 0, &res), -EINVAL);
	ASSERT_EQ(strait_nvme_queue_wait(u.q, 0, 1, -1, &res), -EINVAL);
	ASSERT_EQ(strait_nvme_map(u.r.nvme, u.data, 1, DATA, &map), -EINVAL);
	ASSERT_EQ(strait_nvme_map_iova(u.map, DATA, &bus, &run), -EINVAL);
	ASSERT_OK(strait_nvme_map_iova(u.map, DATA - 1, &bus, &run));
	ASSERT_EQ(run, 1);
	/* Errors of the drive have its own status beside the errno. */
	res = one(&u, rw(false, 16384, 8, u.map, 0, 4096));
	ASSERT_EQ(res.status, -EINVAL);
	ASSERT_EQ(res.nvme_status, 0x4080);
	ASSERT_STREQ(strait_nvme_status_name(res.nvme_status), "LBA Out of Range");
	ASSERT_STREQ(strait_nvme_status_name(0x281), "Unrecovered Read Error");
	ASSERT_STREQ(strait_nvme_status_name(0x7ff), "Vendor Specific Error");
	ASSERT_STREQ(strait_nvme_status_name(0), "Success");
	/* Queues: no interrupts here, and four in all, of which one is for endpoints. */
	qo.flags = STRAIT_NVME_INTERRUPTS;
	ASSERT_EQ(strait_nvme_queue_open(u.r.nvme, &qo, &q[0]), -EOPNOTSUPP);
	qo.flags = 0;
	qo.entries = 1;
	ASSERT_EQ(strait_nvme_queue_open(u.r.nvme, &qo, &q[0]), -EINVAL);
	ASSERT_OK(strait_nvme_queue_open(u.r.nvme, NULL, &q[0]));
	ASSERT_OK(strait_nvme_queue_open(u.r.nvme, NULL, &q[1]));
	ASSERT_EQ(strait_nvme_queue_open(u.r.nvme, NULL, &q[2]), -ENOSPC);
	strait_nvme_queue_close(q[0]);
	ASSERT_OK(strait_nvme_queue_open(u.r.nvme, NULL, &q[0]));
	strait_nvme_queue_close(q[0]);
	strait_nvme_queue_close(q[1]);
	strait_nvme_queue_close(NULL);
	strait_nvme_unmap(NULL);
	strait_nvme_close(NULL);
	end(&u);
}

/* PRP entries built by the application, from bus addresses. */
TEST(raw_data)
{
	static const struct shape plain = { "plain", { .scattered = true, .entries = 64 }, 0, "emu:0", NULL, 0 };
	struct strait_nvme_command cmd = rw(false, 4, 16, NULL, 0, 0);
	struct user u;
	uint64_t run;

	begin(&u, &plain);
	prng_fill(u.r.model->disk[0], KIB(64), 9);
	cmd.flags = STRAIT_NVME_RAW_DATA;
	ASSERT_OK(strait_nvme_map_iova(u.map, 8192, &cmd.prp[0], &run));
	ASSERT_EQ(run, 4096);
	ASSERT_OK(strait_nvme_map_iova(u.map, 4096, &cmd.prp[1], &run));
	ASSERT_EQ(one(&u, cmd).status, 0);
	ASSERT_MEMEQ(u.cpu + 8192, u.r.model->disk[0] + 2048, 4096);
	ASSERT_MEMEQ(u.cpu + 4096, u.r.model->disk[0] + 2048 + 4096, 4096);
	end(&u);
}

/* Closing the region removes the mapping, although it is still referenced. */
TEST(region_goes_first)
{
	static const struct shape plain = { "plain", { 0 }, 0, "emu:0", NULL, 0 };
	struct strait_nvme_command cmd;
	struct strait_nvme_result res[8];
	uint64_t bus, run;
	struct user u;

	begin(&u, &plain);
	cmd = rw(false, 0, 8, u.map, 0, 4096);
	/* No thread waits for their completion but the one that closes. */
	for (int i = 0; i < 8; i++)
		ASSERT_EQ(strait_nvme_queue_submit(u.q, &cmd, 1), 1);
	strait_region_close(u.data);
	u.data = NULL;
	ASSERT_EQ(strait_nvme_queue_wait(u.q, 8, 8, STRAIT_FOREVER, res), 8);
	ASSERT_EQ(strait_nvme_queue_submit(u.q, &cmd, 1), -ENODEV);
	ASSERT_EQ(strait_nvme_map_iova(u.map, 0, &bus, &run), -ENODEV);
	end(&u);
}

/* The same with the memory that holds a queue. */
TEST(queue_memory_goes_first)
{
	static const struct shape inside = { "inside", { 0 }, 0, "emu:0", "emu:0", 0 };
	struct strait_nvme_command cmd;
	struct strait_nvme_result res;
	struct user u;

	begin(&u, &inside);
	cmd = rw(false, 0, 8, u.map, 0, 4096);
	ASSERT_EQ(one(&u, cmd).status, 0);
	strait_region_close(u.queues);
	u.queues = NULL;
	ASSERT_EQ(strait_nvme_queue_submit(u.q, &cmd, 1), -ENODEV);
	ASSERT_EQ(strait_nvme_queue_wait(u.q, 1, 1, STRAIT_FOREVER, &res), 0);
	end(&u);
}

TEST(what_is_known)
{
	struct strait_nvme_namespace ns = { .size = sizeof(ns) };
	struct strait_nvme_command cmd = { .opcode = 6, .cdw10 = { 1 }, .user_data = 5 };
	struct strait_nvme_info info;
	struct strait_nvme_result res;
	uint8_t page[4096], health[512];
	struct rig r;

	rig_open(&r, &(struct model_config){ .namespaces = 3, .lba2 = 4096, .vectors = 2, .mdts = 5 }, NULL);
	info = rig_info(&r);
	ASSERT_STREQ(info.serial, "model-serial");
	ASSERT_STREQ(info.model, "Software NVMe controller");
	ASSERT_STREQ(info.firmware, "1.0");
	ASSERT_STREQ(info.backend, "model");
	ASSERT_EQ(info.version, 0x10400);
	ASSERT_EQ(info.namespaces, 3);
	ASSERT_EQ(info.max_queues, 4);
	ASSERT_EQ(info.max_transfer, KIB(128));
	ASSERT_EQ(info.controller_id, 7);
	ASSERT_EQ(info.has, STRAIT_NVME_HAS_CACHE | STRAIT_NVME_HAS_ZEROES | STRAIT_NVME_HAS_DEALLOCATE |
				    STRAIT_NVME_HAS_INTERRUPTS | STRAIT_NVME_REVOKES);
	ASSERT_OK(strait_nvme_namespace(r.nvme, 1, &ns));
	ASSERT_EQ(ns.nsid, 2);
	ASSERT_EQ(ns.lba_bytes, 4096);
	ASSERT_EQ(ns.blocks, 16384);
	ASSERT_EQ(ns.usable, 0);
	ASSERT_EQ(strait_nvme_namespace(r.nvme, 3, &ns), -ENOENT);
	ASSERT_OK(strait_nvme_admin(r.nvme, &cmd, page, sizeof(page), &res));
	ASSERT_EQ(res.user_data, 5);
	ASSERT_EQ(memcmp(page + 4, "model-serial", 12), 0);
	cmd.opcode = 0xc0;
	ASSERT_EQ(strait_nvme_admin(r.nvme, &cmd, NULL, 0, &res), -EOPNOTSUPP);
	ASSERT_EQ(res.nvme_status, 1);
	cmd.opcode = 1;
	ASSERT_EQ(strait_nvme_admin(r.nvme, &cmd, NULL, 0, &res), -EPERM);
	ASSERT_OK(strait_nvme_log(r.nvme, 0xffffffff, 2, 0, health, sizeof(health)));
	ASSERT_EQ(health[1] | health[2] << 8, 300);
	ASSERT_EQ(strait_nvme_log(r.nvme, 0xffffffff, 0x77, 0, health, sizeof(health)), -EINVAL);
	ASSERT_EQ(strait_nvme_log(r.nvme, 0xffffffff, 2, 1, health, sizeof(health)), -EINVAL);
	rig_close(&r);
}

/* A queue created in place of another starts afresh, its shadow doorbells too: a sleeping drive is woken. */
TEST_VARIANTS(queue_again, struct shape, shapes)
{
	struct user u;

	begin(&u, v);
	for (int i = 0; i < 10; i++) {
		struct strait_nvme_queue_opts qo = { .size = sizeof(qo), .entries = 3 + (uint32_t)i % 3 };
		uint32_t lba = v->c.lba ? v->c.lba : 512;

		for (int k = 0; k < 2 + i; k++)
			ASSERT_EQ(one(&u, rw(false, 0, 4096 / lba, u.map, 0, 4096)).status, 0);
		strait_nvme_queue_close(u.q);
		ASSERT_OK(strait_nvme_queue_open(u.r.nvme, &qo, &u.q));
	}
	ASSERT_EQ(rig_info(&u.r).timeouts, 0);
	end(&u);
}

TEST(shuts_down)
{
	struct nvme_model *m = model_new(&(struct model_config){ 0 });
	struct strait_context *ctx;
	struct strait_nvme *nvme;

	ASSERT_OK(strait_context_open(NULL, &ctx));
	ASSERT_OK(nvme_adopt(ctx, &m->pci, NULL, &nvme));
	strait_nvme_close(nvme);
	ASSERT_TRUE(m->shut_down);
	ASSERT_FALSE(m->master);
	ASSERT_EQ(m->cc & 1, 0);
	strait_context_close(ctx);
	model_free(m);
}

TEST(events)
{
	struct strait_nvme_event e = { .size = sizeof(e) };
	struct strait_nvme_namespace ns = { .size = sizeof(ns) };
	struct rig r;

	rig_open(&r, &(struct model_config){ .namespaces = 2 }, NULL);
	ASSERT_EQ(strait_nvme_event(r.nvme, &e), -EAGAIN);
	/* A temperature event, and event requests never run out. */
	for (int i = 0; i < 20; i++) {
		ASSERT_TRUE(model_event(r.model, 2u << 16 | 1u << 8 | 1));
		ASSERT_OK(strait_nvme_event(r.nvme, &e));
		ASSERT_EQ(e.type, 1);
		ASSERT_EQ(e.info, 1);
		ASSERT_EQ(e.log_page, 2);
		ASSERT_EQ(strait_nvme_event(r.nvme, &e), -EAGAIN);
	}
	/* A namespace has changed. */
	model_resize(r.model, 2, 100);
	ASSERT_TRUE(model_event(r.model, 4u << 16 | 0u << 8 | 2));
	ASSERT_OK(strait_nvme_namespace(r.nvme, 1, &ns));
	ASSERT_EQ(ns.blocks, 100);
	model_resize(r.model, 1, 0);
	ASSERT_TRUE(model_event(r.model, 4u << 16 | 0u << 8 | 2));
	ASSERT_OK(strait_nvme_namespace(r.nvme, 0, &ns));
	ASSERT_EQ(ns.nsid, 2);
	ASSERT_EQ(rig_info(&r).namespaces, 1);
	ASSERT_EQ(rig_info(&r).events, 22);
	rig_close(&r);
}

struct worker {
	struct user *u;
	uint64_t seed;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct strait_nvme_command cmd[8];
	struct strait_nvme_result res[8];

	for (int i = 0; i < 100; i++) {
		int n;

		for (int k = 0; k < 8; k++)
			cmd[k] = rw(false, prng_below(&w->seed, 16000), 1, w->u->map, prng_below(&w->seed, 2000) * 512,
				    512);
		n = strait_nvme_queue_submit(w->u->q, cmd, 8);
		ASSERT_TRUE(n >= 0 || n == -EAGAIN);
		n = strait_nvme_queue_wait(w->u->q, 0, 8, 0, res);
		ASSERT_GE(n, 0);
		for (int k = 0; k < n; k++)
			ASSERT_EQ(res[k].status, 0);
	}
	return NULL;
}

/* Several threads on one queue: none loses a command, none waits for ever. */
TEST_VARIANTS(threads, struct shape, shapes)
{
	struct strait_nvme_result res[64];
	struct worker w[4];
	struct user u;
	pthread_t t[4];

	begin(&u, v);
	if (v->c.lba) /* the threads use blocks of 512 bytes */
		goto out;
	for (unsigned int i = 0; i < 4; i++) {
		w[i] = (struct worker){ &u, i + 1 };
		ASSERT_EQ(pthread_create(&t[i], NULL, work, &w[i]), 0);
	}
	for (unsigned int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	while (strait_nvme_queue_wait(u.q, 1, 64, STRAIT_FOREVER, res) > 0)
		;
	ASSERT_EQ(rig_info(&u.r).commands, u.r.model->io);
	ASSERT_EQ(rig_info(&u.r).failed, 0);
out:
	end(&u);
}
