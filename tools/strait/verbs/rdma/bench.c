/* SPDX-License-Identifier: MIT */
/* RDMA without files: one side offers device memory, the other one reads or writes it and measures. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cli.h"
#include "lib/hist.h"
#include "lib/json.h"
#include "lib/size.h"
#include "verbs/rdma/rdma.h"

#define SECOND 1000000000ll

/* Offer memory to one peer, until it leaves. */
static int offer(struct rdma_cmd *c, struct strait_rdma_opts *o)
{
	uint32_t rights = c->write ? STRAIT_RDMA_PEER_WRITES : STRAIT_RDMA_PEER_READS;
	char text[STRAIT_RDMA_OFFER_TEXT], end[STRAIT_RDMA_MESSAGE_MAX];
	struct strait_rdma_reach reach = { .size = sizeof(reach) };
	struct strait_rdma_listener *listener;
	struct strait_rdma_session *s;
	struct strait_rdma_offer *of;
	int err;

	o->role = STRAIT_RDMA_OFFERS;
	err = strait_rdma_listen(c->target.ctx, o, &listener);
	if (err)
		return rdma_failed(c->address ? c->address : "all addresses", err);
	printf("offering %s of memory\n", c->target.info.name);
	fflush(stdout);
	err = strait_rdma_accept(listener, STRAIT_FOREVER, &s);
	strait_rdma_listener_close(listener);
	if (err)
		return rdma_failed("the peer", err);
	err = strait_rdma_authenticate(s);
	if (!err)
		err = strait_rdma_offer(s, c->region, 0, c->region_len, rights, STRAIT_FOREVER, &of);
	if (err) {
		strait_rdma_close(s);
		return rdma_failed("the peer", err);
	}
	err = strait_rdma_offer_text(of, text, &reach);
	if (!err)
		err = strait_rdma_send(s, text, sizeof(text), 10 * SECOND);
	if (!err)
		strait_rdma_recv(s, end, sizeof(end), STRAIT_FOREVER); /* until the peer disconnects */
	printf("registered: %s\n", strait_rdma_kind_name(reach.kind));
	strait_rdma_close(s);
	strait_rdma_offer_close(of);
	return err ? rdma_failed("the peer", err) : CLI_OK;
}

struct measurement {
	uint64_t requests, bytes, ns;
	struct hist *h;
	struct strait_rdma_info info;
};

/* Requests in flight, the oldest first: ticket and start. */
struct flight {
	uint64_t *ticket, *start;
	uint32_t first, n;
};

static int finish_oldest(struct rdma_cmd *c, struct strait_rdma_session *s, struct flight *f, struct measurement *m)
{
	int err = strait_rdma_wait(s, f->ticket[f->first], (int64_t)(c->timeout * 1e9));

	if (err)
		return err;
	hist_add(m->h, now_ns() - f->start[f->first]);
	f->first = (f->first + 1) % c->depth;
	f->n--;
	m->requests++;
	m->bytes += c->block;
	return 0;
}

/* The block in parts, the last one first: none follows the one before in memory. */
static void divide(const struct rdma_cmd *c, struct strait_rdma_piece *piece, struct strait_rdma_request *q)
{
	uint64_t each = c->block / c->pieces;

	for (uint32_t i = 0; i < c->pieces; i++)
		piece[i] = (struct strait_rdma_piece){ c->region, (c->pieces - 1 - i) * each, each };
	q->pieces = piece;
	q->piece_count = c->pieces;
	q->region = NULL;
}

static int run(struct rdma_cmd *c, struct strait_rdma_session *s, const char *text, struct measurement *m)
{
	struct strait_rdma_request q = {
		.op = c->write ? STRAIT_WRITE : STRAIT_READ, .region = c->region, .offer = text, .length = c->block
	};
	struct strait_rdma_piece piece[STRAIT_RDMA_PIECES_MAX];
	struct flight f = { .ticket = xcalloc(c->depth, 8), .start = xcalloc(c->depth, 8) };
	uint64_t begin = now_ns(), end = begin + (uint64_t)(c->seconds * 1e9);
	int err = 0;

	/* With fewer in flight than between two signalled requests each has to report itself. */
	q.flags = c->depth < 16 ? STRAIT_RDMA_AWAITED : 0;
	if (c->pieces > 1)
		divide(c, piece, &q);
	while (!err && (f.n || now_ns() < end)) {
		if (f.n < c->depth && now_ns() < end) {
			uint32_t at = (f.first + f.n) % c->depth;

			f.start[at] = now_ns();
			err = strait_rdma_post(s, &q, (int64_t)(c->timeout * 1e9), &f.ticket[at]);
			f.n++;
		} else {
			err = finish_oldest(c, s, &f, m);
		}
	}
	m->ns = now_ns() - begin;
	free(f.ticket);
	free(f.start);
	return err;
}

static void report(const struct rdma_cmd *c, const struct measurement *m)
{
	double mib = (double)m->bytes / (double)MIB / ((double)m->ns / 1e9),
	       us = (double)hist_percentile(m->h, 50) / 1e3;
	char size[SIZE_TEXT];
	struct json j;

	if (cli.json) {
		json_begin(&j, stdout);
		json_string(&j, "peer", m->info.peer);
		json_string(&j, "nic", m->info.nic);
		json_string(&j, "operation", c->write ? "write" : "read");
		json_uint(&j, "block", c->block);
		json_uint(&j, "depth", c->depth);
		json_uint(&j, "requests", m->requests);
		json_number(&j, "seconds", (double)m->ns / 1e9);
		json_number(&j, "mib_per_s", mib);
		json_number(&j, "p50_us", us);
		json_uint(&j, "work_requests", m->info.requests);
		json_uint(&j, "signalled", m->info.signalled);
		json_uint(&j, "queue_pairs", m->info.queue_pairs);
		json_uint(&j, "registrations", m->info.registrations);
		json_finish(&j);
		return;
	}
	printf("%s of %s from %s, %u in flight: %.1f MiB/s, latency p50 %.1f us, p99 %.1f us\n",
	       c->write ? "writes" : "reads", size_short(c->block, size), m->info.peer, c->depth, mib, us,
	       (double)hist_percentile(m->h, 99) / 1e3);
	printf("  %" PRIu64 " work requests, %" PRIu64 " signalled, %u queue pairs, %" PRIu64 " registrations\n",
	       m->info.requests, m->info.signalled, m->info.queue_pairs, m->info.registrations);
}

static int initiate(struct rdma_cmd *c, struct strait_rdma_opts *o)
{
	struct measurement m = { .info.size = sizeof(m.info), .h = xcalloc(1, sizeof(*m.h)) };
	char text[STRAIT_RDMA_MESSAGE_MAX];
	struct strait_rdma_session *s;
	ssize_t n;
	int err, code;

	o->role = STRAIT_RDMA_INITIATES;
	err = strait_rdma_connect(c->target.ctx, o, &s);
	if (err) {
		free(m.h);
		return rdma_failed(c->address, err);
	}
	n = strait_rdma_recv(s, text, sizeof(text) - 1, 10 * SECOND);
	err = n < 0 ? (int)n : 0;
	text[n > 0 ? n : 0] = '\0';
	if (!err)
		err = run(c, s, text, &m);
	strait_rdma_info(s, &m.info);
	if (err)
		code = fail(CLI_FAILED, "--write is given on both sides or on none", "%s: %s%s%s", c->address,
			    error_text(err), m.info.status ? ", " : "",
			    m.info.status ? strait_rdma_status_name(m.info.status) : "");
	else
		code = CLI_OK;
	if (!code)
		report(c, &m);
	strait_rdma_close(s);
	free(m.h);
	return code;
}

int rdma_bench(struct rdma_cmd *c, const char *address)
{
	struct strait_rdma_opts o;
	int code;

	if (!c->block || c->depth > 1024)
		return fail(CLI_USAGE, NULL, "--block is at least 1, --depth at most 1024");
	if (c->pieces > STRAIT_RDMA_PIECES_MAX || (c->pieces && c->block % c->pieces))
		return fail(CLI_USAGE, NULL, "--pieces is at most %d and divides --block", STRAIT_RDMA_PIECES_MAX);
	if (address)
		c->address = address;
	code = rdma_session_opts(c, &o);
	if (!code)
		code = target_open(&c->opts, &c->target);
	if (!code)
		code = rdma_alloc(c, c->block);
	if (code)
		return code;
	return address ? initiate(c, &o) : offer(c, &o);
}
