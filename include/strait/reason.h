/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_REASON_H
#define STRAIT_REASON_H

/*
 * Why a route is taken or refused, why a file has no direct I/O, why a drive cannot be used: a number for programs, and
 * a sentence for people. Numbers never change; later versions may add some.
 */

#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum strait_reason {
	STRAIT_WHY_NONE = 0,

	/* How a usable route transfers the bytes. */
	STRAIT_WHY_DRIVE_DMA = 1,	       /* DMA of the drive to and from device memory */
	STRAIT_WHY_COPY_ENGINE = 2,	       /* the device's copy engine reads the page cache */
	STRAIT_WHY_COPY_ENGINE_REGISTERED = 3, /* likewise, with cached registrations */
	STRAIT_WHY_ENDS = 4,		       /* the unaligned ends of a transfer by the drive's DMA */
	STRAIT_WHY_DRIVE_TO_HOST = 5,	       /* DMA of the drive to pinned host memory, then a copy */
	STRAIT_WHY_UNCACHED_PART = 6,	       /* the windows that are not in the page cache */
	STRAIT_WHY_RING_DIRECT = 7,	       /* pinned ring, direct I/O for uncached data */
	STRAIT_WHY_RING_BUFFERED = 8,	       /* pinned ring, buffered I/O */
	STRAIT_WHY_RING_DIRECT_FORCED = 9,     /* pinned ring, direct I/O where aligned */
	STRAIT_WHY_DRIVE_HOST_DMA = 10,	       /* DMA of the drive to and from host memory */
	STRAIT_WHY_DRIVE_BOUNCE = 11,	       /* DMA of the drive to a bounce buffer, then a copy */
	STRAIT_WHY_FILE_IO = 12,	       /* file I/O */
	STRAIT_WHY_DRIVE_DMA_UNVERIFIED = 13,  /* as DRIVE_DMA, to memory that it cannot be verified with */

	/* Why a route is not taken. */
	STRAIT_WHY_NOT_READABLE = 100,
	STRAIT_WHY_NOT_WRITABLE = 101,
	STRAIT_WHY_NOT_REQUESTED = 102,	   /* possible, but not among the requested routes */
	STRAIT_WHY_HOST_MEMORY = 103,	   /* the region is host memory */
	STRAIT_WHY_NOT_HOST = 104,	   /* host: the region is device memory */
	STRAIT_WHY_NO_MODULE = 105,	   /* p2p: no strait.ko; the error is that of opening /dev/strait */
	STRAIT_WHY_NO_PAGES = 106,	   /* p2p: no driver makes the device's memory known to the kernel */
	STRAIT_WHY_NO_IMPORT = 107,	   /* p2p: strait.ko cannot import the memory */
	STRAIT_WHY_NO_BRIDGE = 108,	   /* p2p: strait.ko has no bridge to the memory's driver */
	STRAIT_WHY_NO_DIRECT = 109,	   /* p2p: no direct I/O */
	STRAIT_WHY_MODULE_REFUSES = 110,   /* p2p: strait.ko refuses the file */
	STRAIT_WHY_UNVERIFIED = 111,	   /* p2p: not verified for this drive and device */
	STRAIT_WHY_NOT_ARRIVED = 112,	   /* p2p: verification failed: a block did not arrive */
	STRAIT_WHY_UNALIGNED = 113,	   /* p2p: no part of the request is aligned */
	STRAIT_WHY_CACHED = 114,	   /* p2p: possible, but the data is in the page cache */
	STRAIT_WHY_READS_ONLY = 115,	   /* pagecache: not for writes */
	STRAIT_WHY_NO_REGISTER = 116,	   /* pagecache: the device cannot register file mappings */
	STRAIT_WHY_NO_FILE_MAP = 117,	   /* pagecache: the file cannot be mapped */
	STRAIT_WHY_NO_PAGE_CACHE = 118,	   /* pagecache: the endpoint has no page cache */
	STRAIT_WHY_NOT_CACHED = 119,	   /* pagecache: possible, but the data is not in the page cache */
	STRAIT_WHY_DIRECT_REQUESTED = 120, /* pagecache: direct I/O was requested */
	STRAIT_WHY_FEW_BYTES = 121,	   /* pagecache: so few bytes are copied faster than registered */
	STRAIT_WHY_NO_DEVICE_MAP = 122,	   /* the memory cannot be mapped for the endpoint's device */
	STRAIT_WHY_VERIFY_FAILED = 123,	   /* DMA to the memory could not be verified with a block */
	STRAIT_WHY_NOT_ON_HARDWARE = 124,  /* not yet tested on hardware */
	STRAIT_WHY_UNKNOWN = 125,	   /* strait.ko gave a reason that this library does not know */
	STRAIT_WHY_DMA_ONLY = 126,	   /* neither the CPU nor a copy engine reaches the memory */
	STRAIT_WHY_CANNOT_VERIFY = 127,	   /* p2p: possible, but it cannot be verified that bytes arrive */

	/* Why strait.ko refuses a file: 200 + STRAIT_REASON_* of uapi/strait.h. */
	STRAIT_WHY_MODULE_NO_REASON = 200,
	STRAIT_WHY_MODULE_NOT_A_FILE = 201,
	STRAIT_WHY_MODULE_NO_DIRECT = 202,
	STRAIT_WHY_MODULE_FILE_SYSTEM = 203,
	STRAIT_WHY_MODULE_TRANSFORMED = 204,
	STRAIT_WHY_MODULE_OTHER_DRIVE = 205,
	STRAIT_WHY_MODULE_NO_DRIVE = 206,
	STRAIT_WHY_MODULE_NOT_PCI = 207,
	STRAIT_WHY_MODULE_NO_QUEUE = 208,
	STRAIT_WHY_MODULE_CHECKSUMS = 209,
	STRAIT_WHY_MODULE_NO_PATH = 210,
	STRAIT_WHY_MODULE_NO_PAGES = 211,
	STRAIT_WHY_MODULE_NO_P2PDMA = 212,
	STRAIT_WHY_MODULE_APPEND = 213,
	STRAIT_WHY_MODULE_ALIGNMENT = 214,

	/* Why a file has no direct I/O. */
	STRAIT_WHY_FS_NO_DIRECT = 300,
	STRAIT_WHY_BUFFERED_REQUESTED = 301,
	STRAIT_WHY_DIRECT_ALIGNMENT = 302, /* it needs an alignment that is not supported */
	STRAIT_WHY_FS_REFUSES_DIRECT = 303,
	STRAIT_WHY_NOT_REOPENED = 304, /* the file cannot be opened a second time with O_DIRECT */
	STRAIT_WHY_FS_IN_MEMORY = 305,
	STRAIT_WHY_NO_FILE_SYSTEM = 306, /* the endpoint is not a file */

	/* Why a namespace of an NVMe drive cannot be an endpoint. */
	STRAIT_WHY_NS_PROTECTION = 400, /* formatted with protection information */
	STRAIT_WHY_NS_METADATA = 401,	/* formatted with metadata beside each block */
	STRAIT_WHY_NS_BLOCK_SIZE = 402,
	STRAIT_WHY_NS_LENGTH = 403,
};

/**
 * strait_reason_text() - Describe a reason in one sentence
 * @reason: enum strait_reason
 *
 * The text names no device or file.
 *
 * Return: the sentence, without a full stop, never freed; empty for STRAIT_WHY_NONE.
 */
STRAIT_API const char *strait_reason_text(uint32_t reason);

/**
 * strait_reason_fix() - Tell what to do about a reason
 * @reason: enum strait_reason
 *
 * Return: one sentence, without a full stop, never freed; empty if nothing helps or nothing has to be done.
 */
STRAIT_API const char *strait_reason_fix(uint32_t reason);

#ifdef __cplusplus
}
#endif

#endif
