/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_RDMA_SERVE_H
#define STRAIT_RDMA_SERVE_H

/*
 * Files, drives and device memory of one machine into device memory of another, and back, over sessions of strait/rdma.h.
 *
 * Threads. Calls of a client wait for each other. Closing a client or a server must be its last call.
 *
 * Experimental: not part of the stable interface (docs/abi.md), it may change with any version.
 */

#include <strait/rdma.h>

#ifdef __cplusplus
extern "C" {
#endif

struct strait_rdma_server;
struct strait_rdma_client;

#define STRAIT_RDMA_EXPORTS_MAX 64 /* of a server */
#define STRAIT_RDMA_EXPORT_NAME 63 /* most bytes of a name */

/* Flags of an export. */
#define STRAIT_RDMA_EXPORT_WRITE (1u << 0) /* clients may overwrite it */

/**
 * struct strait_rdma_export - A drive, a file or memory that a server serves by a name
 * @name: letters, digits, '.', '_' and '-'. Clients use "@name" as the path
 * @endpoint: of strait_nvme_endpoint(), strait_file_open() or strait_file_import(); NULL with @region
 * @region: memory of a device; NULL with @endpoint
 * @flags: STRAIT_RDMA_EXPORT_WRITE or 0
 * @reserved: 0
 *
 * Endpoint or region must be of the server's context, and stay open until the server is closed. strait_region_revoke()
 * takes memory away earlier: requests for it then fail, those in flight with their sessions. Clients may read and write
 * at the same time as the application and each other: nothing orders them.
 */
struct strait_rdma_export {
	const char *name;
	struct strait_endpoint *endpoint;
	struct strait_region *region;
	uint32_t flags;
	uint32_t reserved;
};

/* Flags of a server. */
#define STRAIT_RDMA_SERVE_WRITE (1u << 0) /* clients may create and overwrite files below the directory */

/**
 * struct strait_rdma_server_opts - Options of a server
 * @size: sizeof(struct strait_rdma_server_opts)
 * @session: options of its sessions; the role is ignored
 * @root: directory whose files are served; NULL for none, with @exports
 * @flags: STRAIT_RDMA_SERVE_WRITE or 0
 * @sessions: most sessions at a time; 0: 64
 * @exports: what is served by a name, copied by the call
 * @export_count: how many, up to STRAIT_RDMA_EXPORTS_MAX
 * @reserved: 0
 */
struct strait_rdma_server_opts {
	size_t size;
	const struct strait_rdma_opts *session;
	const char *root;
	uint32_t flags;
	uint32_t sessions;
	const struct strait_rdma_export *exports;
	uint32_t export_count;
	uint32_t reserved;
};

#define STRAIT_RDMA_SERVER_OPTS_SIZE_V1 32

/**
 * strait_rdma_serve() - Serve the files of a directory, drives and memory
 * @ctx: the context
 * @opts: options
 * @ret: the server
 *
 * Clients reach regular files below @opts->root, and none by a symbolic link or ".." that leads out of it, and exports
 * by "@name": a path that begins with '@' is always an export, a file of such a name is "./@name". The server
 * reads and writes their memory, and offers none of its own: that of an exported region is transferred by the RDMA device
 * itself if it can register it, and through host memory otherwise. Its threads run until strait_rdma_server_close().
 *
 * Return: 0; -ENOTDIR; -ENOENT: there is no such directory, or nothing to serve; -EINVAL: also for an export without a
 * valid name, or with one that another has; -EOPNOTSUPP: also for an endpoint of another kind; otherwise as
 * strait_rdma_listen().
 */
STRAIT_API int strait_rdma_serve(struct strait_context *ctx, const struct strait_rdma_server_opts *opts,
				 struct strait_rdma_server **ret);

/**
 * struct strait_rdma_server_info - Counters of a server
 * @size: sizeof(struct strait_rdma_server_info), set by the caller
 * @sessions: sessions now
 * @accepted: sessions that were authenticated
 * @refused: connections that were not: too many sessions, a wrong key, or no handshake in time
 * @bytes_out: bytes of files written to clients
 * @bytes_in: bytes of files read from clients
 * @requests: work requests that were posted, in sessions that have ended
 * @signalled: those among them that reported their completion
 */
struct strait_rdma_server_info {
	size_t size;
	uint64_t sessions;
	uint64_t accepted;
	uint64_t refused;
	uint64_t bytes_out;
	uint64_t bytes_in;
	uint64_t requests;
	uint64_t signalled;
};

#define STRAIT_RDMA_SERVER_INFO_SIZE_V1 64

/**
 * strait_rdma_server_info() - Get the counters of a server
 * @server: the server
 * @info: filled; @info->size must be set before
 *
 * Return: 0; -EINVAL.
 */
STRAIT_API int strait_rdma_server_info(struct strait_rdma_server *server, struct strait_rdma_server_info *info);

/**
 * strait_rdma_server_close() - Stop a server
 * @server: the server, or NULL
 *
 * Ends its sessions, whose clients see that the peer disconnected, and its threads. Waits for no client.
 */
STRAIT_API void strait_rdma_server_close(struct strait_rdma_server *server);

/**
 * strait_rdma_client_open() - Connect to a server
 * @ctx: the context
 * @opts: options; the role is ignored
 * @ret: the client
 *
 * Return: as strait_rdma_connect().
 */
STRAIT_API int strait_rdma_client_open(struct strait_context *ctx, const struct strait_rdma_opts *opts,
				       struct strait_rdma_client **ret);

/**
 * strait_rdma_client_close() - Disconnect from a server
 * @client: the client, or NULL
 */
STRAIT_API void strait_rdma_client_close(struct strait_rdma_client *client);

/**
 * strait_rdma_client_length() - Get the length of a file or an export of the server
 * @client: the client
 * @path: path below the server's directory, or "@name" of an export
 * @length: bytes
 *
 * Return: 0; -ENOENT; -EACCES; -EXDEV: the path leads out of the server's directory; otherwise as strait_rdma_pull().
 */
STRAIT_API int strait_rdma_client_length(struct strait_rdma_client *client, const char *path, uint64_t *length);

/**
 * struct strait_rdma_file - A transfer between a file or an export of a server and a region
 * @size: sizeof(struct strait_rdma_file)
 * @path: path below the server's directory, or "@name" of an export
 * @file_offset: first byte in the file
 * @region: memory of this side
 * @region_offset: first byte in it
 * @length: bytes, not 0
 * @timeout_ns: longest time without progress; 0: 30 seconds
 * @retries: after a lost connection, connect again so many times and continue: a pull after the last acknowledged window,
 *	a push after the last bytes that the server has synced. A transfer of an export is continued by the same server
 *	only
 * @reserved: 0
 */
struct strait_rdma_file {
	size_t size;
	const char *path;
	uint64_t file_offset;
	struct strait_region *region;
	uint64_t region_offset;
	uint64_t length;
	uint64_t timeout_ns;
	uint32_t retries;
	uint32_t reserved;
};

#define STRAIT_RDMA_FILE_SIZE_V1 64

/**
 * struct strait_rdma_result - The result of a transfer
 * @size: sizeof(struct strait_rdma_result), set by the caller
 * @bytes: bytes transferred, from the start of the request on: they are in device memory, or on the server's storage
 * @bytes_direct: bytes among them that the RDMA device transferred to or from the region itself
 * @bytes_staged: bytes that passed through host memory, with a copy
 * @registrations: memory registrations that the transfer made
 * @kind: enum strait_rdma_kind
 * @reconnects: times that a lost connection was made again
 * @status: the status of a work completion of this side that failed, when the transfer did; 0 if none did
 * @reserved: 0
 * @reason: why no better kind of registration was possible
 */
struct strait_rdma_result {
	size_t size;
	uint64_t bytes;
	uint64_t bytes_direct;
	uint64_t bytes_staged;
	uint64_t registrations;
	uint32_t kind;
	uint32_t reconnects;
	int32_t status;
	uint32_t reserved;
	char reason[256];
};

#define STRAIT_RDMA_RESULT_SIZE_V1 312

/**
 * strait_rdma_pull() - Read a file of a server into a region
 * @client: the client
 * @file: the transfer
 * @result: filled, also on failure; @result->size must be set before
 *
 * The server reads the file and writes the bytes to the region by RDMA. Calls for the same region register it once.
 *
 * A session that the server has ended since the last call is replaced without counting as a retry.
 *
 * Return: 0; -ENOENT, -EACCES, -EXDEV, -EISDIR: as for opening the file; -ENODATA: the file ends before; -ESTALE: the
 * file was replaced while the connection was lost; -ETIMEDOUT; -ECONNRESET; -EIO: of the connection, or of the server's
 * storage; -EINVAL; -ENODEV; -ENOMEM: see strait_rdma_offer().
 */
STRAIT_API int strait_rdma_pull(struct strait_rdma_client *client, const struct strait_rdma_file *file,
				struct strait_rdma_result *result);

/**
 * strait_rdma_push() - Write a region to a file of a server
 * @client: the client
 * @file: the transfer
 * @result: filled, also on failure; @result->size must be set before
 *
 * The server reads the bytes by RDMA and writes the file, which is created if it does not exist.
 *
 * Return: 0; -EROFS: the server serves read-only; -ENOSPC: also past the end of an export; otherwise as
 * strait_rdma_pull().
 */
STRAIT_API int strait_rdma_push(struct strait_rdma_client *client, const struct strait_rdma_file *file,
				struct strait_rdma_result *result);

#ifdef __cplusplus
}
#endif

#endif
