/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_RDMA_H
#define STRAIT_RDMA_H

/*
 * RDMA between the memory of a device on one machine and files or memory on another, over libibverbs and librdmacm.
 *
 * A session is a reliable connection of two authenticated peers, over one queue pair or several. One side offers memory of
 * regions, the other one initiates: it writes to and reads from that memory, and offers none itself. Messages pass both
 * ways. On top of sessions, a server and its clients transfer files: strait/rdma_serve.h.
 *
 * Peers prove that they have the same key. Every message and every offer carries a MAC. The bytes of RDMA reads and
 * writes do not: an attacker on the network between the peers can read and change them.
 *
 * Threads. Any number of threads may use a session at the same time, and none waits for another one: a receiver without
 * a time limit delays no sender. Messages are sent and received, and requests posted, one after the other. A session's
 * handle must not be closed twice or used after it is closed; a call that runs in another thread while it is closed
 * returns -ECANCELED. Offers may be closed before, after or while their session is closed.
 *
 * A child made by fork() can use RDMA only if its parent had not used it before: otherwise calls fail with -EOWNERDEAD.
 *
 * Experimental: not part of the stable interface (docs/abi.md), it may change with any version.
 */

#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STRAIT_RDMA_PORT 18516
#define STRAIT_RDMA_KEY_MIN 16
#define STRAIT_RDMA_KEY_MAX 256
#define STRAIT_RDMA_MESSAGE_MAX 960 /* bytes of one message */
#define STRAIT_RDMA_OFFER_TEXT 177  /* an offer as text, with its NUL */
#define STRAIT_RDMA_QUEUE_PAIRS_MAX 8

struct strait_rdma_listener;
struct strait_rdma_session;
struct strait_rdma_offer;

/* The role of a side of a session. The peer has the other one. */
#define STRAIT_RDMA_OFFERS 1u	 /* it offers memory */
#define STRAIT_RDMA_INITIATES 2u /* it reads and writes memory that its peer offers */

/* What the peer may do with offered memory. */
#define STRAIT_RDMA_PEER_READS (1u << 0)
#define STRAIT_RDMA_PEER_WRITES (1u << 1)

/* How a region is registered with an RDMA device, best first. */
enum strait_rdma_kind {
	STRAIT_RDMA_NONE = 0,	 /* not at all: bytes pass through registered host memory, with a copy */
	STRAIT_RDMA_DMABUF = 1,	 /* as a dma-buf */
	STRAIT_RDMA_ADDRESS = 2, /* by its device address: a kernel with PeerDirect */
	STRAIT_RDMA_MAPPING = 3, /* its CPU mapping is pinned */
};

/**
 * struct strait_rdma_nic - An RDMA device of this machine
 * @size: sizeof(struct strait_rdma_nic), set by the caller
 * @name: name of the device, "mlx5_0" or "rxe0"
 * @netdev: network interface of its first port, empty if there is none
 * @pci: PCI address, empty for a software device
 * @driver: kernel driver, or "rxe", "siw" for a software device
 * @active: 1 if its first port is active
 * @numa_node: -1 if unknown
 */
struct strait_rdma_nic {
	size_t size;
	char name[64];
	char netdev[16];
	char pci[16];
	char driver[32];
	uint32_t active;
	int32_t numa_node;
};

#define STRAIT_RDMA_NIC_SIZE_V1 144

/**
 * strait_rdma_nic() - Get an RDMA device of this machine
 * @index: 0, 1, ... until -ENOENT
 * @nic: filled; @nic->size must be set before
 *
 * Reads sysfs only.
 *
 * Return: 0; -ENOENT past the last device; -EINVAL.
 */
STRAIT_API int strait_rdma_nic(unsigned int index, struct strait_rdma_nic *nic);

/**
 * strait_rdma_missing_reason() - Tell what RDMA needs that this machine or this build does not have
 * @text: filled, NUL-terminated: what is missing and the commands that provide it
 * @len: size of @text; 512 is enough
 *
 * Return: 0; -EEXIST when nothing is missing: @text is empty; -EINVAL.
 */
STRAIT_API int strait_rdma_missing_reason(char *text, size_t len);

/**
 * strait_rdma_status_name() - Get the name of a work completion status
 * @status: enum ibv_wc_status, as the device_status of a result has it
 *
 * Return: the name of libibverbs, "IBV_WC_RETRY_EXC_ERR"; "unknown" for anything else.
 */
STRAIT_API const char *strait_rdma_status_name(int32_t status);

/**
 * strait_rdma_kind_name() - Get the name of a kind of registration
 * @kind: enum strait_rdma_kind
 *
 * Return: "dma-buf", "address", "mapping"; "staged" for STRAIT_RDMA_NONE.
 */
STRAIT_API const char *strait_rdma_kind_name(uint32_t kind);

/**
 * struct strait_rdma_reach - How an RDMA device reaches a region
 * @size: sizeof(struct strait_rdma_reach), set by the caller
 * @kind: enum strait_rdma_kind
 * @error: the negative errno of each kind that was tried or ruled out before @kind, indexed by enum strait_rdma_kind
 * @reserved: 0
 * @reason: why no better kind is used, or empty
 */
struct strait_rdma_reach {
	size_t size;
	uint32_t kind;
	int32_t error[4];
	uint32_t reserved;
	char reason[256];
};

#define STRAIT_RDMA_REACH_SIZE_V1 288

/**
 * strait_rdma_probe() - Tell how an RDMA device reaches a region
 * @nic: name of the RDMA device
 * @region: the region
 * @reach: filled; @reach->size must be set before
 *
 * Registers the region, without remote access, and deregisters it.
 *
 * Return: 0, also when the region cannot be registered; -ENODEV without such an RDMA device; -EOPNOTSUPP without RDMA:
 * see strait_rdma_missing_reason(); -EACCES; -EINVAL; -ESTALE.
 */
STRAIT_API int strait_rdma_probe(const char *nic, struct strait_region *region, struct strait_rdma_reach *reach);

/* Flags of a session. */
#define STRAIT_RDMA_POLL (1u << 0) /* poll for completions; without it the thread sleeps until an event */

/**
 * struct strait_rdma_opts - Options of sessions
 * @size: sizeof(struct strait_rdma_opts)
 * @address: IPv4 or IPv6 address or host name: of the peer, or to listen on; NULL to listen on all addresses
 * @port: TCP port number of the connection manager; 0: STRAIT_RDMA_PORT
 * @role: STRAIT_RDMA_OFFERS or STRAIT_RDMA_INITIATES
 * @key: the key that both sides have, or NULL. Without a key, only peers with an address of this machine are accepted
 * @key_len: STRAIT_RDMA_KEY_MIN to STRAIT_RDMA_KEY_MAX bytes; 0 without a key
 * @timeout_ns: longest time to connect and to authenticate; 0: 10 seconds
 * @flags: STRAIT_RDMA_POLL or 0
 * @ack_timeout: longest time for an acknowledgement, 4.096 us * 2^@ack_timeout, at most 31; 0: 18, which is one second.
 *	A request is repeated 6 times
 * @depth: requests in flight on a queue pair, 32 to 4096; 0: 256
 * @half_open: listener: connections that are not authenticated yet, more are rejected; 0: 16
 * @queue_pairs: most queue pairs of a session, up to STRAIT_RDMA_QUEUE_PAIRS_MAX; 0: 1. A session has the smaller number
 *	of both sides, or fewer if an RDMA device has no more, and one on iWARP: see strait_rdma_info(). With more than
 *	one, messages do not wait for writes: see strait_rdma_send()
 * @reserved: 0
 */
struct strait_rdma_opts {
	size_t size;
	const char *address;
	uint32_t port;
	uint32_t role;
	const void *key;
	size_t key_len;
	uint64_t timeout_ns;
	uint32_t flags;
	uint32_t ack_timeout;
	uint32_t depth;
	uint32_t half_open;
	uint32_t queue_pairs;
	uint32_t reserved;
};

#define STRAIT_RDMA_OPTS_SIZE_V1 64

/**
 * strait_rdma_listen() - Wait for peers
 * @ctx: the context
 * @opts: options
 * @ret: the listener
 *
 * Return: 0; -EOPNOTSUPP without RDMA: see strait_rdma_missing_reason(); -EADDRNOTAVAIL; -EADDRINUSE; -EINVAL; -ENOMEM.
 */
STRAIT_API int strait_rdma_listen(struct strait_context *ctx, const struct strait_rdma_opts *opts,
				  struct strait_rdma_listener **ret);

/**
 * strait_rdma_accept() - Take the next connection
 * @listener: the listener
 * @timeout_ns: longest time to wait
 * @ret: a session that is not authenticated yet: strait_rdma_authenticate() is the only call it allows
 *
 * Connections above the limit of half-open ones are rejected, and so are, without a key, those of other machines.
 *
 * Return: 0; -ETIMEDOUT; -EINVAL; -ENOMEM; -EIO.
 */
STRAIT_API int strait_rdma_accept(struct strait_rdma_listener *listener, int64_t timeout_ns,
				  struct strait_rdma_session **ret);

/**
 * strait_rdma_authenticate() - Answer an accepted connection and authenticate its peer
 * @session: a session of strait_rdma_accept()
 *
 * May be called on any thread, so that a slow peer delays no other one. Until it succeeds no memory is registered for
 * remote access.
 *
 * Return: 0; -EACCES: the peer has another key; -EBADMSG, -EPROTO, -EPROTONOSUPPORT: it does not follow the protocol;
 * -ETIMEDOUT; -ECONNRESET; -ENOMEM. After an error the session can only be closed.
 */
STRAIT_API int strait_rdma_authenticate(struct strait_rdma_session *session);

/**
 * strait_rdma_listener_close() - Stop listening
 * @listener: the listener, or NULL
 *
 * Sessions remain.
 */
STRAIT_API void strait_rdma_listener_close(struct strait_rdma_listener *listener);

/**
 * strait_rdma_connect() - Connect to a listening peer, and authenticate both
 * @ctx: the context
 * @opts: options
 * @ret: the session
 *
 * Return: 0; -EACCES: the peer has another key, or requires one; -ECONNREFUSED: it does not listen, or rejects more
 * connections; -EHOSTUNREACH: no RDMA device reaches the address; -ETIMEDOUT; -EOPNOTSUPP without RDMA: see
 * strait_rdma_missing_reason(); -EDESTADDRREQ without an address; -EINVAL; -ENOMEM.
 */
STRAIT_API int strait_rdma_connect(struct strait_context *ctx, const struct strait_rdma_opts *opts,
				   struct strait_rdma_session **ret);

/**
 * strait_rdma_cancel() - Stop a session
 * @session: the session
 *
 * All calls of the session return -ECANCELED, those that wait in other threads too, and the peer can no longer access
 * memory. The session remains to be closed.
 *
 * Return: 0; -EINVAL.
 */
STRAIT_API int strait_rdma_cancel(struct strait_rdma_session *session);

/**
 * strait_rdma_close() - Close a session
 * @session: the session, or NULL
 *
 * Cancels calls that run in other threads, and returns when they have ended. Stops all requests in flight, deregisters
 * all memory and disconnects. Offers of the session that are still open may only be closed afterwards.
 */
STRAIT_API void strait_rdma_close(struct strait_rdma_session *session);

/**
 * struct strait_rdma_info - Properties and counters of a session
 * @size: sizeof(struct strait_rdma_info), set by the caller
 * @nic: name of the RDMA device
 * @local: address and port of this side
 * @peer: address and port of the peer
 * @requests: work requests that were posted
 * @signalled: those among them that report their completion
 * @registrations: memory registrations that were made
 * @bytes_written: bytes of RDMA writes that were posted
 * @bytes_read: bytes of RDMA reads that were posted
 * @status: status of the last work completion that failed, as strait_rdma_status_name() has it; 0 if none did
 * @error: why the session can no longer be used, a negative errno, or 0
 * @queue_pairs: queue pairs that requests are spread over; 0 before the session is connected
 * @reserved: 0
 */
struct strait_rdma_info {
	size_t size;
	char nic[64];
	char local[64];
	char peer[64];
	uint64_t requests;
	uint64_t signalled;
	uint64_t registrations;
	uint64_t bytes_written;
	uint64_t bytes_read;
	int32_t status;
	int32_t error;
	uint32_t queue_pairs;
	uint32_t reserved;
};

#define STRAIT_RDMA_INFO_SIZE_V1 248

/**
 * strait_rdma_info() - Get the properties and counters of a session
 * @session: the session
 * @info: filled; @info->size must be set before
 *
 * Return: 0; -EINVAL.
 */
STRAIT_API int strait_rdma_info(struct strait_rdma_session *session, struct strait_rdma_info *info);

/**
 * strait_rdma_send() - Send a message
 * @session: the session
 * @data: the message
 * @len: bytes, at most STRAIT_RDMA_MESSAGE_MAX
 * @timeout_ns: longest time to wait for room in the send queue
 *
 * In a session with one queue pair the peer receives it after the bytes of all writes that were posted before, which the
 * call does not wait for. In one with several it may arrive before bytes of writes that strait_rdma_wait() has not
 * reported complete.
 *
 * Return: 0; -EMSGSIZE; -ETIMEDOUT: nothing was sent, and the session goes on; -ECONNRESET when the peer disconnected;
 * -EIO: see status of strait_rdma_info(); -ECANCELED; -EINVAL.
 */
STRAIT_API int strait_rdma_send(struct strait_rdma_session *session, const void *data, size_t len, int64_t timeout_ns);

/**
 * strait_rdma_recv() - Receive a message
 * @session: the session
 * @buf: filled
 * @len: size of @buf: STRAIT_RDMA_MESSAGE_MAX is enough
 * @timeout_ns: longest time to wait
 *
 * Return: the length of the message; -EAGAIN when there is none and @timeout_ns is 0; -ETIMEDOUT; -EMSGSIZE: @buf is too
 * short, and the message is lost; -EACCES, -EBADMSG, -EPROTO: the message is not the peer's next one, and the session is
 * over; otherwise as strait_rdma_send().
 */
STRAIT_API ssize_t strait_rdma_recv(struct strait_rdma_session *session, void *buf, size_t len, int64_t timeout_ns);

/**
 * strait_rdma_offer() - Offer memory to the peer
 * @session: a session with the role STRAIT_RDMA_OFFERS
 * @region: the region
 * @offset: first byte
 * @length: bytes
 * @rights: STRAIT_RDMA_PEER_*
 * @lifetime_ns: time after which the peer must not use it; STRAIT_FOREVER: as long as the session
 * @ret: the offer
 *
 * The peer can access exactly these bytes until the offer or the session is closed. If the region is closed or
 * revoked before, the session is stopped and the memory deregistered before it is freed.
 *
 * Return: 0; -EOPNOTSUPP: the RDMA device cannot register the region: see strait_rdma_probe(); -EPERM: the session has
 * another role; -ENOMEM: also when more memory would be locked than "ulimit -l" allows, which the log tells; -EINVAL;
 * -ENODEV; -ESTALE; otherwise the error of the session.
 */
STRAIT_API int strait_rdma_offer(struct strait_rdma_session *session, struct strait_region *region, uint64_t offset,
				 uint64_t length, uint32_t rights, int64_t lifetime_ns, struct strait_rdma_offer **ret);

/**
 * strait_rdma_offer_text() - Get an offer as text
 * @offer: the offer
 * @text: filled; STRAIT_RDMA_OFFER_TEXT bytes
 * @reach: filled unless NULL: how the region is registered; @reach->size must be set before
 *
 * The text has a MAC and is of use in this session only. The application may send it by any means.
 *
 * Return: 0; -EINVAL.
 */
STRAIT_API int strait_rdma_offer_text(struct strait_rdma_offer *offer, char *text, struct strait_rdma_reach *reach);

/**
 * strait_rdma_offer_flush() - Make writes of the peer visible in device memory
 * @offer: the offer
 *
 * To be called after the peer's message that it wrote, before the bytes are used.
 *
 * Return: 0; -ENODEV; -EIO.
 */
STRAIT_API int strait_rdma_offer_flush(struct strait_rdma_offer *offer);

/**
 * strait_rdma_offer_close() - End an offer
 * @offer: the offer, or NULL
 *
 * On return the peer cannot access the memory. A request of the peer in flight fails, and with it the session.
 */
STRAIT_API void strait_rdma_offer_close(struct strait_rdma_offer *offer);

/**
 * strait_rdma_region_flush() - Make bytes that reads wrote visible in device memory
 * @region: a region that requests of this side read to
 *
 * To be called after strait_rdma_wait(), before the bytes are used.
 *
 * Return: 0; -ENODEV; -EIO; -EINVAL; -EOPNOTSUPP in a build without RDMA.
 */
STRAIT_API int strait_rdma_region_flush(struct strait_region *region);

/* Flags of a request. */
#define STRAIT_RDMA_AWAITED (1u << 0) /* the caller waits for this very request: report its completion by itself */

#define STRAIT_RDMA_PIECES_MAX 256 /* of one request */

/**
 * struct strait_rdma_piece - A range of a region, one of several of a request
 * @region: memory of this side
 * @offset: first byte in it
 * @length: bytes, not 0
 */
struct strait_rdma_piece {
	struct strait_region *region;
	uint64_t offset;
	uint64_t length;
};

/**
 * struct strait_rdma_request - One RDMA read or write
 * @op: STRAIT_READ: offered memory to @region; STRAIT_WRITE: @region to offered memory
 * @flags: STRAIT_RDMA_AWAITED or 0: the completion is reported with that of a later request
 * @region: memory of this side; NULL with @pieces
 * @region_offset: first byte in it; 0 with @pieces
 * @offer: the offer as text, NUL-terminated
 * @offer_offset: first byte in the offered memory
 * @length: bytes, not 0; with @pieces the sum of their lengths
 * @pieces: memory of this side in several ranges, of one region or of several: a write gathers them in this order, a
 *	read scatters to them. NULL: @region
 * @piece_count: how many, up to STRAIT_RDMA_PIECES_MAX; 0 without @pieces
 * @reserved: 0
 */
struct strait_rdma_request {
	uint32_t op;
	uint32_t flags;
	struct strait_region *region;
	uint64_t region_offset;
	const char *offer;
	uint64_t offer_offset;
	uint64_t length;
	const struct strait_rdma_piece *pieces;
	uint32_t piece_count;
	uint32_t reserved;
};

/**
 * strait_rdma_post() - Start an RDMA read or write
 * @session: a session with the role STRAIT_RDMA_INITIATES
 * @request: the request
 * @timeout_ns: longest time to wait for room in the send queue
 * @ticket: for strait_rdma_wait()
 *
 * Requests of a session complete in the order in which they are posted, also where they are spread over several queue
 * pairs: each takes 16 in turn, of 64 KiB or less, or fewer up to one with STRAIT_RDMA_AWAITED. Overlapping requests in
 * flight on several queue pairs are carried out in no particular order. Memory of the region must not be changed until
 * then. A region is registered at its first use, and remains so until it or the session is closed.
 *
 * Pieces are put into as few work requests as 64 KiB each and the RDMA device allow: it takes a number of ranges at a
 * time, often 16 or more. The offered memory is one range.
 *
 * Return: 0; -EACCES, -EBADMSG: not an offer of this session; -EPERM: an offer without this right, or a session with
 * another role; -ESTALE: it has expired, or the region's memory was freed; -EINVAL: outside the offer or the region;
 * -EOPNOTSUPP, -ENOMEM: the RDMA device cannot register the region; -ENODEV: it is closed; -ETIMEDOUT: nothing was
 * posted, or, of a request of more than depth - 16 work requests, a part: then the session is over; otherwise as
 * strait_rdma_send().
 */
STRAIT_API int strait_rdma_post(struct strait_rdma_session *session, const struct strait_rdma_request *request,
				int64_t timeout_ns, uint64_t *ticket);

/**
 * strait_rdma_wait() - Wait until a request is complete
 * @session: the session
 * @ticket: of strait_rdma_post(); all requests before it are then complete, too
 * @timeout_ns: longest time to wait; 0: only look
 *
 * Return: 0; -ETIMEDOUT; -EAGAIN if @timeout_ns is 0; otherwise as strait_rdma_send().
 */
STRAIT_API int strait_rdma_wait(struct strait_rdma_session *session, uint64_t ticket, int64_t timeout_ns);

#ifdef __cplusplus
}
#endif

#endif
