/* SPDX-License-Identifier: MIT */
#include "engine/route.h"

#include "base/util.h"
#include "uapi/strait.h"

static enum route_reason judge(const struct route_facts *f, enum strait_route route)
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
		if (f->op != STRAIT_READ)
			return ROUTE_READ_ONLY;
		if (!f->can_register_file)
			return ROUTE_NO_REGISTER;
		if (!f->ep->can_map)
			return ROUTE_NO_MAP;
		return ROUTE_OK;
	case STRAIT_ROUTE_STAGED:
		return f->host_memory ? ROUTE_HOST_MEMORY : ROUTE_OK;
	default:
		return f->host_memory ? ROUTE_OK : ROUTE_NOT_HOST;
	}
}

void route_decide(const struct route_facts *f, struct route_decision *d)
{
	const uint32_t pagecache = STRAIT_ROUTE_MASK(STRAIT_ROUTE_PAGECACHE), p2p = STRAIT_ROUTE_MASK(STRAIT_ROUTE_P2P);

	memset(d, 0, sizeof(*d));
	d->route = -1;
	for (int r = 0; r < STRAIT_ROUTE_COUNT; r++) {
		d->reason[r] = judge(f, r);
		if (d->reason[r] != ROUTE_OK)
			continue;
		d->possible |= STRAIT_ROUTE_MASK(r);
		if (f->routes && !(f->routes & STRAIT_ROUTE_MASK(r)))
			d->reason[r] = ROUTE_NOT_ASKED;
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
}

static void explain_ok(const struct route_facts *f, const struct route_decision *d, int route,
		       struct strait_route_verdict *v)
{
	if (route != STRAIT_ROUTE_P2P && (d->mask & STRAIT_ROUTE_MASK(STRAIT_ROUTE_P2P))) {
		str_copy(v->why, sizeof(v->why), "takes the ends that are not aligned for the drive");
		return;
	}
	switch (route) {
	case STRAIT_ROUTE_P2P:
		str_format(v->why, sizeof(v->why),
			   "the drive %s memory of %s itself; tried with a block, which arrived",
			   f->op == STRAIT_READ ? "writes to" : "reads from", f->device);
		break;
	case STRAIT_ROUTE_PAGECACHE:
		str_format(v->why, sizeof(v->why), "the copy engine of %s reads the page cache in place%s", f->device,
			   f->unchanged ? "; windows stay registered, the file does not change" : "");
		break;
	case STRAIT_ROUTE_STAGED:
		if (f->ep->can_move)
			str_copy(v->why, sizeof(v->why),
				 "the drive moves the bytes to host memory, from where they are copied");
		else if (d->mask & STRAIT_ROUTE_MASK(STRAIT_ROUTE_PAGECACHE))
			str_copy(v->why, sizeof(v->why),
				 "takes the windows that are not cached, and shares the cached ones");
		else if (f->op == STRAIT_WRITE)
			str_format(v->why, sizeof(v->why), "through a pinned ring, %s",
				   f->ep->force_direct ? "direct I/O where aligned" : "buffered writes");
		else
			str_format(v->why, sizeof(v->why), "through a pinned ring, %s%s",
				   f->ep->can_direct ? "direct I/O for what is not cached" : "buffered reads: ",
				   f->ep->can_direct ? "" : f->ep->direct_why);
		break;
	default:
		if (f->moves)
			str_copy(v->why, sizeof(v->why), "the drive moves the bytes to and from host memory itself");
		else if (f->ep->can_move)
			str_format(v->why, sizeof(v->why), "the drive moves the bytes, then they are copied: %s",
				   f->reach_why[0] ? f->reach_why : "the request is not aligned");
		else
			str_copy(v->why, sizeof(v->why), "plain file I/O: the region is host memory");
	}
}

static const char *reason_text(uint32_t reason)
{
	static const char *const texts[STRAIT_REASON_COUNT] = {
		[STRAIT_REASON_NONE] = "it cannot tell why",
		[STRAIT_REASON_NOT_A_FILE] = "neither a regular file nor a block device",
		[STRAIT_REASON_NO_DIRECT] = "the file has no direct I/O",
		[STRAIT_REASON_FILE_SYSTEM] = "the file system may keep bytes otherwise than as they are on one drive",
		[STRAIT_REASON_TRANSFORMED] =
			"the file is encrypted, compressed or otherwise not on the drive as it is",
		[STRAIT_REASON_OTHER_DRIVE] = "the file lies on the file system's realtime drive",
		[STRAIT_REASON_NO_DRIVE] = "there is no drive below the file",
		[STRAIT_REASON_NOT_PCI] = "the drive is not a PCI device but made of others",
		[STRAIT_REASON_NO_QUEUE] = "the drive's driver does not take memory of other devices",
		[STRAIT_REASON_CHECKSUMS] = "the CPU makes checksums of what the drive moves",
		[STRAIT_REASON_NO_PATH] = "the kernel knows no way from the drive to the device",
		[STRAIT_REASON_NO_PAGES] = "the memory has addresses and no pages",
		[STRAIT_REASON_NO_P2PDMA] = "the kernel has no PCI P2PDMA",
		[STRAIT_REASON_APPEND] = "the file is open for appending",
		[STRAIT_REASON_ALIGNMENT] = "not aligned",
	};

	return reason < STRAIT_REASON_COUNT && texts[reason] ? texts[reason] : "a reason this library does not know";
}

static void explain_refused(const struct route_facts *f, enum route_reason reason, struct strait_route_verdict *v)
{
	v->code = -EOPNOTSUPP;
	switch (reason) {
	case ROUTE_NO_ACCESS:
		v->code = -EBADF;
		str_format(v->why, sizeof(v->why), "the file is not open for %s",
			   f->op == STRAIT_READ ? "reading" : "writing");
		str_copy(v->fix, sizeof(v->fix), "open it with the access the transfer needs");
		break;
	case ROUTE_NO_MODULE:
		str_format(v->why, sizeof(v->why), "no strait.ko: /dev/strait: %s",
			   strerror(f->module ? -f->module : ENOSYS));
		str_copy(
			v->fix, sizeof(v->fix),
			"needs the kernel module, a kernel with PCI P2PDMA, and a drive and a GPU that reach each other");
		break;
	case ROUTE_NO_PAGES:
		str_format(v->why, sizeof(v->why), "nothing makes memory of %s known to drives", f->device);
		str_copy(v->fix, sizeof(v->fix), "needs a driver that maps its memory with P2PDMA pages");
		break;
	case ROUTE_NO_IMPORT:
		str_format(v->why, sizeof(v->why), "strait.ko does not take memory of %s", f->device);
		str_copy(v->fix, sizeof(v->fix), "needs a kernel with PCI P2PDMA; dmesg may say more");
		break;
	case ROUTE_NO_BRIDGE:
		str_format(v->why, sizeof(v->why), "strait.ko has no bridge to the driver of %s", f->device);
		str_copy(v->fix, sizeof(v->fix), "load strait_nvp2p, built for that driver");
		break;
	case ROUTE_NO_DIRECT:
		str_format(v->why, sizeof(v->why), "no direct I/O: %s",
			   f->ep->direct_why ? f->ep->direct_why : "the file has none");
		break;
	case ROUTE_REFUSED:
		str_format(v->why, sizeof(v->why), "strait.ko refuses: %s", reason_text(f->p2p_reason));
		break;
	case ROUTE_UNVERIFIED:
		str_format(v->why, sizeof(v->why), "it is not known whether the drive reaches memory of %s", f->device);
		str_copy(v->fix, sizeof(v->fix), "found out by the first file with data that is open for reading");
		break;
	case ROUTE_PAIR:
		str_format(v->why, sizeof(v->why),
			   "a block was tried: what the drive writes to memory of %s does not arrive", f->device);
		str_copy(v->fix, sizeof(v->fix), "look at the IOMMU's mode and at the switches between the two");
		break;
	case ROUTE_NO_REACH:
		str_copy(v->why, sizeof(v->why), f->reach_why);
		break;
	case ROUTE_UNALIGNED:
		str_copy(v->why, sizeof(v->why), "no part of the request is aligned for direct I/O in file and memory");
		break;
	case ROUTE_HOST_MEMORY:
		str_copy(v->why, sizeof(v->why), "the region is host memory: file I/O reaches it without a detour");
		break;
	case ROUTE_NOT_HOST:
		str_format(v->why, sizeof(v->why), "the region is memory of %s: file I/O cannot reach it", f->device);
		break;
	case ROUTE_READ_ONLY:
		str_copy(v->why, sizeof(v->why), "writes do not travel through a registered page cache");
		break;
	case ROUTE_NO_REGISTER:
		str_format(v->why, sizeof(v->why), "%s cannot register file mappings for its copy engine", f->device);
		break;
	case ROUTE_NO_MAP:
		if (f->ep->can_move) {
			str_copy(v->why, sizeof(v->why), "a drive in user space has no page cache");
			break;
		}
		str_format(v->why, sizeof(v->why), "the file cannot be mapped");
		str_copy(v->fix, sizeof(v->fix), "open it for reading");
		break;
	default:
		break;
	}
}

/* Until a block has arrived on this machine nobody knows whether one does. */
static void mark_unverified(const struct route_facts *f, enum route_reason reason, struct strait_route_verdict *v)
{
	size_t n = strlen(v->why);

	if (f->p2p_bridged && (reason == ROUTE_NO_MODULE || reason == ROUTE_NO_BRIDGE || reason == ROUTE_NO_IMPORT ||
			       reason == ROUTE_UNVERIFIED))
		str_copy(v->why + n, sizeof(v->why) - n, "; not verified on hardware");
}

void route_explain(const struct route_facts *f, const struct route_decision *d,
		   struct strait_route_verdict verdict[STRAIT_ROUTE_COUNT])
{
	for (int r = 0; r < STRAIT_ROUTE_COUNT; r++) {
		struct strait_route_verdict *v = &verdict[r];

		memset(v, 0, sizeof(*v));
		v->usable = !!(d->possible & STRAIT_ROUTE_MASK(r));
		switch (d->reason[r]) {
		case ROUTE_OK:
			explain_ok(f, d, r, v);
			break;
		case ROUTE_NOT_ASKED:
			v->code = -EOPNOTSUPP;
			str_copy(v->why, sizeof(v->why), "possible, but the request asks for other routes");
			break;
		case ROUTE_NOT_CACHED:
			if (f->ep->force_direct) {
				str_copy(v->why, sizeof(v->why),
					 "direct I/O was asked for, which goes past the page cache");
				str_copy(v->fix, sizeof(v->fix), "open the file without O_DIRECT");
			} else {
				str_copy(v->why, sizeof(v->why), "the file is not in the page cache");
				str_copy(v->fix, sizeof(v->fix), "read it once, or require this route");
			}
			break;
		case ROUTE_IN_MEMORY:
			str_copy(v->why, sizeof(v->why),
				 "most of it is in the page cache, which is nearer than the drive");
			str_copy(v->fix, sizeof(v->fix), "ask for direct I/O, or require this route");
			break;
		case ROUTE_SHORT:
			str_copy(v->why, sizeof(v->why),
				 "so few bytes are copied faster than their pages are registered");
			str_copy(v->fix, sizeof(v->fix), "ask for more at once, or require this route");
			break;
		default:
			explain_refused(f, d->reason[r], v);
			if (r == STRAIT_ROUTE_P2P)
				mark_unverified(f, d->reason[r], v);
		}
	}
}
