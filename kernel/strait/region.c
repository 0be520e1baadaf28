// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Regions: allocation, the table of handles, use, revocation. */
#include "backing.h"
#include "core.h"
#include "file.h"
#include "import.h"
#include "map.h"
#include "region.h"
#include "trace.h"
#include "window.h"

struct strait_region *strait_region_new(u32 kind, u64 length)
{
	struct strait_region *r = strait_zalloc(sizeof(*r));

	if (!r)
		return NULL;
	kref_init(&r->kref);
	spin_lock_init(&r->lock);
	r->kind = kind;
	r->length = length;
	return r;
}

int strait_region_reserve(struct strait_file *f, struct strait_region *r)
{
	return strait_xa_reserve(&f->regions, &r->handle, STRAIT_REGIONS_MAX, &f->next);
}

void strait_region_commit(struct strait_file *f, struct strait_region *r)
{
	/* The entry is reserved: storing to it needs no memory. */
	xa_store(&f->regions, r->handle, r, GFP_KERNEL);
}

void strait_region_unreserve(struct strait_file *f, struct strait_region *r)
{
	xa_release(&f->regions, r->handle);
}

struct strait_region *strait_region_find(struct strait_file *f, u32 handle)
{
	struct strait_region *r;

	xa_lock(&f->regions);
	r = xa_load(&f->regions, handle);
	if (r)
		kref_get(&r->kref);
	xa_unlock(&f->regions);
	return r;
}

/* A reserved entry loads as NULL, and its owner removes it. */
struct strait_region *strait_region_remove(struct strait_file *f, u32 handle)
{
	struct strait_region *r;

	xa_lock(&f->regions);
	r = xa_load(&f->regions, handle);
	if (r)
		__xa_erase(&f->regions, handle);
	xa_unlock(&f->regions);
	return r;
}

static void region_release(struct kref *kref)
{
	struct strait_region *r = container_of(kref, struct strait_region, kref);

	if (r->watched)
		mmu_interval_notifier_remove(&r->notifier);
	strait_region_revoke(r);
	kfree(r);
}

void strait_region_put(struct strait_region *r)
{
	kref_put(&r->kref, region_release);
}

void strait_region_revoke(struct strait_region *r)
{
	struct strait_backing *b;

	strait_window_meet(STRAIT_W_USE);
	strait_window_meet(STRAIT_W_SET_BACKING);
	strait_window_meet(STRAIT_W_FINISH);
	spin_lock(&r->lock);
	b = r->backing;
	r->backing = NULL;
	r->revoked = true;
	spin_unlock(&r->lock);
	if (!b)
		return;
	trace_strait_revoke(r->handle, r->kind, r->length);
	strait_count(STRAIT_N_REVOKED, 1);
	strait_window_spin(STRAIT_W_DEFER);
	strait_maps_kill_deferred(b);
	strait_backing_put(b);
}

void strait_region_revoke_sync(struct strait_region *r)
{
	struct strait_backing *b;

	spin_lock(&r->lock);
	b = r->backing;
	if (b)
		kref_get(&b->kref);
	spin_unlock(&r->lock);
	strait_region_revoke(r);
	if (!b)
		return;
	strait_maps_kill(b);
	strait_backing_put(b);
}

/* The notifier revokes the region if the memory is unmapped while it is being pinned. */
int strait_region_set_backing(struct strait_region *r, struct strait_backing *b)
{
	int rc = 0;

	spin_lock(&r->lock);
	if (r->revoked)
		rc = -ENODEV;
	else
		r->backing = b;
	spin_unlock(&r->lock);
	return rc;
}

static int region_verify_pages(struct strait_region *r, struct strait_backing *b, u64 changes)
{
	int rc = strait_import_verify(r, b);

	if (rc) {
		strait_region_revoke(r);
		return rc;
	}
	strait_window(STRAIT_W_VERIFY);
	spin_lock(&r->lock);
	r->verified = max(r->verified, changes);
	spin_unlock(&r->lock);
	return 0;
}

int strait_region_use(struct strait_region *r, struct strait_backing **ret)
{
	struct strait_backing *b;
	u64 changes, verified;
	int rc;

	spin_lock(&r->lock);
	b = r->backing;
	changes = r->changes;
	verified = r->verified;
	if (b)
		kref_get(&b->kref);
	spin_unlock(&r->lock);
	if (!b)
		return -ENODEV;
	strait_window(STRAIT_W_USE);
	if (!strait_backing_use(b)) {
		strait_region_revoke(r);
		strait_backing_put(b);
		return -ENODEV;
	}
	rc = changes == verified ? 0 : region_verify_pages(r, b, changes);
	if (rc) {
		strait_backing_unuse(b);
		strait_backing_put(b);
		return rc;
	}
	*ret = b;
	return 0;
}
