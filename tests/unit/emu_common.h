/* SPDX-License-Identifier: MIT */
#ifndef EMU_COMMON_H
#define EMU_COMMON_H

/* Helpers for tests of the emulated device's streams. */

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include <strait/emu.h>

#include "base/util.h"
#include "device/emu/emu.h"
#include "harness/harness.h"
#include "os/os.h"

#define MS 1000000ll

static struct device_set set;
static const struct log_sink no_log;
static struct strait_device *dev;
static const struct provider_ops *ops;

static inline struct dev_stream *open_stream(void)
{
	struct dev_stream *s;

	ASSERT_OK(ops->stream_open(dev, NULL, &s));
	return s;
}

static inline void setup(const char *name)
{
	ASSERT_OK(device_set_open(&set, &no_log, NULL));
	ASSERT_OK(device_set_find(&set, name, &dev));
	ops = dev->ops;
}

static inline uint64_t number(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

/* A function on a stream that blocks until the gate is opened. */
struct gate {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool open, reached;
};

#define GATE                                                                                                           \
	{                                                                                                              \
		PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false                                      \
	}

static inline void gate_fn(void *arg)
{
	struct gate *g = arg;

	pthread_mutex_lock(&g->lock);
	g->reached = true;
	pthread_cond_broadcast(&g->cond);
	while (!g->open)
		pthread_cond_wait(&g->cond, &g->lock);
	pthread_mutex_unlock(&g->lock);
}

static inline void gate_open(struct gate *g)
{
	pthread_mutex_lock(&g->lock);
	g->open = true;
	pthread_cond_broadcast(&g->cond);
	pthread_mutex_unlock(&g->lock);
}

static inline void gate_wait_reached(struct gate *g)
{
	pthread_mutex_lock(&g->lock);
	while (!g->reached)
		pthread_cond_wait(&g->cond, &g->lock);
	pthread_mutex_unlock(&g->lock);
}

#endif
