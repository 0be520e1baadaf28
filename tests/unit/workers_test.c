/* SPDX-License-Identifier: MIT */
/* Worker threads. */
#include "engine/workers.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "harness/harness.h"
#include "os/os.h"

struct job {
	struct task task;
	atomic_bool *hold;
	atomic_uint *done, *running;
	unsigned int order;
};

static atomic_uint ran, running, order;
static atomic_bool hold;

static void run(struct task *task)
{
	struct job *j = container_of(task, struct job, task);

	j->order = atomic_fetch_add(&order, 1);
	atomic_fetch_add(&running, 1);
	while (atomic_load(&hold))
		os_sleep_ns(100000);
	atomic_fetch_sub(&running, 1);
	atomic_fetch_add(&ran, 1);
}

static void wait_until(atomic_uint *counter, unsigned int n)
{
	while (atomic_load(counter) < n)
		os_sleep_ns(100000);
}

TEST(tasks_run_in_order_on_one_thread)
{
	struct workers w;
	struct job j[50];

	ASSERT_OK(workers_init(&w, 1));
	ASSERT_EQ(w.n, 0);
	for (int i = 0; i < 50; i++) {
		task_init(&j[i].task, run);
		ASSERT_OK(workers_post(&w, &j[i].task));
	}
	wait_until(&ran, 50);
	ASSERT_EQ(w.n, 1);
	for (unsigned int i = 0; i < 50; i++)
		ASSERT_EQ(j[i].order, i);
	workers_fini(&w);
}

/* As many threads as there are tasks, up to the limit. */
TEST(threads_as_needed)
{
	struct workers w;
	struct job j[10];

	ASSERT_OK(workers_init(&w, 4));
	for (int i = 0; i < 10; i++)
		task_init(&j[i].task, run);
	atomic_store(&hold, true);
	for (unsigned int i = 0; i < 4; i++) {
		ASSERT_OK(workers_offer(&w, &j[i].task));
		wait_until(&running, i + 1);
	}
	/* All threads are busy: an offer is refused, a post waits. */
	ASSERT_EQ(workers_offer(&w, &j[4].task), -EAGAIN);
	ASSERT_OK(workers_post(&w, &j[4].task));
	os_sleep_ns(5000000);
	ASSERT_EQ(atomic_load(&running), 4);
	atomic_store(&hold, false);
	wait_until(&ran, 5);
	/* Idle threads are used before new ones are created. */
	for (int i = 5; i < 10; i++) {
		ASSERT_OK(workers_post(&w, &j[i].task));
		wait_until(&ran, (unsigned int)i + 1);
	}
	ASSERT_EQ(w.n, 4);
	workers_fini(&w);
}

/* An accepted offer runs at once, even if other tasks are waiting. */
TEST(an_accepted_offer_runs_at_once)
{
	struct workers w;
	struct job j[3];

	ASSERT_OK(workers_init(&w, 2));
	for (int i = 0; i < 3; i++)
		task_init(&j[i].task, run);
	atomic_store(&hold, true);
	ASSERT_OK(workers_post(&w, &j[0].task));
	wait_until(&running, 1);
	ASSERT_OK(workers_offer(&w, &j[1].task));
	wait_until(&running, 2);
	ASSERT_EQ(workers_offer(&w, &j[2].task), -EAGAIN);
	atomic_store(&hold, false);
	wait_until(&ran, 2);
	workers_fini(&w);
}

static bool no_threads(enum os_call call, int64_t *ret)
{
	*ret = -EAGAIN;
	return call == OS_THREAD;
}

TEST(no_thread_to_be_had)
{
	struct workers w;
	struct job j[3];

	ASSERT_OK(workers_init(&w, 4));
	for (int i = 0; i < 3; i++)
		task_init(&j[i].task, run);
	os_inject = no_threads;
	ASSERT_EQ(workers_post(&w, &j[0].task), -EAGAIN);
	ASSERT_EQ(workers_offer(&w, &j[0].task), -EAGAIN);
	ASSERT_EQ(workers_ensure(&w), -EAGAIN);
	os_inject = NULL;
	ASSERT_OK(workers_ensure(&w));
	ASSERT_OK(workers_ensure(&w));
	ASSERT_EQ(w.n, 1);
	/* With one thread running, a post cannot fail any more. */
	os_inject = no_threads;
	atomic_store(&hold, true);
	ASSERT_OK(workers_post(&w, &j[0].task));
	wait_until(&running, 1);
	ASSERT_OK(workers_post(&w, &j[1].task));
	ASSERT_EQ(workers_offer(&w, &j[2].task), -EAGAIN);
	atomic_store(&hold, false);
	wait_until(&ran, 2);
	os_inject = NULL;
	workers_fini(&w);
}

static sigset_t mask;

static void look_at_mask(struct task *task)
{
	(void)task;
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	atomic_fetch_add(&ran, 1);
}

/* Signals of the application are blocked in these threads. */
TEST(signals_are_blocked)
{
	struct workers w;
	struct job j;

	task_init(&j.task, look_at_mask);
	ASSERT_OK(workers_init(&w, 1));
	ASSERT_OK(workers_post(&w, &j.task));
	wait_until(&ran, 1);
	workers_fini(&w);
	for (int s = 1; s < 32; s++)
		if (s != SIGKILL && s != SIGSTOP)
			ASSERT_TRUE(sigismember(&mask, s));
}

struct pulse {
	struct task task;
	atomic_bool done;
};

static void pulse_run(struct task *task)
{
	atomic_store(&container_of(task, struct pulse, task)->done, true);
}

#define POSTERS 3
#define PULSES 3000

static struct workers pool;

/* Posts a task and waits for it, over and over, with pauses of about as long as a worker lingers. */
static void *post_pulses(void *arg)
{
	unsigned int seed = *(unsigned int *)arg;

	for (unsigned int i = 0; i < PULSES / test_slow(); i++) {
		struct pulse p = { 0 };

		task_init(&p.task, pulse_run);
		p.task.linger = rand_r(&seed) % 4;
		workers_post(&pool, &p.task);
		while (!atomic_load(&p.done))
			sched_yield();
		if (rand_r(&seed) % 2)
			os_sleep_ns(rand_r(&seed) % 120000);
	}
	return NULL;
}

/* No task is left behind by a worker that stops lingering as the task arrives. */
TEST(every_task_finds_a_worker)
{
	unsigned int seed[POSTERS];
	pthread_t t[POSTERS];

	ASSERT_OK(workers_init(&pool, 2));
	for (unsigned int i = 0; i < POSTERS; i++) {
		seed[i] = i;
		ASSERT_OK(pthread_create(&t[i], NULL, post_pulses, &seed[i]));
	}
	for (unsigned int i = 0; i < POSTERS; i++)
		pthread_join(t[i], NULL);
	ASSERT_EQ(pool.waiting, 0);
	workers_fini(&pool);
	ASSERT_EQ(pool.lingering, 0);
}
