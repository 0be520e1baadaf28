/* SPDX-License-Identifier: MIT */
/* Opening and closing a mapping. */
#include "mapping/mapping.h"

#include <stdlib.h>

#include "base/util.h"
#include "mapping/copy.h"
#include "mapping/range.h"
#include "os/os.h"

#define FLAGS (STRAIT_MAPPING_READ_ONLY | STRAIT_MAPPING_PRIVATE | STRAIT_MAPPING_COMPARE | STRAIT_MAPPING_COPY)
#define PINNED_BUDGET MIB(32)

static int check_endpoint(const struct strait_mapping *m)
{
	const struct endpoint_facts *f = &m->ep->facts;
	bool write = !(m->flags & (STRAIT_MAPPING_READ_ONLY | STRAIT_MAPPING_PRIVATE));

	if (m->ep->owner != m->ctx || (write && f->immutable))
		return -EINVAL;
	if (!f->can_buffered || (!endpoint_has_file(m->ep) && (!f->can_read || m->flags & STRAIT_MAPPING_PRIVATE)))
		return -EOPNOTSUPP;
	return write && !f->can_write ? -EACCES : 0;
}

/* Sets the range, which lies inside the file. */
static int set_range(struct strait_mapping *m, uint64_t offset, uint64_t length)
{
	uint64_t bytes = length;
	int rc;

	if (m->ep) {
		rc = m->ep->ops->length(m->ep, &bytes);
		if (rc)
			return rc;
	}
	if (offset % os_page_size() || offset > bytes || (!m->ep && offset))
		return -EINVAL;
	if (!length)
		length = bytes - offset;
	if (!length || !range_inside(offset, length, bytes) || !range_fits_off_t(offset, length + os_page_size()))
		return -EINVAL;
	m->offset = offset;
	m->length = length;
	m->first = map_is_private(m) ? 0 : offset >> GRANULE_SHIFT;
	m->end = m->first + ((length + GRANULE_BYTES - 1) >> GRANULE_SHIFT);
	return 0;
}

static int mapping_new(struct strait_context *ctx, struct strait_endpoint *ep, const struct strait_mapping_opts *user,
		       struct strait_mapping **ret)
{
	struct strait_mapping_opts o = { .size = sizeof(o) };
	struct strait_mapping *m;
	int rc = 0;

	if (user)
		rc = struct_in(&o, sizeof(o), user, STRAIT_MAPPING_OPTS_SIZE_V1);
	if (rc)
		return rc;
	if (o.flags & ~FLAGS || o.reserved || (!ep && o.flags & STRAIT_MAPPING_READ_ONLY))
		return -EINVAL;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->ctx = ctx;
	m->ep = ep;
	m->flags = o.flags;
	m->device_budget = o.device_budget;
	m->copy_budget = o.copy_budget;
	m->pinned_budget = o.pinned_budget ? o.pinned_budget : PINNED_BUDGET;
	list_init(&m->in_index);
	list_init(&m->acquired);
	*ret = m;
	return 0;
}

int mapping_open(struct strait_context *ctx, struct strait_endpoint *ep, uint64_t offset, uint64_t length,
		 const struct strait_mapping_opts *opts, struct strait_mapping **ret)
{
	struct strait_mapping *m;
	int rc;

	rc = mapping_new(ctx, ep, opts, &m);
	if (rc)
		return rc;
	rc = ep ? check_endpoint(m) : 0;
	if (!rc)
		rc = set_range(m, offset, length);
	if (rc)
		goto free_mapping;
	rc = host_map(m);
	if (rc)
		goto free_mapping;
	rc = index_get(m);
	if (rc)
		goto unmap;
	rc = m->copy ? copy_start(m) : 0;
	if (rc)
		goto put_index;
	engine_ref(ctx);
	if (ep)
		endpoint_ref(ep, 1);
	*ret = m;
	return 0;
put_index:
	index_put(m);
unmap:
	host_unmap(m);
free_mapping:
	free(m);
	return rc;
}

/* Stores all that can be stored: an error in one place does not keep the rest. */
static void store_all(struct strait_mapping *m)
{
	for (uint64_t g = m->first; g < m->end; g += CHUNK_GRANULES)
		walk_span(m, NULL, (struct span){ g, min_u64(g + CHUNK_GRANULES, m->end) }, GRANULE_READ_HOST, false);
}

void mapping_close(struct strait_mapping *m)
{
	struct strait_context *ctx = m->ctx;
	struct strait_endpoint *ep = m->ep;
	bool views = m->copy;

	pthread_mutex_lock(&m->index->lock);
	while (m->in_background)
		pthread_cond_wait(&m->index->moved, &m->index->lock);
	for (unsigned int i = 0; i < DEVICES_MAX; i++)
		views |= m->views[i] != NULL;
	pthread_mutex_unlock(&m->index->lock);
	if (views)
		store_all(m);
	list_for_each_safe(it, tmp, &m->acquired)
		acquired_free(list_entry(it, struct acquired, node));
	for (unsigned int i = 0; i < DEVICES_MAX; i++)
		if (m->views[i])
			view_close(m->views[i]);
	if (m->copy)
		copy_stop(m);
	index_put(m);
	host_unmap(m);
	free(m->advice);
	free(m);
	if (ep)
		endpoint_unref(ep, 1);
	engine_unref(ctx);
}

void mapping_info(struct strait_mapping *m, struct strait_mapping_info *info)
{
	*info = (struct strait_mapping_info){
		.size = sizeof(*info),
		.addr = m->addr,
		.length = m->length,
		.offset = m->offset,
		.tracking = m->tracking,
		.flags = m->flags,
		.error = atomic_load_explicit(&m->error, memory_order_relaxed),
		.to_device_bytes = atomic_load_explicit(&m->to_device, memory_order_relaxed),
		.to_host_bytes = atomic_load_explicit(&m->to_host, memory_order_relaxed),
		.copies = atomic_load_explicit(&m->copies, memory_order_relaxed),
		.conflicts = atomic_load_explicit(&m->conflicts, memory_order_relaxed),
		.declared = atomic_load_explicit(&m->declared, memory_order_relaxed),
		.evictions = atomic_load_explicit(&m->evictions, memory_order_relaxed),
		.between_bytes = atomic_load_explicit(&m->between, memory_order_relaxed),
		.scan_ns = atomic_load_explicit(&m->scan_ns, memory_order_relaxed),
		.protect_ns = atomic_load_explicit(&m->protect_ns, memory_order_relaxed),
		.walk_ns = atomic_load_explicit(&m->walk_ns, memory_order_relaxed),
		.stage_ns = atomic_load_explicit(&m->stage_ns, memory_order_relaxed),
		.device_ns = atomic_load_explicit(&m->device_ns, memory_order_relaxed),
	};
	if (!info->error)
		info->error = atomic_load_explicit(&m->fault_error, memory_order_relaxed);
	info->backing = m->copy ? STRAIT_BACKING_COPY : STRAIT_BACKING_SHARED;
	info->copy_evictions = atomic_load_explicit(&m->copy_evictions, memory_order_relaxed);
	info->faults = atomic_load_explicit(&m->faults, memory_order_relaxed);
	pthread_mutex_lock(&m->index->lock);
	if (m->copy)
		info->copy_bytes = m->copy->view->present << GRANULE_SHIFT;
	info->acquired = m->n_acquired;
	for (unsigned int i = 0; i < DEVICES_MAX; i++) {
		struct view *v = m->views[i];

		if (!v)
			continue;
		info->device_bytes += v->device_bytes;
		info->twin_bytes += v->twin_bytes;
		pthread_mutex_lock(&v->stage_lock);
		info->pinned_bytes += v->staged_bytes + v->result_bytes;
		pthread_mutex_unlock(&v->stage_lock);
	}
	pthread_mutex_unlock(&m->index->lock);
}
