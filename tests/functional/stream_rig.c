/* SPDX-License-Identifier: MIT */
#include "stream_rig.h"

atomic_bool stream_blocked;

void stream_rig_open(struct stream_rig *g, const struct mode *m)
{
	g->ctx = context_for(m);
	g->dev = device_named(g->ctx, m->device);
	g->r = region_new(g->dev, LEN);
	g->ep = file_new(g->ctx, make_file("file", LEN, 1), O_RDWR, m->file);
	g->want = pattern_new(0, LEN, 1);
	g->routes = m->routes;
	ASSERT_OK(strait_stream_open(g->dev, &g->s));
}

void stream_rig_close(struct stream_rig *g)
{
	strait_stream_close(g->s);
	strait_endpoint_close(g->ep);
	strait_region_close(g->r);
	strait_context_close(g->ctx);
	free(g->want);
}

void stream_put(struct stream_rig *g, uint32_t op, struct params *p)
{
	struct strait_stream_transfer t = { .size = sizeof(t),
					    .op = op,
					    .routes = op == STRAIT_READ ? g->routes : 0,
					    .endpoint = g->ep,
					    .region = g->r,
					    .endpoint_offset = &p->off,
					    .region_offset = &p->region_off,
					    .length = &p->len,
					    .result = &p->result };

	ASSERT_OK(strait_stream_transfer(g->s, &t));
}

void stream_block(void *arg)
{
	(void)arg;
	while (atomic_load(&stream_blocked))
		sleep_ms(1);
}
