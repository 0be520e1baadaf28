/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_ENDPOINT_H
#define STRAIT_ENDPOINT_H

#include <strait/reason.h>
#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Flags of file endpoints. */
#define STRAIT_FILE_BUFFERED (1u << 0)	/* always through the page cache */
#define STRAIT_FILE_DIRECT (1u << 1)	/* direct I/O wherever alignment allows, cached or not */
#define STRAIT_FILE_IMMUTABLE (1u << 2) /* a promise: the file is not written or truncated while the endpoint is open */
#define STRAIT_FILE_LEASE (1u << 3)	/* take a read lease; while it is held the file does not change */

/* Capabilities of a file endpoint. */
#define STRAIT_FILE_CAN_READ (1u << 0)
#define STRAIT_FILE_CAN_WRITE (1u << 1)
#define STRAIT_FILE_CAN_DIRECT (1u << 2) /* direct I/O is possible */
#define STRAIT_FILE_CAN_MAP (1u << 3)	 /* its page cache can be mapped: the pagecache route */
#define STRAIT_FILE_IS_BLOCK (1u << 4)	 /* a block device */
#define STRAIT_FILE_UNCHANGED (1u << 5)	 /* promised, or a lease is held now */

/**
 * struct strait_file_info - Properties of a file endpoint
 * @size: sizeof(struct strait_file_info), set by the caller
 * @length: bytes in the file or block device now
 * @caps: STRAIT_FILE_CAN_*, STRAIT_FILE_IS_BLOCK, STRAIT_FILE_UNCHANGED
 * @dio_align: alignment of offset and length for direct I/O; 0 without direct I/O
 * @dio_mem_align: alignment of memory for direct I/O; 0 without direct I/O
 * @fs: name of the file system: "ext4", "tmpfs", "block", or its magic number in hex
 * @direct_reason: enum strait_reason: why direct I/O is not possible; STRAIT_WHY_NONE if it is
 * @direct_error: the negative errno that belongs to @direct_reason, or 0
 */
struct strait_file_info {
	size_t size;
	uint64_t length;
	uint32_t caps;
	uint32_t dio_align;
	uint32_t dio_mem_align;
	char fs[20];
	uint32_t direct_reason;
	int32_t direct_error;
};

#define STRAIT_FILE_INFO_SIZE_V1 56

/**
 * strait_file_open() - Open a file as an endpoint
 * @ctx: the context
 * @path: a regular file or block device
 * @oflags: O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL, O_TRUNC, O_DIRECT, O_SYNC, O_DSYNC
 *	as for open(2); O_DIRECT implies STRAIT_FILE_DIRECT
 * @mode: permissions of a file that O_CREAT creates
 * @flags: STRAIT_FILE_*
 * @ret: the endpoint
 *
 * Return: 0; an error of open(2); -EISDIR for a directory; -ENOTSUP for a pipe, socket or character
 * device; -EINVAL for unknown or conflicting flags.
 */
STRAIT_API int strait_file_open(struct strait_context *ctx, const char *path, int oflags, mode_t mode, uint32_t flags,
				struct strait_endpoint **ret);

/**
 * strait_file_import() - Make an endpoint from a file descriptor
 * @ctx: the context
 * @fd: a descriptor of a regular file or block device, opened with any flags
 * @flags: STRAIT_FILE_*
 * @ret: the endpoint
 *
 * The descriptor, its flags and its position are not changed, and it may be closed afterwards. Direct I/O uses another
 * descriptor, opened through /proc; if that fails, I/O is buffered. Note that closing any descriptor of a file drops
 * the POSIX record locks (fcntl F_SETLK) that the process holds on it: strait_endpoint_close() does so, too.
 *
 * Return: 0; -EBADF; -EISDIR for a directory; -ENOTSUP for a pipe, socket or character device, and for
 * an O_APPEND or O_PATH descriptor that cannot be reopened; -EINVAL for unknown flags; -ENOMEM.
 */
STRAIT_API int strait_file_import(struct strait_context *ctx, int fd, uint32_t flags, struct strait_endpoint **ret);

/**
 * strait_file_info() - Get the properties of a file endpoint
 * @ep: the endpoint
 * @info: filled; @info->size must be set before
 *
 * Return: 0; -EINVAL if it is not a file endpoint; an error of fstat(2).
 */
STRAIT_API int strait_file_info(struct strait_endpoint *ep, struct strait_file_info *info);

/**
 * strait_endpoint_sync() - Make completed writes durable
 * @ep: the endpoint
 *
 * Return: 0; an error of fdatasync(2).
 */
STRAIT_API int strait_endpoint_sync(struct strait_endpoint *ep);

/**
 * strait_endpoint_close() - Close an endpoint
 * @ep: the endpoint, or NULL
 *
 * Transfers in flight reference the endpoint: its descriptors are closed when the last of them completes. Cached
 * registrations and the lease are released then.
 */
STRAIT_API void strait_endpoint_close(struct strait_endpoint *ep);

#ifdef __cplusplus
}
#endif

#endif
