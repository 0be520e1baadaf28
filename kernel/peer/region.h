/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_PEER_REGION_H
#define STRAIT_PEER_REGION_H

/*
 * Regions: a range of a process and the client that has it.
 */

#include <linux/kref.h>
#include <linux/mm_types.h>

struct peer_client;

struct peer_region {
	struct kref kref;
	struct mm_struct *mm;		/* with a reference on the struct */
	struct peer_client *client;	/* with a reference */
	u64 address, length;
};

/* region.c */
void peer_region_put(struct peer_region *r);

#endif
