/* SPDX-License-Identifier: MIT */
#ifndef SERVICE_RDMA_PROTO_H
#define SERVICE_RDMA_PROTO_H

/*
 * The file protocol: requests of a client and replies of a server, as messages of a session. Pure: no I/O, no
 * allocation. Every decoder takes a length and reads nothing past it.
 *
 *	OPEN path, flags		makes a file the current one of the session
 *	OFFER slot, text		memory for the transfers that name the slot
 *	READ, WRITE slot, ranges	current file to offered memory, offered memory to current file
 *	SYNC				the current file's bytes reach storage
 *
 * Every request has one reply, and replies come in the order of requests.
 */

#include <stddef.h>
#include <stdint.h>
#include <strait/rdma.h>

#define PROTO_PATH 512u
#define PROTO_SLOTS 8u
#define PROTO_REQUESTS 16u	       /* without a reply yet */
#define PROTO_LENGTH_MAX (64ull << 20) /* of one READ or WRITE */

enum proto_op {
	PROTO_OPEN = 1,
	PROTO_OFFER = 2,
	PROTO_READ = 3,
	PROTO_WRITE = 4,
	PROTO_SYNC = 5,
};

#define PROTO_OPEN_WRITE (1u << 0) /* create it if it does not exist */

struct proto_request {
	enum proto_op op;
	uint32_t id;
	uint32_t flags; /* OPEN */
	uint32_t slot;	/* OFFER, READ, WRITE */
	uint64_t file_offset, offer_offset, length;
	char path[PROTO_PATH + 1];
	char offer[STRAIT_RDMA_OFFER_TEXT];
};

struct proto_reply {
	uint32_t id;
	int32_t status;	       /* 0, or a negative errno */
	uint64_t bytes;	       /* READ, WRITE: transferred, from the start of the range on */
	uint64_t length;       /* OPEN: of the file */
	uint64_t inode, mtime; /* OPEN: change if the file is replaced or written */
};

/* The length of the message; 0 if a member does not fit. */
size_t proto_put_request(const struct proto_request *r, uint8_t out[STRAIT_RDMA_MESSAGE_MAX]);
size_t proto_put_reply(const struct proto_reply *r, uint8_t out[STRAIT_RDMA_MESSAGE_MAX]);
/* -EBADMSG for anything that is not exactly one valid request or reply. */
int proto_get_request(const void *msg, size_t len, struct proto_request *r);
int proto_get_reply(const void *msg, size_t len, struct proto_reply *r);

#endif
