/* SPDX-License-Identifier: MIT */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

/*
 * CHECK(): an internal invariant. Sanitizer and debug builds define STRAIT_CHECKS and abort on a violation; other
 * builds do not evaluate the condition.
 */

#ifdef STRAIT_CHECKS
#include <stdio.h>
#include <stdlib.h>

#define CHECK(cond)                                                                                                    \
	do {                                                                                                           \
		if (!(cond)) {                                                                                         \
			fprintf(stderr, "strait: %s:%d: violated: %s\n", __FILE__, __LINE__, #cond);                   \
			abort();                                                                                       \
		}                                                                                                      \
	} while (0)
#else
#define CHECK(cond) ((void)sizeof(!(cond)))
#endif

#endif
