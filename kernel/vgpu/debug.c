// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Counters and race windows in debugfs, for root. */
#include <linux/debugfs.h>
#include <linux/seq_file.h>

#include "vgpu.h"
#include "window.h"

static const char *const debug_window_names[VGPU_WINDOWS] = {
	[VGPU_W_FAULT] = "fault",	  [VGPU_W_GET] = "get",
	[VGPU_W_CALLBACK] = "callback",	  [VGPU_W_TEARDOWN] = "teardown",
	[VGPU_W_PUT] = "put",		  [VGPU_W_DMABUF_MAP] = "dmabuf_map",
	[VGPU_W_INVALIDATE] = "invalidate", [VGPU_W_CLOSE] = "close",
};

static struct window debug_windows[VGPU_WINDOWS];

void vgpu_window(enum vgpu_window w)
{
	window_wait(&debug_windows[w], false);
}

void vgpu_window_meet(enum vgpu_window w)
{
	window_meet(&debug_windows[w]);
}

static const char *const debug_count_names[VGPU_COUNTS] = {
	[VGPU_ALLOCATED] = "allocated_bytes",
	[VGPU_FREED] = "freed_bytes",
	[VGPU_CLEARED] = "cleared_bytes",
	[VGPU_CPU_MAPPED] = "cpu_mapped_bytes",
	[VGPU_CPU_ZERO] = "cpu_zero_bytes",
	[VGPU_P2P_PINNED] = "p2p_pinned_bytes",
	[VGPU_P2P_MAPPED] = "p2p_mapped_bytes",
	[VGPU_DMABUF_MAPPED] = "dmabuf_mapped_bytes",
	[VGPU_PEER_MAPPED_NOW] = "peer_mapped_now",
	[VGPU_CALLBACKS] = "callbacks",
	[VGPU_INVALIDATIONS] = "invalidations",
	[VGPU_DRAINED] = "drained_bytes",
	[VGPU_DRAINING] = "draining_bytes",
	[VGPU_MOVES] = "moves",
	[VGPU_FOREIGN_PUTS] = "foreign_puts",
};

static int counters_show(struct seq_file *m, void *unused)
{
	struct vgpu_dev *dev = m->private;
	int i;

	for (i = 0; i < VGPU_COUNTS; i++)
		seq_printf(m, "%s %lld\n", debug_count_names[i],
			   (s64)atomic64_read(&dev->counts[i]));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(counters);

static struct dentry *debug_root;

void vgpu_debug_init(void)
{
	debug_root = debugfs_create_dir("strait_vgpu", NULL);
	windows_create(debug_root, debug_windows, debug_window_names, VGPU_WINDOWS);
}

void vgpu_debug_fini(void)
{
	debugfs_remove(debug_root);
}

void vgpu_debug_add(struct vgpu_dev *dev)
{
	dev->debugfs = debugfs_create_dir(dev->name, debug_root);
	debugfs_create_file("counters", 0400, dev->debugfs, dev, &counters_fops);
}

void vgpu_debug_remove(struct vgpu_dev *dev)
{
	debugfs_remove(dev->debugfs);
	dev->debugfs = NULL;
}
