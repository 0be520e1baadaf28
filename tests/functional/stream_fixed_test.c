/* SPDX-License-Identifier: MIT */
/* Transfers ordered on a stream with parameters that are fixed, or can be predicted. */
#include "common.h"

#define LEN MIB(8)

/* A transfer's parameters and its result, as they lie in memory. */
struct params {
	uint64_t off, region_off, len;
	int64_t result;
};

/*
 * A host function that blocks the stream. When released, it changes the parameters of a transfer, if it is given one.
 */
static atomic_bool blocked;

static void block(void *arg)
{
	struct params *late = arg;

	while (atomic_load(&blocked))
		sleep_ms(1);
	if (late)
		late->off = MIB(2);
}

struct writer {
	const char *path;
	const unsigned char *data;
};

/* Another process: opening the file breaks the lease. */
static void *write_new(void *arg)
{
	struct writer *w = arg;
	int fd = open(w->path, O_WRONLY | O_CLOEXEC | O_TRUNC);

	ASSERT_GE(fd, 0);
	ASSERT_EQ(write(fd, w->data, LEN), (ssize_t)LEN);
	close(fd);
	return NULL;
}

/*
 * Fixed parameters do not change when the file is read: bytes written to it while work before the transfer still runs
 * are what arrives. And the writer does not have to wait for that work.
 */
static const struct known {
	const char *name;
	uint32_t flags;
} knowns[] = { { "fixed", STRAIT_STREAM_FIXED }, { "guessed", 0 } };

TEST_VARIANTS(known_parameters, struct known, knowns)
{
	struct params p[5] = { { 0, 0, MIB(1), 99 },
			       { MIB(1), MIB(1), MIB(4), 99 },
			       { 5000, 0, 100, 99 },
			       { LEN - 7, MIB(5), MIB(1), 99 },
			       { MIB(5), MIB(6), KIB(512), 99 } };
	unsigned char *old = pattern_new(0, LEN, 1), *new = pattern_new(0, LEN, 77);
	struct strait_context *ctx = context_new(NULL);
	struct strait_device *dev = device_named(ctx, "emu:0");
	struct strait_region *r = region_new(dev, LEN);
	struct strait_endpoint *ep = file_new(ctx, make_file("file", LEN, 1), O_RDONLY, STRAIT_FILE_LEASE);
	struct strait_stream *s;
	struct writer w;
	pthread_t t;

	ASSERT_OK(strait_stream_open(dev, &s));
	if (!(file_info(ep).caps & STRAIT_FILE_UNCHANGED))
		SKIP("no read lease here");
	warm(test_path("file"));
	for (int round = 0; round < 3; round++) {
		const unsigned char *want = round < 2 ? old : new;

		atomic_store(&blocked, true);
		p[0].off = 0;
		ASSERT_OK(strait_stream_call(s, block, v->flags ? NULL : &p[0]));
		for (int i = 0; i < 5; i++) {
			struct strait_stream_transfer st = { .size = sizeof(st),
							     .endpoint = ep,
							     .region = r,
							     .endpoint_offset = &p[i].off,
							     .region_offset = &p[i].region_off,
							     .length = &p[i].len,
							     .result = &p[i].result,
							     .flags = v->flags };

			p[i].result = 99;
			ASSERT_OK(strait_stream_transfer(s, &st));
			st.flags = 2;
			ASSERT_EQ(strait_stream_transfer(s, &st), -EINVAL);
		}
		if (round == 2) {
			w = (struct writer){ test_path("file"), new };
			thread_start(&t, write_new, &w);
			thread_join(t);
		}
		atomic_store(&blocked, false);
		ASSERT_OK(strait_stream_wait(s, STRAIT_FOREVER));
		/* Windows are registered in the background. */
		for (int i = 0; on_cuda() && round < 2 && !stats_of(ctx).registered_bytes && i < 2000; i++)
			sleep_ms(1);
		if (on_cuda())
			ASSERT_EQ(stats_of(ctx).registered_bytes > 0, round < 2);
		ASSERT_EQ(p[0].result, MIB(1));
		ASSERT_EQ(p[1].result, MIB(4));
		ASSERT_EQ(p[2].result, 100);
		ASSERT_EQ(p[3].result, 7);
		ASSERT_EQ(p[4].result, KIB(512));
		region_expect(r, 0, want + 5000, 100);
		region_expect(r, 100, want + p[0].off + 100, MIB(1) - 100);
		region_expect(r, MIB(1), want + MIB(1), MIB(4));
		region_expect(r, MIB(5), want + LEN - 7, 7);
		region_expect(r, MIB(6), want + MIB(5), KIB(512));
	}
	strait_stream_close(s);
	strait_endpoint_close(ep);
	strait_region_close(r);
	strait_context_close(ctx);
	free(old);
	free(new);
}
