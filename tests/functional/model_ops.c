/* SPDX-License-Identifier: MIT */
/* The operations of the random test against a model. */
#include "model.h"

#include "base/crc32c.h"

static uint32_t any_routes(struct model_thread *t)
{
	static const uint32_t routes[] = { ROUTE(STAGED),
					   ROUTE(PAGECACHE),
					   ROUTE(P2P),
					   ROUTE(HOST),
					   ROUTE(STAGED) | ROUTE(PAGECACHE),
					   ROUTE(P2P) | ROUTE(STAGED) };

	return model_any(t, 2) ? 0 : routes[model_any(t, ARRAY_SIZE(routes))];
}

static struct model_endpoint *any_endpoint(struct model_thread *t)
{
	return &t->ep[model_any(t, ARRAY_SIZE(t->ep))];
}

/* A request and its objects. */
struct request {
	struct strait_transfer t;
	struct model_endpoint *e;
	struct model_region *r;
};

static struct request any_transfer(struct model_thread *t)
{
	struct request a = { .e = any_endpoint(t), .r = model_any_region(t) };
	uint64_t len = model_any_length(t);
	bool write = a.e->f && !a.e->shared && model_any(t, 3) == 0;

	len = min_u64(len, a.r->len);
	if (write)
		model_break_promises(t, a.e->f);
	a.t = (struct strait_transfer){ .op = write ? STRAIT_WRITE : STRAIT_READ,
					.routes = any_routes(t),
					.endpoint = a.e->ep,
					.region = a.r->r,
					.endpoint_offset = model_any_offset(t, write ? t->max - len : t->max),
					.region_offset = model_any_offset(t, a.r->len - len),
					.length = len,
					.user_data = t->op };
	/* Reads may go past the end; files of the model are not extended past their maximum. */
	if (!write)
		a.t.endpoint_offset = min_u64(a.t.endpoint_offset, t->max - 1);
	return a;
}

static void say_transfer(struct model_thread *t, const char *how, const struct request *a)
{
	model_say(t, "%s %s %s (endpoint %ld) at %llu, region %ld at %llu, %llu bytes, routes 0x%x", how,
		  a->t.op == STRAIT_READ ? "read" : "write", model_name_of(t, a->e), (long)(a->e - t->ep),
		  (unsigned long long)a->t.endpoint_offset, (long)(a->r - t->region),
		  (unsigned long long)a->t.region_offset, (unsigned long long)a->t.length, a->t.routes);
}

static void check_transfer(struct model_thread *t, const struct request *a, const struct strait_result *res)
{
	const struct strait_transfer *of = &a->t;

	if (of->op == STRAIT_READ)
		model_expect_read(t, a->e, a->r, of->endpoint_offset, of->region_offset, of->length, res->bytes,
				  res->status);
	else
		model_expect_write(t, a->e, a->r, of->endpoint_offset, of->region_offset, of->length, res->bytes,
				   res->status);
}

/* Is this a status that the request may end with? */
static void check_status(const struct request *a, int status)
{
	bool allowed = a->t.op == STRAIT_READ ? a->e->can_read : a->e->can_write;

	if (!allowed)
		ASSERT_EQ(status, -EBADF);
	else if (status)
		ASSERT_TRUE(status == -EOPNOTSUPP && a->t.routes != 0);
}

static void one_transfer(struct model_thread *t)
{
	struct request a = any_transfer(t);
	struct strait_route_report report = { .size = sizeof(report) };
	int64_t timeout = model_any(t, 8) ? STRAIT_FOREVER : (int64_t)model_any(t, 2000000);
	struct strait_result res;
	int rc;

	say_transfer(t, timeout == STRAIT_FOREVER ? "run" : "run for a while", &a);
	rc = strait_route_query(&a.t, &report);
	ASSERT_EQ(rc, a.r->gone ? -ENODEV : 0);
	rc = strait_transfer_run(&a.t, timeout, &res);
	ASSERT_EQ(rc, res.status);
	if (a.r->gone) {
		ASSERT_EQ(rc, -ENODEV);
		ASSERT_EQ(res.bytes, 0);
		return;
	}
	model_result(t, &a.t, a.r, &res);
	if (rc != -ETIMEDOUT || timeout == STRAIT_FOREVER)
		check_status(&a, rc);
	/* If the report has no route, the transfer must fail. */
	if (!report.mask)
		ASSERT_LT(rc, 0);
	check_transfer(t, &a, &res);
	model_expect_around(t, a.r, a.t.region_offset, a.t.length);
}

static void change_file(struct model_thread *t)
{
	struct model_file *f = &t->file[model_any(t, MODEL_FILES)];

	if (!model_any(t, 4)) {
		model_change_common(t);
		return;
	}
	model_break_promises(t, f);
	model_change_own(t, f);
}

/* ---- many at once ---- */

enum { BATCH = 14 };

/* Reads into one region, writes from others; no file is both read and written, and no range is used twice. */
static unsigned int any_batch(struct model_thread *t, struct request *a, struct model_region *into,
			      const struct model_file *written)
{
	unsigned int n = 1 + (unsigned int)model_any(t, BATCH), reads = 0;
	uint64_t slot = into->len / BATCH, file_slot = t->max / BATCH;

	for (unsigned int i = 0; i < n; i++) {
		struct request *one = &a[reads];
		uint64_t len;

		one->e = any_endpoint(t);
		if (one->e->f == written && one->e->f) {
			one->r = model_any_region(t);
			if (one->r == into || one->r->gone)
				continue;
			len = model_any(t, min_u64(file_slot, one->r->len) + 1);
			one->t = (struct strait_transfer){ .op = STRAIT_WRITE,
							   .endpoint_offset =
								   i * file_slot + model_any(t, file_slot - len + 1),
							   .region_offset = model_any_offset(t, one->r->len - len),
							   .length = len };
		} else {
			one->r = into;
			len = model_any(t, (model_any(t, 3) ? min_u64(slot, 5000) : slot) + 1);
			one->t = (struct strait_transfer){ .op = STRAIT_READ,
							   .endpoint_offset = model_any_offset(t, t->max - 1),
							   .region_offset = i * slot + model_any_offset(t, slot - len),
							   .length = len };
			if (one->t.region_offset < i * slot)
				one->t.region_offset = i * slot;
		}
		one->t.routes = any_routes(t);
		one->t.endpoint = one->e->ep;
		one->t.region = one->r->r;
		one->t.user_data = reads++;
		say_transfer(t, "queue", one);
	}
	return reads;
}

static void wait_for_all(struct model_thread *t, struct strait_result *res, unsigned int n)
{
	/* The number of waits depends on timing: it must not change the random operations that follow. */
	uint64_t state = t->w->seed + t->op;
	unsigned int got = 0;

	while (got < n) {
		unsigned int min = (unsigned int)prng_below(&state, n - got + 1);
		int64_t timeout = prng_below(&state, 3) ? STRAIT_FOREVER : (int64_t)prng_below(&state, 100000);
		int rc = strait_queue_wait(t->q, min, n - got, timeout, res + got);

		ASSERT_OK(rc);
		if (timeout == STRAIT_FOREVER)
			ASSERT_GE(rc, (int)min);
		got += (unsigned int)rc;
	}
	ASSERT_EQ(strait_queue_wait(t->q, 0, 1, 0, res), 0);
}

/*
 * Changes that a transfer in flight must survive. Returns the endpoint that was closed, to be opened again afterwards.
 */
static struct model_endpoint *disturb(struct model_thread *t, bool *canceled, unsigned int n, struct model_region *into,
				      bool revoke)
{
	struct model_endpoint *closed = model_any(t, 6) ? NULL : &t->ep[model_any(t, MODEL_ENDPOINTS)];

	if (n && !model_any(t, 4)) {
		unsigned int which = (unsigned int)model_any(t, n);
		int rc;

		model_say(t, "cancel %u", which);
		rc = strait_queue_cancel(t->q, which);
		ASSERT_TRUE(rc == 1 || rc == -ENOENT);
		canceled[which] = rc == 1;
	}
	if (closed) {
		model_say(t, "endpoint %ld: closed in flight", (long)(closed - t->ep));
		strait_endpoint_close(closed->ep);
	}
	if (revoke) {
		model_say(t, "revoke region %ld", (long)(into - t->region));
		ASSERT_OK(strait_region_revoke(into->r));
		ASSERT_EQ(strait_region_check(into->r), -ENODEV);
	}
	return closed;
}

static void check_batch(struct model_thread *t, const struct request *a, const bool *canceled,
			const struct strait_result *res, unsigned int n, const struct model_region *hidden)
{
	bool seen[BATCH] = { false };

	/* Apply all writes before comparing any: they may be adjacent. */
	for (unsigned int i = 0; i < n; i++) {
		const struct request *one = &a[res[i].user_data % BATCH];

		ASSERT_LT(res[i].user_data, n);
		ASSERT_FALSE(seen[res[i].user_data]);
		seen[res[i].user_data] = true;
		if (one->t.op == STRAIT_WRITE)
			model_take_write(t, one->e, one->r, one->t.endpoint_offset, one->t.region_offset, one->t.length,
					 res[i].bytes, res[i].status);
	}
	for (unsigned int i = 0; i < n; i++) {
		const struct request *one = &a[res[i].user_data];

		model_result(t, &one->t, one->r, &res[i]);
		if (res[i].status != -ECANCELED || !canceled[res[i].user_data])
			check_status(one, res[i].status);
		/* Revoked memory cannot be read. */
		if (one->r != hidden)
			check_transfer(t, one, &res[i]);
	}
}

static void batch(struct model_thread *t)
{
	struct model_file *written = model_any(t, 2) ? &t->file[model_any(t, MODEL_FILES)] : NULL;
	struct model_file *changed = model_any(t, 4) ? NULL : &t->file[model_any(t, MODEL_FILES)];
	bool canceled[BATCH] = { false }, revoke = !model_any(t, 24), uses = false;
	struct model_region *into = model_any_region(t);
	struct model_endpoint as_was[BATCH], *closed;
	struct strait_transfer list[BATCH];
	struct strait_result res[BATCH];
	struct request a[BATCH];
	unsigned int n;

	if (written)
		model_break_promises(t, written);
	if (changed == written)
		changed = NULL;
	if (changed)
		model_break_promises(t, changed);
	n = any_batch(t, a, into, written);
	for (unsigned int i = 0; i < n; i++) {
		as_was[i] = *a[i].e;
		a[i].e = &as_was[i];
		list[i] = a[i].t;
		uses |= a[i].r == into;
	}
	ASSERT_EQ(strait_queue_submit(t->q, list, n), into->gone && uses ? -ENODEV : 0);
	if (into->gone && uses)
		return;
	if (changed) {
		memcpy(changed->was, changed->now, t->max);
		changed->was_len = changed->len;
		changed->raced = true;
		model_change_own(t, changed);
	}
	revoke = revoke && !into->gone;
	closed = disturb(t, canceled, n, into, revoke);
	wait_for_all(t, res, n);
	check_batch(t, a, canceled, res, n, revoke ? into : NULL);
	into->gone |= revoke;
	/* Reads may be adjacent, too. */
	if (!into->gone)
		model_expect_region(t, into, 0, into->len);
	if (changed)
		changed->raced = false;
	if (closed)
		model_open_endpoint(t, closed);
}

/* ---- in order ---- */

static void stream_done(void *arg, const struct strait_result *result)
{
	*(struct strait_result *)arg = *result;
}

static void ordered(struct model_thread *t)
{
	enum { N = 5 };
	struct model_region *r = model_any_region(t);
	struct strait_result res[N];
	int64_t stored[N];
	struct request a[N];
	unsigned int n = 0;
	int rc;

	if (r->gone)
		return;
	for (int i = 0; i < N; i++) {
		struct strait_stream_transfer st = { .size = sizeof(st), .done = stream_done, .done_arg = &res[n] };
		bool common;

		a[n] = any_transfer(t);
		a[n].r = r;
		a[n].t.length = min_u64(a[n].t.length, r->len);
		a[n].t.region_offset = min_u64(a[n].t.region_offset, r->len - a[n].t.length);
		/*
		 * A transfer cannot be checked before the next one is enqueued: use only operations with a known
		 * outcome.
		 */
		common = !a[n].e->f;
		if (common || a[n].t.routes)
			continue;
		a[n].t.user_data = 0;
		stored[n] = INT64_MIN;
		st.op = a[n].t.op;
		st.endpoint = a[n].e->ep;
		st.region = r->r;
		st.endpoint_offset = &a[n].t.endpoint_offset;
		st.region_offset = &a[n].t.region_offset;
		st.length = &a[n].t.length;
		st.result = &stored[n];
		st.flags = model_any(t, 2) ? STRAIT_STREAM_FIXED : 0;
		say_transfer(t, st.flags ? "stream, fixed," : "stream", &a[n]);
		rc = strait_stream_transfer(t->stream[r->dev], &st);
		if (st.op == STRAIT_READ ? !a[n].e->can_read : !a[n].e->can_write) {
			ASSERT_EQ(rc, -EBADF);
			continue;
		}
		ASSERT_OK(rc);
		n++;
		if (model_any(t, 2))
			break;
	}
	ASSERT_OK(strait_stream_wait(t->stream[r->dev], STRAIT_FOREVER));
	for (unsigned int i = 0; i < n; i++) {
		model_result(t, &a[i].t, r, &res[i]);
		check_status(&a[i], res[i].status);
		ASSERT_EQ(stored[i], res[i].status ? res[i].status : (int64_t)res[i].bytes);
	}
	/* Apply them to the model in order, and compare after the last one. */
	for (unsigned int i = 0; i < n; i++) {
		const struct strait_transfer *of = &a[i].t;
		struct model_file *f = a[i].e->f;
		uint64_t there = of->endpoint_offset < f->len ? min_u64(of->length, f->len - of->endpoint_offset) : 0;

		if (res[i].status)
			continue;
		if (of->op == STRAIT_WRITE) {
			ASSERT_EQ(res[i].bytes, of->length);
			model_put(t, f, of->endpoint_offset, r->mem + of->region_offset, of->length);
		} else {
			ASSERT_EQ(res[i].bytes, there);
			memcpy(r->mem + of->region_offset, f->now + of->endpoint_offset, there);
		}
	}
	model_expect_region(t, r, 0, r->len);
	for (unsigned int i = 0; i < n; i++)
		model_expect_file(t, a[i].e->f);
}

/* ---- regions by themselves ---- */

static void use_region(struct model_thread *t)
{
	struct model_region *r = model_any_region(t), *other = model_any_region(t);
	uint64_t len = min_u64(model_any_length(t), r->len), at = model_any_offset(t, r->len - len), where;
	int want = r->gone ? -ENODEV : 0;
	uint32_t crc = 0;

	model_say(t, "region %ld: %llu bytes at %llu by itself", (long)(r - t->region), (unsigned long long)len,
		  (unsigned long long)at);
	ASSERT_EQ(strait_region_check(r->r), want);
	switch (model_any(t, 4)) {
	case 0:
		ASSERT_EQ(strait_region_fill(r->r, at, (uint8_t)t->op, len), want);
		memset(r->mem + at, (uint8_t)t->op, len);
		break;
	case 1:
		prng_fill(t->scratch, len, t->op);
		ASSERT_EQ(strait_region_copy_in(r->r, at, t->scratch, len), want);
		memcpy(r->mem + at, t->scratch, len);
		break;
	case 2:
		ASSERT_EQ(strait_region_crc32c(r->r, at, len, &crc), want);
		if (!want)
			ASSERT_EQ(crc, crc32c_update(0, r->mem + at, len));
		break;
	default:
		len = min_u64(len, other->len);
		if (r->dev != other->dev || r->gone || other->gone)
			break;
		ASSERT_OK(strait_region_compare(r->r, at, other->r, 0, len, &where));
		ASSERT_EQ(where == len, memcmp(r->mem + at, other->mem, len) == 0);
	}
	if (!r->gone)
		model_expect_region(t, r, 0, r->len);
}

static void page_cache(struct model_thread *t)
{
	struct model_file *f = &t->file[model_any(t, MODEL_FILES)];
	bool in = model_any(t, 2);

	model_say(t, "file %ld is %s", (long)(f - t->file), in ? "read" : "evicted");
	if (in)
		warm(f->path);
	else
		evict(f->path, model_any_offset(t, t->max), model_any_length(t) + 1);
}

void model_step(struct model_thread *t)
{
	switch (model_any(t, 40)) {
	case 0 ... 15:
		one_transfer(t);
		break;
	case 16 ... 23:
		batch(t);
		break;
	case 24 ... 27:
		ordered(t);
		break;
	case 28 ... 31:
		change_file(t);
		break;
	case 32 ... 33:
		model_reopen(t);
		break;
	case 34:
		model_renew_region(t);
		break;
	case 35 ... 36:
		use_region(t);
		break;
	case 37:
		model_renew_streams(t);
		break;
	case 38:
		model_expect_file(t, &t->file[model_any(t, MODEL_FILES)]);
		break;
	default:
		page_cache(t);
	}
}
