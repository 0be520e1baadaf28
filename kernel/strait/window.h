/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_STRAIT_WINDOW_H
#define STRAIT_STRAIT_WINDOW_H

/* Race windows of strait.ko: see kernel/window.h. */

#include "../window.h"

enum strait_window {
	/* Waits: an I/O that found a live backing and does not use it yet. Meets: revoke, kill. */
	STRAIT_W_USE,
	/* Waits: pages verified, and not recorded yet. Meets: another change of the mapping. */
	STRAIT_W_VERIFY,
	/* Waits: an import with pinned pages, before the region has them. Meets: revocation. */
	STRAIT_W_SET_BACKING,
	/* Waits: an import by a bridge, not published yet. Meets: the driver's revocation. */
	STRAIT_W_PUBLISH,
	/* Waits, spinning: a completed command that still uses the backing. Meets: kill. */
	STRAIT_W_COMPLETE,
	/* Waits: a command that dropped the backing, before its CQE. Meets: revoke, kill. */
	STRAIT_W_FINISH,
	/* Waits: a command before it is resubmitted. Meets: kill. */
	STRAIT_W_RETRY,
	/* Waits, spinning: a revocation before its deferred kill. Meets: publishing a mapping. */
	STRAIT_W_DEFER,
	/* Waits: a kill before it waits for users. Meets: the end of a use. */
	STRAIT_W_KILL,
	/* Waits: a mapping that is not published yet. Meets: revocation. */
	STRAIT_W_MAP,
	/* Waits: a dma-buf unmapped, neither detached nor flushed. Meets: move_notify(). */
	STRAIT_W_DETACH,
	STRAIT_WINDOWS,
};

#ifdef CONFIG_STRAIT_DELAYS
extern struct window strait_windows[STRAIT_WINDOWS];

/* Waits in the window. Sleeps. */
static inline void strait_window(enum strait_window w)
{
	window_wait(&strait_windows[w], false);
}

/* Waits in the window without sleeping. */
static inline void strait_window_spin(enum strait_window w)
{
	window_wait(&strait_windows[w], true);
}

/* Counts a meeting if another thread waits in the window. */
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
