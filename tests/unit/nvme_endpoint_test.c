/* SPDX-License-Identifier: MIT */
/* A namespace as an endpoint: transfers of any offset and length, on a model of a controller. */
#include <pthread.h>

#include "nvme_common.h"

#define BYTES MIB(8)
#define REGION MIB(2)

static const struct shape {
	const char *name;
	struct model_config c;
	struct strait_nvme_opts o;
	const char *device;
	int route;
} shapes[] = {
	{ "emu", { 0 }, { 0 }, "emu:0", STRAIT_ROUTE_P2P },
	{ "host", { 0 }, { 0 }, "host", STRAIT_ROUTE_HOST },
	{ "sgl", { .sgls = 1 }, { 0 }, "emu:0", STRAIT_ROUTE_P2P },
	{ "4096", { .lba = 4096, .blocks = 2048 }, { 0 }, "emu:0", STRAIT_ROUTE_P2P },
	{ "scattered-mdts-1", { .scattered = true, .mdts = 1, .entries = 64 }, { 0 }, "emu:0", STRAIT_ROUTE_P2P },
	{ "threaded", { .threaded = true, .dbbuf = true }, { 0 }, "host", STRAIT_ROUTE_HOST },
	{ "interrupts",
	  { .threaded = true, .vectors = 3 },
	  { .flags = STRAIT_NVME_INTERRUPTS },
	  "emu:0",
	  STRAIT_ROUTE_P2P },
	{ "one-entry", { .entries = 2 }, { .queues = 1 }, "emu:0", STRAIT_ROUTE_P2P },
	{ "not-mapped", { .refuse_regions = true }, { 0 }, "emu:0", STRAIT_ROUTE_STAGED },
	{ "does-not-arrive", { .lose_peer_writes = true }, { 0 }, "emu:0", STRAIT_ROUTE_STAGED },
};

struct user {
	struct rig r;
	struct strait_endpoint *ep;
	struct strait_region *region;
	uint8_t *cpu, *disk;
};

static void begin(struct user *u, const struct shape *v, uint32_t flags)
{
	struct strait_nvme_opts o = v->o;

	o.size = sizeof(o);
	rig_open(&u->r, &v->c, &o);
	u->region = rig_region(&u->r, v->device, REGION);
	u->cpu = rig_cpu(u->region);
	u->disk = u->r.model->disk[0];
	prng_fill(u->disk, BYTES, 3);
	ASSERT_OK(strait_nvme_endpoint(u->r.nvme, 1, flags, &u->ep));
}

static void end(struct user *u)
{
	strait_endpoint_close(u->ep);
	strait_region_close(u->region);
	rig_close(&u->r);
}

static struct strait_nvme_endpoint_info info_of(struct strait_endpoint *ep)
{
	struct strait_nvme_endpoint_info info = { .size = sizeof(info) };

	ASSERT_OK(strait_nvme_endpoint_info(ep, &info));
	return info;
}

static struct strait_result move(struct user *u, uint32_t op, uint64_t at, uint64_t off, uint64_t len)
{
	struct strait_transfer t = { .op = op,
				     .endpoint = u->ep,
				     .region = u->region,
				     .endpoint_offset = at,
				     .region_offset = off,
				     .length = len };
	struct strait_result res;

	strait_transfer_run(&t, STRAIT_FOREVER, &res);
	return res;
}

/* More than a block on either side. */
#define AROUND 8192u

struct window {
	uint64_t at, len;
};

/* A range and its surroundings, of @all bytes. */
static struct window around(uint64_t at, uint64_t len, uint64_t all)
{
	uint64_t start = at > AROUND ? at - AROUND : 0;

	return (struct window){ start, min_u64(at + len + AROUND, all) - start };
}

/*
 * Any offset and length in both directions: all bytes arrive and no others change. Where every access is instrumented,
 * distant bytes are compared only now and then.
 */
TEST_VARIANTS(any_bytes, struct shape, shapes)
{
	static const uint64_t edges[] = { 0, 1, 3, 4, 511, 512, 513, 4095, 4096, 4097, 65536, 131072, 131073, 1048576 };
	uint8_t *disk = malloc(BYTES), *mem = malloc(REGION);
	uint64_t state = 5, total[STRAIT_ROUTE_COUNT] = { 0 };
	struct user u;

	ASSERT_TRUE(disk && mem);
	begin(&u, v, 0);
	memcpy(disk, u.disk, BYTES);
	memcpy(mem, u.cpu, REGION);
	for (int i = 0; i < 120; i++) {
		uint64_t len = i < 60 ? edges[prng_below(&state, ARRAY_SIZE(edges))] : prng_below(&state, MIB(1) / 2);
		uint64_t at = prng_below(&state, BYTES - len), off = prng_below(&state, REGION - len);
		struct window in_mem, on_disk;
		struct strait_result res;
		bool write = prng_below(&state, 2);

		if (i % 3 == 0) {
			at = align_down(at, 4096);
			off = align_down(off, 4);
		}
		in_mem = around(off, len, REGION);
		on_disk = around(at, len, BYTES);
		prng_fill(u.cpu + in_mem.at, in_mem.len, (uint64_t)i + 100);
		memcpy(mem + in_mem.at, u.cpu + in_mem.at, in_mem.len);
		if (write)
			memcpy(disk + at, mem + off, len);
		else
			memcpy(mem + off, disk + at, len);
		res = move(&u, write, at, off, len);
		ASSERT_EQ(res.status, 0);
		ASSERT_EQ(res.bytes, len);
		ASSERT_MEMEQ(u.cpu + in_mem.at, mem + in_mem.at, in_mem.len);
		ASSERT_MEMEQ(u.disk + on_disk.at, disk + on_disk.at, on_disk.len);
		if (test_slow() <= 4 || i % 12 == 11) {
			ASSERT_MEMEQ(u.cpu, mem, REGION);
			ASSERT_MEMEQ(u.disk, disk, BYTES);
		}
		for (int r = 0; r < STRAIT_ROUTE_COUNT; r++)
			total[r] += res.route_bytes[r];
	}
	ASSERT_GT(total[v->route], 0);
	if (v->route == STRAIT_ROUTE_STAGED)
		ASSERT_EQ(total[STRAIT_ROUTE_P2P], 0);
	ASSERT_EQ(total[STRAIT_ROUTE_PAGECACHE], 0);
	if (v->route != STRAIT_ROUTE_STAGED)
		ASSERT_GT(info_of(u.ep).direct_bytes, 0);
	ASSERT_GT(info_of(u.ep).edge_writes, 0);
	ASSERT_GT(info_of(u.ep).edge_reads, 0);
	end(&u);
	free(disk);
	free(mem);
}

/* Aligned transfers are moved by the drive alone, with many commands in flight. */
TEST_VARIANTS(direct, struct shape, shapes)
{
	struct strait_result res;
	struct user u;

	begin(&u, v, 0);
	res = move(&u, STRAIT_READ, MIB(1), 0, REGION);
	ASSERT_EQ(res.status, 0);
	ASSERT_EQ(res.route_bytes[v->route], REGION);
	ASSERT_EQ(res.routes, STRAIT_ROUTE_MASK(v->route));
	ASSERT_MEMEQ(u.cpu, u.disk + MIB(1), REGION);
	if (v->route != STRAIT_ROUTE_STAGED)
		ASSERT_EQ(info_of(u.ep).direct_bytes, REGION);
	end(&u);
}

TEST_VARIANTS(explained, struct shape, shapes)
{
	struct strait_route_report rep = { .size = sizeof(rep) };
	struct strait_device *dev;
	struct user u;

	begin(&u, v, 0);
	ASSERT_OK(strait_device_find(u.r.ctx, v->device, &dev));
	ASSERT_OK(strait_route_query_device(u.ep, dev, STRAIT_READ, &rep));
	ASSERT_EQ(rep.route, v->route);
	for (int i = 0; i < STRAIT_ROUTE_COUNT; i++) {
		char why[256];

		ASSERT_OK(strait_route_verdict_text(&rep.verdict[i], why, sizeof(why)));
		printf("# %s: %u %s\n", strait_route_name(i), rep.verdict[i].usable, why);
	}
	ASSERT_FALSE(rep.verdict[STRAIT_ROUTE_PAGECACHE].usable);
	if (v->route == STRAIT_ROUTE_STAGED)
		ASSERT_EQ(rep.verdict[STRAIT_ROUTE_P2P].code, -EOPNOTSUPP);
	end(&u);
}

/* The end of the namespace. */
TEST(past_the_end)
{
	struct strait_result res;
	struct user u;

	begin(&u, &shapes[0], 0);
	res = move(&u, STRAIT_READ, BYTES - 4096, 0, 8192);
	ASSERT_EQ(res.status, 0);
	ASSERT_EQ(res.bytes, 4096);
	res = move(&u, STRAIT_READ, BYTES - 100, 0, 8192);
	ASSERT_EQ(res.status, 0);
	ASSERT_EQ(res.bytes, 100);
	res = move(&u, STRAIT_READ, BYTES, 0, 8192);
	ASSERT_EQ(res.status, 0);
	ASSERT_EQ(res.bytes, 0);
	res = move(&u, STRAIT_WRITE, BYTES, 0, 4096);
	ASSERT_EQ(res.status, -ENOSPC);
	res = move(&u, STRAIT_WRITE, BYTES - 4096, 0, 8192);
	ASSERT_EQ(res.status, -ENOSPC);
	res = move(&u, STRAIT_WRITE, BYTES - 7, 0, 8);
	ASSERT_EQ(res.status, -ENOSPC);
	end(&u);
}

TEST(cache_and_access)
{
	struct strait_endpoint *ep;
	struct user u;

	begin(&u, &shapes[0], 0);
	ASSERT_OK(strait_endpoint_sync(u.ep));
	ASSERT_EQ(u.r.model->flushes, 1);
	ASSERT_EQ(u.r.model->fua, 0);
	ASSERT_OK(strait_nvme_endpoint(u.r.nvme, 1, STRAIT_NVME_FUA, &ep));
	ASSERT_EQ(strait_write(ep, 0, u.region, 0, 4096), 4096);
	ASSERT_GT(u.r.model->fua, 0);
	strait_endpoint_close(ep);
	ASSERT_OK(strait_nvme_endpoint(u.r.nvme, 1, STRAIT_NVME_READ_ONLY, &ep));
	ASSERT_EQ(strait_write(ep, 0, u.region, 0, 4096), -EBADF);
	ASSERT_EQ(strait_nvme_write_zeroes(ep, 0, 512), -EBADF);
	strait_endpoint_close(ep);
	ASSERT_EQ(strait_nvme_endpoint(u.r.nvme, 2, 0, &ep), -ENOENT);
	ASSERT_EQ(strait_nvme_endpoint(u.r.nvme, 1, 8, &ep), -EINVAL);
	ASSERT_EQ(strait_file_info(u.ep, &(struct strait_file_info){ .size = sizeof(struct strait_file_info) }),
		  -EINVAL);
	end(&u);

	/* Without a volatile cache there is nothing to flush. */
	begin(&u, &(struct shape){ "", { .no_cache = true }, { 0 }, "host", 0 }, 0);
	ASSERT_OK(strait_endpoint_sync(u.ep));
	ASSERT_EQ(u.r.model->flushes, 0);
	end(&u);
}

TEST(zeroes)
{
	uint8_t *want = malloc(BYTES);
	struct user u;

	ASSERT_TRUE(want);
	begin(&u, &shapes[0], 0);
	memcpy(want, u.disk, BYTES);
	memset(want + 512, 0, MIB(3));
	ASSERT_OK(strait_nvme_write_zeroes(u.ep, 512, MIB(3)));
	ASSERT_MEMEQ(u.disk, want, BYTES);
	memset(want + MIB(4), 0, MIB(1));
	ASSERT_OK(strait_nvme_deallocate(u.ep, MIB(4), MIB(1)));
	ASSERT_MEMEQ(u.disk, want, BYTES);
	ASSERT_EQ(strait_nvme_write_zeroes(u.ep, 1, 512), -EINVAL);
	ASSERT_EQ(strait_nvme_write_zeroes(u.ep, BYTES, 512), -EINVAL);
	ASSERT_EQ(strait_nvme_deallocate(u.ep, UINT64_MAX - 511, 512), -EINVAL);
	end(&u);
	begin(&u, &(struct shape){ "", { .no_zeroes = true }, { 0 }, "host", 0 }, 0);
	ASSERT_EQ(strait_nvme_write_zeroes(u.ep, 0, 512), -EOPNOTSUPP);
	ASSERT_EQ(strait_nvme_deallocate(u.ep, 0, 512), -EOPNOTSUPP);
	end(&u);
	free(want);
}

static const struct format {
	const char *name;
	struct model_config c;
	uint32_t reason;
} formats[] = {
	{ "metadata", { .metadata = 8 }, STRAIT_WHY_NS_METADATA },
	{ "protection", { .protection = 1, .metadata = 8 }, STRAIT_WHY_NS_PROTECTION },
	{ "lba-1024", { .lba = 1024 }, STRAIT_WHY_NS_BLOCK_SIZE },
};

TEST_VARIANTS(not_usable, struct format, formats)
{
	struct strait_nvme_namespace ns = { .size = sizeof(ns) };
	struct strait_endpoint *ep;
	struct rig r;

	rig_open(&r, &v->c, NULL);
	ASSERT_OK(strait_nvme_namespace(r.nvme, 0, &ns));
	ASSERT_EQ(ns.usable, -EOPNOTSUPP);
	ASSERT_EQ(ns.reason, v->reason);
	ASSERT_EQ(strait_nvme_endpoint(r.nvme, 1, 0, &ep), -EOPNOTSUPP);
	rig_close(&r);
}

/* An error in the middle: the bytes before it are good, and the drive's status comes with the errno. */
TEST(errors)
{
	struct strait_result res;
	struct user u;

	begin(&u, &(struct shape){ "", { .mdts = 1 }, { .queues = 1 }, "emu:0", 0 }, 0);
	u.r.model->status = 0x4281;
	res = move(&u, STRAIT_READ, 0, 0, 4096); /* the pair is verified */
	model_break(u.r.model, MODEL_STATUS, 10, 1);
	res = move(&u, STRAIT_READ, 0, 0, MIB(1));
	ASSERT_EQ(res.status, -EIO);
	ASSERT_EQ(res.device_status, 0x4281);
	ASSERT_EQ(res.bytes, 10 * 8192);
	ASSERT_MEMEQ(u.cpu, u.disk, res.bytes);
	/* A transient one is retried. */
	u.r.model->status = 0x0082;
	model_break(u.r.model, MODEL_STATUS, 10, 2);
	res = move(&u, STRAIT_READ, MIB(1), 0, MIB(1));
	ASSERT_EQ(res.status, 0);
	ASSERT_EQ(res.bytes, MIB(1));
	ASSERT_MEMEQ(u.cpu, u.disk + MIB(1), MIB(1));
	/* But not without limit, nor if the drive sets Do Not Retry. */
	model_break(u.r.model, MODEL_STATUS, 0, 1000);
	res = move(&u, STRAIT_READ, 0, 0, 4096);
	ASSERT_EQ(res.status, -EBUSY);
	u.r.model->status = 0x4082;
	model_break(u.r.model, MODEL_STATUS, 0, 1);
	res = move(&u, STRAIT_READ, 0, 0, 4096);
	ASSERT_EQ(res.status, -EBUSY);
	/* Memory that went away: the drive reports success, the library does not. */
	model_break(u.r.model, MODEL_GOOD, 0, 0);
	u.r.model->revoked = 1;
	res = move(&u, STRAIT_READ, 0, 0, 4096);
	ASSERT_EQ(res.status, -ENODEV);
	/* Or the drive reports a failed transfer, at its start and in the middle. */
	u.r.model->status = 0x4004;
	for (unsigned int good = 0; good < 20; good += 10) {
		model_break(u.r.model, MODEL_STATUS, good, 1);
		res = move(&u, STRAIT_READ, 0, 0, MIB(1));
		ASSERT_EQ(res.status, -ENODEV);
		ASSERT_EQ(res.bytes, 0);
	}
	u.r.model->revoked = 0;
	end(&u);
}

/* The namespace changes under the endpoint. */
TEST(namespace_changes)
{
	struct strait_result res;
	struct user u;

	begin(&u, &shapes[0], 0);
	ASSERT_EQ(info_of(u.ep).length, BYTES);
	model_resize(u.r.model, 1, 1000);
	ASSERT_TRUE(model_event(u.r.model, 4u << 16 | 2));
	ASSERT_EQ(info_of(u.ep).length, 512000);
	res = move(&u, STRAIT_READ, 0, 0, MIB(1));
	ASSERT_EQ(res.status, 0);
	ASSERT_EQ(res.bytes, 512000);
	model_resize(u.r.model, 1, 0);
	ASSERT_TRUE(model_event(u.r.model, 4u << 16 | 2));
	ASSERT_EQ(move(&u, STRAIT_READ, 0, 0, 4096).status, -ENODEV);
	end(&u);
}

struct writer {
	struct user *u;
	unsigned int id;
};

#define WRITERS 4
#define STRIPES 64

/* Each writes its own bytes of blocks that all of them write to. */
static void *write_stripes(void *arg)
{
	struct writer *w = arg;

	for (unsigned int i = 0; i < STRIPES; i++) {
		/* Stripes of 100 bytes, one of four: blocks contain parts of several. */
		uint64_t at = ((uint64_t)i * WRITERS + w->id) * 100;

		ASSERT_EQ(strait_write(w->u->ep, at, w->u->region, at, 100), 100);
	}
	return NULL;
}

TEST_VARIANTS(edges_are_not_lost, struct shape, shapes)
{
	struct writer w[WRITERS];
	pthread_t t[WRITERS];
	struct user u;

	begin(&u, v, 0);
	prng_fill(u.cpu, REGION, 8);
	for (unsigned int i = 0; i < WRITERS; i++) {
		w[i] = (struct writer){ &u, i };
		ASSERT_EQ(pthread_create(&t[i], NULL, write_stripes, &w[i]), 0);
	}
	for (unsigned int i = 0; i < WRITERS; i++)
		pthread_join(t[i], NULL);
	ASSERT_MEMEQ(u.disk, u.cpu, STRIPES * WRITERS * 100);
	ASSERT_GT(info_of(u.ep).edge_writes, STRIPES * WRITERS / 2);
	end(&u);
}

/* Queued transfers, of several threads, on several queues of the drive. */
TEST_VARIANTS(queued, struct shape, shapes)
{
	struct strait_transfer t[64];
	struct strait_result res[64];
	struct strait_queue *q;
	struct user u;

	begin(&u, v, 0);
	ASSERT_OK(strait_queue_open(u.r.ctx, NULL, &q));
	for (unsigned int i = 0; i < 64; i++)
		t[i] = (struct strait_transfer){ .op = STRAIT_READ,
						 .endpoint = u.ep,
						 .region = u.region,
						 .endpoint_offset = (63 - i) * KIB(32),
						 .region_offset = i * KIB(32),
						 .length = KIB(32),
						 .user_data = i };
	ASSERT_OK(strait_queue_submit(q, t, 64));
	ASSERT_EQ(strait_queue_wait(q, 64, 64, STRAIT_FOREVER, res), 64);
	for (unsigned int i = 0; i < 64; i++) {
		ASSERT_EQ(res[i].status, 0);
		ASSERT_EQ(res[i].bytes, KIB(32));
	}
	for (unsigned int i = 0; i < 64; i++)
		ASSERT_MEMEQ(u.cpu + i * KIB(32), u.disk + (63 - i) * KIB(32), KIB(32));
	strait_queue_close(q);
	end(&u);
}

/*
 * Two namespaces of one controller with different block sizes, as two endpoints; the controller's handle is closed
 * first.
 */
/* Its flags are those of include/strait/nvme.h: none of them, now or later, is a promise about a page cache. */
TEST(flags_are_no_files)
{
	struct user u;

	begin(&u, &shapes[0], 0);
	for (uint32_t i = 0; i < 32; i++) {
		u.ep->flags = 1u << i;
		ASSERT_FALSE(regcache_may_cache(u.ep));
	}
	u.ep->flags = 0;
	end(&u);
}

TEST(two_namespaces)
{
	struct strait_nvme_opts o = { .size = sizeof(o) };
	struct strait_endpoint *ep[2];
	struct strait_region *region;
	struct rig r;

	rig_open(&r, &(struct model_config){ .namespaces = 2, .lba2 = 4096 }, &o);
	region = rig_region(&r, "emu:0", MIB(1));
	prng_fill(rig_cpu(region), MIB(1), 4);
	for (uint32_t i = 0; i < 2; i++)
		ASSERT_OK(strait_nvme_endpoint(r.nvme, i + 1, 0, &ep[i]));
	strait_nvme_close(r.nvme);
	r.nvme = NULL;
	for (uint32_t i = 0; i < 2; i++) {
		ASSERT_EQ(info_of(ep[i]).lba_bytes, i ? 4096 : 512);
		ASSERT_EQ(strait_write(ep[i], 1000 + i, region, 3, 100000), 100000);
		ASSERT_MEMEQ(r.model->disk[i] + 1000 + i, rig_cpu(region) + 3, 100000);
	}
	strait_endpoint_close(ep[0]);
	strait_endpoint_close(ep[1]);
	strait_region_close(region);
	rig_close(&r);
}

/* A deadline, and a cancel, stop a transfer between commands. */
TEST(deadline)
{
	struct strait_transfer t = { .op = STRAIT_READ, .length = 4096 };
	struct strait_result res;
	struct user u;

	begin(&u, &shapes[0], 0);
	ASSERT_EQ(move(&u, STRAIT_READ, 0, 0, 4096).status, 0);
	t.endpoint = u.ep;
	t.region = u.region;
	ASSERT_EQ(strait_transfer_run(&t, 0, &res), -ETIMEDOUT);
	ASSERT_EQ(res.bytes, 0);
	end(&u);
}
