/* SPDX-License-Identifier: MIT */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

/* Locks with non-default attributes. */

#include <pthread.h>

/* A lock with short critical sections: a waiter spins before it sleeps. */
static inline void mutex_init_brief(pthread_mutex_t *lock)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
	pthread_mutex_init(lock, &attr);
	pthread_mutexattr_destroy(&attr);
}

/*
 * A lock for an index that every copy reads and few calls change. With the default attributes a steady stream of
 * readers starves writers; this one prefers writers. A thread must not take it for reading recursively.
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
