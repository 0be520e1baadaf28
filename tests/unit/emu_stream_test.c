/* SPDX-License-Identifier: MIT */
/* Streams, events and words of the emulated device; the host's engine is the same one. */
#include <stdlib.h>

#include "emu_common.h"

static const struct kind {
	const char *name;
} kinds[] = { { "emu:0" }, { "host" } };

/* ---- order ---- */

struct append {
	char *text;
	char c;
};

static void append_fn(void *arg)
{
	struct append *a = arg;
	size_t n = strlen(a->text);

	a->text[n] = a->c;
	a->text[n + 1] = '\0';
}

TEST_VARIANTS(work_runs_in_order, struct kind, kinds)
{
	struct append a[3];
	struct dev_stream *s;
	struct host_reg reg;
	struct provider_mem m;
	char *text, copy[16] = "", host[16] = "xy";

	setup(v->name);
	s = open_stream();
	ASSERT_OK(ops->mem_alloc(dev, 4096, &m));
	ASSERT_OK(ops->mem_map(dev, &m, (void **)&text));
	ASSERT_OK(ops->host_register(dev, host, sizeof(host), 0, &reg));
	for (int i = 0; i < 3; i++)
		a[i] = (struct append){ text, (char)('a' + i) };
	ASSERT_OK(ops->stream_call(s, append_fn, &a[0]));
	ASSERT_OK(ops->stream_call(s, append_fn, &a[1]));
	ASSERT_OK(ops->copy_in(s, m.addr + 2, host, 3));
	ASSERT_OK(ops->stream_call(s, append_fn, &a[2]));
	/* Into unregistered memory: complete when it returns, with all earlier work. */
	ASSERT_OK(ops->copy_out(s, copy, m.addr, sizeof(copy)));
	ASSERT_STREQ(copy, "abxyc");
	ASSERT_OK(ops->fill(s, m.addr, 'z', 2));
	ASSERT_OK(ops->stream_wait(s, STRAIT_FOREVER));
	ASSERT_STREQ(text, "zzxyc");
	ops->stream_close(s);
	ops->host_unregister(dev, &reg);
	ops->mem_free(dev, &m);
	device_set_close(&set);
}

/* Behind a function that does not return, all work on that stream waits, and none on another. */
TEST_VARIANTS(streams_are_independent, struct kind, kinds)
{
	struct dev_stream *blocked, *free_stream;
	struct gate gate = GATE;
	struct host_reg reg;
	struct dev_event *e;
	char host[64] = "from the host";
	uint64_t where;
	struct provider_mem m;
	char *p;

	setup(v->name);
	blocked = open_stream();
	free_stream = open_stream();
	ASSERT_OK(ops->mem_alloc(dev, 4096, &m));
	p = (char *)(uintptr_t)m.addr;
	ASSERT_OK(ops->host_register(dev, host, sizeof(host), 0, &reg));
	ASSERT_OK(ops->event_open(blocked, &e));

	ASSERT_OK(ops->stream_call(blocked, gate_fn, &gate));
	ASSERT_OK(ops->copy_in(blocked, m.addr, host, 5));
	ASSERT_OK(ops->event_record(e, blocked));
	ASSERT_EQ(ops->stream_wait(blocked, 0), -ETIMEDOUT);
	ASSERT_EQ(ops->event_wait(e, 0), -ETIMEDOUT);
	ASSERT_EQ(ops->event_wait(e, 2 * MS), -ETIMEDOUT);

	ASSERT_OK(ops->copy_in(free_stream, m.addr + 64, host, sizeof(host)));
	ASSERT_OK(ops->stream_wait(free_stream, STRAIT_FOREVER));
	ASSERT_EQ(memcmp(p + 64, host, sizeof(host)), 0);
	ASSERT_OK(ops->compare(free_stream, m.addr, m.addr + 2048, 64, &where));
	ASSERT_EQ(where, 64u);
	gate_wait_reached(&gate);
	ASSERT_EQ(p[0], 0);

	gate_open(&gate);
	ASSERT_OK(ops->event_wait(e, STRAIT_FOREVER));
	ASSERT_EQ(memcmp(p, host, 5), 0);
	ASSERT_OK(ops->stream_wait(blocked, 0));
	ops->event_close(e);
	ops->stream_close(blocked);
	ops->stream_close(free_stream);
	ops->host_unregister(dev, &reg);
	ops->mem_free(dev, &m);
	device_set_close(&set);
}

/* Blocking functions do not keep those of other streams from running. */
TEST(functions_wait_for_each_other)
{
	enum { N = 20 };
	struct dev_stream *s[N], *last;
	struct gate gates[N];
	static const struct gate closed = GATE;

	setup("emu:0");
	for (int i = 0; i < N; i++) {
		gates[i] = closed;
		s[i] = open_stream();
		ASSERT_OK(ops->stream_call(s[i], gate_fn, &gates[i]));
	}
	for (int i = 0; i < N; i++)
		gate_wait_reached(&gates[i]);
	last = open_stream();
	for (int i = N; i-- > 0;)
		ASSERT_OK(ops->stream_call(last, (strait_stream_fn *)gate_open, &gates[i]));
	ASSERT_OK(ops->stream_wait(last, STRAIT_FOREVER));
	for (int i = 0; i < N; i++)
		ops->stream_close(s[i]);
	ops->stream_close(last);
	device_set_close(&set);
}

TEST(streams_that_are_imported)
{
	struct dev_stream *a, *b, *native, *same, *none;
	struct strait_device *host;
	struct gate gate = GATE;

	setup("emu:0");
	ASSERT_OK(device_set_find(&set, "host", &host));
	ASSERT_OK(ops->stream_import(dev, NULL, &a));
	ASSERT_OK(ops->stream_import(dev, NULL, &b));
	ASSERT_EQ(a, b);
	native = open_stream();
	ASSERT_OK(ops->stream_import(dev, native, &same));
	ASSERT_EQ(same, native);
	ASSERT_EQ(host->ops->stream_import(host, native, &none), -EINVAL);
	ASSERT_OK(ops->stream_call(native, gate_fn, &gate));
	ASSERT_EQ(ops->stream_wait(same, 0), -ETIMEDOUT);
	gate_open(&gate);
	ops->stream_close(same);
	ASSERT_OK(ops->stream_wait(native, 0));
	ops->stream_close(native);
	ops->stream_close(a);
	ops->stream_close(b);
	device_set_close(&set);
}

/* ---- events ---- */

TEST(events_count_their_last_recording)
{
	struct dev_stream *a, *b;
	struct gate first = GATE, second = GATE;
	struct dev_event *e;

	setup("emu:0");
	a = open_stream();
	b = open_stream();
	ASSERT_OK(ops->event_open(a, &e));
	ASSERT_OK(ops->event_wait(e, 0)); /* never recorded */
	ASSERT_OK(ops->event_record(e, a));
	ASSERT_OK(ops->event_wait(e, 0)); /* an idle stream */
	ASSERT_OK(ops->stream_call(a, gate_fn, &first));
	ASSERT_OK(ops->event_record(e, a));
	ASSERT_OK(ops->stream_call(b, gate_fn, &second));
	ASSERT_OK(ops->event_record(e, b));
	gate_open(&first);
	ASSERT_OK(ops->stream_wait(a, STRAIT_FOREVER));
	ASSERT_EQ(ops->event_wait(e, 0), -ETIMEDOUT);
	gate_open(&second);
	ASSERT_OK(ops->event_wait(e, STRAIT_FOREVER));
	ops->stream_close(a);
	/* Closed before the stream reaches it, and after its stream. */
	first.open = second.open = false;
	ASSERT_OK(ops->stream_call(b, gate_fn, &first));
	ASSERT_OK(ops->event_record(e, b));
	ops->event_close(e);
	gate_open(&first);
	ASSERT_OK(ops->event_open(b, &e));
	ASSERT_OK(ops->event_record(e, b));
	ops->stream_close(b);
	ASSERT_OK(ops->event_wait(e, 0));
	ops->event_close(e);
	device_set_close(&set);
}

/* ---- words ---- */

TEST_VARIANTS(words_block_a_stream, struct kind, kinds)
{
	_Atomic uint32_t *words;
	struct dev_stream *s, *other;
	struct host_reg reg;
	struct provider_mem m;
	char *p, host[8] = "1234567";

	setup(v->name);
	s = open_stream();
	other = open_stream();
	words = calloc(4, sizeof(*words));
	ASSERT_OK(ops->host_register(dev, words, 4 * sizeof(*words), 0, &reg));
	ASSERT_OK(ops->mem_alloc(dev, 4096, &m));
	p = (char *)(uintptr_t)m.addr;

	/* The value is reached already: nothing waits. */
	ASSERT_OK(ops->stream_wait_word(s, &words[0], reg.dev_addr, 0));
	ASSERT_OK(ops->stream_wait(s, 0));

	ASSERT_OK(ops->stream_wait_word(s, &words[0], reg.dev_addr, 2));
	ASSERT_OK(ops->fill(s, m.addr, 'a', 4));
	ASSERT_OK(ops->stream_wait_word(s, &words[1], reg.dev_addr + 4, 1));
	ASSERT_OK(ops->fill(s, m.addr, 'b', 2));
	ASSERT_OK(ops->copy_in(other, m.addr + 8, host, 8));
	ASSERT_EQ(p[8], '1');
	ops->word_post(dev, &words[0], 1);
	ops->word_post(dev, &words[1], 7);
	ASSERT_EQ(ops->stream_wait(s, 25 * MS), -ETIMEDOUT);
	ops->word_post(dev, &words[0], 3);
	ASSERT_OK(ops->stream_wait(s, STRAIT_FOREVER));
	ASSERT_EQ(memcmp(p, "bbaa", 4), 0);

	/* A store without a post is noticed too. */
	ASSERT_OK(ops->stream_wait_word(s, &words[2], reg.dev_addr + 8, 5));
	ASSERT_EQ(ops->stream_wait(s, MS), -ETIMEDOUT);
	atomic_store(&words[2], 5);
	ASSERT_OK(ops->stream_wait(s, STRAIT_FOREVER));
	ops->stream_close(s);
	ops->stream_close(other);
	ops->host_unregister(dev, &reg);
	ops->mem_free(dev, &m);
	free(words);
	device_set_close(&set);
}

struct poster {
	_Atomic uint32_t *word;
	uint32_t value;
};

static void post_fn(void *arg)
{
	struct poster *p = arg;

	ops->word_post(dev, p->word, p->value);
}

/* Two streams that alternate through words, posted from functions. */
TEST(words_posted_by_functions)
{
	enum { N = 500 };
	static _Atomic uint32_t ping, pong;
	static struct poster posts[2 * N];
	struct dev_stream *a, *b;

	setup("emu:0");
	a = open_stream();
	b = open_stream();
	for (uint32_t i = 0; i < N; i++) {
		posts[2 * i] = (struct poster){ &ping, i + 1 };
		posts[2 * i + 1] = (struct poster){ &pong, i + 1 };
		ASSERT_OK(ops->stream_call(a, post_fn, &posts[2 * i]));
		ASSERT_OK(ops->stream_wait_word(a, &pong, number(&pong), i + 1));
		ASSERT_OK(ops->stream_wait_word(b, &ping, number(&ping), i + 1));
		ASSERT_OK(ops->stream_call(b, post_fn, &posts[2 * i + 1]));
	}
	ASSERT_OK(ops->stream_wait(a, STRAIT_FOREVER));
	ASSERT_OK(ops->stream_wait(b, STRAIT_FOREVER));
	ASSERT_EQ(atomic_load(&pong), (uint32_t)N);
	ops->stream_close(a);
	ops->stream_close(b);
	device_set_close(&set);
}

/* A word that will be posted is posted on a removed device as well: the stream waits for it. */
TEST(a_removed_device_keeps_its_promises)
{
	_Atomic uint32_t word = 0, posted = 0;
	struct poster post = { &posted, 1 };
	struct dev_stream *s;

	setup("emu:0");
	s = open_stream();
	ASSERT_OK(ops->stream_wait_word(s, &word, number(&word), 1));
	ASSERT_OK(ops->stream_call(s, post_fn, &post));
	ASSERT_OK(strait_emu_remove(dev));
	ASSERT_EQ(ops->stream_wait(s, 15 * MS), -ETIMEDOUT);
	ASSERT_EQ(atomic_load(&posted), 0u);
	ops->word_post(dev, &word, 1);
	ASSERT_OK(ops->stream_wait(s, STRAIT_FOREVER));
	ASSERT_EQ(atomic_load(&posted), 1u);
	ASSERT_EQ(ops->stream_call(s, post_fn, &post), -ENODEV);
	ops->stream_close(s);
	device_set_close(&set);
}

/* ---- many threads ---- */

#define THREADS 6

struct worker {
	struct provider_mem m;
	char *buf;
	struct host_reg reg;
	struct dev_stream *shared;
	unsigned int seed;
	atomic_uint *calls;
};

static void call_fn(void *arg)
{
	atomic_fetch_add((atomic_uint *)arg, 1);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct dev_stream *s = open_stream();
	struct dev_event *e;
	uint64_t where;

	ASSERT_OK(ops->event_open(s, &e));
	for (unsigned int i = 0; i < 200; i++) {
		size_t len = KIB(1) << (i + w->seed) % 10;

		memset(w->buf, (int)(i + w->seed), len);
		if (i % 3 == 0)
			ASSERT_OK(ops->stream_call(s, call_fn, w->calls));
		ASSERT_OK(ops->copy_in(s, w->m.addr, w->buf, len));
		ASSERT_OK(ops->fill(s, w->m.addr + KIB(512), (uint8_t)(i + w->seed), len));
		ASSERT_OK(ops->event_record(e, s));
		ASSERT_OK(ops->stream_call(w->shared, call_fn, w->calls));
		ASSERT_OK(ops->event_wait(e, STRAIT_FOREVER));
		ASSERT_OK(ops->compare(s, w->m.addr, w->m.addr + KIB(512), len, &where));
		ASSERT_EQ(where, len);
	}
	ASSERT_OK(ops->stream_wait(w->shared, STRAIT_FOREVER));
	ops->event_close(e);
	ops->stream_close(s);
	return NULL;
}

static const struct speed {
	const char *name;
	const char *device;
	uint64_t rate;
} speeds[] = { { "fast", "emu:0", 0 }, { "modelled", "emu:0", GIB(2) }, { "host", "host", 0 } };

TEST_VARIANTS(many_threads, struct speed, speeds)
{
	struct strait_emu_model model = { sizeof(model), v->rate, 0 };
	struct worker w[THREADS];
	pthread_t t[THREADS];
	struct dev_stream *shared;
	atomic_uint calls = 0;

	setup(v->device);
	if (v->rate)
		ASSERT_OK(strait_emu_set_model(dev, &model));
	shared = open_stream();
	for (unsigned int i = 0; i < THREADS; i++) {
		w[i] = (struct worker){ .shared = shared, .seed = i, .calls = &calls, .buf = malloc(KIB(512)) };
		ASSERT_OK(ops->mem_alloc(dev, MIB(1), &w[i].m));
		ASSERT_OK(ops->host_register(dev, w[i].buf, KIB(512), 0, &w[i].reg));
		pthread_create(&t[i], NULL, work, &w[i]);
	}
	for (unsigned int i = 0; i < THREADS; i++) {
		pthread_join(t[i], NULL);
		ops->host_unregister(dev, &w[i].reg);
		ops->mem_free(dev, &w[i].m);
		free(w[i].buf);
	}
	ops->stream_close(shared);
	ASSERT_EQ(atomic_load(&calls), THREADS * (200 + 67));
	device_set_close(&set);
}
