/* SPDX-License-Identifier: MIT */
#ifndef LAB_PEER_RIG_H
#define LAB_PEER_RIG_H

/* The engine and memory of a peer client, for tests in which calls of several threads race. */

#include "peer.h"

#define PEER_LEN KIB(256)

struct peer_rig {
	int gpu;
	struct raw e;
	struct gpu_mem m;
	uint32_t region;
	struct strait_ioc_map map;
};

/* Loads the client as that kind, opens the engine and imports memory, which is not mapped. */
void peer_begin(struct peer_rig *g, const struct peer_kind *kind);
void peer_map(struct peer_rig *g);
/* All contexts are released, the GPU's memory is mapped for no device, and the engine still works. */
void peer_end(struct peer_rig *g);

/* Calls in a thread, on a rig. Their result is 0 or -errno. */
void *peer_free_thread(void *rig);
void *peer_map_thread(void *rig);
void *peer_unmap_thread(void *rig);
/* Switches bus mastering on. */
void *peer_master_thread(void *rig);
void *peer_unload_thread(void *rig);
pthread_t peer_run(void *(*fn)(void *rig), struct peer_rig *g);
/* Waits for the call. */
int peer_result(pthread_t t);
/* False: it has not returned yet. */
bool peer_try_result(pthread_t t, int *rc);

#endif
