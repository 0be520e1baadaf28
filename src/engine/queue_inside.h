/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_QUEUE_INSIDE_H
#define ENGINE_QUEUE_INSIDE_H

/* A queue as its two sources see it: queue.c, and queue_peers.c for transfers that one thread has many of under way. */

#include "engine/p2p_batch.h"
#include "engine/queue.h"

enum entry_state { ENTRY_FREE, ENTRY_PENDING, ENTRY_RUNNING, ENTRY_DONE };

/*
 * How a transfer is run: by itself, which may take long; gathered with others; as a command on a ring; or by an endpoint
 * that has many under way.
 */
enum entry_kind { ENTRY_LARGE, ENTRY_SMALL, ENTRY_PEER, ENTRY_BATCH, ENTRY_KINDS };

struct entry {
	struct list node;
	struct strait_transfer t;
	struct strait_result r;
	enum entry_state state;
	enum entry_kind kind;
	atomic_bool cancel;
	struct p2p_item peer;
};

/* A task that takes transfers off the queue until none is left. Also who has no task needs one to run transfers. */
struct pump {
	struct task task;
	struct strait_queue *queue;
	bool taken;
	struct list left; /* strait_queue.left, with a batch that is under way */
	unsigned int n;	  /* how many that is */
	struct gather gather;
	struct entry *batch[GATHER_MAX];
	struct p2p_ring ring;
	struct list node; /* strait_queue.movers, with a batch of one endpoint */
	struct p2p_batch moves;
	struct p2p_item *over[P2P_RING_MAX];
};

struct strait_queue {
	struct strait_context *ctx;
	pthread_mutex_t lock;
	pthread_cond_t done_cond;
	struct entry *entries;
	unsigned int n_entries;
	struct list free, pending, done;
	struct list batches; /* those pending that an endpoint moves in batches */
	struct list left;    /* pumps whose batch is under way, for whoever waits for it */
	unsigned int n_free, n_done;
	unsigned int n[ENTRY_KINDS]; /* pending */
	unsigned int pumps;	     /* whose task is posted or running */
	unsigned int busy;    /* of those with a large transfer, a ring or what others left, which may take long */
	unsigned int helpers; /* waiters that do the work of one */
	unsigned int waiters;
	bool peering;	    /* a pump has a ring, and can be woken to put more on it */
	int wake;	    /* to do so; -1 until it is needed */
	struct list movers; /* pumps with a batch, which can be woken to start more */
	bool closing;
	struct pump *pump[WORKERS_MAX + 1];
};

/* queue.c; the lock is held but in the last. */
void queue_complete(struct strait_queue *q, struct entry *e);
void queue_take_entry(struct strait_queue *q, struct entry *e);
/* Wakes or starts threads for what nobody is there to do. */
void queue_start_pumps(struct strait_queue *q);

/* queue_peers.c; the lock is held, and is not while transfers are under way. */
struct entry *queue_next_peer(struct strait_queue *q);
bool queue_pump_peers(struct strait_queue *q, struct pump *p);
struct entry *queue_next_move(const struct strait_queue *q);
void queue_pump_moves(struct strait_queue *q, struct pump *p, struct entry *e);
void queue_wake_movers(struct strait_queue *q);

#endif
