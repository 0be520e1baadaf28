/* SPDX-License-Identifier: MIT */
/* Which errors of work on a stream are reported by which call. */
#include "emu_common.h"

struct errors {
	struct dev_stream *s;
	struct host_reg reg;
	struct provider_mem m;
	char host[64];
};

static void errors_setup(struct errors *x)
{
	setup("emu:0");
	memset(x, 0, sizeof(*x));
	x->s = open_stream();
	ASSERT_OK(ops->mem_alloc(dev, 4096, &x->m));
	ASSERT_OK(ops->host_register(dev, x->host, sizeof(x->host), 0, &x->reg));
}

static void errors_teardown(struct errors *x)
{
	ops->stream_close(x->s);
	ops->host_unregister(dev, &x->reg);
	ops->mem_free(dev, &x->m);
	device_set_close(&set);
}

static int copy(struct errors *x)
{
	return ops->copy_in(x->s, x->m.addr, x->host, sizeof(x->host));
}

static const struct mode {
	const char *name;
	bool queued; /* queued behind a function, else run by the caller */
} modes[] = { { "inline", false }, { "queued", true } };

TEST_VARIANTS(the_first_error_stays_until_reported, struct mode, modes)
{
	struct gate gate = GATE;
	struct errors x;

	errors_setup(&x);
	emu_inject_copy_error(dev, 2, -EIO);
	if (v->queued)
		ASSERT_OK(ops->stream_call(x.s, gate_fn, &gate));
	ASSERT_OK(copy(&x));
	ASSERT_OK(copy(&x));
	ASSERT_OK(copy(&x)); /* this one */
	x.host[0] = 'n';
	ASSERT_OK(copy(&x)); /* and the stream continues */
	gate_open(&gate);
	ASSERT_EQ(ops->stream_wait(x.s, STRAIT_FOREVER), -EIO);
	ASSERT_EQ(x.s->status, EIO);
	ASSERT_EQ(*(char *)(uintptr_t)x.m.addr, 'n');
	ASSERT_OK(ops->stream_wait(x.s, STRAIT_FOREVER));
	ASSERT_OK(copy(&x));
	ASSERT_OK(ops->stream_wait(x.s, STRAIT_FOREVER));
	errors_teardown(&x);
}

TEST_VARIANTS(events_tell_the_errors_before_them, struct mode, modes)
{
	struct dev_event *before, *after, *later;
	struct gate gate = GATE;
	struct errors x;

	errors_setup(&x);
	ASSERT_OK(ops->event_open(x.s, &before));
	ASSERT_OK(ops->event_open(x.s, &after));
	ASSERT_OK(ops->event_open(x.s, &later));
	emu_inject_copy_error(dev, 1, -EFAULT);
	if (v->queued)
		ASSERT_OK(ops->stream_call(x.s, gate_fn, &gate));
	ASSERT_OK(copy(&x));
	ASSERT_OK(ops->event_record(before, x.s));
	ASSERT_OK(copy(&x));
	ASSERT_OK(ops->event_record(after, x.s));
	gate_open(&gate);
	ASSERT_OK(ops->event_wait(before, STRAIT_FOREVER));
	ASSERT_EQ(ops->event_wait(after, STRAIT_FOREVER), -EFAULT);
	ASSERT_EQ(ops->event_wait(after, 0), -EFAULT); /* until it is recorded again */
	/* Reported: the stream has cleared it. */
	ASSERT_OK(ops->event_record(later, x.s));
	ASSERT_OK(ops->event_wait(later, STRAIT_FOREVER));
	ASSERT_OK(ops->stream_wait(x.s, STRAIT_FOREVER));

	/* A new error is not cleared because an old one was reported again. */
	emu_inject_copy_error(dev, 0, -EIO);
	ASSERT_OK(copy(&x));
	ASSERT_EQ(ops->event_wait(after, 0), -EFAULT);
	ASSERT_EQ(ops->stream_wait(x.s, STRAIT_FOREVER), -EIO);
	ops->event_close(before);
	ops->event_close(after);
	ops->event_close(later);
	errors_teardown(&x);
}

/* Errors before and after a recording: reporting the earlier ones does not lose the later ones. */
TEST(no_error_is_lost)
{
	struct dev_event *e, *f;
	struct errors x;

	errors_setup(&x);
	ASSERT_OK(ops->event_open(x.s, &e));
	ASSERT_OK(ops->event_open(x.s, &f));
	emu_inject_copy_error(dev, 0, -EFAULT);
	ASSERT_OK(copy(&x));
	ASSERT_OK(ops->event_record(e, x.s));
	emu_inject_copy_error(dev, 0, -EIO);
	ASSERT_OK(copy(&x));
	ASSERT_OK(ops->event_record(f, x.s));
	ASSERT_EQ(ops->event_wait(e, STRAIT_FOREVER), -EFAULT);
	ASSERT_EQ(ops->event_wait(f, STRAIT_FOREVER), -EFAULT); /* the first of those before it */
	ASSERT_OK(ops->stream_wait(x.s, STRAIT_FOREVER));

	emu_inject_copy_error(dev, 0, -EFAULT);
	ASSERT_OK(copy(&x));
	ASSERT_OK(ops->event_record(e, x.s));
	emu_inject_copy_error(dev, 0, -EIO);
	ASSERT_OK(copy(&x));
	ASSERT_EQ(ops->event_wait(e, STRAIT_FOREVER), -EFAULT);
	ASSERT_EQ(ops->stream_wait(x.s, STRAIT_FOREVER), -EIO);
	ASSERT_EQ(ops->event_wait(e, 0), -EFAULT);
	ASSERT_OK(ops->stream_wait(x.s, STRAIT_FOREVER));
	ops->event_close(e);
	ops->event_close(f);
	errors_teardown(&x);
}

TEST_VARIANTS(a_call_that_waits_returns_its_own_error, struct mode, modes)
{
	_Atomic uint32_t word = 0;
	struct errors x;
	char local[64];

	errors_setup(&x);
	emu_inject_copy_error(dev, 0, -EIO);
	if (v->queued)
		ASSERT_OK(ops->stream_wait_word(x.s, &word, number(&word), 1));
	atomic_store(&word, 1);
	ASSERT_EQ(ops->copy_out(x.s, local, x.m.addr, sizeof(local)), -EIO);
	ASSERT_EQ(x.s->status, EIO);
	ASSERT_OK(ops->stream_wait(x.s, STRAIT_FOREVER));
	errors_teardown(&x);
}

static bool no_threads(enum os_call call, int64_t *ret)
{
	*ret = -EAGAIN;
	return call == OS_THREAD;
}

/* No thread can be created: calls that need one fail, and others work. */
TEST(without_threads)
{
	_Atomic uint32_t word = 0;
	struct gate gate = GATE;
	struct errors x;

	errors_setup(&x);
	os_inject = no_threads;
	ASSERT_EQ(ops->stream_call(x.s, gate_fn, &gate), -EAGAIN);
	ASSERT_EQ(ops->stream_wait_word(x.s, &word, number(&word), 1), -EAGAIN);
	ASSERT_OK(copy(&x));
	ASSERT_OK(ops->stream_wait(x.s, 0));
	os_inject = NULL;
	errors_teardown(&x);
}
