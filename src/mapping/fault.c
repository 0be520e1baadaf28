/* SPDX-License-Identifier: MIT */
/* The thread that fills missing pages of the CPU's copies. What it may wait for, and call, is said in copy.h. */
#include "base/util.h"
#include "mapping/copy.h"
#include "os/os.h"

#define FAULTS_READ 16u

/* The granules that one fault fills. */
struct cluster {
	struct strait_mapping *m;
	struct cpu_copy *copy;
	struct span span;
	uint64_t at;		       /* the one that was touched */
	bool marked[CLUSTER_GRANULES]; /* COPY_FAULTING by this thread */
};

/* Called before the thread is woken, so that it finds the error. */
static void fault_error(struct strait_mapping *m, int error)
{
	if (error)
		atomic_store_explicit(&m->fault_error, error, memory_order_release);
}

/* Fills one page that is missing, and wakes its threads in any case. */
static int fill_page(const struct cluster *c, uint64_t g, const char *from)
{
	char *to = cpu_ptr(c->m, g);
	size_t done;
	int rc = os_fault_copy(&c->m->track, to, from, GRANULE_BYTES, &done);

	if (rc == -EEXIST)
		rc = 0;
	os_fault_wake(&c->m->track, to, GRANULE_BYTES);
	return rc;
}

/* A page outside what is acquired, that was acquired for overwriting, or that the application discarded. */
static void fill_zeros(const struct cluster *c, int error)
{
	fault_error(c->m, error);
	fault_error(c->m, fill_page(c, c->at, c->copy->zeros));
}

/* Reads a page of the host's bytes, which ends with zeros where the file ends. */
static int read_page(const struct cluster *c, uint64_t g, char *to)
{
	ssize_t n = os_vm_read(to, host_ptr(c->m, g), GRANULE_BYTES);

	return n == GRANULE_BYTES ? 0 : n < 0 ? (int)n : -EFAULT;
}

/* Fills a page that is marked. An error of a page that was not touched is left to its own fault. */
static enum granule_event fill_marked(const struct cluster *c, uint64_t g)
{
	char *bytes = c->copy->bytes + ((g - c->span.first) << GRANULE_SHIFT);
	int rc = read_page(c, g, bytes), error = rc;

	if (rc && g != c->at)
		return GRANULE_FAULT_LEFT;
	if (rc)
		memset(bytes, 0, GRANULE_BYTES);
	fault_error(c->m, error);
	rc = fill_page(c, g, bytes);
	fault_error(c->m, rc);
	/* Out of memory: the thread was woken and faults again. */
	if (rc)
		return GRANULE_FAULT_LEFT;
	return error ? GRANULE_FAULT_FAILED : GRANULE_FAULTED;
}

/* Reads and fills all that is marked as one if possible. False: nothing was done. */
static bool fill_whole(const struct cluster *c)
{
	uint64_t n = c->span.end - c->span.first;
	size_t len = n << GRANULE_SHIFT, done;

	for (uint64_t i = 0; i < n; i++)
		if (!c->marked[i])
			return false;
	return os_vm_read(c->copy->bytes, host_ptr(c->m, c->span.first), len) == (ssize_t)len &&
	       !os_fault_copy(&c->m->track, cpu_ptr(c->m, c->span.first), c->copy->bytes, len, &done);
}

static void fill_cluster(struct cluster *c)
{
	enum granule_event ended[CLUSTER_GRANULES];
	struct map_index *x = c->m->index;
	bool whole = fill_whole(c);

	for (uint64_t g = c->span.first; g < c->span.end; g++)
		if (c->marked[g - c->span.first])
			ended[g - c->span.first] = whole ? GRANULE_FAULTED : fill_marked(c, g);
	pthread_mutex_lock(&x->lock);
	for (uint64_t g = c->span.first; g < c->span.end; g++)
		if (c->marked[g - c->span.first])
			index_event_locked(x, c->copy->view, g, ended[g - c->span.first]);
	pthread_cond_broadcast(&x->moved);
	pthread_mutex_unlock(&x->lock);
}

/* Marks the missing pages of the cluster. Returns what is to be done for the one that was touched. */
static enum granule_step mark_cluster(struct cluster *c)
{
	struct map_index *x = c->m->index;
	enum granule_step step, touched;
	bool alone;

	pthread_mutex_lock(&x->lock);
	touched = index_event_locked(x, c->copy->view, c->at, GRANULE_FAULT);
	c->marked[c->at - c->span.first] = touched == STEP_FETCH;
	alone = advice_at_locked(c->m, c->at) == STRAIT_ADVICE_RANDOM;
	for (uint64_t g = c->span.first; g < c->span.end && touched == STEP_FETCH && !alone; g++) {
		if (g == c->at)
			continue;
		step = index_event_locked(x, c->copy->view, g, GRANULE_FAULT);
		c->marked[g - c->span.first] = step == STEP_FETCH;
	}
	pthread_mutex_unlock(&x->lock);
	return touched;
}

/* Pages are filled by acquire: this one was touched without, unless it is to be overwritten. */
static void fault_unacquired(struct cluster *c)
{
	const struct granule_copy *copy;
	bool expected;

	pthread_mutex_lock(&c->m->index->lock);
	copy = &view_chunk(c->copy->view, c->at)->copies[c->at % CHUNK_GRANULES];
	expected = copy->version || copy->state & COPY_FILLING;
	pthread_mutex_unlock(&c->m->index->lock);
	fill_zeros(c, expected ? 0 : -EFAULT);
}

static void fault(struct strait_mapping *m, uint64_t addr)
{
	struct cluster c = { .m = m, .copy = m->copy };
	uint64_t n = (addr - (uintptr_t)m->addr) >> GRANULE_SHIFT;

	c.at = m->first + n;
	c.span.first = m->first + align_down(n, CLUSTER_GRANULES);
	c.span.end = min_u64(c.span.first + CLUSTER_GRANULES, m->end);
	count(&m->faults, 1);
	if (!m->copy->view->faults) {
		fault_unacquired(&c);
		return;
	}
	switch (mark_cluster(&c)) {
	case STEP_FETCH:
		fill_cluster(&c);
		copy_trim_clean(m);
		break;
	case STEP_WAIT:
		/* An acquirer removes the page, and wakes the thread then. */
		break;
	default:
		fill_zeros(&c, 0);
		break;
	}
}

void *copy_handler(void *arg)
{
	struct strait_mapping *m = arg;
	uint64_t addrs[FAULTS_READ];
	int n;

	do {
		n = os_fault_read(&m->track, m->copy->stop_fd, addrs, FAULTS_READ);
		for (int i = 0; i < n; i++)
			fault(m, addrs[i]);
	} while (n != -ECANCELED);
	return NULL;
}
