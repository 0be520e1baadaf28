/* SPDX-License-Identifier: MIT */
#ifndef ENDPOINT_RDMA_SESSION_H
#define ENDPOINT_RDMA_SESSION_H

/*
 * A session: one reliable connection, its protection domain, control channel, registrations and offers, and further queue
 * pairs for its reads and writes.
 *
 * States, in this order; a session never goes back:
 *
 *	NEW		accepted by a listener, not answered: nothing is allocated but the connection's identifier
 *	CONNECTED	the queue pair carries messages, the handshake runs. The protection domain has one registration,
 *			of the control buffers, without remote access
 *	READY		authenticated, and all queue pairs are connected
 *	(error != 0)	final, in every state: a work completion failed, the peer disconnected, a message did not verify,
 *			offered memory was freed, or the session was cancelled. All queue pairs are in their error
 *			state: the peer accesses no memory any more. Every call returns the error
 *
 * Threads. @lock protects all members. It is never held while a call waits for the peer: one of the waiting threads
 * sleeps on the event channels (@sleeping), the others on @changed, and each checks its own condition when it wakes.
 * Registering and deregistering happen under @lock: they wait for the device, not for the peer. The owner of
 * a region that is closed (any thread) calls session_drop(), which takes @lock; so a free waits for no peer either.
 * Lock order: device_set.watch_lock, then @lock.
 *
 * Lifetime. @users counts calls that are running. Closing makes them return -ECANCELED, waits until none is left,
 * then stops the watcher: on return no session_drop() runs. The struct has a reference of each offer, too, so that
 * offers may be closed after the session, or at the same time.
 *
 * Queue pairs. The first one, of the connection manager, carries the messages. The others (lanes.c) are made once the peer
 * is authenticated: their numbers pass in messages with a MAC, and they go where the first one goes. The failure of one
 * ends the session.
 *
 * Requests of a queue pair are numbered from 1: lane.posted is the last. Every SIGNAL_EVERY-th is signalled, and its
 * completion completes all before it. A waiter for a request that no signalled one follows posts an empty signalled write.
 *
 * Tickets number the reads and writes of a session. They go to the queue pairs in turn: each takes SIGNAL_EVERY, or
 * fewer when the last of them is awaited by itself, then it is the next one's turn. Queue pairs complete independently; @order
 * has the queue pair and number of each ticket, and @completed is the last ticket before which none is incomplete.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <strait/rdma.h>

#include "base/list.h"
#include "base/log.h"
#include "device/provider.h"
#include "device/region.h"
#include "endpoint/rdma/handshake.h"
#include "endpoint/rdma/verbs.h"
#include "endpoint/rdma/wire.h"

#define SIGNAL_EVERY 16u
#define CONTROL_SLOTS 64u /* messages in each direction */
#define DATA_BYTES 65536u /* most bytes of one work request */
#define SGES_MAX 16u	  /* most ranges of memory of one work request */
#define LANES_MAX STRAIT_RDMA_QUEUE_PAIRS_MAX
#define READS_IN_FLIGHT 16u
#define RETRIES 6u     /* 7 means for ever to the kernel's software RDMA device */
#define RNR_RETRIES 7u /* for ever: a peer that posts no receives is bounded by the deadline of the call */

struct strait_rdma_listener {
	struct device_set *set;
	const struct log_sink *log;
	void *owner;
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct strait_rdma_opts opts; /* @address is NULL, @key points to @key_copy */
	uint8_t key_copy[HS_KEY_MAX];
	atomic_uint half_open;
	atomic_uint refs; /* its handle, and each half-open session */
};

enum session_state {
	SESSION_NEW,
	SESSION_CONNECTED,
	SESSION_READY,
};

/* A region, or a part of it, in the session's protection domain. */
struct registration {
	struct list node; /* in strait_rdma_session.regs */
	struct strait_region *region;
	struct ibv_mr *mr;
	uint64_t offset, length; /* in the region */
	uint64_t addr;		 /* of the first byte, as work requests name it */
	struct strait_rdma_reach reach;
	bool offered;	      /* with remote access: an offer owns it. Otherwise cached for this side's requests */
	uint64_t last_ticket; /* last request that uses it */
};

struct strait_rdma_offer {
	struct strait_rdma_session *session; /* with a reference of the struct */
	struct list node;		     /* in strait_rdma_session.offers; under its lock */
	struct registration *reg;	     /* NULL once the region is revoked or the session closed; under its lock */
	struct strait_rdma_reach reach;
	void *owner;
	struct strait_device *dev;
	char text[WIRE_OFFER_TEXT];
};

/* A queue pair, and its send queue. */
struct lane {
	struct ibv_qp *qp;
	uint64_t posted, signalled_at;
	uint64_t ended; /* last request that completed, successfully or not */
	uint64_t completed;
};

/* wr_id of a request: the index of its queue pair, and its number. */
#define WR_ID(lane, number) ((uint64_t)(lane) << 56 | (number))
#define WR_LANE(id) ((uint32_t)((id) >> 56))
#define WR_NUMBER(id) ((id) & ((1ull << 56) - 1))

/* Where the request of a ticket is. */
struct ticket_place {
	uint64_t number;
	uint32_t lane, unused;
};

struct strait_rdma_session {
	struct device_set *set;
	const struct log_sink *log;
	void *owner;			       /* struct strait_context */
	struct strait_rdma_listener *listener; /* while half-open, else NULL */
	atomic_uint refs;		       /* of the struct: its handle, and each offer */
	pthread_mutex_t lock;
	pthread_cond_t changed;	 /* completions were processed, @sleeping or @users changed, or there is an error */
	atomic_uint lock_wanted; /* threads that are about to take @lock */
	bool sleeping;		 /* a thread sleeps on the event channels */
	bool closing;
	unsigned int users;
	int wake; /* eventfd: readable once there is an error */
	enum session_state state;
	bool answering;		      /* strait_rdma_authenticate() was called */
	struct strait_rdma_opts opts; /* as of the listener's */
	uint8_t key_copy[HS_KEY_MAX];
	uint8_t peer_reads; /* RDMA reads in flight that the peer asked for */

	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	bool established;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct lane lane[LANES_MAX]; /* the first one is of @id */
	uint32_t lanes;
	uint32_t inline_max;
	uint32_t sges, sges_read; /* most ranges of memory of a write, and of a read */
	unsigned int cq_events;	  /* not acknowledged yet */

	uint8_t *control; /* CONTROL_SLOTS to send, then CONTROL_SLOTS to receive, WIRE_MAX bytes each */
	struct ibv_mr *control_mr;
	uint64_t sent;			     /* messages: the next slot is sent % CONTROL_SLOTS */
	uint64_t slot_number[CONTROL_SLOTS]; /* request of the first queue pair that reads the slot */
	struct {
		uint32_t slot, len;
	} received[CONTROL_SLOTS]; /* messages that were not taken yet */
	uint32_t received_first, received_n;

	uint32_t receives;	    /* posted and not completed */
	uint64_t posted, completed; /* tickets */
	struct ticket_place *order; /* of @order_len tickets: that of ticket t is at t % order_len */
	uint32_t order_len;
	uint32_t turn, in_turn; /* the queue pair whose turn it is, and how many requests it got in it */
	uint64_t requests, signalled, bytes_written, bytes_read;
	atomic_ullong registrations;
	atomic_int error, status;

	/* In READY. */
	struct wire_channel send, recv;
	uint8_t session[WIRE_SESSION], offer_key[WIRE_KEY];
	char offer_text[WIRE_OFFER_TEXT]; /* the last one that verified, and what it says */
	struct wire_offer offer_seen;
	uint64_t began; /* clock of the handshake's end: the origin of the times in offers */

	struct region_watcher watcher;
	struct list regs, offers;
};

/* listen.c */
int listener_open(struct device_set *set, const struct strait_rdma_opts *opts, struct strait_rdma_listener **ret);
int listener_accept(struct strait_rdma_listener *l, int64_t timeout_ns, struct strait_rdma_session **ret);
void listener_unref(struct strait_rdma_listener *l);
/* The options with copies of what they point to. -EINVAL */
int rdma_opts_copy(const struct strait_rdma_opts *from, struct strait_rdma_opts *o, uint8_t key[HS_KEY_MAX]);

/* address.c */
int address_resolve(const char *host, uint32_t port, bool passive, struct sockaddr_storage *ret);
void address_encode(const struct sockaddr *sa, uint8_t out[HS_ADDRESS]);
void address_text(const struct sockaddr *sa, char *text, size_t len);
/* Is it an address of this machine? */
bool address_is_own(const struct sockaddr *sa);
/* The same of a GID of RDMA over Ethernet, which is an IP address. */
bool address_gid_is_own(const union ibv_gid *gid);

/* session.c */
int session_new(struct device_set *set, const struct strait_rdma_opts *opts, struct strait_rdma_session **ret);
void session_close(struct strait_rdma_session *s);
void session_unref(struct strait_rdma_session *s);
/* Begin a call: takes @lock. -ECANCELED without it once the session is being closed. */
int session_enter(struct strait_rdma_session *s);
void session_leave(struct strait_rdma_session *s);
void session_lock(struct strait_rdma_session *s);
void session_info(struct strait_rdma_session *s, struct strait_rdma_info *info);
/* With @lock held: stop the queue pair and wake all threads. The first error remains. */
void session_fail(struct strait_rdma_session *s, int err);
/* With @lock held, which is released meanwhile: sleep until an event of the connection or of @fd (or -1), or an error. */
int session_sleep(struct strait_rdma_session *s, int fd, uint64_t deadline);

/* connect.c: with @lock held */
/* @address: of the peer; ignored for a session of a listener. */
int session_connect(struct strait_rdma_session *s, const char *address, uint64_t deadline);
int session_authenticate(struct strait_rdma_session *s, uint64_t deadline);
/* Take the connection manager's events that are pending. */
void session_cm_events(struct strait_rdma_session *s);

/* qp.c: with @lock held. Calls with a deadline release it while they wait. */
int qp_open(struct strait_rdma_session *s);
void qp_close(struct strait_rdma_session *s);
/* The memory of @order: for requests in flight on all queue pairs, and what one may have more of in its turn. */
int qp_alloc_order(struct strait_rdma_session *s);
/* The attributes of every queue pair, as the session's resources allow. */
struct ibv_qp_init_attr qp_init_attr(struct strait_rdma_session *s);
/* Process completions, or wait until a thread may have. -ETIMEDOUT; the session's error. */
int qp_progress(struct strait_rdma_session *s, uint64_t deadline);
/* After session_fail(): wait until the device has completed all that was posted, and accesses no memory any more. */
void qp_drain(struct strait_rdma_session *s);
/* The next message, in place until qp_release() posts its slot again. */
int qp_recv(struct strait_rdma_session *s, uint64_t deadline, const uint8_t **msg, size_t *len);
int qp_release(struct strait_rdma_session *s);

/* post.c: with @lock held. Calls with a deadline release it while they wait. */
/* Post a read or write, for which there is room. It gets the next ticket, s->posted. */
int qp_post(struct strait_rdma_session *s, struct ibv_send_wr *wr);
/* @deadline 0: only look. */
int qp_wait(struct strait_rdma_session *s, uint64_t ticket, uint64_t deadline);
/* Wait until the next qp_send(), or the next @n qp_post() or as many as there can be, do not wait. */
int qp_send_room(struct strait_rdma_session *s, uint64_t deadline);
int qp_post_room(struct strait_rdma_session *s, uint64_t n, uint64_t deadline);
bool qp_is_full(const struct strait_rdma_session *s);
/* A whole message, sealed or of the handshake. */
int qp_send(struct strait_rdma_session *s, const void *msg, size_t len, uint64_t deadline);
/* Wait until the peer's device has all messages. */
int qp_flush_sends(struct strait_rdma_session *s, uint64_t deadline);

/* lanes.c: with @lock held. Agree on the further queue pairs and connect them. */
int lanes_open(struct strait_rdma_session *s, uint64_t deadline);
void lanes_close(struct strait_rdma_session *s);

/* message.c: with @lock held */
/* A message of another type than the application's: sealed, or the payload of a received one. */
int message_send_type(struct strait_rdma_session *s, enum wire_type type, const void *data, size_t len,
		      uint64_t deadline);
ssize_t message_recv_type(struct strait_rdma_session *s, enum wire_type type, void *buf, size_t len, uint64_t deadline);
int message_send(struct strait_rdma_session *s, const void *data, size_t len, uint64_t deadline);
ssize_t message_recv(struct strait_rdma_session *s, void *buf, size_t len, uint64_t deadline);

/* ladder.c: the best registration that the device of @pd has for the range. The caller holds a use of the region. */
int ladder_register(struct ibv_pd *pd, struct strait_region *r, uint64_t off, uint64_t len, int access,
		    struct registration *reg);

/* reg.c: with @lock held but for reg_offer_close() and session_drop(), which take it */
int reg_offer(struct strait_rdma_session *s, struct strait_region *r, uint64_t off, uint64_t len, uint32_t rights,
	      int64_t lifetime_ns, struct strait_rdma_offer **ret);
void reg_offer_close(struct strait_rdma_offer *o);
/* The local registration of the whole region, made at its first use. Valid while the caller has a use of
 * the region. */
int reg_local(struct strait_rdma_session *s, struct strait_region *r, struct registration **ret);
/* Deregister what the region has here: of region_watcher. */
void session_drop(struct region_watcher *w, struct strait_region *r);
void reg_close_all(struct strait_rdma_session *s);

/* io.c: with @lock held */
int io_post(struct strait_rdma_session *s, const struct strait_rdma_request *q, uint64_t deadline, uint64_t *ticket);

#endif
