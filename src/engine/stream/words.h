/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_STREAM_WORDS_H
#define ENGINE_STREAM_WORDS_H

/*
 * Words in registered memory that streams of a device wait for, many to a page. Pages stay registered as long as the
 * context: unregistering can make a driver wait for unrelated streams.
 *
 * A word only ever counts up. So it can be given out again while an abandoned stream of the application still has a wait
 * for it: the value is, and stays, past what that wait is for.
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
/* The next value to wait for is the word's present value plus one. */
int words_get(struct words *w, struct word **ret);
void words_put(struct words *w, struct word *word);

#endif
