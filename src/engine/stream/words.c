/* SPDX-License-Identifier: MIT */
#include "engine/stream/words.h"

#include <stdlib.h>

#include "base/lock.h"
#include "base/util.h"
#include "os/os.h"

#define STEP 64u /* bytes: a cache line each */
#define PAGE_WORDS 64u
#define PAGE_BYTES (PAGE_WORDS * STEP)

struct word_page {
	struct list node;
	void *at;
	struct host_reg reg;
	struct word word[PAGE_WORDS];
};

void words_init(struct words *w, struct strait_device *dev)
{
	mutex_init_brief(&w->lock);
	w->dev = dev;
	list_init(&w->idle);
	list_init(&w->pages);
}

static void page_free(struct words *w, struct word_page *p)
{
	w->dev->ops->host_unregister(w->dev, &p->reg);
	os_unmap(p->at, PAGE_BYTES);
	free(p);
}

void words_fini(struct words *w)
{
	list_for_each_safe(it, tmp, &w->pages)
		page_free(w, list_entry(it, struct word_page, node));
	pthread_mutex_destroy(&w->lock);
}

static int page_new(struct words *w, struct word_page **ret)
{
	struct word_page *p = calloc(1, sizeof(*p));
	int rc;

	if (!p)
		return -ENOMEM;
	rc = os_map_anon(PAGE_BYTES, w->dev->numa_node, &p->at);
	if (rc)
		goto free_page;
	rc = w->dev->ops->host_register(w->dev, p->at, PAGE_BYTES, 0, &p->reg);
	if (rc)
		goto unmap;
	for (unsigned int i = 0; i < PAGE_WORDS; i++) {
		list_init(&p->word[i].node);
		p->word[i].at = (_Atomic uint32_t *)(void *)((char *)p->at + i * STEP);
		p->word[i].dev_addr = p->reg.dev_addr + i * STEP;
	}
	*ret = p;
	return 0;
unmap:
	os_unmap(p->at, PAGE_BYTES);
free_page:
	free(p);
	return rc;
}

static struct word *take_idle(struct words *w)
{
	struct word *word = NULL;

	pthread_mutex_lock(&w->lock);
	if (!list_empty(&w->idle)) {
		word = list_first(&w->idle, struct word, node);
		list_del(&word->node);
	}
	pthread_mutex_unlock(&w->lock);
	return word;
}

int words_get(struct words *w, struct word **ret)
{
	struct word_page *p = NULL;
	int rc;

	*ret = take_idle(w);
	if (*ret)
		return 0;
	rc = page_new(w, &p);
	if (rc)
		return rc;
	pthread_mutex_lock(&w->lock);
	list_add_tail(&w->pages, &p->node);
	for (unsigned int i = 1; i < PAGE_WORDS; i++)
		list_add_tail(&w->idle, &p->word[i].node);
	pthread_mutex_unlock(&w->lock);
	*ret = &p->word[0];
	return 0;
}

void words_put(struct words *w, struct word *word)
{
	pthread_mutex_lock(&w->lock);
	list_add(&w->idle, &word->node);
	pthread_mutex_unlock(&w->lock);
}
