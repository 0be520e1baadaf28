/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_TYPES_H
#define STRAIT_TYPES_H

/*
 * Common types. These conventions hold for the whole library:
 *
 *  - Functions return 0 or a count on success and a negative errno on failure. The library never
 *    sets errno, exits, aborts, prints or installs a signal handler.
 *  - Outputs come last and are written only on success, unless the call says otherwise.
 *  - Option and information structs start with `size`, set by the caller to sizeof of the struct it
 *    was compiled with. They grow at their end only. Options longer than this library knows are
 *    accepted when the part it does not know is zero, and refused with -E2BIG otherwise; the unknown
 *    part of an information struct is filled with zeros. A shorter struct is read or filled as far as
 *    it goes, down to the first size that was published (STRAIT_..._SIZE_V1): less than that is -EINVAL.
 *  - Structs without `size` never change. Their reserved members are 0: the library refuses requests in
 *    which they are not, and writes zeros to them in results.
 *  - Destructors take NULL.
 *  - Every call may be made from any thread. A handle must not be used while another thread closes it.
 *  - In a child made by fork() every call on an inherited handle fails with -EOWNERDEAD and
 *    destructors do nothing: the child has neither the threads nor the rings of the parent.
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STRAIT_API __attribute__((visibility("default")))

#define STRAIT_VERSION_MAJOR 0
#define STRAIT_VERSION_MINOR 1
#define STRAIT_VERSION_PATCH 0
#define STRAIT_VERSION_NUMBER(major, minor, patch)                                                                     \
	((uint32_t)(major) << 16 | (uint32_t)(minor) << 8 | (uint32_t)(patch))
#define STRAIT_VERSION STRAIT_VERSION_NUMBER(STRAIT_VERSION_MAJOR, STRAIT_VERSION_MINOR, STRAIT_VERSION_PATCH)

struct strait_context;
struct strait_device;
struct strait_region;
struct strait_endpoint;
struct strait_queue;
struct strait_stream;
struct strait_topo;

/* The routes of a transfer, best first. */
enum strait_route {
	STRAIT_ROUTE_P2P = 0,	    /* the drive's DMA reads and writes device memory */
	STRAIT_ROUTE_PAGECACHE = 1, /* the device's copy engine reads the page cache */
	STRAIT_ROUTE_STAGED = 2,    /* file I/O to a pinned ring, overlapped with copies to the device */
	STRAIT_ROUTE_HOST = 3,	    /* the region is host memory: file I/O */
	STRAIT_ROUTE_COUNT = 4,	    /* number of routes; grows with them */
};

/* Length of every array that is indexed by enum strait_route. Unused entries are 0. */
#define STRAIT_ROUTES_MAX 8

#define STRAIT_ROUTE_MASK(route) (1u << (route))
#define STRAIT_ROUTE_ANY 0u

enum strait_op {
	STRAIT_READ = 0,  /* endpoint to region */
	STRAIT_WRITE = 1, /* region to endpoint */
};

/* No timeout. Every timeout above half of it (146 years) means the same; 0 means "do not wait". */
#define STRAIT_FOREVER INT64_MAX

/**
 * strait_version() - Version of the loaded library, as text
 *
 * To compare versions use strait_version_number(). The text is never freed.
 *
 * Return: a string of the form "0.1.0".
 */
STRAIT_API const char *strait_version(void);

/**
 * strait_version_number() - Version of the loaded library, as a number
 *
 * A program compares it with STRAIT_VERSION of the headers it was built with, or with STRAIT_VERSION_NUMBER() of the
 * first version that has what it needs.
 *
 * Return: STRAIT_VERSION of the library.
 */
STRAIT_API uint32_t strait_version_number(void);

#ifdef __cplusplus
}
#endif

#endif
