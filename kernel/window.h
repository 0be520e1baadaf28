/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_WINDOW_H
#define STRAIT_WINDOW_H

/*
 * Race windows: places where two threads can race, which a test widens by a delay. One side waits
 * in the window; the other side counts a meeting if it passes while a thread waits. In debugfs:
 *
 *	window/<name>/ms	milliseconds to wait, 0: none
 *	window/<name>/inside	threads that wait now
 *	window/<name>/entered	threads that have waited
 *	window/<name>/met	meetings
 *
 * strait.ko and the bridges have windows only if built with CONFIG_STRAIT_DELAYS=y on make's
 * command line, as the lab does.
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

/* Waits in the window. @spin: does not sleep. */
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

/* Counts a meeting if a thread waits in the window. */
static inline void window_meet(struct window *w)
{
	if (unlikely(atomic_read(&w->inside)))
		atomic_inc(&w->met);
}

/* Creates the debugfs files of @n windows in @parent. */
static inline void windows_create(struct dentry *parent, struct window *w,
				  const char *const *names, unsigned int n)
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
