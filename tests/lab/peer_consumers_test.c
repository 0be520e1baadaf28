/* SPDX-License-Identifier: MIT */
/*
 * Clients written for NVIDIA's driver and a vendor's ib_core, compiled unchanged for strait_peer and the lab's GPU:
 * Mellanox's nv_peer_mem and NVIDIA's nvidia-peermem, in their four modes.
 */
#include "peer.h"

#include <sys/syscall.h>

#define LEN KIB(256)
#define SEED 51

/* Devices that write to revoked addresses. */
__attribute__((constructor)) static void allow_faults(void)
{
	printf("# allow-log DMAR: (DRHD: handling fault|\\[DMA)\n");
	fflush(stdout);
}

static const struct mode {
	const char *name, *module, *parameters;
	const char *clients[2]; /* name and kind of each, in order */
	bool invalidates;
} modes[] = {
	{ "nv_peer_mem", "nv_peer_mem", "", { "nv_mem extended" }, true },
	{ "nvidia-peermem", "nvidia_peermem", "", { "nv_mem persistent" }, false },
	{ "nvidia-peermem-legacy",
	  "nvidia_peermem",
	  "persistent_api_support=0",
	  { "nv_mem extended", "nv_mem_nc persistent" },
	  true },
	{ "nvidia-peermem-legacy-peerdirect",
	  "nvidia_peermem",
	  "persistent_api_support=0 peerdirect_support=1",
	  { "nv_mem classic", "nv_mem_nc persistent" },
	  true },
};

static int unload(const char *name)
{
	return syscall(SYS_delete_module, name, O_NONBLOCK) ? -errno : 0;
}

static void unload_all(void)
{
	static const char *const clients[] = { "strait_vgpu_peer", "nv_peer_mem", "nvidia_peermem" };
	char path[64];

	for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
		snprintf(path, sizeof(path), "/sys/module/%s", clients[i]);
		if (!access(path, F_OK))
			ASSERT_OK(unload(clients[i]));
	}
}

/* The client at that place of the list: what it is, and the number of its contexts. */
static uint64_t client(unsigned int n, char *what, size_t len)
{
	FILE *file = fopen("/sys/module/strait_peer/parameters/clients", "re");
	char line[160], name[65], version[17], kind[17];
	unsigned long long contexts = 0;

	ASSERT_TRUE(file);
	what[0] = '\0';
	while (fgets(line, sizeof(line), file))
		if (!n--) {
			ASSERT_EQ(sscanf(line, "%64s %16s %16s %llu", name, version, kind, &contexts), 4);
			snprintf(what, len, "%s %s", name, kind);
			printf("# %s", line);
		}
	fclose(file);
	return contexts;
}

static void expect_contexts(uint64_t want)
{
	char what[96];
	uint64_t n = client(0, what, sizeof(what));

	for (int i = 0; i < 500 && n != want; i++) {
		sleep_ms(10);
		n = client(0, what, sizeof(what));
	}
	ASSERT_EQ(n, want);
}

static void engine_writes(struct raw *e, uint64_t bus, const struct gpu_mem *m, uint64_t off, uint64_t seed)
{
	raw_load(e, seed);
	raw_start(e, bus, EDU_MOST, true);
	raw_wait(e);
	ASSERT_TRUE(filled(m->p + off, EDU_MOST, seed));
	expect_outside(m, 0, LEN);
}

/* Freed while it is mapped, and the engine is about to write. */
static void free_mapped(struct raw *e, int gpu, struct gpu_mem *m, const struct strait_ioc_map *map, bool invalidates)
{
	struct gpu_mem next;

	raw_load(e, SEED + 2);
	raw_start(e, map->bus, EDU_MOST, true);
	ASSERT_OK(gpu_free(m));
	next = gpu_alloc(gpu, PLAIN, LEN);
	fill(next.p, LEN, SEED + 3);
	raw_wait(e);
	sleep_ms(20);
	ASSERT_TRUE(filled(next.p, LEN, SEED + 3));
	expect_outside(&next, 0, LEN);
	ASSERT_EQ(raw_mapping(e->ko, STRAIT_IOC_MAPPED, map->handle), invalidates ? -ENODEV : 0);
	ASSERT_EQ(raw_master(e->name), !invalidates);
	expect_contexts(invalidates ? 0 : 1);
	ASSERT_OK(raw_mapping(e->ko, STRAIT_IOC_UNMAP, map->handle));
	expect_contexts(0);
	ASSERT_OK(gpu_free(&next));
}

TEST_VARIANTS_TIMEOUT(memory_for_the_engine, struct mode, modes, 180)
{
	uint64_t free[STRAIT_VGPU_MEM_KINDS];
	int gpu = gpu_open();
	struct strait_ioc_map map;
	struct gpu_mem m;
	struct raw e;
	char text[128];
	uint32_t region;

	unload_all();
	gpu_all_free(gpu, free);
	snprintf(text, sizeof(text), "%s %s", v->module, v->parameters);
	load_module(text);
	for (unsigned int i = 0; i < ARRAY_SIZE(v->clients); i++) {
		client(i, text, sizeof(text));
		ASSERT_STREQ(text, v->clients[i] ? v->clients[i] : "");
	}
	e = raw_open();
	m = gpu_alloc(gpu, PLAIN, LEN);
	region = peer_import(e.ko, m.p, LEN);
	ASSERT_OK(raw_map(e.ko, region, 0, LEN, &map));
	engine_writes(&e, map.bus, &m, 0, SEED);
	/* The module cannot go while the context has a reference on it. */
	ASSERT_EQ(unload(v->module), -EAGAIN);
	ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_UNMAP, map.handle));
	expect_contexts(0);
	/* A part, not aligned to the client's pages. */
	ASSERT_OK(raw_map(e.ko, region, KIB(68), KIB(8), &map));
	engine_writes(&e, map.bus, &m, KIB(68), SEED + 1);
	ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_UNMAP, map.handle));
	ASSERT_OK(raw_map(e.ko, region, 0, LEN, &map));
	free_mapped(&e, gpu, &m, &map, v->invalidates);
	raw_close(&e);
	gpu_unmap(&m);
	gpu_expect_free(gpu, free);
	ASSERT_OK(unload(v->module));
}

TEST(loaded_again)
{
	load_module("strait_vgpu_peer");
	load_module("nv_peer_mem");
	load_module("nvidia_peermem");
}
