/* SPDX-License-Identifier: MIT */
#ifndef OS_INJECT_H
#define OS_INJECT_H

#include "os/os.h"

/* First statement of each call: a test may return a result in place of the kernel. */
#define OS_POINT(call)                                                                                                 \
	do {                                                                                                           \
		os_inject_fn *inject_ = atomic_load_explicit(&os_inject, memory_order_acquire);                        \
		int64_t injected_;                                                                                     \
		if (__builtin_expect(inject_ != NULL, 0) && inject_(call, &injected_))                                 \
			return injected_;                                                                              \
	} while (0)

/* -errno for a call that returned -1. */
#define OS_RET(expr)                                                                                                   \
	({                                                                                                             \
		__typeof__(expr) ret_ = (expr);                                                                        \
		ret_ < 0 ? (__typeof__(expr))-errno : ret_;                                                            \
	})

#endif
