/* SPDX-License-Identifier: MIT */
#include <pthread.h>

#include "device/cuda/cuda.h"
#include "os/os.h"

/*
 * cuModuleLoadData() and cuMemFree() wait for all work of the context while they hold a process-wide lock of the
 * driver. If a stream waits for a copy that is not submitted yet, that deadlocks: submitting the copy needs the lock.
 * So in a process either streams wait for copies, or modules are loaded and memory is freed. Loading is skipped while
 * streams wait; freeing waits until none does, and new transfers on streams wait for it.
 */
static struct {
	pthread_cond_t loaded, quiet;
	unsigned int stream_waits; /* between cuda_stream_waits_begin() and _end() */
	unsigned int loading;	   /* threads that load, free, or wait to free */
} load_gate = { .loaded = PTHREAD_COND_INITIALIZER, .quiet = PTHREAD_COND_INITIALIZER };

/* The threads that were counted do not exist in a forked child. */
static void load_gate_forked(void)
{
	load_gate.stream_waits = load_gate.loading = 0;
	pthread_cond_init(&load_gate.loaded, NULL);
	pthread_cond_init(&load_gate.quiet, NULL);
}

OS_FORK_LOCK(load_gate_lock, load_gate_forked)

void cuda_stream_waits_begin(struct strait_device *dev)
{
	pthread_mutex_lock(&load_gate_lock);
	while (load_gate.loading)
		pthread_cond_wait(&load_gate.loaded, &load_gate_lock);
	load_gate.stream_waits++;
	pthread_mutex_unlock(&load_gate_lock);
}

void cuda_stream_waits_end(struct strait_device *dev)
{
	pthread_mutex_lock(&load_gate_lock);
	if (!--load_gate.stream_waits)
		pthread_cond_broadcast(&load_gate.quiet);
	pthread_mutex_unlock(&load_gate_lock);
}

void cuda_load_gate_begin(void)
{
	pthread_mutex_lock(&load_gate_lock);
	load_gate.loading++;
	while (load_gate.stream_waits)
		pthread_cond_wait(&load_gate.quiet, &load_gate_lock);
	pthread_mutex_unlock(&load_gate_lock);
}

void cuda_load_gate_end(void)
{
	pthread_mutex_lock(&load_gate_lock);
	if (!--load_gate.loading)
		pthread_cond_broadcast(&load_gate.loaded);
	pthread_mutex_unlock(&load_gate_lock);
}

bool cuda_load_gate_try_begin(void)
{
	bool can;

	pthread_mutex_lock(&load_gate_lock);
	can = !load_gate.stream_waits;
	load_gate.loading += can;
	pthread_mutex_unlock(&load_gate_lock);
	return can;
}
