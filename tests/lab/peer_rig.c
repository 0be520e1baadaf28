/* SPDX-License-Identifier: MIT */
#include "peer_rig.h"

#define PEER_SEED 9

void peer_begin(struct peer_rig *g, const struct peer_kind *kind)
{
	peer_load(kind);
	g->gpu = gpu_open();
	g->e = raw_open();
	g->m = gpu_alloc(g->gpu, PLAIN, PEER_LEN);
	g->region = peer_import(g->e.ko, g->m.p, PEER_LEN);
}

void peer_map(struct peer_rig *g)
{
	ASSERT_OK(raw_map(g->e.ko, g->region, 0, PEER_LEN, &g->map));
}

void peer_end(struct peer_rig *g)
{
	struct gpu_mem m = gpu_alloc(g->gpu, PLAIN, PEER_LEN);
	uint32_t region = peer_import(g->e.ko, m.p, PEER_LEN);
	struct strait_ioc_map again;

	peer_expect_released();
	ASSERT_OK(raw_control(g->e.ko, STRAIT_CONTROL_BUS_MASTER, 1));
	ASSERT_OK(raw_map(g->e.ko, region, 0, PEER_LEN, &again));
	raw_load(&g->e, PEER_SEED);
	raw_start(&g->e, again.bus, EDU_MOST, true);
	raw_wait(&g->e);
	ASSERT_TRUE(filled(m.p, EDU_MOST, PEER_SEED));
	expect_outside(&m, 0, PEER_LEN);
	raw_close(&g->e);
	peer_expect_released();
	ko_expect_counter("device_bytes", 0);
	ASSERT_OK(gpu_free(&m));
	close(g->gpu);
}

void *peer_free_thread(void *arg)
{
	struct peer_rig *g = arg;

	return (void *)(intptr_t)gpu_free(&g->m);
}

void *peer_unmap_thread(void *arg)
{
	struct peer_rig *g = arg;

	return (void *)(intptr_t)raw_mapping(g->e.ko, STRAIT_IOC_UNMAP, g->map.handle);
}

void *peer_map_thread(void *arg)
{
	struct peer_rig *g = arg;

	return (void *)(intptr_t)raw_map(g->e.ko, g->region, 0, PEER_LEN, &g->map);
}

void *peer_master_thread(void *arg)
{
	struct peer_rig *g = arg;

	return (void *)(intptr_t)raw_control(g->e.ko, STRAIT_CONTROL_BUS_MASTER, 1);
}

void *peer_unload_thread(void *arg)
{
	return (void *)(intptr_t)peer_unload();
}

pthread_t peer_run(void *(*fn)(void *), struct peer_rig *g)
{
	pthread_t t;

	ASSERT_EQ(pthread_create(&t, NULL, fn, g), 0);
	return t;
}

int peer_result(pthread_t t)
{
	void *ret;

	ASSERT_EQ(pthread_join(t, &ret), 0);
	return (int)(intptr_t)ret;
}

bool peer_try_result(pthread_t t, int *rc)
{
	void *ret;

	if (pthread_tryjoin_np(t, &ret))
		return false;
	*rc = (int)(intptr_t)ret;
	return true;
}
