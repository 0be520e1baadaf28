/* SPDX-License-Identifier: MIT */
#ifndef FAKECUDA_COMMON_H
#define FAKECUDA_COMMON_H

/* Helpers for tests of the CUDA provider with the fake driver. */

#include "base/crc32c.h"
#include "fakecuda/fake.h"
#include "functional/common.h"

/* A call of the application into the driver. */
#define CU(call) ASSERT_EQ(call, CU_OK)

/* No violation was found, and the thread's state is unchanged. */
static inline void expect_clean(void)
{
	ASSERT_EQ(fake_violations(), 0);
	ASSERT_EQ(fake_capture_mode(), 0);
}

static inline void expect_usage(const struct fake_usage *want)
{
	struct fake_usage now = fake_usage();

	ASSERT_EQ(now.device_bytes, want->device_bytes);
	ASSERT_EQ(now.registered_bytes, want->registered_bytes);
	ASSERT_EQ(now.allocations, want->allocations);
	ASSERT_EQ(now.registrations, want->registrations);
	ASSERT_EQ(now.streams, want->streams);
	ASSERT_EQ(now.events, want->events);
	ASSERT_EQ(now.modules, want->modules);
	ASSERT_EQ(now.contexts, want->contexts);
	ASSERT_EQ(now.primary_refs, want->primary_refs);
	ASSERT_EQ(now.handles, want->handles);
}

#endif
