/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_ROUTE_H
#define STRAIT_ROUTE_H

#include <strait/reason.h>
#include <strait/transfer.h>
#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct strait_route_verdict - Whether a transfer can take one route, and why
 * @usable: 1 if the transfer can take the route
 * @code: 0, or the negative errno of a transfer that requires this route
 * @reason: enum strait_reason: why it is not usable, or how it transfers the bytes
 * @because: enum strait_reason: the cause of @reason, or STRAIT_WHY_NONE
 * @error: the negative errno that belongs to @because, or to @reason if @because is STRAIT_WHY_NONE; 0 if there is none
 * @reserved: 0
 */
struct strait_route_verdict {
	uint32_t usable;
	int32_t code;
	uint32_t reason;
	uint32_t because;
	int32_t error;
	uint32_t reserved[3];
};

/**
 * enum strait_plan - How a transfer is executed, as a mask
 * @STRAIT_PLAN_DRIVE: DMA of the drive for the aligned part; the other bits are for the unaligned ends
 * @STRAIT_PLAN_REGISTERED: one copy from a cached registration, if there is one
 * @STRAIT_PLAN_SMALL: as one piece of at most a staging chunk, on the calling thread
 * @STRAIT_PLAN_WINDOWS: windows, on the calling thread and free workers
 * @STRAIT_PLAN_REGISTER: windows in the page cache are registered with the device
 * @STRAIT_PLAN_BUFFERED: file I/O through the page cache
 * @STRAIT_PLAN_DIRECT: direct file I/O; with @STRAIT_PLAN_BUFFERED only for bytes that are not in the page cache
 */
enum strait_plan {
	STRAIT_PLAN_DRIVE = 1 << 0,
	STRAIT_PLAN_REGISTERED = 1 << 1,
	STRAIT_PLAN_SMALL = 1 << 2,
	STRAIT_PLAN_WINDOWS = 1 << 3,
	STRAIT_PLAN_REGISTER = 1 << 4,
	STRAIT_PLAN_BUFFERED = 1 << 5,
	STRAIT_PLAN_DIRECT = 1 << 6,
};

/**
 * struct strait_route_report - The routes of a transfer
 * @size: sizeof(struct strait_route_report), set by the caller
 * @route: the route of most bytes, -1 if no route is usable
 * @mask: mask of all routes that bytes would take: windows of one file can take different routes
 * @cached_bytes: bytes of the range that are in the page cache at the time of the call
 * @verdict: one for each route, indexed by enum strait_route
 * @plan: mask of enum strait_plan, 0 if no route is usable
 * @reserved: 0
 */
struct strait_route_report {
	size_t size;
	int32_t route;
	uint32_t mask;
	uint64_t cached_bytes;
	struct strait_route_verdict verdict[STRAIT_ROUTES_MAX];
	uint32_t plan;
	uint32_t reserved;
};

#define STRAIT_ROUTE_REPORT_SIZE_V1 280

/**
 * strait_route_name() - Get the name of a route
 * @route: enum strait_route
 *
 * Return: "p2p", "pagecache", "staged" or "host"; "none" for anything else.
 */
STRAIT_API const char *strait_route_name(int route);

/**
 * strait_route_parse() - Get a route by name
 * @name: "p2p", "pagecache", "staged" or "host"
 *
 * Return: enum strait_route; -EINVAL.
 */
STRAIT_API int strait_route_parse(const char *name);

/**
 * strait_route_verdict_text() - Describe a verdict in one line
 * @verdict: a verdict of a report
 * @text: filled, NUL-terminated
 * @len: size of @text; 256 is enough
 *
 * The line has the texts of both reasons and of the error.
 *
 * Return: 0; -EINVAL.
 */
STRAIT_API int strait_route_verdict_text(const struct strait_route_verdict *verdict, char *text, size_t len);

/**
 * strait_route_verdict_fix() - Tell how to make a route usable
 * @verdict: a verdict of a report
 *
 * Return: one line, never freed; empty if the route is usable or cannot be made so.
 */
STRAIT_API const char *strait_route_verdict_fix(const struct strait_route_verdict *verdict);

/**
 * strait_route_plan_text() - Describe a plan in one line
 * @plan: the plan of a report
 * @text: filled, NUL-terminated
 * @len: size of @text; 256 is enough
 *
 * Return: 0; -EINVAL.
 */
STRAIT_API int strait_route_plan_text(uint32_t plan, char *text, size_t len);

/**
 * strait_route_query() - Tell which routes a transfer would take, and why
 * @t: the request; no bytes are transferred
 * @report: filled; @report->size must be set before
 *
 * Makes the same decision as the transfer. The decision changes if pages of the file are read or evicted in between.
 *
 * Return: 0, also when no route is usable; -EINVAL for an invalid request; -ENODEV; -ESTALE.
 */
STRAIT_API int strait_route_query(const struct strait_transfer *t, struct strait_route_report *report);

/**
 * strait_route_query_device() - Tell which routes a transfer to a device would take, without a region
 * @ep: the endpoint
 * @dev: the device of the memory
 * @op: enum strait_op
 * @report: filled; @report->size must be set before
 *
 * The answer is for a transfer of the whole endpoint.
 *
 * Return: 0, also when no route is usable; -EINVAL.
 */
STRAIT_API int strait_route_query_device(struct strait_endpoint *ep, struct strait_device *dev, uint32_t op,
					 struct strait_route_report *report);

#ifdef __cplusplus
}
#endif

#endif
