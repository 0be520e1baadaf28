/* SPDX-License-Identifier: MIT */
/* The lab's DMA engine through both backends: to and from memory of the GPU and the host, and round trips. */
#include <strait/bounce.h>
#include <strait/dma.h>

#include "nvme.h"

static const struct setup {
	const char *name;
	const char *backend;
	const char *device;
	bool interrupts;
} setups[] = {
	{ "strait-vgpu", "strait", "vgpu:0", false },
	{ "strait-vgpu-interrupts", "strait", "vgpu:0", true },
	{ "strait-host", "strait", "host", false },
	{ "strait-host-interrupts", "strait", "host", true },
	{ "vfio-vgpu", "vfio", "vgpu:0", false },
	{ "vfio-vgpu-interrupts", "vfio", "vgpu:0", true },
	{ "vfio-host", "vfio", "host", false },
	{ "vfio-host-interrupts", "vfio", "host", true },
	{ "iommufd-host", "vfio-iommufd", "host", false },
};

struct card {
	char name[PCI_NAME];
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_dma *dma;
	struct strait_region *a, *b;
	unsigned char *pa, *pb;
};

#define LEN KIB(64)

static void show(void *arg, enum strait_log_level level, const char *text)
{
	printf("# %s\n", text);
}

static void card_open(struct card *c, const struct setup *v)
{
	struct strait_context_opts co = { .size = sizeof(co), .log = show, .log_level = STRAIT_LOG_WARN };
	struct strait_dma_opts o = { .size = sizeof(o), .backend = v->backend };
	const char *no = getenv("LAB_NO_TRANSLATION");
	int rc;

	if (no && *no)
		SKIP("%s", no);
	pci_find(EDU_ID, c->name);
	if (!strncmp(v->backend, "vfio", 4)) {
		if (system("modprobe -a vfio_iommu_type1 vfio_pci 2>/dev/null; test -d /sys/bus/pci/drivers/vfio-pci"))
			SKIP("this kernel has no VFIO");
	} else {
		close(ko_open());
	}
	pci_bind(c->name, !strncmp(v->backend, "vfio", 4) ? "vfio-pci" : "strait");
	ASSERT_OK(strait_context_open(&co, &c->ctx));
	if (strait_device_find(c->ctx, v->device, &c->dev))
		SKIP("there is no device %s", v->device);
	o.flags = (v->interrupts ? STRAIT_DMA_INTERRUPTS : 0) |
		  (!strcmp(v->backend, "vfio") ? STRAIT_DMA_UNREVOCABLE : 0);
	rc = strait_dma_open(c->ctx, c->name, &o, &c->dma);
	if (rc == -EOPNOTSUPP && !strcmp(v->backend, "vfio-iommufd"))
		SKIP("this kernel gives no iommufd");
	ASSERT_OK(rc);
	ASSERT_OK(strait_region_alloc(c->dev, LEN, &c->a));
	ASSERT_OK(strait_region_alloc(c->dev, LEN, &c->b));
	c->pa = drive_cpu(c->a);
	c->pb = drive_cpu(c->b);
}

static void card_close(struct card *c)
{
	strait_region_close(c->a);
	strait_region_close(c->b);
	strait_dma_close(c->dma);
	strait_context_close(c->ctx);
}

/* An odd number of bytes, at odd offsets, several times the card's memory. */
TEST_VARIANTS_TIMEOUT(through_the_card, struct setup, setups, 120)
{
	struct strait_dma_info info = { .size = sizeof(info) };
	unsigned char want[9001];
	uint64_t done;
	struct card c;

	card_open(&c, v);
	fill(c.pa, LEN, 7);
	memcpy(want, c.pa + 333, sizeof(want));
	memset(c.pb, 0xa5, LEN);
	ASSERT_OK(strait_dma_bounce(c.dma, c.a, 333, c.b, 5001, sizeof(want), 60000000000, &done));
	ASSERT_EQ(done, sizeof(want));
	ASSERT_MEMEQ(c.pb + 5001, want, sizeof(want));
	ASSERT_EQ(c.pb[5000], 0xa5);
	ASSERT_EQ(c.pb[5001 + sizeof(want)], 0xa5);
	ASSERT_OK(strait_dma_info(c.dma, &info));
	ASSERT_STREQ(info.engine, "edu");
	ASSERT_EQ(info.errors, 0);
	ASSERT_EQ(info.bytes_to_card, sizeof(want));
	card_close(&c);
}

/* The card's memory as an endpoint. */
TEST_VARIANTS_TIMEOUT(endpoint, struct setup, setups, 120)
{
	int route = !strcmp(v->device, "host") ? STRAIT_ROUTE_HOST : STRAIT_ROUTE_P2P;
	struct strait_transfer t = { .op = STRAIT_WRITE, .region_offset = 4000, .endpoint_offset = 100, .length = 1500 };
	struct strait_result res;
	struct card c;

	card_open(&c, v);
	ASSERT_OK(strait_dma_endpoint(c.dma, &t.endpoint));
	fill(c.pa, LEN, 9);
	t.region = c.a;
	ASSERT_OK(strait_transfer_run(&t, STRAIT_FOREVER, &res));
	ASSERT_EQ(res.route_bytes[route], 1500);
	memset(c.pb, 0, LEN);
	t.op = STRAIT_READ;
	t.region = c.b;
	t.region_offset = 77;
	ASSERT_OK(strait_transfer_run(&t, STRAIT_FOREVER, &res));
	ASSERT_EQ(res.route_bytes[route], 1500);
	ASSERT_MEMEQ(c.pb + 77, c.pa + 4000, 1500);
	ASSERT_TRUE(all_zero(c.pb, 77));
	/* A timeout of zero. */
	ASSERT_EQ(strait_transfer_run(&t, 0, &res), -ETIMEDOUT);
	strait_endpoint_close(t.endpoint);
	card_close(&c);
}

struct letter {
	volatile uint32_t *box;
	uint32_t answer;
};

static void post(void *arg)
{
	struct letter *l = arg;

	*l->box = 0xcafef00d;
	l->answer = *l->box;
}

/* The GPU writes a register of the card. */
TEST(mailbox)
{
	struct strait_dma_mmio mmio = { .size = sizeof(mmio) };
	struct letter letter = { 0 };
	struct strait_stream *s;
	struct card c;

	card_open(&c, &setups[0]);
	ASSERT_OK(strait_dma_mmio_map(c.dma, c.dev, 0, 0, 4096, &mmio));
	letter.box = (volatile uint32_t *)(uintptr_t)(mmio.address + 4);
	ASSERT_OK(strait_stream_open(c.dev, &s));
	ASSERT_OK(strait_stream_call(s, post, &letter));
	ASSERT_OK(strait_stream_wait(s, 10000000000));
	ASSERT_EQ(letter.answer, ~0xcafef00du);
	strait_stream_close(s);
	strait_dma_mmio_unmap(c.dma, c.dev, &mmio);
	card_close(&c);
}
