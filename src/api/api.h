/* SPDX-License-Identifier: MIT */
#ifndef API_API_H
#define API_API_H

/*
 * The public calls: they check what only the caller can get wrong (NULL, a forked child) and hand
 * over to the layers below.
 */

#include "engine/engine.h"

#define API_CHECK(cond)                                                                                                \
	do {                                                                                                           \
		if (!(cond))                                                                                           \
			return -EINVAL;                                                                                \
	} while (0)

#define API_ALIVE(ctx)                                                                                                 \
	do {                                                                                                           \
		int alive_ = engine_alive(ctx);                                                                        \
		if (alive_)                                                                                            \
			return alive_;                                                                                 \
	} while (0)

#endif
