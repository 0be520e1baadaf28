/* SPDX-License-Identifier: MIT */
/* Idle streams of a device, and the events that go with each. */
#include <stdlib.h>

#include "base/util.h"
#include "engine/engine.h"

void engine_stream_free(struct strait_device *dev, struct lane_stream *ls)
{
	for (unsigned int i = 0; i < ls->n_events; i++)
		dev->ops->event_close(ls->events[i]);
	if (ls->stream)
		dev->ops->stream_close(ls->stream);
	free(ls);
}

/*
 * The application destroys its CUDA contexts without notice, and idle streams in them would stay. Closes those before
 * another stream is opened, which is when a context may be new.
 */
static void close_lost_streams(struct strait_device *dev)
{
	struct device_engine *de = device_engine(dev);
	struct list all = LIST_INIT(all);

	pthread_mutex_lock(&de->lock);
	if (!list_empty(&de->streams))
		list_move_front(&all, &de->streams, de->streams.prev);
	pthread_mutex_unlock(&de->lock);
	list_for_each_safe(it, tmp, &all) {
		struct lane_stream *ls = list_entry(it, struct lane_stream, node);

		list_del(&ls->node);
		engine_stream_put(dev, ls, dev->ops->stream_lost(ls->stream));
	}
}

static int stream_new(struct strait_device *dev, const struct provider_mem *m, bool isolated, struct lane_stream **ret)
{
	struct lane_stream *ls = calloc(1, sizeof(*ls));
	uint64_t began = os_now_ns();
	int rc;

	if (!ls)
		return -ENOMEM;
	list_init(&ls->node);
	ls->context = m->context;
	ls->isolated = isolated;
	rc = isolated ? dev->ops->stream_open_isolated(dev, m, &ls->stream) :
			dev->ops->stream_open(dev, m, &ls->stream);
	if (rc) {
		engine_stream_free(dev, ls);
		return rc;
	}
	log_debug(dev->provider->set->log, "%s: a stream opened in %.2f ms", dev->name,
		  (double)(os_now_ns() - began) / 1e6);
	*ret = ls;
	return 0;
}

int engine_stream_add(struct strait_device *dev, const struct provider_mem *m)
{
	struct lane_stream *ls;
	int rc = stream_new(dev, m, false, &ls);

	if (!rc)
		engine_stream_put(dev, ls, false);
	return rc;
}

int engine_stream_get(struct strait_device *dev, const struct provider_mem *m, bool isolated, struct lane_stream **ret)
{
	struct device_engine *de = device_engine(dev);
	struct lane_stream *ls;

	pthread_mutex_lock(&de->lock);
	list_for_each(it, &de->streams) {
		ls = list_entry(it, struct lane_stream, node);
		if (ls->context == m->context && ls->isolated == isolated) {
			list_del(&ls->node);
			pthread_mutex_unlock(&de->lock);
			*ret = ls;
			return 0;
		}
	}
	pthread_mutex_unlock(&de->lock);
	close_lost_streams(dev);
	return stream_new(dev, m, isolated, ret);
}

void engine_stream_put(struct strait_device *dev, struct lane_stream *ls, bool broken)
{
	struct device_engine *de = device_engine(dev);

	if (broken) {
		engine_stream_free(dev, ls);
		return;
	}
	pthread_mutex_lock(&de->lock);
	list_add(&de->streams, &ls->node);
	pthread_mutex_unlock(&de->lock);
}

int engine_event_get(struct lane_stream *ls, struct dev_event **ret)
{
	if (ls->n_events) {
		*ret = ls->events[--ls->n_events];
		return 0;
	}
	return ls->stream->dev->ops->event_open(ls->stream, ret);
}

void engine_event_put(struct lane_stream *ls, struct dev_event *e)
{
	if (ls->n_events < ARRAY_SIZE(ls->events))
		ls->events[ls->n_events++] = e;
	else
		e->dev->ops->event_close(e);
}
