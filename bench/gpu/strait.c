/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"

static struct strait_endpoint *open_file(struct bench *b, const char *path, int oflags, uint32_t flags)
{
	struct strait_endpoint *ep;
	int rc = strait_file_open(b->ctx, path, oflags, 0600, flags, &ep);

	if (rc)
		die(path, -rc);
	return ep;
}

static struct sample run(struct bench *b, struct strait_endpoint *ep, uint32_t op, uint32_t routes)
{
	struct strait_transfer t = {
		.op = op, .routes = routes, .endpoint = ep, .region = b->region, .length = b->length
	};
	struct strait_result r;
	double cpu = cpu_seconds(), start = now(), s;
	int rc = strait_transfer_run(&t, STRAIT_FOREVER, &r);

	s = now() - start;
	if (rc || r.bytes != b->length)
		die("transfer", rc ? -rc : EIO);
	return (struct sample){ (double)b->length / s / GB, (cpu_seconds() - cpu) / s, 0 };
}

struct sample ours_read(struct bench *b, uint32_t flags, uint32_t routes)
{
	struct strait_endpoint *ep;
	struct sample one;

	if (flags & STRAIT_FILE_DIRECT)
		plain_drop_cache(b->path);
	ep = open_file(b, b->path, O_RDONLY, flags);
	one = run(b, ep, STRAIT_READ, routes);
	strait_endpoint_close(ep);
	return one;
}

struct sample ours_reread(struct bench *b)
{
	struct strait_endpoint *ep = open_file(b, b->path, O_RDONLY, STRAIT_FILE_IMMUTABLE);
	struct sample one;

	run(b, ep, STRAIT_READ, STRAIT_ROUTE_MASK(STRAIT_ROUTE_PAGECACHE)); /* registers the page cache */
	one = run(b, ep, STRAIT_READ, STRAIT_ROUTE_ANY);
	strait_endpoint_close(ep);
	return one;
}

struct sample ours_write(struct bench *b, bool direct)
{
	struct strait_endpoint *ep = open_file(b, b->written, O_RDWR, direct ? STRAIT_FILE_DIRECT : 0);
	struct sample best = { 0 };

	for (int i = 0; i < 2; i++)
		keep_best(&best, run(b, ep, STRAIT_WRITE, STRAIT_ROUTE_ANY));
	strait_endpoint_close(ep);
	return best;
}

struct sample ours_random(struct bench *b, size_t block)
{
	struct strait_endpoint *ep = open_file(b, b->path, O_RDONLY, 0);
	const int ops = 4000;
	uint64_t seed = 7;
	double start;

	for (int i = 0; i < 100; i++)
		strait_read(ep, (uint64_t)i * block, b->region, 0, block);
	start = now();
	for (int i = 0; i < ops; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		if (strait_read(ep, (seed >> 20) % (b->length / block) * block, b->region, 0, block) != (ssize_t)block)
			die("read", EIO);
	}
	start = (now() - start) / ops;
	strait_endpoint_close(ep);
	return (struct sample){ 1 / start, 0, start * 1e6 };
}

struct client {
	struct bench *b;
	struct strait_endpoint *ep;
	unsigned int batch, rounds;
	uint64_t seed, base;
};

#define BYTES 4096u

static void *client_thread(void *arg)
{
	struct client *c = arg;
	struct strait_transfer *t = calloc(c->batch, sizeof(*t));
	struct strait_result *r = calloc(c->batch * 2, sizeof(*r));
	struct strait_queue_opts o = { .size = sizeof(o), .entries = c->batch * 4 };
	struct strait_queue *q;
	unsigned int flying = 0, left = c->rounds;

	if (strait_queue_open(c->b->ctx, &o, &q))
		die("queue", ENOMEM);
	while (left || flying) {
		/* With two batches in flight the workers are busy while results are collected. */
		while (left && flying <= c->batch) {
			for (unsigned int i = 0; i < c->batch; i++) {
				c->seed = c->seed * 6364136223846793005u + 1442695040888963407u;
				t[i] = (struct strait_transfer){
					.op = STRAIT_READ,
					.endpoint = c->ep,
					.region = c->b->region,
					.endpoint_offset = (c->seed >> 20) % (c->b->length / BYTES) * BYTES,
					.region_offset = c->base + (uint64_t)((left & 1) * c->batch + i) * BYTES,
					.length = BYTES,
				};
			}
			if (strait_queue_submit(q, t, c->batch))
				die("submit", EIO);
			flying += c->batch;
			left--;
		}
		int n = strait_queue_wait(q, c->batch, c->batch * 2, STRAIT_FOREVER, r);

		for (int i = 0; i < n; i++)
			if (r[i].bytes != BYTES)
				die("queued read", -r[i].status);
		flying -= (unsigned int)n;
	}
	strait_queue_close(q);
	free(t);
	free(r);
	return NULL;
}

struct sample ours_queued(struct bench *b, uint32_t flags, unsigned int threads, unsigned int batch)
{
	struct strait_endpoint *ep = open_file(b, b->path, O_RDONLY, flags);
	struct client c[16];
	pthread_t th[16];
	unsigned int rounds = (flags & STRAIT_FILE_IMMUTABLE ? 4000000 : 2000000) / batch / threads;
	double cpu, start;

	if (flags & STRAIT_FILE_IMMUTABLE)
		run(b, ep, STRAIT_READ, STRAIT_ROUTE_MASK(STRAIT_ROUTE_PAGECACHE));
	cpu = cpu_seconds();
	start = now();
	for (unsigned int i = 0; i < threads; i++) {
		c[i] = (struct client){ b, ep, batch, rounds, 97 + i, (uint64_t)i * batch * 2 * BYTES };
		pthread_create(&th[i], NULL, client_thread, &c[i]);
	}
	for (unsigned int i = 0; i < threads; i++)
		pthread_join(th[i], NULL);
	start = now() - start;
	cpu = (cpu_seconds() - cpu) / start;
	strait_endpoint_close(ep);
	return (struct sample){ (double)rounds * threads * batch / start, cpu, 0 };
}

/* Compares the bytes on the device with the file, by checksum, for each route. */
void ours_verify(struct bench *b)
{
	static const uint32_t routes[] = { STRAIT_ROUTE_ANY, STRAIT_ROUTE_MASK(STRAIT_ROUTE_PAGECACHE),
					   STRAIT_ROUTE_MASK(STRAIT_ROUTE_STAGED) };
	struct strait_endpoint *ep = open_file(b, b->path, O_RDONLY, 0);
	struct strait_device *host;
	struct strait_region *copy;
	uint32_t want = 0, got;
	int rc;

	rc = strait_device_find(b->ctx, "host", &host);
	if (!rc)
		rc = strait_region_alloc(host, b->length, &copy);
	if (rc || strait_read(ep, 0, copy, 0, b->length) != (ssize_t)b->length ||
	    strait_region_crc32c(copy, 0, b->length, &want))
		die("reference", rc ? -rc : EIO);
	strait_region_close(copy);
	for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
		strait_region_fill(b->region, 0, 0xee, b->length);
		run(b, ep, STRAIT_READ, routes[i]);
		got = 0;
		if (strait_region_crc32c(b->region, 0, b->length, &got) || got != want) {
			fprintf(stderr, "bench: wrong data with route mask %u: crc32c %08x, expected %08x\n", routes[i],
				got, want);
			exit(3);
		}
	}
	printf("verified: device memory equals the file by every route, crc32c %08x\n", want);
	strait_endpoint_close(ep);
}
