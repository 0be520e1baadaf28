/* SPDX-License-Identifier: MIT */
#ifndef LAB_P2P_H
#define LAB_P2P_H

/* /dev/strait for tests that call the module, and places on the drive. All functions end the test on failure. */

#include <pthread.h>

#include "uapi/strait.h"
#include "vgpu.h"

#include <liburing.h>

/* Where a test puts its file; the name comes first, for variants. */
struct place {
	const char *name;
	const char *mkfs; /* NULL: the namespace itself */
};

#define PLACE_RAW                                                                                                      \
	{                                                                                                              \
		"raw", NULL                                                                                            \
	}
#define PLACE_EXT4                                                                                                     \
	{                                                                                                              \
		"ext4", "mkfs.ext4 -q -F -E nodiscard /dev/nvme0n1"                                                    \
	}
#define PLACE_XFS                                                                                                      \
	{                                                                                                              \
		"xfs", "mkfs.xfs -q -f -K /dev/nvme0n1"                                                                \
	}
#define PLACES                                                                                                         \
	{                                                                                                              \
		PLACE_RAW, PLACE_EXT4, PLACE_XFS                                                                       \
	}

/* Commands that unload the module and the modules that depend on it, and load all of them. */
#define KO_UNLOAD "{ rmmod strait_vgpu_peer; rmmod strait_peer; rmmod strait_nvp2p; } 2>/dev/null; rmmod strait"
#define KO_LOAD "modprobe strait && modprobe strait_nvp2p && modprobe strait_vgpu_peer"

/* Skips the test where there is none. */
int ko_open(void);
/* The same, and where device memory cannot be reached. */
int ko_open_p2p(void);
int ko_call(int fd, unsigned long cmd, void *arg);
struct strait_ioc_info ko_info(int fd);
int ko_try_import(int fd, uint32_t kind, const void *p, uint64_t len, struct strait_ioc_import *out);
/* Returns the handle. */
uint32_t ko_import(int fd, uint32_t kind, const void *p, uint64_t len);
int ko_release(int fd, uint32_t handle);
/* Returns bytes or -errno, and the reason if @reason is not NULL. */
int64_t ko_io(int fd, uint32_t op, uint32_t handle, int file, uint64_t off, uint64_t at, uint64_t len,
	      uint32_t *reason);
/* Takes a submission queue entry of the ring for a command of @ko: cmd_op is STRAIT_URING_READ or _WRITE. */
struct io_uring_sqe *ko_sqe(struct io_uring *ring, int ko, uint32_t cmd_op, uint32_t handle, int file, uint64_t off,
			    uint64_t at, uint32_t len);

/* A thread that reads into memory by ioctl until a read fails, and returns that error as its result. */
struct ko_reader {
	int ko, file;
	uint32_t handle;
	uint64_t len;
};
void *ko_read_until_error(void *reader);
struct strait_ioc_check ko_check(int fd, uint32_t op, uint32_t handle, int file);
uint64_t ko_counter(const char *name);
/* Waits until a counter has that value. */
void ko_expect_counter(const char *name, uint64_t value);
/* fail_nth() and fail_left() for this module. */
void ko_fail_nth(unsigned int n);
bool ko_fail_left(void);

/* When a device was reported gone, in now_ms() time: the thread that removes it returns later. */
struct ko_gone {
	const volatile struct strait_status *status;
	uint64_t at_ms;
	pthread_t thread;
};

void ko_gone_watch(struct ko_gone *g, const volatile struct strait_status *status);
uint64_t ko_gone_at(struct ko_gone *g);

/* Mounts a place, and opens a file of @len bytes there that is on the drive and not in the page cache. */
int place_file(const struct place *place, uint64_t len, uint64_t seed, int flags);
void place_mount(const struct place *place);
void place_unmount(void);
/* The drive's file at @off has the bytes that fill() with the file's seed wrote. */
void file_pattern(void *p, uint64_t off, size_t len, uint64_t seed);

#endif
