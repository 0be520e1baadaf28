/* SPDX-License-Identifier: MIT */
/*
 * Memory of peer clients exported as dma-bufs: for the importer of kernel/test, with QEMU's "edu" as its engine, and for
 * ib_umem, through which drivers of RDMA NICs import.
 */
#include "consumer.h"
#include "peer.h"

#define LEN KIB(256)
#define SEED 61
#define WIDE 300

static const struct peer_kind kinds[] = { PEER_KINDS };
static const struct peer_kind plain[] = { PEER_EXTENDED, PEER_CLASSIC };
static const struct peer_kind revoking[] = { PEER_REVOKING };

struct rig {
	int gpu, ko, c, fd;
	struct gpu_mem m;
	uint32_t region;
	uint32_t id; /* an importer */
};

static int try_export(int ko, uint32_t handle, uint64_t off, uint64_t len, int *fd)
{
	struct strait_ioc_export req = {
		.size = sizeof(req), .handle = handle, .fd_flags = O_CLOEXEC | O_RDWR, .offset = off, .length = len
	};
	int rc = ko_call(ko, STRAIT_IOC_EXPORT, &req);

	*fd = req.fd;
	return rc;
}

/* With a client that is loaded. */
static void begin_loaded(struct rig *g)
{
	g->gpu = gpu_open();
	g->ko = ko_open();
	g->c = consumer_open();
	g->m = gpu_alloc(g->gpu, PLAIN, LEN);
	g->region = peer_import(g->ko, g->m.p, LEN);
	ASSERT_OK(try_export(g->ko, g->region, 0, LEN, &g->fd));
	ASSERT_EQ(peer_contexts(), 0);
}

static void begin(struct rig *g, const struct peer_kind *kind)
{
	peer_load(kind);
	begin_loaded(g);
}

static void end(struct rig *g)
{
	close(g->fd);
	close(g->c);
	close(g->ko);
	peer_expect_released();
	ASSERT_EQ(gpu_counters(g->gpu).peer_mapped_now, 0);
	close(g->gpu);
}

TEST_VARIANTS(engine_writes, struct peer_kind, kinds)
{
	unsigned char data[1024];
	struct rig g;

	begin(&g, v);
	g.id = importer_attach(g.c, g.fd, 0);
	ASSERT_EQ(peer_contexts(), 1);
	ASSERT_OK(importer_map(g.c, g.id));
	fill(data, sizeof(data), SEED);
	for (uint64_t off = 0; off < LEN; off += KIB(64))
		ASSERT_OK(consumer_dma(g.c, g.id, VT_DMA_WRITE | VT_DMA_BUF, off + 512, data, sizeof(data)));
	for (uint64_t off = 0; off < LEN; off += KIB(64))
		ASSERT_TRUE(filled(g.m.p + off + 512, sizeof(data), SEED));
	expect_outside(&g.m, 0, LEN);
	importer_unmap(g.c, g.id);
	importer_detach(g.c, g.id);
	peer_expect_released();
	/* The dma-buf outlives the region. */
	ASSERT_OK(ko_release(g.ko, g.region));
	g.id = importer_attach(g.c, g.fd, 0);
	ASSERT_OK(importer_map(g.c, g.id));
	ASSERT_OK(gpu_free(&g.m));
	ASSERT_EQ(importer_status(g.c, g.id).mapped, !v->invalidate);
	importer_detach(g.c, g.id);
	end(&g);
}

/* Freed while two importers have it mapped: both are notified, also one that unmaps later, before the free returns. */
TEST_VARIANTS(importers_are_notified, struct peer_kind, revoking)
{
	struct rig g;
	uint32_t late;
	uint64_t t;

	begin(&g, v);
	g.id = importer_attach(g.c, g.fd, 0);
	late = importer_attach(g.c, g.fd, VT_BUF_LATE);
	ASSERT_EQ(peer_contexts(), 2);
	ASSERT_OK(importer_map(g.c, g.id));
	ASSERT_OK(importer_map(g.c, late));
	t = now_ms();
	ASSERT_OK(gpu_free(&g.m));
	ASSERT_GE(now_ms() - t, 250);
	ASSERT_GE(importer_status(g.c, g.id).notified, 1);
	ASSERT_GE(importer_status(g.c, late).notified, 1);
	ASSERT_FALSE(importer_status(g.c, g.id).mapped);
	ASSERT_FALSE(importer_status(g.c, late).mapped);
	ASSERT_EQ(importer_map(g.c, g.id), -ENODEV);
	ASSERT_EQ(gpu_counters(g.gpu).peer_mapped_now, 0);
	ASSERT_EQ(peer_invalidations(), 2);
	end(&g);
}

TEST_VARIANTS(unregistered_in_use, struct peer_kind, revoking)
{
	struct rig g;

	begin(&g, v);
	g.id = importer_attach(g.c, g.fd, 0);
	ASSERT_OK(importer_map(g.c, g.id));
	ASSERT_OK(peer_unload());
	ASSERT_FALSE(importer_status(g.c, g.id).mapped);
	ASSERT_EQ(importer_map(g.c, g.id), -ENODEV);
	ASSERT_EQ(gpu_counters(g.gpu).peer_mapped_now, 0);
	importer_detach(g.c, g.id);
	ASSERT_EQ(importer_try_attach(g.c, g.fd, 0), -ENODEV);
	ASSERT_OK(gpu_free(&g.m));
	peer_load(v);
	end(&g);
}

static void *detach_thread(void *arg)
{
	struct rig *g = arg;

	importer_detach(g->c, g->id);
	return NULL;
}

/* Freed during .detach, which is inside the client. */
TEST_VARIANTS(freed_during_detach, struct peer_kind, revoking)
{
	pthread_t t;
	struct rig g;

	begin(&g, v);
	g.id = importer_attach(g.c, g.fd, 0);
	ASSERT_OK(importer_map(g.c, g.id));
	importer_unmap(g.c, g.id);
	window_open("strait_peer:unmap", WIDE);
	ASSERT_EQ(pthread_create(&t, NULL, detach_thread, &g), 0);
	window_await("strait_peer:unmap");
	ASSERT_OK(gpu_free(&g.m));
	ASSERT_EQ(window_met("strait_peer:unmap"), 1);
	ASSERT_EQ(pthread_join(t, NULL), 0);
	window_close("strait_peer:unmap");
	end(&g);
}

/* A second invalidation of the context returns only after the importer has unmapped, as the first one does. */
static void *free_thread(void *arg)
{
	struct rig *g = arg;

	return (void *)(intptr_t)gpu_free(&g->m);
}

TEST_VARIANTS(invalidated_twice, struct peer_kind, plain)
{
	pthread_t t;
	void *rc;
	struct rig g;

	begin(&g, v);
	g.id = importer_attach(g.c, g.fd, VT_BUF_LATE);
	ASSERT_OK(importer_map(g.c, g.id));
	window_open("strait_peer:stop", WIDE);
	ASSERT_EQ(pthread_create(&t, NULL, free_thread, &g), 0);
	window_await("strait_peer:stop");
	ASSERT_OK(write_text("/sys/kernel/debug/strait_vgpu_peer/invalidate", "1"));
	ASSERT_FALSE(importer_status(g.c, g.id).mapped);
	ASSERT_EQ(window_met("strait_peer:stop"), 1);
	ASSERT_EQ(pthread_join(t, &rc), 0);
	ASSERT_EQ((intptr_t)rc, 0);
	window_close("strait_peer:stop");
	ASSERT_EQ(peer_invalidations(), 1);
	end(&g);
}

/* Freed, or the client unregistered, during .attach. */
static const struct place_of_attach {
	const char *name;
	struct peer_kind kind;
	const char *window;
	bool unregister;
} attaches[] = {
	{ "extended-pinned-free", PEER_EXTENDED, "strait_peer:pinned", false },
	{ "classic-pinned-free", PEER_CLASSIC, "strait_peer:pinned", false },
	{ "extended-mapped-free", PEER_EXTENDED_STALE, "strait_peer:mapped", false },
	{ "classic-mapped-free", PEER_CLASSIC_STALE, "strait_peer:mapped", false },
	{ "extended-pinned-unregister", PEER_EXTENDED, "strait_peer:pinned", true },
	{ "classic-pinned-unregister", PEER_CLASSIC, "strait_peer:pinned", true },
	{ "extended-mapped-unregister", PEER_EXTENDED_STALE, "strait_peer:mapped", true },
	{ "classic-mapped-unregister", PEER_CLASSIC_STALE, "strait_peer:mapped", true },
	{ "persistent-mapped-unregister", PEER_PERSISTENT, "strait_peer:mapped", true },
};

static void *attach_thread(void *arg)
{
	struct rig *g = arg;

	return (void *)(intptr_t)importer_try_attach(g->c, g->fd, 0);
}

TEST_VARIANTS(ended_during_attach, struct place_of_attach, attaches)
{
	pthread_t t;
	void *rc;
	struct rig g;

	begin(&g, &v->kind);
	window_open(v->window, WIDE);
	ASSERT_EQ(pthread_create(&t, NULL, attach_thread, &g), 0);
	window_await(v->window);
	if (v->unregister)
		ASSERT_OK(peer_unload());
	else
		ASSERT_OK(gpu_free(&g.m));
	ASSERT_EQ(gpu_counters(g.gpu).peer_mapped_now, 0);
	ASSERT_EQ(pthread_join(t, &rc), 0);
	ASSERT_EQ((intptr_t)rc, -ENODEV);
	ASSERT_EQ(window_met(v->window), 1);
	window_close(v->window);
	if (v->unregister)
		peer_load(&v->kind);
	end(&g);
}

/* Every allocation of attaching and mapping fails once, without a leak. */
TEST_VARIANTS(each_allocation_fails, struct peer_kind, kinds)
{
	bool left = false;
	int tries, rc;
	struct rig g;

	begin(&g, v);
	g.id = 0;
	for (tries = 1; !left; tries++) {
		ASSERT_LT(tries, 20);
		inject_nth("strait_peer", (unsigned int)tries);
		rc = importer_try_attach(g.c, g.fd, 0);
		if (rc > 0) {
			g.id = (uint32_t)rc;
			rc = importer_map(g.c, g.id);
		}
		left = inject_left("strait_peer");
		inject_nth("strait_peer", 0);
		ASSERT_EQ(rc, left ? 0 : -ENOMEM);
		if (g.id)
			importer_detach(g.c, g.id);
		g.id = 0;
		peer_expect_released();
		ASSERT_EQ(gpu_counters(g.gpu).peer_mapped_now, 0);
	}
	/* The attachment, its context, number and table; the mapping and its table. */
	ASSERT_GE(tries, 7);
	ASSERT_OK(gpu_free(&g.m));
	end(&g);
}

/* Clients fail with all sorts of numbers. An importer gets a negative errno, and the log names the client. */
static const struct client_error {
	const char *name, *value;
	int rc;
} client_errors[] = {
	{ "ENOMEM", "0xfffffffffffffff4", -ENOMEM },
	{ "EINVAL", "0xffffffffffffffea", -EINVAL },
	{ "ENOTSUPP", "0xfffffffffffffdf4", -EOPNOTSUPP },
	{ "below-errnos", "0xffffffffffff0000", -EIO },
	{ "positive", "0x1", -EIO },
};

TEST_VARIANTS(client_fails, struct client_error, client_errors)
{
	static const char path[] = "/sys/kernel/debug/strait_vgpu_peer/error";
	struct rig g;
	char text[64];

	begin(&g, &kinds[0]);
	log_mark();
	ASSERT_OK(write_text(path, v->value));
	ASSERT_EQ(importer_try_attach(g.c, g.fd, 0), v->rc);
	ASSERT_OK(write_text(path, "0"));
	snprintf(text, sizeof(text), "importer refused: strait_vgpu fails with %d", v->rc);
	ASSERT_EQ(log_has(text), v->rc != -ENOMEM);
	peer_expect_released();
	g.id = importer_attach(g.c, g.fd, 0);
	importer_detach(g.c, g.id);
	ASSERT_OK(gpu_free(&g.m));
	end(&g);
}

TEST(refusals)
{
	struct strait_ioc_import import;
	int fd, first;
	struct rig g;

	begin(&g, &kinds[0]);
	log_mark();
	/* An importer without peer-to-peer; one without the notification, which has no peer-to-peer either. */
	ASSERT_EQ(importer_try_attach(g.c, g.fd, VT_BUF_NO_PEER), -EOPNOTSUPP);
	ASSERT_EQ(importer_try_attach(g.c, g.fd, VT_BUF_STATIC), -EOPNOTSUPP);
	ASSERT_TRUE(log_has("importer refused: it does not do peer-to-peer DMA"));
	/* A device of strait.ko maps the region. */
	import = (struct strait_ioc_import){
		.size = sizeof(import), .kind = STRAIT_IMPORT_DMABUF, .fd = g.fd, .length = LEN
	};
	ASSERT_EQ(ko_call(g.ko, STRAIT_IOC_IMPORT, &import), -EOPNOTSUPP);
	ASSERT_EQ(try_export(g.ko, g.region + 100, 0, LEN, &fd), -ENOENT);
	ASSERT_EQ(try_export(g.ko, g.region, 0, 0, &fd), -EINVAL);
	ASSERT_EQ(try_export(g.ko, g.region, 512, KIB(4), &fd), -EINVAL);
	ASSERT_EQ(try_export(g.ko, g.region, KIB(4), LEN, &fd), -EINVAL);
	ASSERT_EQ(try_export(g.ko, g.region, UINT64_MAX - 4095, KIB(8), &fd), -EINVAL);
	first = (int)ko_import(g.ko, STRAIT_IMPORT_USER,
			       mmap(NULL, KIB(4), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), KIB(4));
	ASSERT_EQ(try_export(g.ko, (uint32_t)first, 0, KIB(4), &fd), -EOPNOTSUPP);
	end(&g);
}

/* ib_umem in its forms. */
static const struct form {
	const char *name, *file;
	bool told;
	struct peer_kind kind;
} forms[] = {
	{ "dynamic-extended", "dynamic", true, PEER_EXTENDED },
	{ "dynamic-classic", "dynamic", true, PEER_CLASSIC },
	{ "dynamic-persistent", "dynamic", true, PEER_PERSISTENT },
	{ "pinned-extended", "pinned", false, PEER_EXTENDED },
	{ "pinned-classic", "pinned", false, PEER_CLASSIC },
	{ "pinned-persistent", "pinned", false, PEER_PERSISTENT },
	{ "revocable-extended", "revocable", true, PEER_EXTENDED },
	{ "revocable-classic", "revocable", true, PEER_CLASSIC },
};

/* Skips the test on a kernel that has no ib_umem. */
static void umem_load(void)
{
	if (system("find /lib/modules -name 'ib_uverbs.ko*' | grep -q . || grep -q -w ib_umem_get /proc/kallsyms"))
		SKIP("this kernel has no ib_umem");
	load_module("strait_umem_test");
}

/* An open file, with the dma-buf imported, or -errno. */
static int umem_import(const char *form, int fd, uint64_t off, uint64_t len)
{
	char path[64], text[64];
	int file, rc;

	snprintf(path, sizeof(path), "/sys/kernel/debug/strait_umem_test/%s", form);
	file = open(path, O_RDWR | O_CLOEXEC);
	if (file < 0)
		SKIP("this kernel's ib_umem has no form %s", form);
	snprintf(text, sizeof(text), "%d %llu %llu", fd, (unsigned long long)off, (unsigned long long)len);
	rc = write(file, text, strlen(text)) < 0 ? -errno : 0;
	if (rc) {
		close(file);
		return rc;
	}
	return file;
}

static bool umem_mapped(int file)
{
	char text[64] = "";

	ASSERT_GT(pread(file, text, sizeof(text) - 1, 0), 0);
	return !strncmp(text, "mapped", 6);
}

TEST_VARIANTS(ib_umem, struct form, forms)
{
	bool stays = !v->kind.invalidate;
	struct rig g;
	int file;

	umem_load();
	log_mark();
	begin(&g, &v->kind);
	/* ib_umem trims the table that it gets. */
	file = umem_import(v->file, g.fd, KIB(4), KIB(100));
	if (!v->told && !stays) {
		ASSERT_EQ(file, -EOPNOTSUPP);
		ASSERT_TRUE(log_has("importer refused: strait_vgpu may free memory, it cannot be told"));
		ASSERT_OK(gpu_free(&g.m));
		end(&g);
		return;
	}
	ASSERT_OK(file);
	ASSERT_TRUE(umem_mapped(file));
	ASSERT_EQ(peer_contexts(), 1);
	ASSERT_OK(gpu_free(&g.m));
	ASSERT_EQ(umem_mapped(file), stays);
	ASSERT_EQ(peer_contexts(), stays);
	close(file);
	peer_expect_released();
	end(&g);
}

/* The GPU's own dma-bufs: an importer that cannot be told is refused, or a free would wait for ever. */
TEST(ib_umem_of_the_gpu)
{
	int gpu = gpu_open(), fd, file;
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, LEN);

	umem_load();
	fd = (int)ASSERT_OK(gpu_dmabuf(&m, 0, LEN));
	ASSERT_EQ(umem_import("pinned", fd, 0, LEN), -EOPNOTSUPP);
	file = umem_import("dynamic", fd, 0, LEN);
	ASSERT_OK(file);
	ASSERT_TRUE(umem_mapped(file));
	ASSERT_OK(gpu_free(&m));
	ASSERT_FALSE(umem_mapped(file));
	close(file);
	close(fd);
}

static int import_in_child(void *arg)
{
	return -umem_import("dynamic", *(int *)arg, 0, LEN);
}

TEST(other_process_is_refused)
{
	struct rig g;

	umem_load();
	log_mark();
	begin(&g, &kinds[0]);
	ASSERT_EQ(WEXITSTATUS(wait_for(start(import_in_child, &g.fd))), EACCES);
	ASSERT_TRUE(log_has("importer refused: the memory is of another process"));
	ASSERT_EQ(peer_contexts(), 0);
	end(&g);
}

/* An importer that cannot be told gets the memory from a second client, which does not free it. */
TEST(second_client_for_pinned)
{
	struct rig g;
	int file;

	umem_load();
	peer_load_with("both=1");
	begin_loaded(&g);
	file = umem_import("pinned", g.fd, 0, LEN);
	ASSERT_OK(file);
	/* The first client has no context. */
	ASSERT_EQ(peer_contexts(), 0);
	ASSERT_OK(gpu_free(&g.m));
	ASSERT_TRUE(umem_mapped(file));
	ASSERT_GT(gpu_counters(g.gpu).peer_mapped_now, 0);
	close(file);
	for (int i = 0; i < 1000 && gpu_counters(g.gpu).peer_mapped_now; i++)
		sleep_ms(10);
	end(&g);
	peer_load(&kinds[0]);
}
