/* SPDX-License-Identifier: MIT */
/* Ops that wait for a word in host memory. */
#include "base/lock.h"
#include "device/soft/engine.h"
#include "os/os.h"

/* How often words are polled for stores made without word_post, such as the DMA of a peer. */
#define POLL_NS 10000000u

bool soft_word_reached(const struct soft_op *op)
{
	/* The comparison of cuStreamWaitValue32(GEQ): counters wrap around. */
	return (int32_t)(atomic_load_explicit(op->wait.word, memory_order_seq_cst) - op->wait.value) >= 0;
}

/* Completes all parked ops whose word has reached its value. */
static void words_complete_reached(struct soft_engine *eng)
{
	struct soft_words *w = &eng->words;
	struct list reached;

	list_init(&reached);
	pthread_mutex_lock(&w->lock);
	list_for_each_safe(it, tmp, &w->parked) {
		if (!soft_word_reached(list_entry(it, struct soft_op, node)))
			continue;
		list_del(it);
		list_add_tail(&reached, it);
		atomic_fetch_sub_explicit(&w->n_parked, 1, memory_order_relaxed);
	}
	pthread_mutex_unlock(&w->lock);
	while (!list_empty(&reached)) {
		struct soft_op *op = list_first(&reached, struct soft_op, node);

		list_del(&op->node);
		soft_stream_done(op->stream, op, 0, 0);
	}
}

static void *words_main(void *arg)
{
	struct soft_engine *eng = arg;
	struct soft_words *w = &eng->words;

	pthread_mutex_lock(&w->lock);
	while (!w->stop) {
		if (list_empty(&w->parked)) {
			pthread_cond_wait(&w->cond, &w->lock);
			continue;
		}
		cond_wait_until(&w->cond, &w->lock, os_now_ns() + POLL_NS);
		pthread_mutex_unlock(&w->lock);
		words_complete_reached(eng);
		pthread_mutex_lock(&w->lock);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

void soft_words_init(struct soft_engine *eng)
{
	list_init(&eng->words.parked);
	pthread_mutex_init(&eng->words.lock, NULL);
	cond_init_monotonic(&eng->words.cond);
}

void soft_words_fini(struct soft_engine *eng)
{
	struct soft_words *w = &eng->words;

	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
	if (w->started)
		pthread_join((pthread_t)w->thread, NULL);
	pthread_cond_destroy(&w->cond);
	pthread_mutex_destroy(&w->lock);
}

int soft_words_ensure_thread(struct soft_engine *eng)
{
	struct soft_words *w = &eng->words;
	int rc = 0;

	pthread_mutex_lock(&w->lock);
	if (!w->started) {
		rc = os_thread("strait-words", words_main, eng, &w->thread);
		w->started = !rc;
	}
	pthread_mutex_unlock(&w->lock);
	return rc;
}

bool soft_words_park(struct soft_engine *eng, struct soft_op *op)
{
	struct soft_words *w = &eng->words;
	bool parked;

	pthread_mutex_lock(&w->lock);
	/*
	 * Store-load ordering with soft_word_post(): this side counts, then reads the word; that side stores the
	 * word, then reads the count. At least one of them sees the other.
	 */
	atomic_fetch_add_explicit(&w->n_parked, 1, memory_order_seq_cst);
	parked = !soft_word_reached(op);
	if (parked) {
		list_add_tail(&w->parked, &op->node);
		pthread_cond_signal(&w->cond);
	} else {
		atomic_fetch_sub_explicit(&w->n_parked, 1, memory_order_relaxed);
	}
	pthread_mutex_unlock(&w->lock);
	return parked;
}

void soft_word_post(struct strait_device *dev, _Atomic uint32_t *word, uint32_t value)
{
	struct soft_engine *eng = soft_engine(dev);

	/* The waiter may free the word after this store: do not access it again. */
	atomic_store_explicit(word, value, memory_order_seq_cst);
	if (atomic_load_explicit(&eng->words.n_parked, memory_order_seq_cst))
		words_complete_reached(eng);
}
