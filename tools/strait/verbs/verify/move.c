/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include <strait/strait.h>

#include "lib/cli.h"
#include "lib/transfer_totals.h"
#include "verbs/verify/verify.h"

enum { IN_FLIGHT = 64 };

const char *verify_method_name(enum verify_method method)
{
	static const char *const names[] = { "sync", "queue", "stream" };

	return names[method];
}

static struct strait_transfer request(const struct verify_move *m, unsigned int i)
{
	const struct verify_piece *p = &m->piece[i];
	struct strait_transfer t = {
		.op = m->op,
		.routes = m->routes,
		.endpoint = m->ep,
		.region = m->region,
		.endpoint_offset = p->off,
		.region_offset = m->region_base + (p->off - m->file_base),
		.length = p->len,
		.user_data = i,
	};

	if (m->op == STRAIT_READ && p->off + p->len == m->file_end)
		t.length += VERIFY_PAST_END;
	return t;
}

/* Check the result of one transfer. */
static int check(const struct verify_move *m, unsigned int i, int err, const struct strait_result *result)
{
	struct strait_transfer t = request(m, i);

	if (err)
		return transfer_failed(&t, result, err, m->path);
	if (result->bytes != m->piece[i].len)
		return fail(CLI_MISMATCH, NULL,
			    "%s: %s of %" PRIu64 " bytes at offset %" PRIu64 " transferred %" PRIu64
			    " bytes instead of %" PRIu64,
			    m->path, m->op == STRAIT_READ ? "a read" : "a write", t.length, t.endpoint_offset,
			    result->bytes, m->piece[i].len);
	return CLI_OK;
}

static int move_sync(const struct verify_move *m)
{
	int code = CLI_OK;

	for (unsigned int i = 0; i < m->n && !code; i++) {
		struct strait_transfer t = request(m, i);
		struct strait_result result = { 0 };
		int err = strait_transfer_run(&t, STRAIT_FOREVER, &result);

		code = check(m, i, err, &result);
	}
	return code;
}

static int move_queue(const struct verify_move *m)
{
	struct strait_queue_opts opts = { .size = sizeof(opts), .entries = IN_FLIGHT };
	unsigned int next = 0, in_flight = 0;
	struct strait_queue *queue;
	int err, code = CLI_OK;

	err = strait_queue_open(m->target->ctx, &opts, &queue);
	if (err)
		return fail(CLI_FAILED, NULL, "cannot open a queue: %s", error_text(err));
	while (!code && (next < m->n || in_flight)) {
		struct strait_result result[IN_FLIGHT];
		struct strait_transfer t[IN_FLIGHT];
		unsigned int n;
		int got;

		for (n = 0; next + n < m->n && in_flight + n < IN_FLIGHT; n++)
			t[n] = request(m, next + n);
		err = n ? strait_queue_submit(queue, t, n) : 0;
		if (err) {
			code = fail(CLI_FAILED, NULL, "cannot submit %u transfers to a queue: %s", n, error_text(err));
			break;
		}
		next += n;
		in_flight += n;
		got = strait_queue_wait(queue, 1, IN_FLIGHT, STRAIT_FOREVER, result);
		if (got <= 0) {
			code = fail(CLI_FAILED, NULL, "waiting for completions of a queue failed: %s", error_text(got));
			break;
		}
		in_flight -= (unsigned int)got;
		for (int i = 0; i < got && !code; i++)
			code = check(m, (unsigned int)result[i].user_data, result[i].status, &result[i]);
	}
	strait_queue_close(queue);
	return code;
}

/* What a stream reads when it runs a transfer, and the result it writes. */
struct params {
	uint64_t endpoint_offset, region_offset, length;
	int64_t result;
};

static int enqueue(struct strait_stream *stream, const struct verify_move *m, unsigned int i, struct params *p)
{
	struct strait_transfer t = request(m, i);
	struct strait_stream_transfer st = {
		.size = sizeof(st),
		.op = m->op,
		.routes = m->routes,
		.endpoint = m->ep,
		.region = m->region,
		.endpoint_offset = &p->endpoint_offset,
		.region_offset = &p->region_offset,
		.length = &p->length,
		.result = &p->result,
	};

	*p = (struct params){ t.endpoint_offset, t.region_offset, t.length, -EINPROGRESS };
	return strait_stream_transfer(stream, &st);
}

static int move_stream(const struct verify_move *m)
{
	struct strait_stream *stream;
	struct params *params;
	int err, code = CLI_OK;

	err = strait_stream_open(m->target->dev, &stream);
	if (err)
		return fail(CLI_FAILED, NULL, "%s: cannot open a stream: %s", m->target->info.name, error_text(err));
	params = xcalloc(IN_FLIGHT, sizeof(*params));
	for (unsigned int base = 0; base < m->n && !code; base += IN_FLIGHT) {
		unsigned int n = min_u64(IN_FLIGHT, m->n - base), put;
		struct strait_result result = { 0 };

		for (put = 0, err = 0; put < n && !err; put++)
			err = enqueue(stream, m, base + put, &params[put]);
		if (err)
			code = fail(CLI_FAILED, NULL, "cannot enqueue a transfer on a stream: %s", error_text(err));
		err = strait_stream_wait(stream, STRAIT_FOREVER);
		if (err && !code)
			code = fail(CLI_FAILED, NULL, "waiting for a stream failed: %s", error_text(err));
		for (unsigned int i = 0; i < n && !code; i++) {
			result.bytes = params[i].result < 0 ? 0 : (uint64_t)params[i].result;
			code = check(m, base + i, params[i].result < 0 ? (int)params[i].result : 0, &result);
		}
	}
	strait_stream_close(stream);
	free(params);
	return code;
}

int verify_move(const struct verify_move *m, enum verify_method method)
{
	switch (method) {
	case VERIFY_SYNC:
		return move_sync(m);
	case VERIFY_QUEUE:
		return move_queue(m);
	case VERIFY_STREAM:
		return move_stream(m);
	}
	return CLI_FAILED;
}
