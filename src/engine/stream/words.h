/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_STREAM_WORDS_H
#define ENGINE_STREAM_WORDS_H

/*
 * Words that streams of a device wait for, many to a registered page. Pages are kept as long as the context: giving
 * registered memory back can make a driver wait for streams that have nothing to do with it.
 *
 * A word is counted up and never set back. So it can be given out again while the device still has a wait on it that it
 * has not looked at, as it may of a stream of the application's that was forgotten: the value is, and stays, past what
 * such a wait is for.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "device/provider.h"

struct word {
	struct list node;
	_Atomic uint32_t *at;
	uint64_t dev_addr;
};

struct words {
	pthread_mutex_t lock;
	struct strait_device *dev;
	struct list idle;  /* struct word */
	struct list pages; /* struct word_page */
};

void words_init(struct words *w, struct strait_device *dev);
void words_fini(struct words *w);
/* The next value to wait for is the one after what the word holds. */
int words_get(struct words *w, struct word **ret);
void words_put(struct words *w, struct word *word);

#endif
