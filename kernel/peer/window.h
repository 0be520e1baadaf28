/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_PEER_WINDOW_H
#define STRAIT_PEER_WINDOW_H

/* Race windows of strait_peer: see kernel/window.h. */

#include "../window.h"

enum peer_window {
	/* Waits: a mapper after get_pages, before dma_map. Meets: invalidation, cancellation. */
	PEER_W_PINNED,
	/* Waits: a mapper after dma_map, not MAPPED yet. Meets: invalidation, cancellation. */
	PEER_W_MAPPED,
	/* Waits: an unmapper before dma_unmap. Meets: invalidation, another unmapper. */
	PEER_W_UNMAP,
	/* Waits: an unmapper between dma_unmap and put_pages. Meets: invalidation. */
	PEER_W_PUT,
	/* Waits: an invalidation, before it waits for the importer. Meets: another one. */
	PEER_W_STOP,
	/* Waits: an invalidation, before its calls into the client. Meets: unmap. */
	PEER_W_UNDO,
	/* Waits: an invalidation that has undone. Meets: unmap, unregistration. */
	PEER_W_INVALIDATE,
	/* Waits: before release, the context is UNMAPPED. Meets: invalidation. */
	PEER_W_RELEASE,
	/* Waits: a task that has left the callback and dropped its use. */
	PEER_W_LEFT,
	PEER_WINDOWS,
};

#ifdef CONFIG_STRAIT_DELAYS
extern struct window peer_windows[PEER_WINDOWS];

static inline void peer_window(enum peer_window w)
{
	window_wait(&peer_windows[w], false);
}

static inline void peer_window_meet(enum peer_window w)
{
	window_meet(&peer_windows[w]);
}
#else
static inline void peer_window(enum peer_window w)
{
}

static inline void peer_window_meet(enum peer_window w)
{
}
#endif

#endif
