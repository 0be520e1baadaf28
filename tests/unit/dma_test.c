/* SPDX-License-Identifier: MIT */
/* DMA engines on a model of a card: any size in both directions and round trips, and every kind of failure. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strait/bounce.h>
#include <strait/dma.h>
#include <strait/nvme.h>
#include <strait/strait.h>

#include "api/api.h"
#include "api/dma.h"
#include "base/util.h"
#include "harness/harness.h"
#include "xdma_model.h"

#define REGION MIB(1)

struct rig {
	struct strait_context *ctx;
	struct xdma_model *model;
	struct strait_dma *dma;
	struct strait_endpoint *ep;
	struct strait_region *a, *b;
	uint8_t *pa, *pb;
};

static const struct shape {
	const char *name;
	struct xdma_config c;
	uint32_t flags;
	const char *device;
	int route;
} shapes[] = {
	{ "emu", { 0 }, 0, "emu:0", STRAIT_ROUTE_P2P },
	{ "host", { 0 }, 0, "host", STRAIT_ROUTE_HOST },
	{ "scattered", { .scattered = true }, 0, "emu:0", STRAIT_ROUTE_P2P },
	{ "words", { .align = 4 }, 0, "emu:0", STRAIT_ROUTE_P2P },
	{ "threaded", { .threaded = true }, 0, "host", STRAIT_ROUTE_HOST },
	{ "interrupts", { .threaded = true, .interrupts = true }, STRAIT_DMA_INTERRUPTS, "emu:0", STRAIT_ROUTE_P2P },
	{ "other-bar", { .bar = 2 }, 0, "emu:0", STRAIT_ROUTE_P2P },
	{ "not-mapped", { .refuse_regions = true }, 0, "emu:0", STRAIT_ROUTE_STAGED },
	{ "does-not-arrive", { .lose_peer_writes = true }, 0, "emu:0", STRAIT_ROUTE_STAGED },
};

static void show(void *arg, enum strait_log_level level, const char *text)
{
	printf("# %s\n", text);
}

static struct strait_region *region_new(struct rig *r, const char *name, uint8_t **cpu)
{
	struct strait_device *dev;
	struct strait_region *region;
	void *p;

	ASSERT_OK(strait_device_find(r->ctx, name, &dev));
	ASSERT_OK(strait_region_alloc(dev, REGION, &region));
	ASSERT_OK(strait_region_map(region, &p));
	*cpu = p;
	return region;
}

static void begin(struct rig *r, const struct shape *v)
{
	struct strait_context_opts co = { .size = sizeof(co), .log = show, .log_level = STRAIT_LOG_WARN };
	/* A model without a thread answers at once or never; one with a thread always, when it is scheduled. */
	uint64_t timeout = v->c.threaded ? 10000000000u : 100000000u;
	struct strait_dma_opts o = { .size = sizeof(o), .flags = v->flags, .timeout_ns = timeout };

	ASSERT_OK(strait_context_open(&co, &r->ctx));
	r->model = xdma_new(&v->c);
	for (uint64_t i = 0; i < r->model->c.card_bytes; i++)
		r->model->card[i] = (uint8_t)(i * 7 + 1);
	ASSERT_OK(dma_adopt(r->ctx, &r->model->pci, &o, &r->dma));
	ASSERT_OK(strait_dma_endpoint(r->dma, &r->ep));
	r->a = region_new(r, v->device, &r->pa);
	r->b = region_new(r, v->device, &r->pb);
}

static void end(struct rig *r)
{
	strait_region_close(r->a);
	strait_region_close(r->b);
	strait_endpoint_close(r->ep);
	strait_dma_close(r->dma);
	strait_context_close(r->ctx);
	ASSERT_FALSE(r->model->is_open);
	ASSERT_FALSE(r->model->master);
	ASSERT_EQ(r->model->bus.mapped, 0);
	ASSERT_EQ(r->model->bus.faults, 0);
	xdma_free(r->model);
}

static struct strait_dma_info info_of(struct rig *r)
{
	struct strait_dma_info i = { .size = sizeof(i) };

	ASSERT_OK(strait_dma_info(r->dma, &i));
	return i;
}

static struct strait_result move(struct rig *r, uint32_t op, uint64_t at, uint64_t off, uint64_t len)
{
	struct strait_transfer t = {
		.op = op, .endpoint = r->ep, .region = r->a, .endpoint_offset = at, .region_offset = off, .length = len
	};
	struct strait_result res;

	strait_transfer_run(&t, STRAIT_FOREVER, &res);
	return res;
}

TEST_VARIANTS(both_ways, struct shape, shapes)
{
	uint8_t card[65536], *mem = malloc(REGION);
	uint64_t state = 3, carried = 0;
	struct rig r;

	ASSERT_TRUE(mem);
	begin(&r, v);
	memcpy(card, r.model->card, sizeof(card));
	for (int i = 0; i < 60; i++) {
		uint64_t len = i < 4 ? (uint64_t[]){ 0, 1, 65536, 4096 }[i] : prng_below(&state, 65536);
		uint64_t at = prng_below(&state, 65537 - len), off = prng_below(&state, REGION - len);
		struct strait_result res;
		bool write = prng_below(&state, 2);

		if (i % 2 == 0) {
			at &= ~3ull;
			off &= ~3ull;
		}
		prng_fill(r.pa, REGION, (uint64_t)i + 1);
		memcpy(mem, r.pa, REGION);
		if (write)
			memcpy(card + at, mem + off, len);
		else
			memcpy(mem + off, card + at, len);
		res = move(&r, write, at, off, len);
		ASSERT_EQ(res.status, 0);
		ASSERT_EQ(res.bytes, len);
		ASSERT_MEMEQ(r.pa, mem, REGION);
		ASSERT_MEMEQ(r.model->card, card, sizeof(card));
		carried += res.route_bytes[v->route];
	}
	ASSERT_GT(carried, 0);
	free(mem);
	end(&r);
}

/* More than the card's memory, from one region into another. */
TEST_VARIANTS(through, struct shape, shapes)
{
	uint64_t done = 1;
	struct rig r;
	int rc;

	begin(&r, v);
	prng_fill(r.pa, REGION, 5);
	memset(r.pb, 0, REGION);
	rc = strait_dma_bounce(r.dma, r.a, 4096, r.b, 8192, 500000, STRAIT_FOREVER, &done);
	if (v->route == STRAIT_ROUTE_STAGED) {
		/* There is no other route. */
		ASSERT_LT(rc, 0);
		ASSERT_EQ(done, 0);
		end(&r);
		return;
	}
	ASSERT_OK(rc);
	ASSERT_EQ(done, 500000);
	ASSERT_MEMEQ(r.pb + 8192, r.pa + 4096, 500000);
	ASSERT_EQ(r.pb[8191], 0);
	ASSERT_EQ(r.pb[8192 + 500000], 0);
	ASSERT_EQ(info_of(&r).bytes_to_card, 500000);
	ASSERT_GE(info_of(&r).bytes_from_card, 500000);
	ASSERT_EQ(strait_dma_bounce(r.dma, r.a, 1, r.b, 0, REGION, STRAIT_FOREVER, &done), -EINVAL);
	ASSERT_EQ(strait_dma_bounce(r.dma, r.a, 0, r.b, UINT64_MAX, 2, STRAIT_FOREVER, &done), -EINVAL);
	ASSERT_EQ(strait_dma_bounce(r.dma, r.a, 0, r.b, 0, 4096, 0, &done), -ETIMEDOUT);
	ASSERT_OK(strait_dma_bounce(r.dma, r.a, 0, r.b, 0, 0, STRAIT_FOREVER, &done));
	end(&r);
}

static const struct bad {
	const char *name;
	enum xdma_fault fault;
	int status;
	uint32_t device; /* bits of the device's status that must be set */
	bool dead;
} bads[] = {
	{ "magic", XDMA_BAD_MAGIC, -EIO, 1 << 4, false },
	{ "halted", XDMA_HALT, -EIO, 1 << 1, false },
	{ "descriptor", XDMA_DESC_ERROR, -EIO, 1 << 19, false },
	{ "read", XDMA_READ_ERROR, -EIO, 1 << 9, false },
	{ "stuck", XDMA_STUCK, -ETIMEDOUT, 0, false },
	{ "stuck-hard", XDMA_STUCK_HARD, -ETIMEDOUT, 0, true },
	{ "gone", XDMA_GONE, -ENODEV, 0, true },
};

TEST_VARIANTS(goes_wrong, struct bad, bads)
{
	static const struct shape shape = { "", { .scattered = true }, 0, "emu:0", 0 };
	struct strait_result res;
	struct rig r;

	begin(&r, &shape);
	prng_fill(r.pa, REGION, 9);
	ASSERT_EQ(move(&r, STRAIT_WRITE, 0, 0, 65536).status, 0);
	xdma_break(r.model, v->fault, 1);
	res = move(&r, STRAIT_READ, 0, 0, 65536);
	ASSERT_EQ(res.status, v->status);
	ASSERT_EQ(res.bytes, 0);
	ASSERT_EQ((uint32_t)res.device_status & v->device, v->device);
	/* Stopped before the memory is given back. */
	ASSERT_TRUE(v->fault == XDMA_GONE || !(r.model->ch[1].status & 1) || !r.model->master);
	ASSERT_GE(info_of(&r).stops, 1);
	if (v->dead) {
		ASSERT_FALSE(r.model->master);
		ASSERT_EQ(move(&r, STRAIT_READ, 0, 0, 4096).status, -ENODEV);
		ASSERT_EQ(strait_endpoint_sync(r.ep), -ENODEV);
		xdma_break(r.model, XDMA_GOOD, 0);
	} else {
		memset(r.pa, 0, 65536);
		ASSERT_EQ(move(&r, STRAIT_READ, 0, 0, 65536).status, 0);
		ASSERT_MEMEQ(r.pa, r.model->card, 65536);
		ASSERT_OK(strait_endpoint_sync(r.ep));
	}
	end(&r);
}

/* Memory that goes away during a transfer. */
TEST(revoked)
{
	struct rig r;

	begin(&r, &shapes[0]);
	ASSERT_EQ(move(&r, STRAIT_READ, 0, 0, 4096).status, 0);
	r.model->revoked = true;
	ASSERT_EQ(move(&r, STRAIT_READ, 0, 0, 4096).status, -ENODEV);
	r.model->revoked = false;
	/* A closed region is not mapped any more: end() checks. */
	ASSERT_GT(r.model->bus.mapped, 3);
	end(&r);
}

TEST(what_is_known)
{
	struct strait_dma_opts o = { .size = sizeof(o), .flags = 1u << 31 };
	struct strait_nvme_endpoint_info drive = { .size = sizeof(drive) };
	struct strait_dma_mmio mmio = { .size = sizeof(mmio) };
	struct strait_dma_info i;
	struct strait_device *dev;
	struct strait_dma *dma;
	struct xdma_model *m;
	struct rig r;

	begin(&r, &shapes[3]);
	i = info_of(&r);
	ASSERT_STREQ(i.engine, "xdma");
	ASSERT_STREQ(i.backend, "model");
	ASSERT_EQ(i.card_bytes, 65536);
	ASSERT_EQ(i.align, 4);
	ASSERT_EQ(i.channels, 1);
	ASSERT_EQ(i.address_bits, 64);
	ASSERT_EQ(move(&r, STRAIT_READ, 65536, 0, 4096).bytes, 0);
	ASSERT_EQ(move(&r, STRAIT_READ, 65536 - 100, 0, 4096).bytes, 100);
	ASSERT_EQ(move(&r, STRAIT_WRITE, 65536, 0, 4096).status, -ENOSPC);
	/* Registers of a model are not memory. */
	ASSERT_OK(strait_device_find(r.ctx, "emu:0", &dev));
	ASSERT_EQ(strait_dma_mmio_map(r.dma, dev, 1, 0, 4096, &mmio), -EOPNOTSUPP);
	ASSERT_EQ(strait_dma_mmio_map(r.dma, dev, 1, 0, 1 << 20, &mmio), -EINVAL);
	strait_dma_mmio_unmap(r.dma, dev, &mmio);
	/* Nor is a card a drive. */
	ASSERT_EQ(strait_nvme_endpoint_info(r.ep, &drive), -EINVAL);
	ASSERT_EQ(strait_nvme_write_zeroes(r.ep, 0, 4096), -EINVAL);
	ASSERT_EQ(strait_nvme_deallocate(r.ep, 0, 4096), -EINVAL);
	strait_dma_close(NULL);
	/* Not opened: options, another engine, a device that is not a card. */
	m = xdma_new(&(struct xdma_config){ 0 });
	ASSERT_EQ(dma_adopt(r.ctx, &m->pci, &o, &dma), -EINVAL);
	ASSERT_FALSE(m->is_open);
	o.flags = 0;
	o.engine = "edu";
	ASSERT_EQ(dma_adopt(r.ctx, &m->pci, &o, &dma), -EPROTO);
	m->pci.vendor = 0x8086;
	ASSERT_EQ(dma_adopt(r.ctx, &m->pci, NULL, &dma), -EPROTO);
	m->pci.vendor = 0x10ee;
	xdma_break(m, XDMA_GONE, 1);
	ASSERT_EQ(dma_adopt(r.ctx, &m->pci, NULL, &dma), -EPROTO);
	o.engine = NULL;
	o.flags = STRAIT_DMA_INTERRUPTS;
	xdma_break(m, XDMA_GOOD, 0);
	ASSERT_EQ(dma_adopt(r.ctx, &m->pci, &o, &dma), -EOPNOTSUPP);
	ASSERT_EQ(m->bus.mapped, 0);
	xdma_free(m);
	ASSERT_LT(strait_dma_open(r.ctx, "ffff:ff:1f.7", NULL, &dma), 0);
	end(&r);
}

/* A struct of an unknown size is refused, and nothing stays mapped. */
TEST(registers_of_a_wrong_size)
{
	struct strait_dma_mmio mmio = { .size = 3 };
	static unsigned char registers[8192];
	struct strait_device *dev;
	struct rig r;

	begin(&r, &shapes[0]);
	ASSERT_OK(strait_device_find(r.ctx, "emu:0", &dev));
	r.model->pci.bar[4].at = registers;
	r.model->pci.bar[4].length = sizeof(registers);
	ASSERT_EQ(strait_dma_mmio_map(r.dma, dev, 4, 0, 4096, &mmio), -EINVAL);
	ASSERT_TRUE(!mmio.priv);
	mmio.size = sizeof(mmio);
	ASSERT_OK(strait_dma_mmio_map(r.dma, dev, 4, 0, 4096, &mmio));
	strait_dma_mmio_unmap(r.dma, dev, &mmio);
	end(&r);
}

struct worker {
	struct rig *r;
	unsigned int id;
};

static void *work(void *arg)
{
	struct worker *w = arg;

	for (int i = 0; i < 30; i++) {
		uint64_t at = w->id * 16384;

		prng_fill(w->r->pa + at, 16384, w->id * 100 + (uint64_t)i);
		ASSERT_EQ(strait_write(w->r->ep, at, w->r->a, at, 16384), 16384);
		ASSERT_EQ(strait_read(w->r->ep, at, w->r->b, at, 16384), 16384);
		ASSERT_MEMEQ(w->r->pa + at, w->r->pb + at, 16384);
	}
	return NULL;
}

TEST_VARIANTS(threads, struct shape, shapes)
{
	struct worker w[4];
	pthread_t t[4];
	struct rig r;

	begin(&r, v);
	for (unsigned int i = 0; i < 4; i++) {
		w[i] = (struct worker){ &r, i };
		ASSERT_EQ(pthread_create(&t[i], NULL, work, &w[i]), 0);
	}
	for (unsigned int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	end(&r);
}
