/* SPDX-License-Identifier: MIT */
#ifndef SERVICE_RDMA_SERVE_H
#define SERVICE_RDMA_SERVE_H

/*
 * A server of files, drives and memory: an acceptor thread, and a thread per session that reads files and writes the client's memory.
 *
 * The acceptor owns the array of sessions: it starts their threads and joins those that ended. A session's thread owns
 * all that belongs to the session; it waits for its peer and for file I/O, each with a deadline, and for no other
 * thread. strait_rdma_server_close() sets @stop, which the acceptor looks at every STOP_NS, and joins it. The acceptor
 * cancels all sessions, which ends every wait for a peer, and joins their threads.
 *
 * A chunk of the session's ring passes these states, for a READ in this order and for a WRITE in the other one:
 *
 *	FREE -> FILE (I/O of a file or drive in flight) -> NETWORK (RDMA in flight) -> FREE
 *
 * A chunk of exported memory skips FILE. It is in that memory itself, and its part of the ring is not used, unless the
 * RDMA device cannot register the memory: then it is copied to or from the ring.
 *
 * The reply to a READ follows its bytes on the session's queue pair, so it is sent once they are posted. With several queue
 * pairs nothing orders them: the reply waits until the last chunk of the request has left NETWORK.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <strait/rdma_serve.h>

#include "service/rdma_proto.h"

#define STOP_NS 200000000ll
#define CHUNKS 8u
#define CHUNK_BYTES (1u << 20)

struct strait_endpoint;
struct strait_queue;
struct strait_region;

struct export
{
	char name[STRAIT_RDMA_EXPORT_NAME + 1];
	struct strait_endpoint *endpoint; /* the application's, or NULL */
	struct strait_region *region;	  /* the application's, or NULL */
	bool writable;
};

struct served {
	pthread_t thread;
	bool used;
	atomic_bool ended;
	struct strait_rdma_server *server;
	pthread_mutex_t lock;		     /* protects @session from being closed while it is cancelled */
	struct strait_rdma_session *session; /* NULL once it is closed */
};

struct strait_rdma_server {
	struct strait_context *ctx;
	struct strait_rdma_listener *listener;
	int root; /* directory, or -1 */
	uint32_t flags;
	struct export *export;
	uint32_t export_count;
	uint64_t instance; /* random: in place of the inode of exports */
	uint32_t limit;	   /* of sessions */
	atomic_bool stop;
	pthread_t acceptor;
	struct served *served;
	atomic_ullong sessions, accepted, refused, bytes_out, bytes_in, requests, signalled;
};

enum ring_state {
	CHUNK_FREE,
	CHUNK_FILE,
	CHUNK_NETWORK,
};

struct ring_chunk {
	enum ring_state state;
	struct transfer_request *request;
	uint64_t offset; /* in the request */
	uint64_t length;
	uint64_t ticket; /* NETWORK */
	bool direct;	 /* NETWORK: not in the ring */
	uint64_t bytes;	 /* NETWORK, of a READ: that the file had */
	int status;	 /* and why not more */
};

/* A READ or WRITE without a reply yet. */
struct transfer_request {
	struct proto_request q;
	uint64_t length;	/* bytes up to the end of a drive or of memory */
	uint64_t started;	/* bytes that chunks have taken */
	uint64_t good;		/* bytes from the start that are transferred if all chunks before succeed */
	unsigned int in_flight; /* chunks that must advance before the reply */
	int status;
};

/* What requests read and write. All 0: nothing is open. */
struct source {
	struct strait_endpoint *endpoint;
	bool owned;		      /* @endpoint is a file of the directory, opened by this session */
	struct strait_region *region; /* instead of @endpoint */
	bool staged;		      /* the RDMA device cannot register @region */
	bool fixed;		      /* it ends at @length for ever */
	bool writable;
	uint64_t length;
};

/* The state of a session's thread. */
struct serving {
	struct strait_rdma_server *server;
	struct strait_rdma_session *session;
	struct source source;
	bool unordered; /* the session has several queue pairs */
	struct strait_queue *queue;
	struct strait_region *ring; /* CHUNKS chunks of host memory */
	void *ring_cpu;
	struct ring_chunk chunk[CHUNKS];
	unsigned int in_file; /* chunks in FILE */
	char offer[PROTO_SLOTS][STRAIT_RDMA_OFFER_TEXT];
	struct transfer_request request[PROTO_REQUESTS]; /* a ring */
	unsigned int first, n;
};

/* rdma_export.c */
/*
 * Open a regular file below the directory @root for reading, or for writing: no path or link leads out of it. The
 * descriptor; -EXDEV for a path that does, -EISDIR, -EPERM for anything but a regular file.
 */
int export_open(int root, const char *path, bool write);

/* rdma_source.c */
int exports_copy(struct strait_rdma_server *v, const struct strait_rdma_export *from, uint32_t n);
/* Open a file or an export in place of @src, which stays as it is on failure; fills length and identity of the reply. */
int source_open(struct strait_rdma_server *v, const char *path, bool write, struct source *src, struct proto_reply *r);
void source_close(struct source *src);
/* What was written is on storage, or visible in device memory. */
int source_sync(const struct source *src);

/* rdma_serve.c */
void served_close(struct served *e);

/* rdma_session.c */
void serving_run(struct served *e);

/* rdma_chunk.c */
int chunks_start(struct serving *v);
/* Advance what is in flight; waits up to @timeout_ns for some of it. */
int chunks_advance(struct serving *v, int64_t timeout_ns);

#endif
