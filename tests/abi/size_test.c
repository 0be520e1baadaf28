/* SPDX-License-Identifier: MIT */
/*
 * The rule for structs that start with `size` (strait/types.h), for each of them, by the call that takes it. The same
 * program is built a second time with a library whose structs have all grown by a member: there a struct of the first
 * published size is shorter than what the library knows.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <strait/dma.h>
#include <strait/emu.h>
#include <strait/frames.h>
#include <strait/mapping.h>
#include <strait/nvme.h>
#include <strait/pci.h>
#include <strait/rdma.h>
#include <strait/rdma_serve.h>
#include <strait/safetensors.h>
#include <strait/strait.h>

#include "api/api.h"
#include "api/dma.h"
#include "api/nvme.h"
#include "base/util.h"
#include "endpoint/rdma/nic.h"
#ifdef STRAIT_HAVE_VERBS
#include "endpoint/rdma/session.h"
#endif
#include "harness/harness.h"
#include "nvme_model.h"
#include "os/dir.h"
#include "service/rdma_client.h"
#include "service/rdma_serve.h"
#include "xdma_model.h"

#define LONGER 72

static struct strait_context *ctx;

/* Objects opened for a call stay open until the process ends with its test. */
static void *keep(void *p)
{
	static void *reg_window[256];
	static unsigned int n;

	ASSERT_LT(n, ARRAY_SIZE(reg_window));
	return reg_window[n++] = p;
}

static struct strait_device *emu(void)
{
	struct strait_device *dev;

	ASSERT_OK(strait_device_find(ctx, "emu:0", &dev));
	return dev;
}

static struct strait_region *memory(void)
{
	struct strait_region *r;

	ASSERT_OK(strait_region_alloc(emu(), 65536, &r));
	return keep(r);
}

static struct strait_endpoint *file_of(const void *bytes, size_t len)
{
	const char *path = test_path("f");
	struct strait_endpoint *ep;
	FILE *f = fopen(path, "w");

	ASSERT_TRUE(f);
	ASSERT_EQ(fwrite(bytes, 1, len, f), len);
	fclose(f);
	ASSERT_OK(strait_file_open(ctx, path, 0, 0, 0, &ep));
	return keep(ep);
}

static struct strait_nvme *drive(struct nvme_model **m)
{
	struct strait_nvme *nvme;

	*m = keep(model_new(&(struct model_config){ 0 }));
	ASSERT_OK(nvme_adopt(ctx, &(*m)->pci, NULL, &nvme));
	return keep(nvme);
}

static struct strait_dma *card(struct xdma_model **m)
{
	struct strait_dma *dma;

	*m = keep(xdma_new(&(struct xdma_config){ 0 }));
	ASSERT_OK(dma_adopt(ctx, &(*m)->pci, NULL, &dma));
	return keep(dma);
}

/* The calls that take each struct. Structs that are read are zero except for the size and what is set here. */

static int context_opts(void *p)
{
	struct strait_context *c;
	int rc = strait_context_open(p, &c);

	if (!rc)
		strait_context_close(c);
	return rc;
}

static int queue_opts(void *p)
{
	struct strait_queue *q;
	int rc = strait_queue_open(ctx, p, &q);

	if (!rc)
		strait_queue_close(q);
	return rc;
}

static int stream_transfer(void *p)
{
	static const uint64_t zero, length = 16;
	struct strait_stream_transfer *t = p;
	struct strait_stream *s;
	int rc;

	if (t->size >= STRAIT_STREAM_TRANSFER_SIZE_V1) {
		t->endpoint = file_of("0123456789abcdef", 16);
		t->region = memory();
		t->endpoint_offset = &zero;
		t->region_offset = &zero;
		t->length = &length;
	}
	ASSERT_OK(strait_stream_open(emu(), &s));
	rc = strait_stream_transfer(s, t);
	strait_stream_close(s);
	return rc;
}

static int device_info(void *p)
{
	return strait_device_info(emu(), p);
}

static int provider_info(void *p)
{
	return strait_provider_info(ctx, 0, p);
}

static int file_info(void *p)
{
	return strait_file_info(file_of("x", 1), p);
}

static int region_info(void *p)
{
	return strait_region_info(memory(), p);
}

static int route_report(void *p)
{
	return strait_route_query_device(file_of("x", 1), emu(), STRAIT_READ, p);
}

static int stats(void *p)
{
	return strait_stats_get(ctx, p);
}

static int topo_node(void *p)
{
	struct strait_topo *topo;
	int rc;

	ASSERT_OK(strait_topo_open(&topo));
	rc = strait_topo_node(topo, 0, p);
	strait_topo_close(topo);
	if (rc == -ENOENT)
		SKIP("this machine has no PCI device");
	return rc;
}

static int topo_kernel(void *p)
{
	return strait_topo_kernel(p);
}

static int pci_info(void *p)
{
	struct strait_topo_node node = { .size = sizeof(node) };
	struct strait_topo *topo;
	int rc;

	ASSERT_OK(strait_topo_open(&topo));
	rc = strait_topo_node(topo, 0, &node);
	strait_topo_close(topo);
	if (rc)
		SKIP("this machine has no PCI device");
	return strait_pci_info(node.pci, p);
}

static int emu_model(void *p)
{
	return strait_emu_set_model(emu(), p);
}

static int mapping_opts(void *p)
{
	struct strait_mapping *m;
	int rc = strait_mapping_open(ctx, NULL, 0, 65536, p, &m);

	if (!rc)
		strait_mapping_close(m);
	return rc;
}

static int frames_opts(void *p)
{
	struct strait_frames *f;
	struct strait_mapping *m;
	int rc;

	ASSERT_OK(strait_mapping_open(ctx, NULL, 0, 65536, NULL, &m));
	rc = strait_frames_open(m, emu(), p, &f);
	if (!rc)
		strait_frames_close(f);
	strait_mapping_close(m);
	return rc;
}

static int frames_info(void *p)
{
	struct strait_frames *f;
	struct strait_mapping *m;
	int rc;

	ASSERT_OK(strait_mapping_open(ctx, NULL, 0, 65536, NULL, &m));
	ASSERT_OK(strait_frames_open(m, emu(), NULL, &f));
	rc = strait_frames_info(f, p);
	strait_frames_close(f);
	strait_mapping_close(m);
	return rc;
}

static int mapping_info(void *p)
{
	struct strait_mapping *m;
	int rc;

	ASSERT_OK(strait_mapping_open(ctx, NULL, 0, 65536, NULL, &m));
	rc = strait_mapping_info(m, p);
	strait_mapping_close(m);
	return rc;
}

static int tensor_info(void *p)
{
	static const char header[] = "{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
	uint8_t bytes[8 + sizeof(header)] = { sizeof(header) - 1 };
	struct strait_safetensors *st;
	struct strait_endpoint *ep;
	int rc;

	memcpy(bytes + 8, header, sizeof(header));
	ep = file_of(bytes, sizeof(bytes));
	ASSERT_OK(strait_safetensors_open(ctx, ep, 0, NULL, 0, &st));
	rc = strait_safetensors_tensor(st, 0, p);
	strait_safetensors_close(st);
	return rc;
}

static int nvme_opts(void *p)
{
	struct nvme_model *m = keep(model_new(&(struct model_config){ 0 }));
	struct strait_nvme *nvme;
	int rc = nvme_adopt(ctx, &m->pci, p, &nvme);

	if (!rc)
		strait_nvme_close(nvme);
	return rc;
}

static int nvme_info(void *p)
{
	struct nvme_model *m;

	return strait_nvme_info(drive(&m), p);
}

static int nvme_namespace(void *p)
{
	struct nvme_model *m;

	return strait_nvme_namespace(drive(&m), 0, p);
}

static int nvme_event(void *p)
{
	struct strait_nvme_event e = { .size = sizeof(e) };
	struct nvme_model *m;
	struct strait_nvme *nvme = drive(&m);
	int rc;

	ASSERT_TRUE(model_event(m, 2u << 16 | 1u << 8 | 1));
	rc = strait_nvme_event(nvme, p);
	/* A refused struct does not lose the event. */
	ASSERT_EQ(strait_nvme_event(nvme, &e), rc ? 0 : -EAGAIN);
	return rc;
}

static int nvme_queue_opts(void *p)
{
	struct strait_nvme_queue *q;
	struct nvme_model *m;
	int rc = strait_nvme_queue_open(drive(&m), p, &q);

	if (!rc)
		strait_nvme_queue_close(q);
	return rc;
}

static int nvme_endpoint_info(void *p)
{
	struct strait_endpoint *ep;
	struct nvme_model *m;

	ASSERT_OK(strait_nvme_endpoint(drive(&m), 1, 0, &ep));
	return strait_nvme_endpoint_info(keep(ep), p);
}

static int dma_opts(void *p)
{
	struct xdma_model *m = keep(xdma_new(&(struct xdma_config){ 0 }));
	struct strait_dma *dma;
	int rc = dma_adopt(ctx, &m->pci, p, &dma);

	if (!rc)
		strait_dma_close(dma);
	return rc;
}

static int dma_info(void *p)
{
	struct xdma_model *m;

	return strait_dma_info(card(&m), p);
}

static int dma_mmio(void *p)
{
	struct xdma_model *m;
	struct strait_dma *dma = card(&m);
	int rc;

	/* Registers of the model are not memory: use a page of memory in their place. */
	m->pci.bar[0].at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	m->pci.bar[0].length = 4096;
	rc = strait_dma_mmio_map(dma, emu(), 0, 0, 4096, p);
	if (!rc)
		strait_dma_mmio_unmap(dma, emu(), p);
	return rc;
}

static int rdma_nic(void *p)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/class/infiniband/mlx5_0", test_dir());
	ASSERT_OK(os_make_dirs(path));
	nic_sysfs = test_dir();
	return strait_rdma_nic(0, p);
}

/* What is taken, and then refused for what it does not have, without an RDMA device. */
static int taken(int rc, int refused)
{
	return rc == refused ? 0 : rc;
}

static int rdma_opts(void *p)
{
	struct strait_rdma_client *client;

	return taken(strait_rdma_client_open(ctx, p, &client), -EDESTADDRREQ);
}

static int rdma_server_opts(void *p)
{
	struct strait_rdma_server *server;

	return taken(strait_rdma_serve(ctx, p, &server), -ENOENT);
}

static int rdma_server_info(void *p)
{
	static struct strait_rdma_server server;

	return strait_rdma_server_info(&server, p);
}

static int rdma_file(void *p)
{
	static struct strait_rdma_client client;
	struct strait_rdma_result result = { .size = sizeof(result) };

	return taken(strait_rdma_pull(&client, p, &result), -ENOENT);
}

static int rdma_result(void *p)
{
	static struct strait_rdma_client client;
	struct strait_rdma_file file = { .size = sizeof(file) };

	return taken(strait_rdma_push(&client, &file, p), -ENOENT);
}

#ifdef STRAIT_HAVE_VERBS
static int rdma_info(void *p)
{
	struct strait_rdma_session *s = keep(calloc(1, sizeof(*s)));

	s->owner = ctx;
	pthread_mutex_init(&s->lock, NULL);
	return strait_rdma_info(s, p);
}

static int rdma_reach(void *p)
{
	struct strait_rdma_offer *o = keep(calloc(1, sizeof(*o)));
	char text[STRAIT_RDMA_OFFER_TEXT];

	o->owner = ctx;
	return strait_rdma_offer_text(o, text, p);
}
#endif

enum direction { IN, OUT };

#define SIZED(name, NAME, dir)                                                                                         \
	{                                                                                                              \
#name, sizeof(struct strait_##name), STRAIT_##NAME##_SIZE_V1, dir, name                                \
	}

/* tests/tree/abi fails when a struct that starts with `size` has no line here. */
static const struct sized {
	const char *name;
	size_t now, first;
	enum direction direction;
	int (*call)(void *p);
} structs[] = {
	SIZED(context_opts, CONTEXT_OPTS, IN),
	SIZED(device_info, DEVICE_INFO, OUT),
	SIZED(dma_info, DMA_INFO, OUT),
	SIZED(dma_mmio, DMA_MMIO, OUT),
	SIZED(dma_opts, DMA_OPTS, IN),
	SIZED(emu_model, EMU_MODEL, IN),
	SIZED(file_info, FILE_INFO, OUT),
	SIZED(frames_info, FRAMES_INFO, OUT),
	SIZED(frames_opts, FRAMES_OPTS, IN),
	SIZED(mapping_info, MAPPING_INFO, OUT),
	SIZED(mapping_opts, MAPPING_OPTS, IN),
	SIZED(nvme_endpoint_info, NVME_ENDPOINT_INFO, OUT),
	SIZED(nvme_event, NVME_EVENT, OUT),
	SIZED(nvme_info, NVME_INFO, OUT),
	SIZED(nvme_namespace, NVME_NAMESPACE, OUT),
	SIZED(nvme_opts, NVME_OPTS, IN),
	SIZED(nvme_queue_opts, NVME_QUEUE_OPTS, IN),
	SIZED(pci_info, PCI_INFO, OUT),
	SIZED(provider_info, PROVIDER_INFO, OUT),
	SIZED(queue_opts, QUEUE_OPTS, IN),
	SIZED(rdma_file, RDMA_FILE, IN),
#ifdef STRAIT_HAVE_VERBS
	SIZED(rdma_info, RDMA_INFO, OUT),
#endif
	SIZED(rdma_nic, RDMA_NIC, OUT),
	SIZED(rdma_opts, RDMA_OPTS, IN),
#ifdef STRAIT_HAVE_VERBS
	SIZED(rdma_reach, RDMA_REACH, OUT),
#endif
	SIZED(rdma_result, RDMA_RESULT, OUT),
	SIZED(rdma_server_info, RDMA_SERVER_INFO, OUT),
	SIZED(rdma_server_opts, RDMA_SERVER_OPTS, IN),
	SIZED(region_info, REGION_INFO, OUT),
	SIZED(route_report, ROUTE_REPORT, OUT),
	SIZED(stats, STATS, OUT),
	SIZED(stream_transfer, STREAM_TRANSFER, IN),
	SIZED(tensor_info, TENSOR_INFO, OUT),
	SIZED(topo_kernel, TOPO_KERNEL, OUT),
	SIZED(topo_node, TOPO_NODE, OUT),
};

/*
 * A buffer of @size bytes that ends at the end of a mapping: a call that accesses more dies. Zeros to read, 0xa5 to be
 * overwritten.
 */
static uint8_t *room(const struct sized *v, size_t size, size_t claim)
{
	size_t page = (size_t)getpagesize(), span = (size + page - 1) / page * page;
	uint8_t *at = mmap(NULL, span + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ASSERT_TRUE(at != MAP_FAILED);
	ASSERT_OK(mprotect(at + span, page, PROT_NONE));
	at += span - size;
	memset(at, v->direction == IN ? 0 : 0xa5, size);
	memcpy(at, &claim, sizeof(claim));
	return at;
}

static bool all(const uint8_t *p, size_t n, uint8_t value)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != value)
			return false;
	return true;
}

static size_t size_of(const uint8_t *p)
{
	size_t size;

	memcpy(&size, p, sizeof(size));
	return size;
}

TEST_VARIANTS(the_first_published_size_is_taken, struct sized, structs)
{
	uint8_t *p = room(v, v->first, v->first);

	ASSERT_LE(v->first, v->now);
	ASSERT_OK(strait_context_open(NULL, &ctx));
	ASSERT_EQ(v->call(p), 0);
	ASSERT_EQ(size_of(p), v->first);
	if (v->direction == OUT)
		ASSERT_FALSE(all(p + sizeof(size_t), v->first - sizeof(size_t), 0xa5));
}

TEST_VARIANTS(the_size_of_today_is_taken, struct sized, structs)
{
	ASSERT_OK(strait_context_open(NULL, &ctx));
	ASSERT_EQ(v->call(room(v, v->now, v->now)), 0);
}

/* From a program that is newer than the library. */
TEST_VARIANTS(a_longer_one_is_taken_if_nothing_is_asked, struct sized, structs)
{
	uint8_t *p = room(v, v->now + LONGER, v->now + LONGER);

	ASSERT_OK(strait_context_open(NULL, &ctx));
	ASSERT_EQ(v->call(p), 0);
	ASSERT_EQ(size_of(p), v->now + LONGER);
	ASSERT_TRUE(all(p + v->now, LONGER, 0));
}

TEST_VARIANTS(a_longer_one_is_refused_if_something_is_asked, struct sized, structs)
{
	uint8_t *p = room(v, v->now + LONGER, v->now + LONGER);

	if (v->direction == OUT)
		return;
	ASSERT_OK(strait_context_open(NULL, &ctx));
	p[v->now] = 1;
	ASSERT_EQ(v->call(p), -E2BIG);
	p[v->now] = 0;
	p[v->now + LONGER - 1] = 1;
	ASSERT_EQ(v->call(p), -E2BIG);
}

TEST_VARIANTS(a_shorter_one_is_refused, struct sized, structs)
{
	const size_t sizes[] = { 0, 1, sizeof(size_t), v->first / 2, v->first - 1 }, have = align_down(v->first - 1, 8);

	ASSERT_OK(strait_context_open(NULL, &ctx));
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		uint8_t *p = room(v, have, sizes[i]);

		ASSERT_EQ(v->call(p), -EINVAL);
		ASSERT_EQ(size_of(p), sizes[i]);
		ASSERT_TRUE(all(p + sizeof(size_t), have - sizeof(size_t), v->direction == IN ? 0 : 0xa5));
	}
}

/* Structs without `size` have reserved members: values in them are refused, not ignored. */
TEST(reserved_members_of_a_transfer_are_zero)
{
	struct strait_transfer t = { .length = 1 };
	struct strait_result r;

	ASSERT_OK(strait_context_open(NULL, &ctx));
	t.endpoint = file_of("x", 1);
	t.region = memory();
	memset(&r, 0xa5, sizeof(r));
	ASSERT_OK(strait_transfer_run(&t, STRAIT_FOREVER, &r));
	ASSERT_TRUE(all((const uint8_t *)&r.reserved, sizeof(r.reserved), 0));
	ASSERT_TRUE(all((const uint8_t *)r.reserved_end, sizeof(r.reserved_end), 0));
	for (int i = STRAIT_ROUTE_COUNT; i < STRAIT_ROUTES_MAX; i++)
		ASSERT_EQ(r.route_bytes[i], 0);
	t.reserved_end[0] = 1;
	ASSERT_EQ(strait_transfer_run(&t, STRAIT_FOREVER, &r), -EINVAL);
	t.reserved_end[0] = 0;
	t.reserved_end[1] = 1ull << 63;
	ASSERT_EQ(strait_transfer_run(&t, STRAIT_FOREVER, &r), -EINVAL);
}

/* Also in a request that equals the one before it otherwise. */
TEST(reserved_members_are_zero_in_every_request_of_a_batch)
{
	struct strait_transfer t[2] = { { .length = 1 }, { .length = 1 } };
	struct strait_queue *q;
	struct strait_result r;

	ASSERT_OK(strait_context_open(NULL, &ctx));
	t[0].endpoint = t[1].endpoint = file_of("x", 1);
	t[0].region = t[1].region = memory();
	ASSERT_OK(strait_queue_open(ctx, NULL, &q));
	t[1].reserved_end[1] = 1;
	ASSERT_EQ(strait_queue_submit(q, t, 2), -EINVAL);
	t[1].reserved_end[1] = 0;
	ASSERT_OK(strait_queue_submit(q, t, 2));
	for (int i = 0; i < 2; i++) {
		memset(&r, 0xa5, sizeof(r));
		ASSERT_EQ(strait_queue_wait(q, 1, 1, STRAIT_FOREVER, &r), 1);
		ASSERT_TRUE(all((const uint8_t *)r.reserved_end, sizeof(r.reserved_end), 0));
	}
	strait_queue_close(q);
}
