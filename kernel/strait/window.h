/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_STRAIT_WINDOW_H
#define STRAIT_STRAIT_WINDOW_H

/* The race windows of strait.ko: see kernel/window.h. */

#include "../window.h"

enum strait_window {
	/* waits in it | comes by */
	STRAIT_W_USE,	   /* an I/O that found the memory live, with no use of it yet | the memory is revoked or killed */
	STRAIT_W_COMPARE,  /* pages compared, which is not recorded yet | the mapping changes again */
	STRAIT_W_SET_BACKING,	   /* an import, pages pinned, the region without them | the mapping goes */
	STRAIT_W_PUBLISH,  /* a bridge's import, memory pinned, its backing not published | the driver takes it back */
	STRAIT_W_COMPLETE, /* a command whose I/O ended, memory still used (spins) | the memory is killed */
	STRAIT_W_FINISH,   /* a command that gave up the memory, its result not posted | the memory is revoked or killed */
	STRAIT_W_RETRY,	   /* a command before it is submitted again | the memory is killed */
	STRAIT_W_DEFER,   /* a revocation that took the memory, DMA mappings not closed (spins) | a mapping is published */
	STRAIT_W_KILL,	   /* a kill, no new use can begin, not waiting yet | the last use ends */
	STRAIT_W_MAP,	   /* a DMA mapping that is not published | the memory is revoked */
	STRAIT_W_DETACH,   /* a dma-buf that is unmapped, and neither detached nor flushed | its exporter revokes it */
	STRAIT_WINDOWS,
};

#ifdef CONFIG_STRAIT_DELAYS
extern struct window strait_windows[STRAIT_WINDOWS];

/* Where one may sleep. */
static inline void strait_window(enum strait_window w)
{
	window_wait(&strait_windows[w], false);
}

/* Where one may not. */
static inline void strait_window_spin(enum strait_window w)
{
	window_wait(&strait_windows[w], true);
}

static inline void strait_window_meet(enum strait_window w)
{
	window_meet(&strait_windows[w]);
}
#else
static inline void strait_window(enum strait_window w)
{
}

static inline void strait_window_spin(enum strait_window w)
{
}

static inline void strait_window_meet(enum strait_window w)
{
}
#endif

#endif
