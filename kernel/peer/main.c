// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * strait_peer: peer memory clients on a kernel whose ib_core has none.
 *
 * ib_core is a soft dependency: where a vendor's ib_core exports the same symbols the loader
 * refuses this module. Loaded in the other order it would refuse ib_core.
 */
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/wait.h>

#include "peer.h"
#include "window.h"

struct workqueue_struct *peer_wq;

static atomic_t peer_n_busy;
static DECLARE_WAIT_QUEUE_HEAD(peer_quiet);	/* peer_n_busy is 0 */

void peer_busy(void)
{
	atomic_inc(&peer_n_busy);
}

void peer_idle(void)
{
	if (atomic_dec_and_test(&peer_n_busy))
		wake_up_all(&peer_quiet);
}

#ifdef CONFIG_STRAIT_DELAYS
struct window peer_windows[PEER_WINDOWS];
static struct dentry *peer_debug_root;

static void peer_debug_init(void)
{
	static const char *const names[PEER_WINDOWS] = {
		[PEER_W_PINNED] = "pinned", [PEER_W_MAPPED] = "mapped",
		[PEER_W_UNMAP] = "unmap",   [PEER_W_PUT] = "put",
		[PEER_W_STOP] = "stop",	    [PEER_W_UNDO] = "undo",
		[PEER_W_INVALIDATE] = "invalidate", [PEER_W_RELEASE] = "release",
		[PEER_W_LEFT] = "left",
	};

	peer_debug_root = debugfs_create_dir("strait_peer", NULL);
	windows_create(peer_debug_root, peer_windows, names, PEER_WINDOWS);
}

static void peer_debug_fini(void)
{
	debugfs_remove(peer_debug_root);
}
#else
static void peer_debug_init(void)
{
}

static void peer_debug_fini(void)
{
}
#endif

static int __init peer_init(void)
{
	int rc;

	peer_wq = alloc_workqueue("strait_peer", WQ_UNBOUND, 0);
	if (!peer_wq)
		return -ENOMEM;
	rc = strait_bridge_register(&peer_bridge);
	if (rc) {
		destroy_workqueue(peer_wq);
		return rc;
	}
	peer_debug_init();
	return 0;
}
module_init(peer_init);

static void __exit peer_exit(void)
{
	peer_debug_fini();
	strait_bridge_unregister(&peer_bridge);
	wait_event(peer_quiet, !atomic_read(&peer_n_busy));
	destroy_workqueue(peer_wq);
	/* A task may have to return from peer_idle() and its callers yet, without sleeping. */
	synchronize_rcu_tasks();
}
module_exit(peer_exit);

MODULE_DESCRIPTION("Peer memory clients, as regions of strait");
MODULE_AUTHOR("The Strait authors");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_SOFTDEP("pre: ib_core");
COMPAT_IMPORT_NS_DMA_BUF;
