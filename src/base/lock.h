/* SPDX-License-Identifier: MIT */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

/* Locks that are not of the default kind. */

#include <pthread.h>

/* A lock that is held for moments only: who has to wait for it looks again for a while before it sleeps. */
static inline void mutex_init_brief(pthread_mutex_t *lock)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
	pthread_mutex_init(lock, &attr);
	pthread_mutexattr_destroy(&attr);
}

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
