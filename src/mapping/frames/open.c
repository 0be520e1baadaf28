/* SPDX-License-Identifier: MIT */
/* Opening and closing frames: device memory, slots, windows. */
#include <stdlib.h>

#include "base/util.h"
#include "mapping/frames/frames.h"
#include "os/os.h"

#define FLAGS (STRAIT_FRAMES_NO_WINDOWS | STRAIT_FRAMES_SOLE_WRITER)
#define FRAME_BYTES KIB(64)
#define SERVICE_THREADS 2u
#define SLOTS 256u
#define TIMEOUT_NS 30000000000ull
#define WINDOW_SHIFT 15 /* granules of a window: 128 MiB */
#define TABLE_ALIGN 256u

_Static_assert(STRAIT_VIEW_GRANULE == GRANULE_BYTES, "device code has other granules");

int frames_copy(struct strait_frames *f, uint64_t addr, void *host, uint64_t len, bool out, bool isolated)
{
	struct lane_stream *ls;
	int rc, done;

	rc = engine_stream_get(f->dev, &f->tables->mem, isolated, &ls);
	if (rc)
		return rc;
	rc = out ? f->dev->ops->copy_out(ls->stream, host, addr, len) :
		   f->dev->ops->copy_in(ls->stream, addr, host, len);
	done = f->dev->ops->stream_wait(ls->stream, STRAIT_FOREVER);
	if (!rc)
		rc = done;
	engine_stream_put(f->dev, ls, rc != 0);
	return rc;
}

static int fill_zeros(struct strait_frames *f, uint64_t addr, uint64_t len)
{
	struct lane_stream *ls;
	int rc, done;

	rc = engine_stream_get(f->dev, &f->tables->mem, false, &ls);
	if (rc)
		return rc;
	rc = f->dev->ops->fill(ls->stream, addr, 0, len);
	done = f->dev->ops->stream_wait(ls->stream, STRAIT_FOREVER);
	if (!rc)
		rc = done;
	engine_stream_put(f->dev, ls, rc != 0);
	return rc;
}

static int set_options(struct strait_frames *f, const struct strait_frames_opts *o)
{
	uint32_t bytes = o->frame_bytes ? o->frame_bytes : FRAME_BYTES, shift = 0, block;
	uint64_t granules = f->m->end - f->m->first, budget = o->device_budget, pages;
	struct strait_device_info info = { .size = sizeof(info) };
	struct strait_view *v = &f->view;

	if (o->flags & ~FLAGS || o->reserved || o->threads > FRAMES_THREADS_MAX || o->slots > STRAIT_VIEW_SLOTS_MAX)
		return -EINVAL;
	if (bytes != KIB(4) && bytes != KIB(16) && bytes != KIB(64) && bytes != MIB(2))
		return -EINVAL;
	while (GRANULE_BYTES << shift < bytes)
		shift++;
	pages = (granules + (1u << shift) - 1) >> shift;
	block = (uint32_t)min_u64(shift, STRAIT_VIEW_BLOCK_SHIFT);
	if ((granules >> block) + 1 > UINT32_MAX - STRAIT_FRAME_PAGE)
		return -E2BIG;
	if (!budget) {
		int rc = f->dev->ops->info(f->dev, &info);

		if (rc)
			return rc;
		budget = info.mem_free / 2;
	}
	f->flags = o->flags;
	f->threads = o->threads ? o->threads : SERVICE_THREADS;
	*v = (struct strait_view){
		.abi = STRAIT_VIEW_ABI,
		.length = f->m->length,
		.granules = granules,
		.page_shift = shift,
		.n_frames = (uint32_t)min_u64(min_u64(budget / bytes, pages), STRAIT_PAGE_FRAME),
		.words = (uint32_t)max_u64(1, (1u << shift) / 32),
		.n_slots = o->slots ? o->slots : SLOTS,
		.timeout_ns = o->timeout_ns ? o->timeout_ns : TIMEOUT_NS,
		.window_shift = WINDOW_SHIFT,
		.block_shift = block,
	};
	if (!v->n_frames || (o->pins && v->n_frames <= o->pins))
		return -ENOSPC;
	if (o->pins)
		v->flags |= STRAIT_VIEW_RESERVED;
	if (v->n_frames >= pages)
		v->flags |= STRAIT_VIEW_FITS;
	return 0;
}

/* The next table of @len bytes; *@at: where the one after it begins. */
static uint64_t table_at(uint64_t *at, uint64_t len)
{
	uint64_t here = *at;

	*at += align_up(len, TABLE_ALIGN);
	return here;
}

static void *device_ptr(uint64_t addr)
{
	return (void *)(uintptr_t)addr;
}

static int alloc_tables(struct strait_frames *f)
{
	struct strait_view *v = &f->view;
	uint64_t pages = (v->granules + (1u << v->page_shift) - 1) >> v->page_shift,
		 words = (uint64_t)v->n_frames * v->words;
	uint64_t len = 0, page, state, shared, window, owner, error, dirty, base;
	int rc;

	page = table_at(&len, pages * sizeof(*v->page));
	state = table_at(&len, words * sizeof(*v->state));
	shared = table_at(&len, sizeof(*v->shared));
	window = table_at(&len, max_u64(f->n_windows, 1) * sizeof(*v->window));
	owner = table_at(&len, v->n_frames * sizeof(*v->owner));
	error = table_at(&len, v->n_frames * sizeof(*v->error));
	dirty = table_at(&len, words * sizeof(*v->dirty));
	rc = region_alloc(f->dev, len, &f->tables);
	if (!rc)
		rc = region_alloc(f->dev, (uint64_t)v->n_frames << v->page_shift << GRANULE_SHIFT, &f->data);
	if (rc)
		return rc;
	base = f->tables->mem.addr;
	v->page = device_ptr(base + page);
	v->state = device_ptr(f->at_state = base + state);
	v->shared = device_ptr(f->at_shared = base + shared);
	v->owner = device_ptr(f->at_owner = base + owner);
	v->error = device_ptr(base + error);
	v->dirty = device_ptr(f->at_dirty = base + dirty);
	v->window = f->n_windows ? device_ptr(base + window) : NULL;
	v->data = device_ptr(f->data->mem.addr);
	return fill_zeros(f, base, len);
}

static int alloc_slots(struct strait_frames *f)
{
	struct strait_view *v = &f->view;
	uint64_t requests = align_up(v->n_slots * sizeof(*v->request), GRANULE_BYTES);
	uint64_t completions = align_up(v->n_slots * sizeof(*v->completion), GRANULE_BYTES);
	void *ptr;
	int rc;

	f->pinned_len = requests + completions + (uint64_t)v->n_slots * GRANULE_BYTES;
	rc = os_map_anon(f->pinned_len, f->dev->numa_node, &ptr);
	if (rc)
		return rc;
	os_dont_fork(ptr, f->pinned_len);
	f->pinned = ptr;
	rc = f->dev->ops->host_register(f->dev, ptr, f->pinned_len, 0, &f->pinned_reg);
	if (rc)
		return rc;
	f->pinned_registered = true;
	f->request = ptr;
	f->completion = (void *)(f->pinned + requests);
	f->slot_data = f->pinned + requests + completions;
	v->request = device_ptr(f->pinned_reg.dev_addr);
	v->completion = device_ptr(f->pinned_reg.dev_addr + requests);
	v->slot_data = device_ptr(f->pinned_reg.dev_addr + requests + completions);
	return 0;
}

static bool windows_wanted(const struct strait_frames *f)
{
	const struct strait_mapping *m = f->m;
	bool stable = m->flags & STRAIT_MAPPING_READ_ONLY || f->flags & STRAIT_FRAMES_SOLE_WRITER;

	return stable && !(f->flags & STRAIT_FRAMES_NO_WINDOWS) && m->host && !map_is_private(m);
}

/* Windows that the mapping has if all of it is registered. */
static uint64_t windows_of(const struct strait_frames *f)
{
	return (f->m->map_len + (GRANULE_BYTES << WINDOW_SHIFT) - 1) / (GRANULE_BYTES << WINDOW_SHIFT);
}

/* Registers the mapping from its start on, as far as the budget and the driver allow: the rest is read through slots. */
static int register_windows(struct strait_frames *f, uint64_t budget)
{
	uint64_t bytes = GRANULE_BYTES << WINDOW_SHIFT, len = f->m->map_len, n = windows_of(f);

	if (!windows_wanted(f))
		return 0;
	f->windows = calloc(n, sizeof(*f->windows));
	if (!f->windows)
		return -ENOMEM;
	for (uint64_t i = 0; i < n; i++) {
		uint64_t part = min_u64(bytes, len - i * bytes);

		if (budget && f->window_bytes + part > budget)
			break;
		if (f->dev->ops->host_register(f->dev, f->m->host + i * bytes, part, HOST_REG_READ_ONLY | HOST_REG_FILE,
					       &f->windows[i].reg))
			break;
		f->windows[i].registered = true;
		f->window_bytes += part;
	}
	if (f->window_bytes)
		f->n_windows = n;
	return 0;
}

static int publish_windows(struct strait_frames *f)
{
	uint64_t *addr;
	int rc;

	if (!f->n_windows)
		return 0;
	addr = calloc(f->n_windows, sizeof(*addr));
	if (!addr)
		return -ENOMEM;
	for (uint64_t i = 0; i < f->n_windows; i++)
		addr[i] = f->windows[i].registered ? f->windows[i].reg.dev_addr : 0;
	rc = frames_copy(f, (uintptr_t)f->view.window, addr, f->n_windows * sizeof(*addr), false, false);
	free(addr);
	return rc;
}

/* The frames are empty: nothing in them is stale. */
static int alloc_versions(struct strait_frames *f)
{
	struct strait_mapping *m = f->m;
	uint64_t first = m->first / CHUNK_GRANULES, n = (m->end - 1) / CHUNK_GRANULES - first + 1;

	f->seen = calloc(f->view.granules, sizeof(*f->seen));
	f->seen_changes = calloc(n, sizeof(*f->seen_changes));
	f->stale = calloc((f->view.granules + 7) / 8, 1);
	if (!f->seen || !f->seen_changes || !f->stale)
		return -ENOMEM;
	pthread_mutex_lock(&m->index->lock);
	for (uint64_t i = 0; i < n; i++) {
		const struct map_chunk *c = index_chunk(m->index, (first + i) * CHUNK_GRANULES);
		uint64_t g = max_u64((first + i) * CHUNK_GRANULES, m->first);

		/* Most chunks of a large file never changed, and take no memory. */
		f->seen_changes[i] = c->changes;
		for (; c->changes && g < min_u64((first + i + 1) * CHUNK_GRANULES, m->end); g++)
			f->seen[g - m->first] = c->granules[g % CHUNK_GRANULES].version;
	}
	pthread_mutex_unlock(&m->index->lock);
	return 0;
}

static void frames_free(struct strait_frames *f)
{
	frames_service_stop(f);
	for (uint64_t i = 0; f->windows && i < windows_of(f); i++)
		if (f->windows[i].registered)
			f->dev->ops->host_unregister(f->dev, &f->windows[i].reg);
	if (f->pinned_registered)
		f->dev->ops->host_unregister(f->dev, &f->pinned_reg);
	os_unmap(f->pinned, f->pinned_len);
	if (f->data)
		region_put(f->data);
	if (f->tables)
		region_put(f->tables);
	pthread_cond_destroy(&f->changed);
	pthread_mutex_destroy(&f->lock);
	free(f->windows);
	free(f->seen);
	free(f->seen_changes);
	free(f->stale);
	free(f);
}

int frames_open(struct strait_mapping *m, struct strait_device *dev, const struct strait_frames_opts *user,
		struct strait_frames **ret)
{
	struct strait_frames_opts o = { .size = sizeof(o) };
	struct strait_frames *f;
	int rc = user ? struct_in(&o, sizeof(o), user, STRAIT_FRAMES_OPTS_SIZE_V1) : 0;

	if (rc)
		return rc;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->m = m;
	f->dev = dev;
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->changed, NULL);
	rc = set_options(f, &o);
	if (!rc)
		rc = register_windows(f, o.window_budget);
	if (!rc)
		rc = alloc_tables(f);
	if (!rc)
		rc = publish_windows(f);
	if (!rc)
		rc = alloc_slots(f);
	if (!rc)
		rc = alloc_versions(f);
	if (!rc)
		rc = frames_service_start(f);
	if (rc) {
		frames_free(f);
		return rc;
	}
	*ret = f;
	return 0;
}

void frames_close(struct strait_frames *f)
{
	int rc = frames_end_now(f);

	if (rc)
		log_warn(&f->m->ctx->log, "%s: frames were closed with bytes that could not be written: %s",
			 f->dev->name, strerror(-rc));
	frames_free(f);
}

void frames_info(struct strait_frames *f, struct strait_frames_info *info)
{
	const struct strait_view *v = &f->view;

	pthread_mutex_lock(&f->lock);
	*info = (struct strait_frames_info){
		.size = sizeof(*info),
		.frames = v->n_frames,
		.frame_bytes = GRANULE_BYTES << v->page_shift,
		.device_bytes = f->data->mem.len + f->tables->mem.len,
		.pinned_bytes = f->pinned_len,
		.window_bytes = f->window_bytes,
		.fetched = f->shared.fetched,
		.pulled = f->shared.pulled,
		.stored = f->stored + f->shared.stored,
		.evictions = f->shared.evicted,
		.dropped = f->dropped,
		.failures = f->shared.failed,
		.error = f->error ? f->error : -(int32_t)(f->shared.first_error & 0xffff),
		.begun = f->state != FRAMES_IDLE,
		.error_offset = (f->error ? f->error_granule : f->shared.first_error >> 16) << GRANULE_SHIFT,
	};
	pthread_mutex_unlock(&f->lock);
}
