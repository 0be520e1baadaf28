/* SPDX-License-Identifier: MIT */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

/* Locks and condition variables with non-default attributes. */

#include <pthread.h>
#include <stdint.h>
#include <time.h>

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

/* A condition variable for cond_wait_until(). */
static inline void cond_init_monotonic(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

/*
 * Waits on @cond until @deadline_ns in os_now_ns() time, without a limit for UINT64_MAX. Returns 0, also for
 * a spurious wakeup, or ETIMEDOUT.
 */
static inline int cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns)
{
	struct timespec ts = { (time_t)(deadline_ns / 1000000000u), (long)(deadline_ns % 1000000000u) };

	if (deadline_ns == UINT64_MAX)
		return pthread_cond_wait(cond, lock);
	return pthread_cond_timedwait(cond, lock, &ts);
}

#endif
