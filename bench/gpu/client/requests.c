/* SPDX-License-Identifier: MIT */
/* Many requests: one at a time, in batches, on a stream. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "client.h"

uint64_t next_offset(uint64_t *seed, uint64_t length, size_t block)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (*seed >> 20) % (length / block) * block;
}

int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

void latency(struct client *c, const char *name, size_t block)
{
	enum { OPS = 20000, WARM = 500 };
	double *us = calloc(OPS, sizeof(*us)), cpu = 0, begin = 0;
	uint64_t seed = 7, off = 0;
	char label[64];
	bool ok = true;
	double sum = 0;

	for (int i = -WARM; us && ok && i < OPS; i++) {
		double start = now();

		if (!i) {
			cpu = cpu_seconds();
			begin = start;
		}
		off = next_offset(&seed, c->length, block);
		ok = c->backend->read(c, off, 0, block) == (ssize_t)block;
		if (i >= 0) {
			us[i] = (now() - start) * 1e6;
			sum += us[i];
		}
	}
	ok = ok && right(c, off, 0, block);
	cpu = (cpu_seconds() - cpu) / (now() - begin);
	if (us && ok)
		qsort(us, OPS, sizeof(*us), by_value);
	row(name, ok ? sum / OPS : 0, "us mean", cpu, ok);
	snprintf(label, sizeof(label), "%s, median", name);
	row(label, us && ok ? us[OPS / 2] : 0, "us", cpu, ok);
	free(us);
}

struct batcher {
	struct client *c;
	unsigned int index, n;
	uint64_t done;
	bool failed;
	struct request last[BATCH_MAX];
};

static pthread_barrier_t together;

static void *run_batches(void *arg)
{
	struct batcher *b = arg;
	void *batch;
	uint64_t seed = 11 + b->index;
	double end;

	cuda_attach();
	batch = b->c->backend->batch_open(b->c, b->n);
	b->failed = !batch;
	pthread_barrier_wait(&together);
	for (end = now() + seconds; !b->failed && now() < end; b->done += b->n) {
		for (unsigned int i = 0; i < b->n; i++)
			b->last[i] = (struct request){ next_offset(&seed, b->c->length, 4096),
						       (b->index * b->n + i) * 4096ull, 4096, -1, NULL };
		b->failed = b->c->backend->batch_run(b->c, batch, b->last, b->n) != 0;
		for (unsigned int i = 0; i < b->n; i++)
			b->failed |= b->last[i].done != 4096;
	}
	if (batch)
		b->c->backend->batch_close(batch);
	return NULL;
}

void batches(struct client *c, const char *name, unsigned int threads, unsigned int n)
{
	struct sample best = { 0 };
	bool ok = true;

	cuda_fill(c->memory, (size_t)threads * n * 4096);
	for (int i = 0; i < rounds && ok; i++) {
		struct batcher *b = calloc(threads, sizeof(*b));
		pthread_t th[THREADS];
		double cpu, start, t;
		uint64_t done = 0;

		pthread_barrier_init(&together, NULL, threads + 1);
		for (unsigned int k = 0; k < threads; k++) {
			b[k] = (struct batcher){ .c = c, .index = k, .n = n };
			pthread_create(&th[k], NULL, run_batches, &b[k]);
		}
		pthread_barrier_wait(&together);
		cpu = cpu_seconds();
		start = now();
		for (unsigned int k = 0; k < threads; k++)
			pthread_join(th[k], NULL);
		t = now() - start;
		cpu = (cpu_seconds() - cpu) / t;
		for (unsigned int k = 0; k < threads; k++) {
			done += b[k].done;
			ok = ok && !b[k].failed;
			for (unsigned int r = 0; ok && r < n; r++)
				ok = right(c, b[k].last[r].off, b[k].last[r].at, 4096);
		}
		keep_best(&best, (struct sample){ (double)done / t, cpu });
		pthread_barrier_destroy(&together);
		free(b);
	}
	row(name, best.rate, "ops/s", best.cores, ok);
}

/* Reads the file repeatedly in requests of 1 MiB, 64 of which are queued on the stream. */
void streams(struct client *c, const char *name, bool fixed)
{
	struct sample best = { 0 };
	struct request r[OUTSTANDING];
	void *native = cuda_stream();
	bool ok = native || !c->cuda;

	if (!ok || c->backend->stream_open(c, native, fixed)) {
		row(name, 0, "GB/s", 0, false);
		return;
	}
	cuda_fill(c->memory, (size_t)OUTSTANDING * MIB);
	for (int i = 0; i < rounds && ok; i++) {
		double cpu = cpu_seconds(), start = now(), t;
		uint64_t off = 0, done = 0;

		while (ok && now() < start + seconds) {
			for (unsigned int k = 0; ok && k < OUTSTANDING; k++) {
				r[k] = (struct request){ off, (uint64_t)k * MIB, MIB, -99, NULL };
				off = (off + MIB) % (c->length / MIB * MIB);
				ok = !c->backend->stream_read(c, native, &r[k]);
			}
			cuda_synchronize(native);
			for (unsigned int k = 0; ok && !c->cuda && k < OUTSTANDING; k++)
				while (__atomic_load_n(&r[k].done, __ATOMIC_ACQUIRE) == -99)
					sched_yield();
			for (unsigned int k = 0; ok && k < OUTSTANDING; k++)
				if (r[k].done != MIB) {
					say("a request on the stream returned", (int)r[k].done);
					ok = false;
				}
			done += (uint64_t)OUTSTANDING * MIB;
		}
		t = now() - start;
		if (ok)
			keep_best(&best, (struct sample){ (double)done / t / 1e9, (cpu_seconds() - cpu) / t });
		for (unsigned int k = 0; ok && k < OUTSTANDING; k++)
			ok = right(c, r[k].off, r[k].at, MIB);
	}
	row(name, best.rate, "GB/s", best.cores, ok);
	c->backend->stream_close(c, native);
}
