/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_ENDPOINT_H
#define STRAIT_ENDPOINT_H

#include <strait/reason.h>
#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Flags of file endpoints. */
#define STRAIT_FILE_BUFFERED (1u << 0)	 /* always through the page cache */
#define STRAIT_FILE_DIRECT (1u << 1)	 /* direct I/O wherever alignment allows, cached or not */
#define STRAIT_FILE_UNCHANGING (1u << 2) /* a promise: nobody writes or truncates the file while the endpoint is open */
#define STRAIT_FILE_LEASE (1u << 3)	 /* take a read lease; while it lasts the file is known not to change */

/* What is known about a file endpoint. */
#define STRAIT_FILE_CAN_READ (1u << 0)
#define STRAIT_FILE_CAN_WRITE (1u << 1)
#define STRAIT_FILE_CAN_DIRECT (1u << 2) /* direct I/O is possible */
#define STRAIT_FILE_CAN_MAP (1u << 3)	 /* its pages can be mapped: the pagecache route */
#define STRAIT_FILE_IS_BLOCK (1u << 4)	 /* a block device */
#define STRAIT_FILE_UNCHANGED (1u << 5)	 /* promised, or a lease is held right now */

/**
 * struct strait_file_info - What is known about a file endpoint
 * @size: sizeof(struct strait_file_info), set by the caller
 * @length: bytes in the file or block device now
 * @caps: STRAIT_FILE_CAN_* and the like
 * @dio_align: offsets and lengths of direct I/O are multiples of this; 0 without direct I/O
 * @dio_mem_align: memory of direct I/O likewise
 * @fs: name of the file system: "ext4", "tmpfs", "block", or its magic number in hex
 * @direct_reason: enum strait_reason: why direct I/O is not possible; STRAIT_WHY_NONE if it is
 * @direct_error: the negative errno behind that, 0 if there was none
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
 * @path: the file: regular file or block device
 * @oflags: O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL, O_TRUNC, O_DIRECT, O_SYNC, O_DSYNC
 *	as open(2) has them; O_DIRECT means STRAIT_FILE_DIRECT
 * @mode: permissions of a file that O_CREAT makes
 * @flags: STRAIT_FILE_*
 * @ret: the endpoint
 *
 * Return: 0; what open(2) gives; -EISDIR for a directory; -ENOTSUP for a pipe, socket or character
 * device; -EINVAL for flags that exclude each other or are unknown.
 */
STRAIT_API int strait_file_open(struct strait_context *ctx, const char *path, int oflags, mode_t mode, uint32_t flags,
				struct strait_endpoint **ret);

/**
 * strait_file_import() - Make an endpoint of a descriptor the application owns
 * @ctx: the context
 * @fd: any descriptor of a regular file or block device, whatever flags it was opened with
 * @flags: STRAIT_FILE_*
 * @ret: the endpoint
 *
 * The descriptor, its flags and its position are left alone, and it may be closed at once. Direct
 * I/O uses a descriptor of the endpoint's own, opened through /proc; where that is not possible
 * I/O is buffered. Note that closing any descriptor of a file drops the POSIX record locks
 * (fcntl F_SETLK) this process holds on it, and so does strait_endpoint_close().
 *
 * Return: 0; -EBADF; -EISDIR for a directory; -ENOTSUP for a pipe, socket or character device, and for
 * an O_APPEND or O_PATH descriptor that cannot be reopened; -EINVAL for unknown flags; -ENOMEM.
 */
STRAIT_API int strait_file_import(struct strait_context *ctx, int fd, uint32_t flags, struct strait_endpoint **ret);

/**
 * strait_file_info() - What is known about a file endpoint
 * @ep: the endpoint
 * @info: filled; @info->size must be set before
 *
 * Return: 0; -EINVAL if it is no file endpoint; what fstat(2) gives.
 */
STRAIT_API int strait_file_info(struct strait_endpoint *ep, struct strait_file_info *info);

/**
 * strait_endpoint_sync() - Make what was written durable
 * @ep: the endpoint
 *
 * Return: 0; what fdatasync(2) gives.
 */
STRAIT_API int strait_endpoint_sync(struct strait_endpoint *ep);

/**
 * strait_endpoint_close() - Give an endpoint back
 * @ep: the endpoint, or NULL
 *
 * Transfers in flight hold the endpoint: its descriptors are closed after the last of them. Kept
 * registrations and a lease are given up then.
 */
STRAIT_API void strait_endpoint_close(struct strait_endpoint *ep);

#ifdef __cplusplus
}
#endif

#endif
