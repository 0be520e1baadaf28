/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_CORE_H
#define STRAIT_CORE_H

/*
 * strait: file I/O between a drive and the memory of another device.
 *
 * Objects:
 *	strait_file	an open file: a table of regions (file.h)
 *	strait_region	what a handle names: live until it is revoked, once (region.h)
 *	strait_backing	the pinned memory of a region (backing.h)
 *	strait_attach	a PCI device driven from user space, and strait_map, memory mapped for it
 *			(attach.h, map.h)
 *
 * Revoking a region detaches its backing and does not wait: each I/O in flight has a reference, and
 * the pages stay pinned until it ends. Memory of a bridge is different: its driver reuses it as
 * soon as its callback returns. The callback therefore kills the backing first, which waits for I/O
 * in flight. That is the only wait without a deadline; the driver of a drive that does not answer
 * resets the drive.
 *
 * Locks of file I/O, all of them leaves:
 *	the xa_lock of a file's table
 *	strait_bridged.lock		.backing, .revoked
 *	strait_bridge_lock		the registered bridge
 *	strait_backing.peers_lock	.peers, .next_peer
 *	strait_backing.maps_lock	.maps, .maps_closed
 *	strait_region.lock		.backing, .changes, .verified, .revoked
 *
 * Each is taken and dropped in one function, which calls no other function of the module in
 * between. The MMU notifier takes the last two under the mmap_lock of a process; the mmap_lock, and
 * the open_mutex of a disk (eligible.c), are taken with none of them held.
 */

#include <linux/atomic.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "compat.h"
#include "inject.h"
#include "strait.h"

#define STRAIT_VERSION "0.1.0"

enum strait_count {
	STRAIT_N_IMPORTS,
	STRAIT_N_REVOKED,
	STRAIT_N_READS,
	STRAIT_N_WRITES,
	STRAIT_N_READ_BYTES,
	STRAIT_N_WRITTEN_BYTES,
	STRAIT_N_REFUSED,
	STRAIT_N_RETRIED,
	STRAIT_N_PATHS,
	STRAIT_N_IN_FLIGHT,
	STRAIT_N_DEVICE_BYTES,
	STRAIT_N_PINNED_BYTES,
	STRAIT_N_ATTACHED,
	STRAIT_N_MAPS,
	STRAIT_N_MAPPED_BYTES,
	STRAIT_N_MAPS_REVOKED,
	STRAIT_N_IRQS,
	STRAIT_COUNTS,
};

extern atomic64_t strait_counts[STRAIT_COUNTS];

static inline void strait_count(enum strait_count what, s64 n)
{
	atomic64_add(n, &strait_counts[what]);
}

/* Unpins memory and kills mappings. Its work may wait for the driver behind a bridge. */
extern struct workqueue_struct *strait_wq;
/* Resubmits I/O. A queue of its own: the driver behind a bridge may be waiting for that I/O. */
extern struct workqueue_struct *strait_retry_wq;

/* STRAIT_FEATURE_* of this module on this kernel. */
u64 strait_features(void);

/* debug.c */
void strait_debug_init(void);
void strait_debug_fini(void);

#endif
