/* SPDX-License-Identifier: MIT */
#include "engine/p2p/p2p.h"

#include <stdlib.h>

#include "base/util.h"
#include "device/scratch.h"
#include "engine/engine.h"
#include "engine/p2p/pair.h"
#include "module/module.h"
#include "os/os.h"

#define PIECE MIB(16) /* moved between two checks of deadline and cancellation; many commands of a drive */

/* The verdict for an endpoint and a device: route_reason + 1 and the module's reason. 0: not asked yet. */
#define VERDICT(why, reason) ((uint16_t)((((unsigned int)(why) + 1) & 0xff) | (unsigned int)(reason) << 8))
#define VERDICT_WHY(v) ((enum route_reason)(((v)&0xff) - 1))
#define VERDICT_REASON(v) ((uint32_t)(v) >> 8)

void p2p_init(struct p2p *p)
{
	pthread_mutex_init(&p->lock, NULL);
	p->fd = -1;
	list_init(&p->pairs);
}

void p2p_fini(struct p2p *p)
{
	list_for_each_safe(it, tmp, &p->pairs)
		free(list_entry(it, struct p2p_pair, node));
	if (p->fd >= 0)
		os_close(p->fd);
	pthread_mutex_destroy(&p->lock);
}

static int open_module_locked(struct strait_context *ctx)
{
	struct strait_ioc_info info;
	struct p2p *p = &ctx->p2p;
	int fd, rc;

	if (p->tried)
		return p->status;
	p->tried = true;
	fd = module_open();
	if (fd < 0) {
		p->status = fd;
		return fd;
	}
	rc = module_info(fd, &info);
	if (rc) {
		log_warn(&ctx->log, "the module behind /dev/strait does not answer as expected (%s)", strerror(-rc));
		os_close(fd);
		p->status = rc == -ENODEV ? rc : -EPROTO;
		return p->status;
	}
	p->features = info.features;
	p->fd = fd;
	return 0;
}

/* Is the memory reachable only by a bridge to the device's driver? */
static bool is_bridged(const struct strait_device *dev)
{
	return dev->import_kind == STRAIT_IMPORT_NVP2P;
}

/* Does the module take memory of this kind? */
static enum route_reason kind_known(const struct p2p *p, const struct strait_device *dev)
{
	if (!dev->import_kind)
		return ROUTE_NO_PAGES;
	if (module_imports(p->features, dev->import_kind))
		return ROUTE_OK;
	return is_bridged(dev) ? ROUTE_NO_BRIDGE : ROUTE_NO_IMPORT;
}

/* Offset of the memory in the pages that import() imports. */
static uint64_t import_start(const struct strait_device *dev, const struct provider_mem *m)
{
	return m->addr % module_import_page(dev->import_kind);
}

/* Imports the whole pages that hold the memory: by CPU address, or by the address that the GPU's driver knows. */
static int import(const struct p2p *p, struct strait_device *dev, const struct provider_mem *m,
		  struct strait_ioc_import *out)
{
	struct page_span pages;
	uint64_t at = m->addr;
	void *cpu;
	int rc;

	if (!is_bridged(dev)) {
		rc = dev->ops->mem_map(dev, m, &cpu);
		if (rc)
			return rc;
		at = (uintptr_t)cpu;
	}
	return module_import_pages(p->fd, dev->import_kind, at, m->len, &pages, out);
}

/* With the lock held: ask the module, then the pair, with scratch memory of the device. */
static uint16_t find_verdict(struct strait_context *ctx, struct strait_endpoint *ep, struct strait_device *dev)
{
	struct strait_ioc_check check = { .fd = ep->ops->fd(ep, IO_DIRECT) };
	struct p2p_scratch s = { .ctx = ctx, .ep = ep, .dev = dev };
	struct strait_ioc_import imp;
	struct strait_region *r;
	enum route_reason why;
	int rc;

	check.op = ep->facts.can_read ? STRAIT_OP_READ : STRAIT_OP_WRITE;
	/* Device memory may be short now and free later. */
	if (device_scratch_get(dev, &r))
		return VERDICT(ROUTE_UNVERIFIED, 0);
	s.mem = r->mem;
	rc = import(&ctx->p2p, dev, &s.mem, &imp);
	if (rc) {
		device_scratch_put(r);
		return VERDICT(rc == -ENOMEM || rc == -ENOSPC ? ROUTE_UNVERIFIED : ROUTE_NO_IMPORT, 0);
	}
	s.handle = check.handle = imp.handle;
	s.start = import_start(dev, &s.mem);
	rc = module_check(ctx->p2p.fd, &check);
	if (rc || check.reason)
		why = ROUTE_REFUSED;
	else
		why = p2p_pair_verify(&ctx->p2p, &s, check.drive, imp.pci);
	module_release(ctx->p2p.fd, imp.handle);
	device_scratch_put(r);
	return VERDICT(why, rc ? 0 : check.reason);
}

static uint16_t ask_verdict(struct strait_context *ctx, struct strait_endpoint *ep, struct strait_device *dev)
{
	enum route_reason why;

	if (open_module_locked(ctx))
		return VERDICT(ROUTE_NO_MODULE, 0);
	why = kind_known(&ctx->p2p, dev);
	if (why)
		return VERDICT(why, 0);
	if (!ep->facts.can_direct)
		return VERDICT(ROUTE_NO_DIRECT, 0);
	return find_verdict(ctx, ep, dev);
}

/*
 * A file without blocks on the drive cannot verify a pair, but may get some: ask again, with exponential back-off.
 */
static bool ask_again(struct strait_endpoint *ep, uint16_t v)
{
	return v && VERDICT_WHY(v) == ROUTE_UNVERIFIED &&
	       is_pow2(atomic_fetch_add_explicit(&endpoint_engine(ep)->p2p_tries, 1, memory_order_relaxed) + 1);
}

static uint16_t verdict(struct strait_context *ctx, struct strait_endpoint *ep, struct strait_device *dev)
{
	_Atomic uint16_t *known = &endpoint_engine(ep)->p2p[dev->number];
	uint16_t v = atomic_load_explicit(known, memory_order_acquire);

	if (v && !ask_again(ep, v))
		return v;
	pthread_mutex_lock(&ctx->p2p.lock);
	v = ask_verdict(ctx, ep, dev);
	atomic_store_explicit(known, v, memory_order_release);
	pthread_mutex_unlock(&ctx->p2p.lock);
	return v;
}

/* The region's handle, or a negative errno. */
static int region_handle(struct strait_context *ctx, struct strait_region *r)
{
	struct strait_ioc_import imp;
	int handle = atomic_load_explicit(&r->engine, memory_order_acquire), rc;

	if (handle)
		return handle;
	pthread_mutex_lock(&ctx->p2p.lock);
	handle = atomic_load_explicit(&r->engine, memory_order_relaxed);
	if (!handle) {
		rc = import(&ctx->p2p, r->dev, &r->mem, &imp);
		handle = rc ? rc : (int)imp.handle;
		/* Set SYNC_MEMOPS: the application's copies must be complete when its calls return, or peers race with them. */
		if (!rc && is_bridged(r->dev) && !r->ordered)
			r->dev->ops->mem_sync_memops(r->dev, &r->mem, true);
		/* A lack of resources may pass; the kind of the memory does not change. */
		if (!rc || rc == -EOPNOTSUPP || rc == -EFAULT)
			atomic_store_explicit(&r->engine, handle, memory_order_release);
	}
	pthread_mutex_unlock(&ctx->p2p.lock);
	return handle;
}

void p2p_release_region(struct strait_region *r)
{
	struct strait_context *ctx = device_context(r->dev);
	int handle = atomic_exchange_explicit(&r->engine, 0, memory_order_acq_rel);

	if (handle > 0)
		module_release(ctx->p2p.fd, (uint32_t)handle);
}

static uint64_t region_start(const struct strait_region *r)
{
	return import_start(r->dev, &r->mem);
}

bool p2p_part(const struct strait_transfer *t, uint64_t *start, uint64_t *end)
{
	struct strait_endpoint *ep = t->endpoint;
	uint64_t align = ep->facts.self_dma ? ep->facts.dio_align : max_u64(ep->facts.dio_align, os_page_size()), len,
		 at;

	*start = align_up(t->endpoint_offset, align);
	*end = t->endpoint_offset + t->length;
	/* A drive reads whole blocks, and memory past the end of the file must stay untouched. */
	if (t->op == STRAIT_READ) {
		int rc = ep->ops->length(ep, &len);

		if (rc && !ep->facts.self_dma)
			return false;
		if (!rc)
			*end = min_u64(*end, len);
	}
	*end = align_down(*end, align);
	if (*start >= *end)
		return false;
	/* For a few aligned bytes one route is less work than two. */
	if (t->length <= t->region->dev->tuning.small_bytes && *end - *start < t->length)
		return false;
	at = region_start(t->region) + t->region_offset + (*start - t->endpoint_offset);
	return !(at % max_u64(ep->facts.dio_mem_align, 1));
}

/* Does the page cache, which the device's copy engine can read, hold most of the range? */
static bool nearer(const struct strait_transfer *t, const struct route_facts *f, uint64_t start, uint64_t end)
{
	struct strait_endpoint *ep = t->endpoint;
	uint64_t bytes;

	if (t->op != STRAIT_READ || ep->facts.force_direct || !ep->facts.can_buffered || !f->can_register_file)
		return false;
	return !ep->ops->cached(ep, start, end - start, &bytes) && bytes >= (end - start) / 2;
}

/* An endpoint with self-DMA says itself whether it can map the memory. */
static void self_dma_facts(const struct strait_transfer *t, struct route_facts *f)
{
	struct strait_endpoint *ep = t->endpoint;
	bool there =
		t->region->mem.len; /* false: strait_route_query_device() asks about memory that does not exist yet */
	uint64_t start, end;

	f->dma_map_error = ep->ops->dma_map(ep, t->region->dev, there ? t->region : NULL, &f->dma_map_reason);
	if (f->dma_map_error)
		f->p2p_why = ROUTE_NO_DMA_MAP;
	else if (there && !p2p_part(t, &start, &end))
		f->p2p_why = ROUTE_UNALIGNED;
	else
		f->self_dma = true;
	f->p2p_usable = f->self_dma && !f->host_memory;
	f->p2p_unverified = t->region->dev->caps & STRAIT_DEVICE_IMPORT_ONLY;
}

void p2p_facts(const struct strait_transfer *t, struct route_facts *f)
{
	struct strait_context *ctx = device_context(t->region->dev);
	uint64_t start, end;
	uint16_t v;
	int handle;

	if (t->endpoint->facts.self_dma) {
		self_dma_facts(t, f);
		return;
	}
	if (f->host_memory)
		return;
	f->p2p_bridged = is_bridged(t->region->dev);
	v = verdict(ctx, t->endpoint, t->region->dev);
	f->module = ctx->p2p.status;
	f->p2p_why = VERDICT_WHY(v);
	f->p2p_reason = VERDICT_REASON(v);
	if (f->p2p_why)
		return;
	/* strait_route_query_device() asks about memory that does not exist yet. */
	if (!t->region->mem.len) {
		f->p2p_usable = true;
		return;
	}
	handle = region_handle(ctx, t->region);
	if (handle < 0)
		f->p2p_why = ROUTE_NO_IMPORT;
	else if (!p2p_part(t, &start, &end))
		f->p2p_why = ROUTE_UNALIGNED;
	else
		f->p2p_usable = true;
	f->p2p_cached = f->p2p_usable && nearer(t, f, start, end);
}

/* The module refuses now what it accepted: store that as the verdict for this endpoint and device. */
static int refused(const struct strait_transfer *t, int rc, uint32_t reason)
{
	struct strait_context *ctx = device_context(t->region->dev);

	if (rc == -ENODEV || rc == -ENOENT) {
		/* The memory was freed or mapped again: the next use imports it again. */
		p2p_release_region(t->region);
		return -EOPNOTSUPP;
	}
	if (rc != -EOPNOTSUPP && rc != -EREMOTEIO && rc != -EINVAL)
		return rc;
	log_warn(&ctx->log, "p2p: refused during a transfer (%s, reason %u): other routes are used", strerror(-rc),
		 reason);
	atomic_store_explicit(&endpoint_engine(t->endpoint)->p2p[t->region->dev->number],
			      VERDICT(ROUTE_REFUSED, reason), memory_order_release);
	return -EOPNOTSUPP;
}

/* Makes what a peer has written visible to work on the device. */
static int flush_writes(const struct strait_transfer *t)
{
	int rc = t->region->dev->ops->flush_peer_writes(t->region->dev);

	return rc == -EOPNOTSUPP ? 0 : rc;
}

static uint64_t self_dma_run(const struct strait_transfer *t, struct p2p_piece *p)
{
	struct endpoint_io m = {
		.write = t->op == STRAIT_WRITE,
		.region = t->region,
		.region_offset = t->region_offset + (p->start - t->endpoint_offset),
		.offset = p->start,
		.length = p->end - p->start,
		.deadline = p->deadline,
		.cancel = p->cancel,
	};
	uint64_t at = p->start + (p->start < p->end ? t->endpoint->ops->io(t->endpoint, &m) : 0);

	p->err = m.err;
	p->device_status = m.device_status;
	if (!m.write && at > p->start && !(t->region->dev->caps & STRAIT_DEVICE_HOST)) {
		int rc = flush_writes(t);

		if (rc && !p->err)
			p->err = rc;
	}
	return at;
}

static uint64_t module_moves(const struct strait_transfer *t, uint64_t start, uint64_t end, uint64_t deadline,
			     const atomic_bool *cancel, int *err)
{
	struct strait_context *ctx = device_context(t->region->dev);
	int handle = region_handle(ctx, t->region), rc = 0;
	struct strait_ioc_io io = { .fd = t->endpoint->ops->fd(t->endpoint, IO_DIRECT) };
	uint64_t at = start;

	*err = handle < 0 ? -EOPNOTSUPP : 0;
	io.handle = (uint32_t)handle;
	io.op = t->op == STRAIT_READ ? STRAIT_OP_READ : STRAIT_OP_WRITE;
	while (!*err && at < end) {
		*err = os_stop(deadline, cancel);
		if (*err)
			break;
		io.file_offset = at;
		io.region_offset = region_start(t->region) + t->region_offset + (at - t->endpoint_offset);
		io.length = min_u64(end - at, PIECE);
		rc = module_io(ctx->p2p.fd, &io);
		if (rc)
			*err = refused(t, rc, io.reason);
		else
			at += io.done;
		if (!rc && io.done < io.length)
			*err = -EAGAIN;
	}
	stat_add(&ctx->stats.direct_bytes, at - start);
	if (t->op == STRAIT_READ && at > start) {
		rc = flush_writes(t);
		if (rc && !*err)
			*err = rc;
	}
	return at;
}

bool p2p_commands(const struct strait_transfer *t)
{
	struct strait_context *ctx = device_context(t->region->dev);

	/* Asking for the verdict opens the module, whose features are known from then on. */
	return !t->endpoint->facts.self_dma && t->region->dev->import_kind &&
	       !VERDICT_WHY(verdict(ctx, t->endpoint, t->region->dev)) && (ctx->p2p.features & STRAIT_FEATURE_URING);
}

int p2p_command(const struct strait_transfer *t, struct os_ring *ring, uint64_t done, void *tag, uint64_t *len)
{
	struct strait_context *ctx = device_context(t->region->dev);
	struct strait_ioc_io io = { .op = t->op == STRAIT_READ ? STRAIT_OP_READ : STRAIT_OP_WRITE,
				    .fd = t->endpoint->ops->fd(t->endpoint, IO_DIRECT),
				    .file_offset = t->endpoint_offset + done,
				    .region_offset = region_start(t->region) + t->region_offset + done,
				    .length = min_u64(t->length - done, PIECE) };
	int handle = region_handle(ctx, t->region);

	if (handle < 0)
		return handle;
	io.handle = (uint32_t)handle;
	*len = io.length;
	return module_io_queue(ctx->p2p.fd, ring, &io, tag);
}

uint64_t p2p_run(const struct strait_transfer *t, struct p2p_piece *p)
{
	if (t->endpoint->facts.self_dma)
		return self_dma_run(t, p);
	return module_moves(t, p->start, p->end, p->deadline, p->cancel, &p->err);
}
