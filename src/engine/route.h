/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_ROUTE_H
#define ENGINE_ROUTE_H

/*
 * Choosing a route is one pure function: facts in; the decision, its reasons and a plan out. Transfers, queues and
 * strait_route_query() call the same one. Executors obey the plan: what they add is the state of the moment (is this
 * window in the page cache, is a staging chunk free, is the file still unchanged), never another rule.
 */

#include <strait/route.h>

#include "device/provider.h"
#include "endpoint/endpoint.h"

enum route_reason {
	ROUTE_OK,
	ROUTE_NO_ACCESS,     /* endpoint not open for this direction */
	ROUTE_NO_MODULE,     /* p2p: no strait.ko */
	ROUTE_NO_PAGES,	     /* p2p: nothing makes the device's memory known to the kernel */
	ROUTE_NO_IMPORT,     /* p2p: the module does not take the memory */
	ROUTE_NO_BRIDGE,     /* p2p: the module has no bridge to the memory's driver */
	ROUTE_NO_DIRECT,     /* p2p: no direct I/O */
	ROUTE_NO_DMA_MAP,    /* p2p: the endpoint's own device cannot be given the memory */
	ROUTE_REFUSED,	     /* p2p: the module refuses the file */
	ROUTE_UNVERIFIED,    /* p2p: drive and device not tried yet, and not with this file */
	ROUTE_PAIR,	     /* p2p: bytes from drive to device do not arrive */
	ROUTE_UNALIGNED,     /* p2p: no part of the request is aligned */
	ROUTE_IN_MEMORY,     /* p2p: possible, but the page cache is nearer than the drive */
	ROUTE_HOST_MEMORY,   /* the region is host memory: nothing to bypass */
	ROUTE_NOT_HOST,	     /* host: the region is device memory */
	ROUTE_READ_ONLY,     /* pagecache: only for reads */
	ROUTE_NO_REGISTER,   /* pagecache: device cannot register file mappings */
	ROUTE_NO_MAP,	     /* pagecache: file cannot be mapped */
	ROUTE_NOT_REQUESTED, /* possible, but not among the routes asked for */
	ROUTE_NOT_CACHED,    /* pagecache: possible, but the file is not in memory */
	ROUTE_DMA_ONLY,	     /* neither the CPU nor a copy engine reaches the memory */
	ROUTE_CANNOT_VERIFY, /* p2p: possible, but it cannot be tried whether bytes arrive */
	ROUTE_SHORT,	     /* pagecache: possible, but not worth it for so few bytes */
};

struct route_facts {
	/* the region's */
	bool host_memory;
	bool can_register_file;
	bool dma_only; /* only devices reach the memory */
	/* the endpoint's */
	const struct endpoint_facts *ep;
	/* the request's */
	uint32_t op;
	uint32_t routes; /* mask that may be used, 0 for any */
	uint64_t length; /* bytes the request covers, clipped to the endpoint */
	uint64_t cached; /* of those in memory; UINT64_MAX if unknown */
	bool small;	 /* short enough for the short path */
	bool one_chunk;	 /* fits into one staging chunk, and is aligned if it is a direct write */
	bool brief;	 /* too short for registering to pay */
	bool unchanged;
	/* the machine's */
	int module; /* 0, or why /dev/strait cannot be opened */
	/* of endpoint and region together */
	bool p2p_usable;
	bool p2p_unverified;	   /* no test block can be transferred first */
	bool p2p_cached;	   /* most of what it would read is in memory, and a copy engine reads that sooner */
	bool p2p_bridged;	   /* through the device's driver: not verified on hardware */
	enum route_reason p2p_why; /* if not */
	uint32_t p2p_reason;	   /* STRAIT_REASON_* behind ROUTE_REFUSED */
	bool self_dma;		   /* the endpoint moves the bytes itself, to host memory too */
	uint32_t dma_map_reason;   /* enum strait_reason behind ROUTE_NO_DMA_MAP */
	int dma_map_error;	   /* likewise */
};

/* How file I/O passes between the endpoint and host memory. */
enum route_io {
	ROUTE_IO_BUFFERED,
	ROUTE_IO_DIRECT,
	ROUTE_IO_BY_CACHE, /* buffered where the page cache holds the bytes, direct elsewhere */
};

enum route_register {
	ROUTE_REGISTER_NONE,
	ROUTE_REGISTER_CACHED, /* windows that the page cache holds; the others are staged */
	ROUTE_REGISTER_ALL,    /* every window: pagecache is the only route allowed */
};

/* The steps of a transfer. Those that apply are tried in the order of the members; each leaves the rest to the next. */
struct route_plan {
	uint32_t mask;	/* routes that carry bytes */
	bool self_dma;	/* the drive moves the aligned part; what follows is for the unaligned ends */
	bool regcache;	/* one copy out of a cached registration, while the file is unchanged */
	bool small;	/* one staging buffer, on the calling thread */
	bool one_chunk; /* one staging chunk, read in pieces, mostly by the calling thread; registers nothing */
	bool coalesced; /* in a queue: several small transfers in one copy list */
	/* Else windows, by one lane or more: */
	enum route_io io;
	enum route_register registers;
	bool mixed; /* one lane registers cached windows while others read into staging memory */
};

struct route_decision {
	enum route_reason reason[STRAIT_ROUTE_COUNT];
	uint32_t possible; /* mask of routes that work */
	uint32_t mask;	   /* mask of those that will carry bytes */
	int route;	   /* the main one, -1 for none */
	int code;	   /* 0, or the errno of a transfer when there is none */
	struct route_plan plan;
};

void route_decide(const struct route_facts *f, struct route_decision *d);

/* The plan of a transfer that uses the routes of @mask: route_decide() makes it of those it has chosen. */
void route_plan(const struct route_facts *f, uint32_t mask, struct route_plan *plan);
/* How an endpoint is read. */
enum route_io route_read_io(const struct endpoint_facts *ep);
/* A plan as the public interface has it: STRAIT_PLAN_* flags. */
uint32_t route_plan_flags(const struct route_plan *plan);

/* The reasons of a decision as the public interface has them. */
void route_explain(const struct route_facts *f, const struct route_decision *d,
		   struct strait_route_verdict verdict[STRAIT_ROUTE_COUNT]);

#endif
