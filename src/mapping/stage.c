/* SPDX-License-Identifier: MIT */
/* Pinned host memory for the batches of a view, within the mapping's budget. */
#include <stdlib.h>

#include "base/util.h"
#include "mapping/mapping.h"
#include "os/os.h"

static void stage_free(struct view *v, struct stage *st)
{
	if (st->registered)
		v->dev->ops->host_unregister(v->dev, &st->reg);
	os_unmap(st->ptr, st->len);
	free(st);
}

static int stage_new(struct view *v, uint64_t len, struct stage **ret)
{
	struct stage *st = calloc(1, sizeof(*st));
	void *ptr;
	int rc;

	if (!st)
		return -ENOMEM;
	rc = os_map_anon(len, v->dev->numa_node, &ptr);
	if (rc) {
		free(st);
		return rc;
	}
	os_dont_fork(ptr, len);
	st->ptr = ptr;
	st->len = len;
	list_init(&st->node);
	rc = v->dev->ops->host_register(v->dev, ptr, len, 0, &st->reg);
	if (rc) {
		stage_free(v, st);
		return rc;
	}
	st->registered = true;
	*ret = st;
	return 0;
}

static struct stage *idle_stage_locked(struct list *idle, uint64_t len)
{
	list_for_each(it, idle) {
		struct stage *st = list_entry(it, struct stage, node);

		if (st->len < len)
			continue;
		list_del(&st->node);
		return st;
	}
	return NULL;
}

/*
 * A stage of STAGE_BYTES waits for another thread's when the budget is used up: a thread that has one waits for the device
 * and the file only. Stages of other lengths hold the results of a comparison until a stream has passed its release.
 * Waiting for a stream here could be waiting for the caller, so these have no budget.
 */
int stage_get(struct view *v, uint64_t len, struct stage **ret)
{
	bool bounded = len == STAGE_BYTES;
	uint64_t *total = bounded ? &v->staged_bytes : &v->result_bytes;
	struct list *idle = bounded ? &v->stages : &v->results;
	struct stage *st;
	int rc;

	pthread_mutex_lock(&v->stage_lock);
	while (!(st = idle_stage_locked(idle, len)) && bounded && *total && *total + len > v->map->pinned_budget)
		pthread_cond_wait(&v->stage_free, &v->stage_lock);
	if (!st)
		*total += len;
	pthread_mutex_unlock(&v->stage_lock);
	if (st) {
		*ret = st;
		return 0;
	}
	rc = stage_new(v, len, ret);
	if (rc) {
		pthread_mutex_lock(&v->stage_lock);
		*total -= len;
		pthread_cond_broadcast(&v->stage_free);
		pthread_mutex_unlock(&v->stage_lock);
	}
	return rc;
}

void stage_put(struct view *v, struct stage *st)
{
	pthread_mutex_lock(&v->stage_lock);
	list_add(st->len == STAGE_BYTES ? &v->stages : &v->results, &st->node);
	pthread_cond_broadcast(&v->stage_free);
	pthread_mutex_unlock(&v->stage_lock);
}

void stages_free(struct view *v)
{
	list_for_each_safe(it, tmp, &v->stages)
		stage_free(v, list_entry(it, struct stage, node));
	list_for_each_safe(it, tmp, &v->results)
		stage_free(v, list_entry(it, struct stage, node));
}
