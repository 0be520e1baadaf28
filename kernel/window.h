/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_WINDOW_H
#define STRAIT_WINDOW_H

/*
 * Race windows: places where two threads of control can meet, which a test widens by a delay. The side that gets
 * there first waits in the window, the other side reports that it came by. In debugfs, for each:
 *
 *	window/<name>/ms	how long to wait there, 0: not at all
 *	window/<name>/inside	how many wait there now
 *	window/<name>/entered	how often one side waited there
 *	window/<name>/met	how often the other side came by meanwhile
 *
 * strait.ko and the bridges have them only when built with CONFIG_STRAIT_DELAYS=y on the command line of make, as the
 * lab builds them; otherwise nothing is left of them.
 */

#include <linux/atomic.h>
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/minmax.h>

#define WINDOW_MAX_MS 10000

struct window {
	u32 ms;
	atomic_t inside, entered, met;
};

/* Wait in the window. @spin: where one may not sleep. */
static inline void window_wait(struct window *w, bool spin)
{
	u32 ms = min_t(u32, READ_ONCE(w->ms), WINDOW_MAX_MS);

	if (likely(!ms))
		return;
	atomic_inc(&w->entered);
	atomic_inc(&w->inside);
	if (spin)
		mdelay(ms);
	else
		msleep(ms);
	atomic_dec(&w->inside);
}

static inline void window_meet(struct window *w)
{
	if (unlikely(atomic_read(&w->inside)))
		atomic_inc(&w->met);
}

/* The files of @n windows, in @parent. */
static inline void windows_create(struct dentry *parent, struct window *w, const char *const *names, unsigned int n)
{
	struct dentry *dir = debugfs_create_dir("window", parent), *sub;
	unsigned int i;

	for (i = 0; i < n; i++) {
		sub = debugfs_create_dir(names[i], dir);
		debugfs_create_u32("ms", 0600, sub, &w[i].ms);
		debugfs_create_atomic_t("inside", 0400, sub, &w[i].inside);
		debugfs_create_atomic_t("entered", 0600, sub, &w[i].entered);
		debugfs_create_atomic_t("met", 0600, sub, &w[i].met);
	}
}

#endif
