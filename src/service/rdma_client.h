/* SPDX-License-Identifier: MIT */
#ifndef SERVICE_RDMA_CLIENT_H
#define SERVICE_RDMA_CLIENT_H

/*
 * A client of a server of files. @lock serialises its calls and is held while they wait; every wait has a deadline.
 * Between calls no request is without a reply.
 */

#include <pthread.h>
#include <stdbool.h>
#include <strait/rdma_serve.h>

#include "service/rdma_proto.h"

#define WINDOW_BYTES MIB(4)
#define WINDOWS 4u /* in flight */

/* What the server has in a slot. Regions that are used in turn stay registered. */
struct client_offer {
	struct strait_rdma_offer *offer; /* NULL: nothing */
	struct strait_region *region;
	uint32_t rights;
	bool staged;	    /* the offer is of the client's stage. At most one is */
	uint64_t last_used; /* of strait_rdma_client.uses */
	struct strait_rdma_reach reach;
};

struct strait_rdma_client {
	struct strait_context *ctx;
	pthread_mutex_t lock;
	struct strait_rdma_opts opts; /* points to @address and @key */
	char address[256];
	uint8_t key[STRAIT_RDMA_KEY_MAX];
	struct strait_rdma_session *session; /* NULL: the connection was lost */
	bool fresh;			     /* @session was made by the call that runs */
	bool lost;			     /* the call that runs failed by the connection, not by a reply */
	int32_t status;			     /* of a work completion that failed, since the call began */
	uint32_t next_id;

	struct client_offer offer[PROTO_SLOTS];
	uint64_t uses; /* of offers */
	/* Host memory for regions that the RDMA device cannot register, and its CPU mapping. */
	struct strait_region *stage;
	void *stage_cpu;
};

/* Connect, unless there is a session that works as far as is known. */
int client_connect(struct strait_rdma_client *c);
void client_disconnect(struct strait_rdma_client *c);
/* After a failure the connection is lost: replies that are still to come belong to no later call. */
int client_send(struct strait_rdma_client *c, struct proto_request *q, int64_t timeout_ns);
/* The next reply, which must be that of request @id. */
int client_reply(struct strait_rdma_client *c, uint32_t id, int64_t timeout_ns, struct proto_reply *r);
/* Send a request and take its reply, whose status is the result unless the connection is lost. */
int client_call(struct strait_rdma_client *c, struct proto_request *q, int64_t timeout_ns, struct proto_reply *r);
/*
 * rdma_offers.c: the slot in which the server has an offer of the region, made if there is none, in place of the one that
 * was used least recently. @reach is filled unless 0 is returned, too: why the region cannot be registered.
 */
int client_offer_get(struct strait_rdma_client *c, struct strait_region *region, uint32_t rights, int64_t timeout_ns,
		     bool *made, struct strait_rdma_reach *reach, uint32_t *slot);
void client_offers_close(struct strait_rdma_client *c);
/* May the call be tried again at once: a session of an earlier call turned out to have ended? */
bool client_was_stale(const struct strait_rdma_client *c, int err);

#endif
