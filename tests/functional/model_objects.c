/* SPDX-License-Identifier: MIT */
/* Endpoints, regions, queue and streams of the random test against a model: opened, closed and replaced. */
#include "model.h"

#define HOST (MODEL_DEVICES - 1)

/* Mostly short; sometimes up to the last byte, or past the end. Often aligned, as direct I/O needs it. */
uint64_t model_any_length(struct model_thread *t)
{
	static const uint64_t most[] = { 64, 5000, 70000, 700000 };
	uint64_t n = model_any(t, min_u64(model_any(t, 8) ? most[model_any(t, 4)] : t->max, t->max) + 1);

	return model_any(t, 3) ? n : align_down(n, 4096);
}

uint64_t model_any_offset(struct model_thread *t, uint64_t room)
{
	uint64_t off = model_any(t, room + 1);

	return model_any(t, 2) ? off : align_down(off, model_any(t, 2) ? 512 : 4096);
}

struct model_region *model_any_region(struct model_thread *t)
{
	return &t->region[model_any(t, MODEL_REGIONS)];
}

const char *model_name_of(const struct model_thread *t, const struct model_endpoint *e)
{
	static const char *const names[] = { "file 0", "file 1", "file 2" };

	if (!e->f)
		return "common";
	return e->shared ? "fixed" : names[e->f - t->file];
}

void model_open_endpoint(struct model_thread *t, struct model_endpoint *e)
{
	static const uint32_t flags[] = { 0,
					  0,
					  STRAIT_FILE_DIRECT,
					  STRAIT_FILE_BUFFERED,
					  STRAIT_FILE_IMMUTABLE,
					  STRAIT_FILE_LEASE,
					  STRAIT_FILE_IMMUTABLE | STRAIT_FILE_DIRECT,
					  STRAIT_FILE_LEASE | STRAIT_FILE_BUFFERED };
	static const int access[] = { O_RDONLY, O_RDWR, O_RDWR, O_WRONLY };
	static const int more[] = { 0, O_DIRECT, O_APPEND, O_NONBLOCK };
	int oflags = access[model_any(t, ARRAY_SIZE(access))], fd;
	bool import = !model_any(t, 3);
	const char *path;

	/* The last endpoint is always on the file that all threads change. */
	e->f = e == &t->ep[MODEL_ENDPOINTS - 1] ? NULL : &t->file[model_any(t, MODEL_FILES)];
	e->flags = flags[model_any(t, ARRAY_SIZE(flags))];
	/* Not on a file that the endpoint itself, or another thread, writes: the promise would be broken. */
	if (e->flags & STRAIT_FILE_IMMUTABLE)
		oflags = O_RDONLY;
	if (!e->f)
		e->flags &= ~STRAIT_FILE_IMMUTABLE;
	e->can_read = oflags != O_WRONLY;
	e->can_write = oflags != O_RDONLY;
	path = e->f ? e->f->path : t->w->common;
	if (import)
		oflags |= more[model_any(t, ARRAY_SIZE(more))];
	if ((oflags & O_DIRECT) && (e->flags & STRAIT_FILE_BUFFERED))
		oflags &= ~O_DIRECT;
	model_say(t, "endpoint %ld: %s %s, oflags 0%o, flags 0x%x", (long)(e - t->ep), import ? "import" : "open",
		  model_name_of(t, e), oflags, e->flags);
	if (import) {
		fd = open(path, oflags | O_CLOEXEC);
		/* With O_NONBLOCK, open() does not wait for a lease that another endpoint holds. */
		while (fd < 0 && errno == EWOULDBLOCK) {
			sleep_ms(1);
			fd = open(path, oflags | O_CLOEXEC);
		}
		ASSERT_GE(fd, 0);
		ASSERT_OK(strait_file_import(t->w->ctx, fd, e->flags, &e->ep));
		close(fd);
	} else {
		e->ep = file_new(t->w->ctx, path, oflags, e->flags);
	}
}

/* Called before the file changes: endpoints that declared it immutable are opened again without that flag. */
void model_break_promises(struct model_thread *t, const struct model_file *f)
{
	for (int i = 0; i < MODEL_ENDPOINTS; i++) {
		struct model_endpoint *e = &t->ep[i];

		if (e->f != f || !(e->flags & STRAIT_FILE_IMMUTABLE))
			continue;
		strait_endpoint_close(e->ep);
		e->flags &= ~STRAIT_FILE_IMMUTABLE;
		model_say(t, "endpoint %d: promises nothing any more", i);
		e->ep = file_new(t->w->ctx, f->path, O_RDONLY, e->flags);
	}
}

void model_reopen(struct model_thread *t)
{
	struct model_endpoint *e = &t->ep[model_any(t, MODEL_ENDPOINTS)];

	strait_endpoint_close(e->ep);
	model_open_endpoint(t, e);
}

static void open_region(struct model_thread *t, struct model_region *r)
{
	struct model_world *w = t->w;

	r->dev = (unsigned int)model_any(t, MODEL_DEVICES);
	r->len = t->max + model_any(t, t->max / 2);
	r->mem = malloc(r->len);
	r->own = NULL;
	r->gone = false;
	ASSERT_TRUE(r->mem);
	if (model_any(t, 2) && (r->dev == HOST || where_emulated(NULL))) {
		if (r->dev == HOST)
			ASSERT_EQ(posix_memalign(&r->own, 4096, r->len), 0);
		else
			ASSERT_OK(strait_emu_malloc(w->dev[r->dev], r->len, &r->own));
		ASSERT_OK(strait_region_import(w->ctx, w->dev[r->dev], r->own, r->len, &r->r));
	} else {
		r->r = region_new(w->dev[r->dev], r->len);
	}
	model_say(t, "region %ld: %s %llu bytes of device %u", (long)(r - t->region), r->own ? "import" : "alloc",
		  (unsigned long long)r->len, r->dev);
	prng_fill(r->mem, r->len, model_any(t, 1000));
	ASSERT_OK(strait_region_copy_in(r->r, 0, r->mem, r->len));
}

static void close_region(struct model_thread *t, struct model_region *r)
{
	strait_region_close(r->r);
	if (r->own && r->dev == HOST)
		free(r->own);
	else if (r->own)
		ASSERT_OK(strait_emu_free(t->w->dev[r->dev], r->own));
	free(r->mem);
}

void model_renew_region(struct model_thread *t)
{
	struct model_region *r = model_any_region(t);

	close_region(t, r);
	open_region(t, r);
}

static void open_streams(struct model_thread *t)
{
	ASSERT_OK(strait_queue_open(t->w->ctx, NULL, &t->q));
	for (int i = 0; i < MODEL_DEVICES; i++)
		ASSERT_OK(strait_stream_open(t->w->dev[i], &t->stream[i]));
}

static void close_streams(struct model_thread *t)
{
	strait_queue_close(t->q);
	for (int i = 0; i < MODEL_DEVICES; i++)
		strait_stream_close(t->stream[i]);
}

void model_open_all(struct model_thread *t)
{
	for (int i = 0; i < MODEL_ENDPOINTS; i++)
		model_open_endpoint(t, &t->ep[i]);
	for (int i = 0; i < MODEL_SHARED; i++)
		t->ep[MODEL_ENDPOINTS + i] = (struct model_endpoint){
			.ep = t->w->shared[i], .f = &t->w->fixed, .can_read = true, .shared = true
		};
	for (int i = 0; i < MODEL_REGIONS; i++)
		open_region(t, &t->region[i]);
	open_streams(t);
}

void model_close_all(struct model_thread *t)
{
	close_streams(t);
	for (int i = 0; i < MODEL_REGIONS; i++)
		close_region(t, &t->region[i]);
	for (int i = 0; i < MODEL_ENDPOINTS; i++)
		strait_endpoint_close(t->ep[i].ep);
}

void model_renew_streams(struct model_thread *t)
{
	model_say(t, "another queue and other streams");
	close_streams(t);
	open_streams(t);
}
