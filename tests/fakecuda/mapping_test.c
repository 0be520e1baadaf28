/* SPDX-License-Identifier: MIT */
/* Coherent mappings on the CUDA provider: captured streams, kernels that cannot be loaded, failing calls, leaks. */
#include <strait/mapping.h>

#include "device/cuda/cuda.h"
#include "fakecuda/common.h"
#include "functional/mapping_rig.h"

static const struct mapping_mode cuda = { "cuda", "cuda:0", 0, false };

#define LEN MIB(2)

TEST(gives_everything_back)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;

	mapping_rig_open(&r, &cuda, LEN, NULL);
	want[77] = 'x';
	side_write(&r, r.dev, 77, "x", 1);
	side_expect(&r, NULL, 0, want, LEN);
	ASSERT_EQ(mapping_info_of(r.m).to_host_bytes, G);
	ASSERT_GT(fake_launches(), 0);
	mapping_rig_close(&r);
	free(want);
	expect_clean();
	expect_usage(&(struct fake_usage){ 0 });
}

/* The memory of a mapping belongs to the primary context: on a stream of another one it is not compared. */
static const struct context {
	const char *name;
	bool primary;
} contexts[] = { { "primary", true }, { "other", false } };

TEST_VARIANTS(refuses_captured_streams, struct context, contexts)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct strait_stream *s;
	struct mapping_rig r;
	cu_stream native;
	cu_context mine;
	void *at;
	int status = 1;

	CU(cuInit(0));
	if (v->primary) {
		CU(cuDevicePrimaryCtxRetain(&mine, 0));
		CU(cuCtxSetCurrent(mine));
	} else {
		CU(cuCtxCreate_v2(&mine, 0, 0));
	}
	CU(cuStreamCreate(&native, 0));
	mapping_rig_open(&r, &cuda, LEN, NULL);
	ASSERT_OK(strait_stream_import(r.dev, native, &s));
	fake_set_capturing(native, true);
	ASSERT_EQ(strait_mapping_acquire_on(r.m, s, 0, LEN, STRAIT_INTENT_WRITE, &at, &status), -EOPNOTSUPP);
	fake_set_capturing(native, false);
	ASSERT_EQ(mapping_info_of(r.m).acquired, 0);
	ASSERT_OK(strait_mapping_acquire_on(r.m, s, 0, LEN, STRAIT_INTENT_WRITE, &at, &status));
	ASSERT_OK(strait_stream_wait(s, STRAIT_FOREVER));
	ASSERT_EQ(__atomic_load_n(&status, __ATOMIC_ACQUIRE), 0);
	device_store(r.ctx, (char *)at + MIB(1), "y", 1);
	want[MIB(1)] = 'y';
	fake_set_capturing(native, true);
	ASSERT_EQ(strait_mapping_release_on(r.m, s, 0, LEN, STRAIT_INTENT_WRITE, &status), -EOPNOTSUPP);
	fake_set_capturing(native, false);
	ASSERT_EQ(mapping_info_of(r.m).acquired, 1);
	ASSERT_OK(strait_mapping_release_on(r.m, s, 0, LEN, STRAIT_INTENT_WRITE, &status));
	ASSERT_OK(strait_stream_wait(s, STRAIT_FOREVER));
	side_expect(&r, NULL, 0, want, LEN);
	ASSERT_EQ(mapping_info_of(r.m).to_host_bytes, v->primary ? G : LEN);
	strait_stream_close(s);
	mapping_rig_close(&r);
	free(want);
	CU(cuStreamDestroy_v2(native));
	if (v->primary)
		CU(cuDevicePrimaryCtxRelease_v2(0));
	else
		CU(cuCtxDestroy_v2(mine));
	expect_clean();
}

/* Between GPUs by the driver's copies. One that fails takes the way through the file. */
TEST(two_devices)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct strait_device *second;
	struct mapping_rig r;

	cuda_suspect_ns = 0;
	fake_machine.devices = 2;
	mapping_rig_open(&r, &cuda, LEN, NULL);
	second = device_named(r.ctx, "cuda:1");
	side_expect(&r, second, 0, want, LEN);
	for (int i = 0; i < 2; i++) {
		memset(want + i * 7 * G, 'a' + i, 3 * G);
		side_write(&r, r.dev, (uint64_t)i * 7 * G, want + i * 7 * G, 3 * G);
		if (i)
			fake_fail("cuMemcpyPeerAsync", 1, CU_NOT_SUPPORTED);
		side_expect(&r, second, 0, want, LEN);
		ASSERT_EQ(mapping_info_of(r.m).between_bytes, 3 * G);
		ASSERT_EQ(mapping_info_of(r.m).to_host_bytes, i ? 3 * G : 0);
	}
	fake_fail(NULL, 0, 0);
	side_expect(&r, NULL, 0, want, LEN);
	mapping_rig_close(&r);
	free(want);
	expect_clean();
}

/* Without device code all of the range counts as changed, and is right all the same. */
TEST(without_kernels)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct mapping_rig r;

	fake_fail("cuModuleLoadData", 1, CU_NOT_SUPPORTED);
	for (int i = 0; i < 2; i++) {
		mapping_rig_open(&r, &cuda, LEN, NULL);
		want[9 * G] = 'z';
		side_write(&r, r.dev, 9 * G, "z", 1);
		side_expect(&r, NULL, 0, want, LEN);
		mapping_rig_close(&r);
		fake_fail(NULL, 0, 0);
	}
	free(want);
	expect_clean();
}

/* Any call of the driver may fail: an error, or the right bytes, and nothing is leaked. */
TEST(any_call_fails)
{
	/* No context is destroyed here: do not watch it for 200 ms after each error. */
	cuda_suspect_ns = 0;
	for (unsigned int nth = 1; nth < 400; nth += 3) {
		unsigned char *want = pattern_new(0, LEN, 1);
		struct mapping_rig r;
		bool failed;
		void *at;

		mapping_rig_open(&r, &cuda, LEN, NULL);
		fake_fail(NULL, nth, nth % 2 ? CU_OUT_OF_MEMORY : CU_INVALID_VALUE);
		for (int i = 0; i < 4; i++) {
			if (strait_mapping_acquire(r.m, r.dev, 0, LEN, STRAIT_INTENT_WRITE, &at))
				continue;
			strait_mapping_release(r.m, r.dev, 0, LEN, STRAIT_INTENT_WRITE);
			if (!strait_mapping_acquire(r.m, NULL, 0, LEN, STRAIT_INTENT_READ, &at))
				strait_mapping_release(r.m, NULL, 0, LEN, STRAIT_INTENT_READ);
		}
		failed = fake_failed();
		fake_fail(NULL, 0, 0);
		ASSERT_EQ(mapping_info_of(r.m).acquired, 0);
		side_expect(&r, r.dev, 0, want, LEN);
		side_expect(&r, NULL, 0, want, LEN);
		mapping_rig_close(&r);
		free(want);
		expect_clean();
		if (!failed)
			break;
	}
}
