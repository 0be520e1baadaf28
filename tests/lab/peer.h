/* SPDX-License-Identifier: MIT */
#ifndef LAB_PEER_H
#define LAB_PEER_H

/* Peer memory clients: strait_vgpu_peer in its three kinds, and memory of it for devices. */

#include "raw.h"

struct peer_kind {
	const char *name;
	bool extended, invalidate;
};

/* clang-format off */
#define PEER_KINDS                                                                                                     \
	{ "extended", true, true }, { "classic", false, true }, { "persistent", false, false }
/* clang-format on */

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
