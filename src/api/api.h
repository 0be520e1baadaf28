/* SPDX-License-Identifier: MIT */
#ifndef API_API_H
#define API_API_H

/*
 * The public calls, one file per header. They check arguments and for a forked child, and call the layers below.
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
