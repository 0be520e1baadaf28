/* SPDX-License-Identifier: MIT */
/* Models of drives and DMA engines that reach memory of the fake GPU, ordered on its streams. */
#include <strait/dma.h>
#include <strait/nvme.h>

#include "api/api.h"
#include "api/dma.h"
#include "api/nvme.h"
#include "fakecuda/common.h"
#include "nvme_model.h"
#include "xdma_model.h"

struct rig {
	struct strait_context *ctx;
	struct nvme_model *drive;
	struct strait_nvme *nvme;
	struct xdma_model *card;
	struct strait_dma *dma;
	struct strait_endpoint *ep;
	struct strait_region *r;
};

static const struct peer {
	const char *name;
	bool dma;
} peers[] = { { "nvme", false }, { "dma", true } };

static void rig_open(struct rig *g, const struct peer *p)
{
	struct strait_dma_opts o = { .size = sizeof(o) };

	CU(cuInit(0));
	fake_machine.unregister_waits = true;
	g->ctx = context_new(NULL);
	if (p->dma) {
		g->card = xdma_new(&(struct xdma_config){ 0 });
		ASSERT_OK(dma_adopt(g->ctx, &g->card->pci, &o, &g->dma));
		ASSERT_OK(strait_dma_endpoint(g->dma, &g->ep));
	} else {
		g->drive = model_new(&(struct model_config){ 0 });
		ASSERT_OK(nvme_adopt(g->ctx, &g->drive->pci, NULL, &g->nvme));
		ASSERT_OK(strait_nvme_endpoint(g->nvme, 1, 0, &g->ep));
	}
	g->r = region_new(device_named(g->ctx, "cuda:0"), MIB(1));
}

static void rig_close(struct rig *g, const struct peer *p)
{
	const struct bus *bus = p->dma ? &g->card->bus : &g->drive->bus;

	strait_region_close(g->r);
	strait_endpoint_close(g->ep);
	if (p->dma)
		strait_dma_close(g->dma);
	else
		strait_nvme_close(g->nvme);
	strait_context_close(g->ctx);
	ASSERT_EQ(bus->mapped, 0);
	ASSERT_EQ(bus->faults, 0);
	if (p->dma)
		xdma_free(g->card);
	else
		model_free(g->drive);
	expect_clean();
	expect_usage(&(struct fake_usage){ 0 });
}

/*
 * Whether a device reaches the GPU's memory is verified by the first transfer that finds memory for it. A stream may be
 * waiting for that transfer already, and freeing device memory waits for such streams.
 */
TEST_VARIANTS(a_stream_transfer_verifies_the_pair, struct peer, peers)
{
	uint64_t at = 0, len = KIB(64);
	struct strait_stream_transfer t = {
		.size = sizeof(t), .endpoint_offset = &at, .region_offset = &at, .length = &len
	};
	struct rig g = { 0 };
	int64_t result = 1;
	struct strait_stream *s;

	rig_open(&g, v);
	t.endpoint = g.ep;
	t.region = g.r;
	t.result = &result;
	ASSERT_OK(strait_stream_open(device_named(g.ctx, "cuda:0"), &s));
	fake_fail("cuMemAlloc", 1, CU_OUT_OF_MEMORY);
	ASSERT_OK(strait_stream_transfer(s, &t));
	ASSERT_TRUE(fake_failed());
	ASSERT_OK(strait_stream_wait(s, 20000000000));
	ASSERT_EQ(result, len);
	/* The pair is verified now. */
	ASSERT_EQ(move(STRAIT_READ, ROUTE(P2P), g.ep, 0, g.r, 0, len).route_bytes[STRAIT_ROUTE_P2P], len);
	strait_stream_close(s);
	rig_close(&g, v);
}
