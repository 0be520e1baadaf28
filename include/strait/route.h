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
 * struct strait_route_verdict - What stands for or against one route
 * @usable: 1 if the transfer can take it
 * @code: 0, or the negative errno a transfer that requires this route gets
 * @reason: enum strait_reason: why it is not usable, or what it will do
 * @because: enum strait_reason: what is behind @reason, STRAIT_WHY_NONE if there is no more to say
 * @error: the negative errno behind @because, or behind @reason if there is no such; 0 if there was none
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
 * enum strait_plan - How a transfer is run, as a mask
 * @STRAIT_PLAN_DRIVE: the drive moves the aligned part itself; the rest is for the unaligned ends
 * @STRAIT_PLAN_REGISTERED: one copy out of pages that are registered already, if they are
 * @STRAIT_PLAN_SMALL: one staging chunk, on the calling thread
 * @STRAIT_PLAN_WINDOWS: windows, on as many threads as are free
 * @STRAIT_PLAN_REGISTER: windows that the page cache holds are registered with the device
 * @STRAIT_PLAN_BUFFERED: file I/O through the page cache
 * @STRAIT_PLAN_DIRECT: direct file I/O; with @STRAIT_PLAN_BUFFERED only where the page cache does not hold the bytes
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
 * struct strait_route_report - Which routes a transfer would take
 * @size: sizeof(struct strait_route_report), set by the caller
 * @route: the route most bytes would take, -1 if there is none
 * @mask: all routes that would carry bytes: windows of one file can travel differently
 * @cached_bytes: how many bytes of the range were in the page cache when asked
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
 * strait_route_name() - The name of a route
 * @route: enum strait_route
 *
 * Return: "p2p", "pagecache", "staged" or "host"; "none" for anything else.
 */
STRAIT_API const char *strait_route_name(int route);

/**
 * strait_route_parse() - The route of a name
 * @name: "p2p", "pagecache", "staged" or "host"
 *
 * Return: enum strait_route; -EINVAL.
 */
STRAIT_API int strait_route_parse(const char *name);

/**
 * strait_route_verdict_text() - A verdict as one line
 * @verdict: of a report
 * @text: where the line is written, always terminated
 * @len: room in @text; 256 is enough
 *
 * The texts of its reasons and of its error, put together.
 *
 * Return: 0; -EINVAL.
 */
STRAIT_API int strait_route_verdict_text(const struct strait_route_verdict *verdict, char *text, size_t len);

/**
 * strait_route_verdict_fix() - What would make a route usable
 * @verdict: of a report
 *
 * Return: one line, which lives as long as the process; empty if nothing would, or nothing is needed.
 */
STRAIT_API const char *strait_route_verdict_fix(const struct strait_route_verdict *verdict);

/**
 * strait_route_plan_text() - A plan as one line
 * @plan: of a report
 * @text: where the line is written, always terminated
 * @len: room in @text; 256 is enough
 *
 * Return: 0; -EINVAL.
 */
STRAIT_API int strait_route_plan_text(uint32_t plan, char *text, size_t len);

/**
 * strait_route_query() - Which routes a transfer would take, and why not better ones
 * @t: the request; nothing is moved
 * @report: filled; @report->size must be set before
 *
 * This is the decision the transfer itself makes, made now: a file that is read or evicted in
 * between changes the answer.
 *
 * Return: 0, also when no route is usable; -EINVAL for a malformed request; -ENODEV; -ESTALE.
 */
STRAIT_API int strait_route_query(const struct strait_transfer *t, struct strait_route_report *report);

/**
 * strait_route_query_device() - The same for a device, without a region
 * @ep: the endpoint
 * @dev: where a region would be
 * @op: enum strait_op
 * @report: filled; @report->size must be set before
 *
 * Asks for the whole length of the endpoint.
 *
 * Return: 0, also when no route is usable; -EINVAL.
 */
STRAIT_API int strait_route_query_device(struct strait_endpoint *ep, struct strait_device *dev, uint32_t op,
					 struct strait_route_report *report);

#ifdef __cplusplus
}
#endif

#endif
