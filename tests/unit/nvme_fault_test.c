/* SPDX-License-Identifier: MIT */
/*
 * Controllers that do not answer, or answer nonsense: every command ends with an error, and the controller can be used
 * again.
 */
#include <pthread.h>

#include "nvme_common.h"

#define TIMEOUT 300000000u

static const struct bad {
	const char *name;
	enum model_fault fault;
	uint64_t count;
	int status;    /* of the command it hits */
	uint32_t nvme; /* its status; 0: that of a reset */
	unsigned int resets, aborts;
} bads[] = {
	{ "fatal", MODEL_FATAL, 1, -EIO, 0, 1, 0 },	   { "lost", MODEL_LOSE, 1, -ETIMEDOUT, 0, 1, 1 },
	{ "held", MODEL_HOLD, 1, -ETIMEDOUT, 0x07, 0, 1 }, { "stalled", MODEL_STALL, 1, -ETIMEDOUT, 0, 1, 1 },
	{ "wrong-cid", MODEL_BAD_CID, 1, -EIO, 0, 1, 0 },  { "wrong-phase", MODEL_BAD_PHASE, 1, -ETIMEDOUT, 0, 1, 1 },
	{ "sqhd", MODEL_BAD_SQHD, 1, -EIO, 0, 1, 0 },	   { "sqid", MODEL_BAD_SQID, 1, -EIO, 0, 1, 0 },
	{ "status", MODEL_STATUS, 1, -EIO, 0x4281, 0, 0 },
};

struct user {
	struct rig r;
	struct strait_region *data;
	struct strait_nvme_queue *q;
	struct strait_nvme_map *map;
};

/*
 * @late: a command is to time out. A model without a thread answers all other commands at once. If no command is to
 * time out, none does because the machine is slow.
 */
static void begin(struct user *u, const struct model_config *c, bool late)
{
	uint64_t timeout = !late ? 50 * TIMEOUT : c->threaded ? TIMEOUT : TIMEOUT / 3;
	struct strait_nvme_opts o = { .size = sizeof(o),
				      .timeout_ns = timeout * (c->threaded || !late ? test_slow() : 1) };

	rig_open(&u->r, c, &o);
	u->data = rig_region(&u->r, "emu:0", MIB(1));
	ASSERT_OK(strait_nvme_queue_open(u->r.nvme, NULL, &u->q));
	ASSERT_OK(strait_nvme_map(u->r.nvme, u->data, 0, MIB(1), &u->map));
	prng_fill(u->r.model->disk[0], MIB(8), 1);
	u->r.model->status = 0x4281;
}

static void end(struct user *u)
{
	strait_nvme_queue_close(u->q);
	strait_nvme_unmap(u->map);
	strait_region_close(u->data);
	rig_close(&u->r);
}

/* A batch of reads with the faulty one at @at: results by block, -1 where none came. */
static void batch(struct user *u, unsigned int n, struct strait_nvme_result *by_block)
{
	struct strait_nvme_command cmd[32];
	struct strait_nvme_result res[32];
	int got;

	for (unsigned int i = 0; i < n; i++) {
		cmd[i] = rw(false, i, 1, u->map, i * 512, 512);
		by_block[i].status = 1;
	}
	ASSERT_EQ(strait_nvme_queue_submit(u->q, cmd, n), n);
	for (unsigned int done = 0; done < n; done += (unsigned int)got) {
		got = strait_nvme_queue_wait(u->q, 1, 32, STRAIT_FOREVER, res);
		ASSERT_GE(got, 1);
		for (int i = 0; i < got; i++) {
			ASSERT_LT(res[i].user_data, n);
			ASSERT_EQ(by_block[res[i].user_data].status, 1);
			by_block[res[i].user_data] = res[i];
		}
	}
}

static void expect_works(struct user *u)
{
	struct strait_nvme_result r[16];
	uint8_t *cpu = rig_cpu(u->data);

	memset(cpu, 0, MIB(1));
	batch(u, 16, r);
	for (int i = 0; i < 16; i++)
		ASSERT_EQ(r[i].status, 0);
	ASSERT_MEMEQ(cpu, u->r.model->disk[0], 16 * 512);
}

TEST_VARIANTS(one_of_many, struct bad, bads)
{
	struct strait_nvme_result r[16];
	struct strait_nvme_info info;
	struct user u;

	for (int threaded = 0; threaded < 2; threaded++) {
		begin(&u, &(struct model_config){ .threaded = threaded, .dbbuf = threaded }, v->aborts);
		expect_works(&u);
		model_break(u.r.model, v->fault, 5, v->count);
		batch(&u, 16, r);
		/* Commands before it succeeded; it failed; and no command succeeded that was not carried out. */
		for (int i = 0; i < 5; i++)
			ASSERT_EQ(r[i].status, 0);
		ASSERT_EQ(r[5].status, v->status);
		ASSERT_EQ(r[5].nvme_status, v->nvme ? v->nvme : 0x371);
		for (int i = 6; i < 16; i++)
			ASSERT_TRUE(!r[i].status || (v->resets && r[i].nvme_status == 0x371));
		info = rig_info(&u.r);
		ASSERT_EQ(info.resets, v->resets);
		/* A completion that is not seen hides those behind it. */
		ASSERT_GE(info.aborts, v->aborts);
		ASSERT_EQ(!!info.timeouts, !!v->aborts);
		model_break(u.r.model, MODEL_GOOD, 0, 0);
		expect_works(&u);
		end(&u);
	}
}

/* The second completion of one command is not taken for that of the next. */
TEST(twice)
{
	struct strait_nvme_result r[16];
	struct user u;

	begin(&u, &(struct model_config){ 0 }, false);
	model_break(u.r.model, MODEL_TWICE, 5, 1);
	batch(&u, 16, r);
	for (int i = 0; i < 6; i++)
		ASSERT_EQ(r[i].status, 0);
	for (int i = 6; i < 16; i++)
		ASSERT_TRUE(!r[i].status || r[i].nvme_status == 0x371);
	ASSERT_EQ(rig_info(&u.r).resets, 1);
	expect_works(&u);
	end(&u);
}

/* Removed: everything gets -ENODEV, nothing hangs, and it can be closed. */
TEST(gone)
{
	struct strait_nvme_command cmd;
	struct strait_nvme_result r[16];
	struct strait_endpoint *ep;
	struct user u;

	begin(&u, &(struct model_config){ 0 }, false);
	ASSERT_OK(strait_nvme_endpoint(u.r.nvme, 1, 0, &ep));
	model_break(u.r.model, MODEL_GONE, 5, 1000000);
	batch(&u, 16, r);
	for (int i = 5; i < 16; i++)
		ASSERT_EQ(r[i].status, -EIO);
	cmd = rw(false, 0, 1, u.map, 0, 512);
	ASSERT_EQ(strait_nvme_queue_submit(u.q, &cmd, 1), -ENODEV);
	ASSERT_EQ(strait_nvme_reset(u.r.nvme), -ENODEV);
	ASSERT_EQ(strait_nvme_event(u.r.nvme, &(struct strait_nvme_event){ .size = sizeof(struct strait_nvme_event) }),
		  -ENODEV);
	ASSERT_EQ(strait_read(ep, 0, u.data, 0, 512), -ENODEV);
	ASSERT_EQ(strait_endpoint_sync(ep), -ENODEV);
	strait_endpoint_close(ep);
	end(&u);
}

/* A controller that ignores CC.EN is stopped by a function reset, or else by clearing its bus mastering. */
TEST(does_not_stop)
{
	struct strait_nvme_result r[16];
	struct strait_nvme_command cmd;
	struct user u;

	for (int works = 1; works >= 0; works--) {
		begin(&u, &(struct model_config){ 0 }, true);
		u.r.model->never_idle = true;
		u.r.model->reset_works = works;
		model_break(u.r.model, MODEL_LOSE, 5, 1);
		batch(&u, 16, r);
		ASSERT_EQ(r[5].status, -ETIMEDOUT);
		if (works) {
			ASSERT_TRUE(u.r.model->master);
			expect_works(&u);
		} else {
			/* Its bus mastering is off, because its memory is given back. */
			ASSERT_FALSE(u.r.model->master);
			cmd = rw(false, 0, 1, u.map, 0, 512);
			ASSERT_EQ(strait_nvme_queue_submit(u.q, &cmd, 1), -ENODEV);
		}
		end(&u);
	}
}

TEST(asked_for)
{
	struct user u;

	begin(&u, &(struct model_config){ .dbbuf = true, .threaded = true }, false);
	for (int i = 0; i < 5; i++) {
		ASSERT_OK(strait_nvme_reset(u.r.nvme));
		expect_works(&u);
	}
	ASSERT_EQ(rig_info(&u.r).resets, 5);
	end(&u);
}

/* Memory is given back only when the commands that use it have ended, by a reset if necessary. */
TEST(region_closed_in_flight)
{
	struct strait_nvme_command cmd;
	struct strait_nvme_result r;
	struct user u;

	begin(&u, &(struct model_config){ 0 }, true);
	model_break(u.r.model, MODEL_STALL, 0, 1);
	cmd = rw(false, 0, 1, u.map, 0, 512);
	ASSERT_EQ(strait_nvme_queue_submit(u.q, &cmd, 1), 1);
	strait_region_close(u.data);
	u.data = rig_region(&u.r, "emu:0", MIB(1));
	ASSERT_EQ(strait_nvme_queue_wait(u.q, 1, 1, STRAIT_FOREVER, &r), 1);
	ASSERT_EQ(r.status, -ETIMEDOUT);
	end(&u);
}

static const struct refusal {
	const char *name;
	uint8_t opcode;
} refusals[] = { { "submission", 0x00 }, { "completion", 0x04 } };

/*
 * The memory of the endpoints' queues is revoked and the controller refuses to delete one of them: it is reset, other
 * transfers of the endpoint fail with an error, and the context closes.
 */
TEST_VARIANTS(queue_not_deleted, struct refusal, refusals)
{
	struct strait_context_opts co = { .size = sizeof(co), .log = rig_log, .log_level = STRAIT_LOG_WARN };
	struct strait_region *queues, *data;
	struct strait_nvme_queue *more;
	struct strait_device *dev;
	struct strait_endpoint *ep;
	struct rig r = { 0 };

	ASSERT_OK(strait_context_open(&co, &r.ctx));
	ASSERT_OK(strait_device_find(r.ctx, "emu:0", &dev));
	ASSERT_OK(strait_region_alloc(dev, MIB(1), &queues));
	r.model = model_new(&(struct model_config){ 0 });
	ASSERT_OK(nvme_adopt(r.ctx, &r.model->pci,
			     &(struct strait_nvme_opts){
				     .size = sizeof(struct strait_nvme_opts), .queues = 2, .queue_region = queues },
			     &r.nvme));
	data = rig_region(&r, "emu:0", MIB(1));
	ASSERT_OK(strait_nvme_endpoint(r.nvme, 1, 0, &ep));
	ASSERT_EQ(strait_read(ep, 0, data, 0, 4096), 4096);
	r.model->refused = v->opcode;
	r.model->refusal = 0x4006;
	strait_region_close(queues);
	r.model->refusal = 0;
	ASSERT_GE(rig_info(&r).resets, 1);
	ASSERT_EQ(strait_read(ep, 0, data, 0, 4096), -ENODEV);
	ASSERT_EQ(strait_nvme_write_zeroes(ep, 0, 4096), -ENODEV);
	/* Queues in other memory work. */
	ASSERT_OK(strait_nvme_queue_open(r.nvme, NULL, &more));
	strait_nvme_queue_close(more);
	strait_endpoint_close(ep);
	strait_region_close(data);
	rig_close(&r);
}

/* Refused with a transient status: returned to the caller, once. */
TEST(queue_not_made)
{
	struct strait_nvme_queue *q;
	uint64_t before;
	struct rig r;

	rig_open(&r, &(struct model_config){ 0 }, NULL);
	r.model->refused = 0x05;
	r.model->refusal = 0x303;
	before = r.model->admin;
	ASSERT_EQ(strait_nvme_queue_open(r.nvme, NULL, &q), -EAGAIN);
	ASSERT_EQ(r.model->admin, before + 1);
	r.model->refusal = 0;
	ASSERT_OK(strait_nvme_queue_open(r.nvme, NULL, &q));
	strait_nvme_queue_close(q);
	rig_close(&r);
}

static const struct start {
	const char *name;
	struct model_config c;
	uint32_t class_code;
	int rc;
} starts[] = {
	{ "class", { 0 }, 0x010601, -EPROTO },
	{ "no-queues", { .entries = 1 }, 0, -EPROTO },
};

TEST_VARIANTS(does_not_start, struct start, starts)
{
	struct strait_context *ctx;
	struct nvme_model *m = model_new(&v->c);
	struct strait_nvme *nvme;

	ASSERT_OK(strait_context_open(NULL, &ctx));
	if (v->class_code)
		m->pci.class_code = v->class_code;
	ASSERT_EQ(nvme_adopt(ctx, &m->pci, NULL, &nvme), v->rc);
	ASSERT_FALSE(m->is_open);
	ASSERT_EQ(m->bus.mapped, 0);
	model_free(m);
	strait_context_close(ctx);
}

/* Invalid options, and a device that does not exist. */
TEST(not_opened)
{
	struct strait_nvme_opts o = { .size = sizeof(o), .flags = 1u << 31 };
	struct strait_context *ctx;
	struct strait_nvme *nvme;
	struct nvme_model *m = model_new(&(struct model_config){ 0 });

	ASSERT_OK(strait_context_open(NULL, &ctx));
	ASSERT_EQ(nvme_adopt(ctx, &m->pci, &o, &nvme), -EINVAL);
	ASSERT_FALSE(m->is_open);
	ASSERT_LT(strait_nvme_open(ctx, "ffff:ff:1f.7", NULL, &nvme), 0);
	ASSERT_EQ(strait_nvme_open(ctx, NULL, NULL, &nvme), -EINVAL);
	model_free(m);
	strait_context_close(ctx);
}

struct reader {
	struct strait_endpoint *ep;
	struct strait_region *region;
	uint64_t at, good, bad;
};

static void *read_on(void *arg)
{
	struct reader *r = arg;

	for (int i = 0; i < 50; i++) {
		ssize_t n = strait_read(r->ep, r->at + (uint64_t)i * 4096, r->region, r->at, 16384);

		if (n == 16384)
			r->good++;
		else
			r->bad++;
		ASSERT_TRUE(n == 16384 || n == -EIO || n == -ETIMEDOUT);
	}
	return NULL;
}

/* Several threads of an endpoint, several queues, and a command lost now and then. */
TEST(threads_and_resets)
{
	struct strait_nvme_opts o = { .size = sizeof(o), .timeout_ns = TIMEOUT * test_slow(), .queues = 3 };
	struct reader r[4];
	struct strait_endpoint *ep;
	struct strait_region *region;
	struct rig rig;
	pthread_t t[4];

	rig_open(&rig, &(struct model_config){ .threaded = true }, &o);
	prng_fill(rig.model->disk[0], MIB(8), 1);
	region = rig_region(&rig, "emu:0", MIB(4));
	ASSERT_OK(strait_nvme_endpoint(rig.nvme, 1, 0, &ep));
	model_break(rig.model, MODEL_LOSE, 20, 1);
	for (unsigned int i = 0; i < 4; i++) {
		r[i] = (struct reader){ ep, region, i * MIB(1), 0, 0 };
		ASSERT_EQ(pthread_create(&t[i], NULL, read_on, &r[i]), 0);
	}
	for (unsigned int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	ASSERT_EQ(rig_info(&rig).resets, 1);
	for (unsigned int i = 0; i < 4; i++) {
		ASSERT_GE(r[i].good, 49);
		ASSERT_MEMEQ(rig_cpu(region) + r[i].at, rig.model->disk[0] + r[i].at + 49 * 4096, 16384);
	}
	strait_endpoint_close(ep);
	strait_region_close(region);
	rig_close(&rig);
}
