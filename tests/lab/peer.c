/* SPDX-License-Identifier: MIT */
#include "peer.h"

#include <sys/syscall.h>

#define CLIENTS "/sys/module/strait_peer/parameters/clients"

int peer_unload(void)
{
	return syscall(SYS_delete_module, "strait_vgpu_peer", O_NONBLOCK) ? -errno : 0;
}

void peer_load_with(const char *parameters)
{
	char cmd[128];

	close(ko_open());
	if (access("/sys/module/strait_peer", F_OK))
		SKIP("strait_peer is not loaded");
	if (!access("/sys/module/strait_vgpu_peer", F_OK))
		ASSERT_OK(peer_unload());
	snprintf(cmd, sizeof(cmd), "strait_vgpu_peer %s", parameters);
	load_module(cmd);
}

void peer_load(const struct peer_kind *kind)
{
	char parameters[64];

	snprintf(parameters, sizeof(parameters), "extended=%d invalidate=%d stale=%d", kind->extended, kind->invalidate,
		 kind->stale);
	peer_load_with(parameters);
}

static uint64_t field(unsigned int n)
{
	unsigned long long value[2];
	char line[128];
	FILE *file = fopen(CLIENTS, "re");

	ASSERT_TRUE(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "strait_vgpu %*s %*s %llu %llu", &value[0], &value[1]) == 2) {
			fclose(file);
			return value[n];
		}
	FAIL("there is no client strait_vgpu");
}

uint64_t peer_contexts(void)
{
	return field(0);
}

uint64_t peer_invalidations(void)
{
	return field(1);
}

void peer_expect_released(void)
{
	for (int i = 0; i < 1000 && peer_contexts(); i++)
		sleep_ms(10);
	ASSERT_EQ(peer_contexts(), 0);
}

uint32_t peer_import(int ko, const void *p, uint64_t len)
{
	struct strait_ioc_import import;

	ASSERT_OK(ko_try_import(ko, STRAIT_IMPORT_PEER, p, len, &import));
	ASSERT_NE(import.handle, 0);
	/* The client gives DMA addresses and no pages. */
	ASSERT_EQ(import.can, STRAIT_CAN_DMA);
	return import.handle;
}
