/* SPDX-License-Identifier: MIT */
#include "queue_rig.h"

static enum os_call gate_call;
static atomic_bool gate_shut;
static atomic_uint at_gate;

static bool gate(enum os_call call, int64_t *ret)
{
	(void)ret;
	if (call == gate_call && atomic_load(&gate_shut)) {
		atomic_fetch_add(&at_gate, 1);
		while (atomic_load(&gate_shut))
			sleep_ms(1);
	}
	return false;
}

void shut_gate(enum os_call call)
{
	gate_call = call;
	atomic_store(&at_gate, 0);
	atomic_store(&gate_shut, true);
	os_inject = gate;
}

void open_gate(void)
{
	atomic_store(&gate_shut, false);
}

void wait_at_gate(unsigned int n)
{
	while (atomic_load(&at_gate) < n)
		sleep_ms(1);
}

void rig_open(struct rig *g, uint32_t threads, uint32_t entries)
{
	const struct strait_context_opts opts = { .size = sizeof(opts), .threads = threads, .chunk_bytes = MIB(1) };

	rig_open_with(g, &opts, entries);
}

void rig_open_with(struct rig *g, const struct strait_context_opts *opts, uint32_t entries)
{
	g->ctx = context_new(opts);
	g->dev = device_named(g->ctx, "emu");
	g->r = region_new(g->dev, LEN);
	g->src = region_new(g->dev, LEN);
	g->ep = file_new(g->ctx, make_file("file", LEN, 1), O_RDWR, 0);
	g->want = pattern_new(0, LEN, 1);
	region_put_bytes(g->src, 0, g->want, LEN);
	g->q = queue_new(g->ctx, entries);
}

void rig_reopen(struct rig *g, uint32_t flags)
{
	strait_endpoint_close(g->ep);
	g->ep = file_new(g->ctx, test_path("file"), O_RDONLY, flags);
}

void rig_close(struct rig *g)
{
	strait_queue_close(g->q);
	strait_endpoint_close(g->ep);
	strait_region_close(g->r);
	strait_region_close(g->src);
	strait_context_close(g->ctx);
	free(g->want);
}

struct strait_transfer rig_request(struct rig *g, uint32_t op, uint64_t off, uint64_t len, uint64_t user_data)
{
	return (struct strait_transfer){ .op = op,
					 .endpoint = g->ep,
					 .region = op == STRAIT_READ ? g->r : g->src,
					 .endpoint_offset = off,
					 .region_offset = off,
					 .length = len,
					 .user_data = user_data };
}

void rig_submit(struct rig *g, uint32_t op, uint64_t off, uint64_t len, uint64_t user_data)
{
	struct strait_transfer t = rig_request(g, op, off, len, user_data);

	ASSERT_OK(strait_queue_submit(g->q, &t, 1));
}
