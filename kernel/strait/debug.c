// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Counters and race windows in debugfs, for root. */
#include <linux/debugfs.h>
#include <linux/seq_file.h>

#include "core.h"
#include "window.h"

static const char *const debug_count_names[STRAIT_COUNTS] = {
	[STRAIT_N_IMPORTS] = "imports",
	[STRAIT_N_REVOKED] = "revoked",
	[STRAIT_N_READS] = "reads",
	[STRAIT_N_WRITES] = "writes",
	[STRAIT_N_READ_BYTES] = "read_bytes",
	[STRAIT_N_WRITTEN_BYTES] = "written_bytes",
	[STRAIT_N_REFUSED] = "refused",
	[STRAIT_N_RETRIED] = "retried",
	[STRAIT_N_PATHS] = "paths",
	[STRAIT_N_IN_FLIGHT] = "in_flight",
	[STRAIT_N_DEVICE_BYTES] = "device_bytes",
	[STRAIT_N_PINNED_BYTES] = "pinned_bytes",
	[STRAIT_N_ATTACHED] = "attached",
	[STRAIT_N_MAPS] = "maps",
	[STRAIT_N_MAPPED_BYTES] = "mapped_bytes",
	[STRAIT_N_MAPS_REVOKED] = "maps_revoked",
	[STRAIT_N_IRQS] = "interrupts",
};

#ifdef CONFIG_STRAIT_DELAYS
struct window strait_windows[STRAIT_WINDOWS];

static const char *const debug_window_names[STRAIT_WINDOWS] = {
	[STRAIT_W_USE] = "use",
	[STRAIT_W_VERIFY] = "verify",
	[STRAIT_W_SET_BACKING] = "set_backing",
	[STRAIT_W_PUBLISH] = "publish",
	[STRAIT_W_COMPLETE] = "complete",
	[STRAIT_W_FINISH] = "finish",
	[STRAIT_W_RETRY] = "retry",
	[STRAIT_W_DEFER] = "defer",
	[STRAIT_W_KILL] = "kill",
	[STRAIT_W_MAP] = "map",
	[STRAIT_W_DETACH] = "detach",
};
#endif

static int counters_show(struct seq_file *m, void *unused)
{
	int i;

	for (i = 0; i < STRAIT_COUNTS; i++)
		seq_printf(m, "%s %lld\n", debug_count_names[i],
			   (s64)atomic64_read(&strait_counts[i]));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(counters);

static struct dentry *debug_root;

void strait_debug_init(void)
{
	debug_root = debugfs_create_dir("strait", NULL);
	debugfs_create_file("counters", 0400, debug_root, NULL, &counters_fops);
#ifdef CONFIG_STRAIT_DELAYS
	windows_create(debug_root, strait_windows, debug_window_names, STRAIT_WINDOWS);
#endif
}

void strait_debug_fini(void)
{
	debugfs_remove(debug_root);
}
