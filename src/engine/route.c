/* SPDX-License-Identifier: MIT */
#include "engine/route.h"

#include "base/util.h"
#include "uapi/strait.h"

static enum route_reason route_eligible(const struct route_facts *f, enum strait_route route)
{
	if (f->op == STRAIT_READ ? !f->ep->can_read : !f->ep->can_write)
		return ROUTE_NO_ACCESS;
	switch (route) {
	case STRAIT_ROUTE_P2P:
		if (f->host_memory)
			return ROUTE_HOST_MEMORY;
		if (f->p2p_usable)
			return ROUTE_OK;
		return f->p2p_why == ROUTE_OK ? ROUTE_NO_MODULE : f->p2p_why;
	case STRAIT_ROUTE_PAGECACHE:
		if (f->host_memory)
			return ROUTE_HOST_MEMORY;
		if (f->dma_only)
			return ROUTE_DMA_ONLY;
		if (f->op != STRAIT_READ)
			return ROUTE_READ_ONLY;
		if (!f->can_register_file)
			return ROUTE_NO_REGISTER;
		if (!f->ep->can_map)
			return ROUTE_NO_MAP;
		return ROUTE_OK;
	case STRAIT_ROUTE_STAGED:
		if (f->dma_only)
			return ROUTE_DMA_ONLY;
		return f->host_memory ? ROUTE_HOST_MEMORY : ROUTE_OK;
	default:
		return f->host_memory ? ROUTE_OK : ROUTE_NOT_HOST;
	}
}

enum route_io route_read_io(const struct endpoint_facts *ep)
{
	if (!ep->can_buffered || (ep->force_direct && ep->can_direct))
		return ROUTE_IO_DIRECT;
	return ep->can_direct ? ROUTE_IO_BY_CACHE : ROUTE_IO_BUFFERED;
}

void route_plan(const struct route_facts *f, uint32_t mask, struct route_plan *p)
{
	const uint32_t pagecache = STRAIT_ROUTE_MASK(STRAIT_ROUTE_PAGECACHE), p2p = STRAIT_ROUTE_MASK(STRAIT_ROUTE_P2P);
	const bool read = f->op == STRAIT_READ, staged = mask & STRAIT_ROUTE_MASK(STRAIT_ROUTE_STAGED);

	memset(p, 0, sizeof(*p));
	p->mask = mask;
	p->self_dma = (mask & p2p) || (f->self_dma && (mask & STRAIT_ROUTE_MASK(STRAIT_ROUTE_HOST)));
	p->regcache = read && !f->host_memory && !f->dma_only && f->can_register_file && f->ep->can_map &&
		      !f->ep->force_direct && (!f->routes || (f->routes & pagecache));
	p->coalesced = staged && !p->self_dma && !f->ep->self_dma && (read || f->ep->can_buffered);
	if (read)
		p->io = route_read_io(f->ep);
	else
		p->io = f->ep->force_direct ? ROUTE_IO_DIRECT : ROUTE_IO_BUFFERED;
	/* One write call for all of it: the kernel serialises writes to one file anyway. */
	p->small = f->small || (f->one_chunk && !read && f->ep->can_buffered);
	/* Few bytes register no window: they are read out of those that the cache has. */
	if (read && (mask & pagecache) && f->ep->can_buffered && !(f->brief && staged))
		p->registers = mask == pagecache ? ROUTE_REGISTER_ALL : ROUTE_REGISTER_CACHED;
	p->one_chunk = f->one_chunk && read && staged && p->io != ROUTE_IO_DIRECT && !p->registers;
	p->mixed = p->registers == ROUTE_REGISTER_CACHED && staged && !f->unchanged && !f->ep->force_direct;
}

uint32_t route_plan_flags(const struct route_plan *p)
{
	uint32_t flags = 0;

	if (!p->mask)
		return 0;
	if (p->self_dma)
		flags |= STRAIT_PLAN_DRIVE;
	if (p->regcache && (p->mask & STRAIT_ROUTE_MASK(STRAIT_ROUTE_PAGECACHE)))
		flags |= STRAIT_PLAN_REGISTERED;
	/* Without another route there are no unaligned ends. */
	if (p->mask == STRAIT_ROUTE_MASK(STRAIT_ROUTE_P2P))
		return flags;
	flags |= p->small || p->one_chunk ? STRAIT_PLAN_SMALL : STRAIT_PLAN_WINDOWS;
	if (!p->small && !p->one_chunk && p->registers)
		flags |= STRAIT_PLAN_REGISTER;
	if (p->io != ROUTE_IO_DIRECT)
		flags |= STRAIT_PLAN_BUFFERED;
	if (p->io != ROUTE_IO_BUFFERED)
		flags |= STRAIT_PLAN_DIRECT;
	return flags;
}

void route_decide(const struct route_facts *f, struct route_decision *d)
{
	const uint32_t pagecache = STRAIT_ROUTE_MASK(STRAIT_ROUTE_PAGECACHE), p2p = STRAIT_ROUTE_MASK(STRAIT_ROUTE_P2P);

	memset(d, 0, sizeof(*d));
	d->route = -1;
	for (int r = 0; r < STRAIT_ROUTE_COUNT; r++) {
		d->reason[r] = route_eligible(f, r);
		if (d->reason[r] != ROUTE_OK)
			continue;
		d->possible |= STRAIT_ROUTE_MASK(r);
		if (f->routes && !(f->routes & STRAIT_ROUTE_MASK(r)))
			d->reason[r] = ROUTE_NOT_REQUESTED;
		else
			d->mask |= STRAIT_ROUTE_MASK(r);
	}
	if (!d->mask) {
		bool access = f->op == STRAIT_READ ? f->ep->can_read : f->ep->can_write;

		d->code = access ? -EOPNOTSUPP : -EBADF;
		return;
	}
	if ((d->mask & p2p) && d->mask != p2p && f->p2p_cached) {
		d->reason[STRAIT_ROUTE_P2P] = ROUTE_IN_MEMORY;
		d->mask &= ~p2p;
	}
	/* Where another route is sure, the one that was never tried is not taken unasked. */
	if ((d->mask & p2p) && d->mask != p2p && f->p2p_unverified) {
		d->reason[STRAIT_ROUTE_P2P] = ROUTE_CANNOT_VERIFY;
		d->mask &= ~p2p;
	}
	/*
	 * The page cache is worth registering only where it holds the file, unless nothing else may be used;
	 * and for few bytes only if it is registered already.
	 */
	if ((d->mask & pagecache) && d->mask != pagecache && f->length) {
		if (f->ep->force_direct || f->cached == 0)
			d->reason[STRAIT_ROUTE_PAGECACHE] = ROUTE_NOT_CACHED;
		else if ((f->small || f->brief) && !f->unchanged)
			d->reason[STRAIT_ROUTE_PAGECACHE] = ROUTE_SHORT;
		if (d->reason[STRAIT_ROUTE_PAGECACHE] != ROUTE_OK)
			d->mask &= ~pagecache;
	}
	for (int r = 0; r < STRAIT_ROUTE_COUNT && d->route < 0; r++)
		if (d->mask & STRAIT_ROUTE_MASK(r))
			d->route = r;
	/* A mixture is named after the route that carries most: for a file less than half cached that is staged. */
	if (d->route == STRAIT_ROUTE_PAGECACHE && (d->mask & STRAIT_ROUTE_MASK(STRAIT_ROUTE_STAGED)) &&
	    (f->small || (f->cached != UINT64_MAX && f->cached < f->length / 2)))
		d->route = STRAIT_ROUTE_STAGED;
	route_plan(f, d->mask, &d->plan);
}

/* What a route that can be taken will do. */
static enum strait_reason how(const struct route_facts *f, const struct route_decision *d, int route)
{
	if (route != STRAIT_ROUTE_P2P && (d->mask & STRAIT_ROUTE_MASK(STRAIT_ROUTE_P2P)))
		return STRAIT_WHY_ENDS;
	switch (route) {
	case STRAIT_ROUTE_P2P:
		return f->p2p_unverified ? STRAIT_WHY_DRIVE_DMA_UNVERIFIED : STRAIT_WHY_DRIVE_DMA;
	case STRAIT_ROUTE_PAGECACHE:
		return f->unchanged ? STRAIT_WHY_COPY_ENGINE_REGISTERED : STRAIT_WHY_COPY_ENGINE;
	case STRAIT_ROUTE_STAGED:
		if (f->ep->self_dma)
			return STRAIT_WHY_DRIVE_TO_HOST;
		if (d->mask & STRAIT_ROUTE_MASK(STRAIT_ROUTE_PAGECACHE))
			return STRAIT_WHY_UNCACHED_PART;
		if (f->op == STRAIT_WRITE)
			return d->plan.io == ROUTE_IO_DIRECT ? STRAIT_WHY_RING_DIRECT_FORCED : STRAIT_WHY_RING_BUFFERED;
		return d->plan.io == ROUTE_IO_BUFFERED ? STRAIT_WHY_RING_BUFFERED : STRAIT_WHY_RING_DIRECT;
	default:
		if (f->self_dma)
			return STRAIT_WHY_DRIVE_HOST_DMA;
		return f->ep->self_dma ? STRAIT_WHY_DRIVE_BOUNCE : STRAIT_WHY_FILE_IO;
	}
}

static void explain_ok(const struct route_facts *f, const struct route_decision *d, int route,
		       struct strait_route_verdict *v)
{
	v->reason = how(f, d, route);
	if (v->reason == STRAIT_WHY_RING_BUFFERED && f->op == STRAIT_READ) {
		v->because = f->ep->direct_reason;
		v->error = f->ep->direct_error;
	} else if (v->reason == STRAIT_WHY_DRIVE_BOUNCE) {
		v->because = f->dma_map_reason ? f->dma_map_reason : STRAIT_WHY_UNALIGNED;
		v->error = f->dma_map_error;
	}
}

static enum strait_reason module_reason(uint32_t reason)
{
	return reason < STRAIT_REASON_COUNT ? STRAIT_WHY_MODULE_NO_REASON + reason : STRAIT_WHY_UNKNOWN;
}

/* The public number of a reason; those that depend on more are in explain_refused(). */
static const enum strait_reason public_reason[] = {
	[ROUTE_NO_MODULE] = STRAIT_WHY_NO_MODULE,	  [ROUTE_NO_PAGES] = STRAIT_WHY_NO_PAGES,
	[ROUTE_NO_IMPORT] = STRAIT_WHY_NO_IMPORT,	  [ROUTE_NO_BRIDGE] = STRAIT_WHY_NO_BRIDGE,
	[ROUTE_NO_DIRECT] = STRAIT_WHY_NO_DIRECT,	  [ROUTE_REFUSED] = STRAIT_WHY_MODULE_REFUSES,
	[ROUTE_UNVERIFIED] = STRAIT_WHY_UNVERIFIED,	  [ROUTE_PAIR] = STRAIT_WHY_NOT_ARRIVED,
	[ROUTE_UNALIGNED] = STRAIT_WHY_UNALIGNED,	  [ROUTE_IN_MEMORY] = STRAIT_WHY_CACHED,
	[ROUTE_HOST_MEMORY] = STRAIT_WHY_HOST_MEMORY,	  [ROUTE_NOT_HOST] = STRAIT_WHY_NOT_HOST,
	[ROUTE_READ_ONLY] = STRAIT_WHY_READS_ONLY,	  [ROUTE_NO_REGISTER] = STRAIT_WHY_NO_REGISTER,
	[ROUTE_NOT_REQUESTED] = STRAIT_WHY_NOT_REQUESTED, [ROUTE_SHORT] = STRAIT_WHY_FEW_BYTES,
	[ROUTE_DMA_ONLY] = STRAIT_WHY_DMA_ONLY,		  [ROUTE_CANNOT_VERIFY] = STRAIT_WHY_CANNOT_VERIFY,
};

static void explain_refused(const struct route_facts *f, enum route_reason reason, struct strait_route_verdict *v)
{
	v->code = -EOPNOTSUPP;
	v->reason = reason < ARRAY_SIZE(public_reason) ? public_reason[reason] : STRAIT_WHY_NONE;
	switch (reason) {
	case ROUTE_NO_ACCESS:
		v->code = -EBADF;
		v->reason = f->op == STRAIT_READ ? STRAIT_WHY_NOT_READABLE : STRAIT_WHY_NOT_WRITABLE;
		break;
	case ROUTE_NO_MODULE:
		v->error = f->module ? f->module : -ENOSYS;
		break;
	case ROUTE_NO_DIRECT:
		v->because = f->ep->direct_reason;
		v->error = f->ep->direct_error;
		break;
	case ROUTE_REFUSED:
		v->because = module_reason(f->p2p_reason);
		break;
	case ROUTE_NO_DMA_MAP:
		v->reason = f->dma_map_reason;
		v->error = f->dma_map_error;
		break;
	case ROUTE_NO_MAP:
		v->reason = f->ep->self_dma ? STRAIT_WHY_NO_PAGE_CACHE : STRAIT_WHY_NO_FILE_MAP;
		break;
	case ROUTE_NOT_CACHED:
		v->reason = f->ep->force_direct ? STRAIT_WHY_DIRECT_REQUESTED : STRAIT_WHY_NOT_CACHED;
		break;
	default:
		break;
	}
	/* Possible, and not what is done: no error of a transfer that requires the route. */
	if (reason == ROUTE_NOT_CACHED || reason == ROUTE_IN_MEMORY || reason == ROUTE_SHORT ||
	    reason == ROUTE_CANNOT_VERIFY)
		v->code = 0;
}

/* Memory through a driver that was not verified on hardware: reported until a block has arrived on this machine. */
static bool not_on_hardware(const struct route_facts *f, enum route_reason reason)
{
	return f->p2p_bridged && (reason == ROUTE_NO_MODULE || reason == ROUTE_NO_BRIDGE || reason == ROUTE_NO_IMPORT ||
				  reason == ROUTE_UNVERIFIED);
}

void route_explain(const struct route_facts *f, const struct route_decision *d,
		   struct strait_route_verdict verdict[STRAIT_ROUTE_COUNT])
{
	for (int r = 0; r < STRAIT_ROUTE_COUNT; r++) {
		struct strait_route_verdict *v = &verdict[r];

		memset(v, 0, sizeof(*v));
		v->usable = !!(d->possible & STRAIT_ROUTE_MASK(r));
		if (d->reason[r] == ROUTE_OK)
			explain_ok(f, d, r, v);
		else
			explain_refused(f, d->reason[r], v);
		if (r == STRAIT_ROUTE_P2P && not_on_hardware(f, d->reason[r]))
			v->because = STRAIT_WHY_NOT_ON_HARDWARE;
	}
}
