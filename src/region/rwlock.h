/* SPDX-License-Identifier: MIT */
#ifndef REGION_RWLOCK_H
#define REGION_RWLOCK_H

#include <pthread.h>

/*
 * A lock for an index that is read with every copy and changed now and then. By default readers that
 * come one after the other keep a writer out for ever; here it is next. No thread may take it for
 * reading twice.
 */
static inline void rwlock_init(pthread_rwlock_t *lock)
{
	pthread_rwlockattr_t attr;

	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(lock, &attr);
	pthread_rwlockattr_destroy(&attr);
}

#endif
