/* SPDX-License-Identifier: MIT */
#ifndef LAB_PEER_H
#define LAB_PEER_H

/* Peer memory clients: strait_vgpu_peer in its kinds, and memory of it for devices. */

#include "raw.h"

struct peer_kind {
	const char *name;
	bool extended, invalidate;
	bool stale; /* it keeps pointers that the driver has freed, as NVIDIA's clients do */
};

/* clang-format off */
#define PEER_EXTENDED { "extended", true, true, false }
#define PEER_CLASSIC { "classic", false, true, false }
#define PEER_PERSISTENT { "persistent", false, false, false }
#define PEER_EXTENDED_STALE { "extended-stale", true, true, true }
#define PEER_CLASSIC_STALE { "classic-stale", false, true, true }
#define PEER_KINDS PEER_EXTENDED, PEER_CLASSIC, PEER_PERSISTENT
/* Those with the invalidate callback. */
#define PEER_REVOKING PEER_EXTENDED, PEER_CLASSIC, PEER_EXTENDED_STALE, PEER_CLASSIC_STALE
/* clang-format on */

/* Loads the client with parameters of the module. Skips the test where there is no strait_peer. */
void peer_load_with(const char *parameters);
/* Loads the client as that kind. Skips the test where there is no strait_peer. */
void peer_load(const struct peer_kind *kind);
/* The client of the last peer_load() unregisters. Returns 0 or -errno. */
int peer_unload(void);
/* A field of the client's line: contexts now, invalidations. */
uint64_t peer_contexts(void);
uint64_t peer_invalidations(void);
/* Waits until all contexts are released. */
void peer_expect_released(void);
/* Imports memory by its address, and checks what the region can be used for. */
uint32_t peer_import(int ko, const void *p, uint64_t len);

#endif
