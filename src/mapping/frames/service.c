/* SPDX-License-Identifier: MIT */
/*
 * Threads that read and write for the device. They poll the slots while a view is begun: a request must not need a call of the
 * driver, which may block until the kernel that made it has ended.
 */
#include <stdlib.h>

#include "base/util.h"
#include "mapping/frames/frames.h"
#include "os/os.h"

/* Rounds without a request after which a thread naps: less where device threads may need its processor. */
#define SPIN_ROUNDS 20000u
#define SPIN_ROUNDS_FEW 50u
#define NAP_NS 50000u
/* Slots that a thread serves one after the other: those of a cache line of completions, which no other thread writes then. */
#define SLOT_RUN 8u

int frames_store(struct strait_frames *f, uint64_t g, uint64_t n, const char *buf)
{
	struct map_index *x = f->m->index;
	uint64_t conflicts = 0;
	int rc;

	rc = host_store(f->m, g, n, buf);
	if (rc)
		return rc;
	pthread_mutex_lock(&x->lock);
	for (uint64_t i = g; i < g + n; i++) {
		uint64_t c = i / CHUNK_GRANULES, *seen = &f->seen_changes[c - f->m->first / CHUNK_GRANULES];

		conflicts += index_event_locked(x, NULL, i, GRANULE_PUBLISH_HOST) == STEP_CONFLICT;
		f->seen[i - f->m->first] = index_chunk(x, i)->granules[i % CHUNK_GRANULES].version;
		if (*seen == index_chunk(x, i)->changes - 1)
			(*seen)++;
	}
	pthread_cond_broadcast(&x->moved);
	pthread_mutex_unlock(&x->lock);
	count(&f->m->conflicts, conflicts);
	count(&f->m->to_host, n << GRANULE_SHIFT);
	return 0;
}

static int serve(struct strait_frames *f, unsigned int slot)
{
	uint64_t g = __atomic_load_n(&f->request[slot].granule, __ATOMIC_RELAXED), good;
	uint32_t op = __atomic_load_n(&f->request[slot].op, __ATOMIC_RELAXED);
	char *buf = f->slot_data + (uint64_t)slot * GRANULE_BYTES;

	/* Nothing that a device writes is trusted. */
	if (g >= f->m->end - f->m->first)
		return -EINVAL;
	g += f->m->first;
	if (op == STRAIT_REQUEST_WRITE)
		return f->view.flags & STRAIT_VIEW_DIRTY ? frames_store(f, g, 1, buf) : -EACCES;
	return op == STRAIT_REQUEST_READ ? host_read(f->m, g, 1, buf, &good) : -EINVAL;
}

/* Was there a request? */
static bool poll_slot(struct strait_frames *f, unsigned int slot, unsigned int *reads)
{
	uint32_t seq = __atomic_load_n(&f->request[slot].seq, __ATOMIC_ACQUIRE);
	int rc;

	if (seq == (uint32_t)(atomic_load_explicit(&f->completion[slot], memory_order_relaxed) >> 32))
		return false;
	rc = serve(f, slot);
	*reads += !rc && __atomic_load_n(&f->request[slot].op, __ATOMIC_RELAXED) == STRAIT_REQUEST_READ;
	/* Sequence number and status in one store: the device sees both or neither. */
	atomic_store_explicit(&f->completion[slot], (uint64_t)seq << 32 | (uint32_t)rc, memory_order_release);
	return true;
}

/* Serves the requests of every n-th run of slots. Returns how many there were. */
static unsigned int poll_slots(struct strait_frames *f, unsigned int first)
{
	unsigned int n = 0, reads = 0;

	for (unsigned int run = first * SLOT_RUN; run < f->view.n_slots; run += f->threads * SLOT_RUN)
		for (unsigned int slot = run; slot < run + SLOT_RUN && slot < f->view.n_slots; slot++)
			n += poll_slot(f, slot, &reads);
	if (reads)
		count(&f->m->to_device, reads * GRANULE_BYTES);
	return n;
}

static bool begun(struct strait_frames *f)
{
	return __atomic_load_n(&f->state, __ATOMIC_ACQUIRE) == FRAMES_BEGUN;
}

static void poll_until_ended(struct strait_frames *f, unsigned int first)
{
	unsigned int idle = 0, spin = os_cpus() > 4 * f->threads ? SPIN_ROUNDS : SPIN_ROUNDS_FEW;

	while (begun(f)) {
		if (poll_slots(f, first))
			idle = 0;
		else if (++idle > spin)
			os_sleep_ns(NAP_NS);
	}
	/* All kernels have ended: this finds what they requested last. */
	poll_slots(f, first);
}

struct service_arg {
	struct strait_frames *f;
	unsigned int first;
};

static void *service_main(void *p)
{
	struct service_arg arg = *(struct service_arg *)p;
	struct strait_frames *f = arg.f;

	free(p);
	pthread_mutex_lock(&f->lock);
	while (!f->stop) {
		if (f->state != FRAMES_BEGUN) {
			pthread_cond_wait(&f->changed, &f->lock);
			continue;
		}
		f->polling++;
		pthread_mutex_unlock(&f->lock);
		poll_until_ended(f, arg.first);
		pthread_mutex_lock(&f->lock);
		f->polling--;
		pthread_cond_broadcast(&f->changed);
	}
	pthread_mutex_unlock(&f->lock);
	return NULL;
}

int frames_service_start(struct strait_frames *f)
{
	for (unsigned int i = 0; i < f->threads; i++) {
		struct service_arg *arg = malloc(sizeof(*arg));
		int rc;

		if (!arg)
			return -ENOMEM;
		*arg = (struct service_arg){ f, i };
		rc = os_thread("strait-frames", service_main, arg, &f->thread[i]);
		if (rc) {
			free(arg);
			return rc;
		}
		f->n_threads++;
	}
	return 0;
}

void frames_service_stop(struct strait_frames *f)
{
	pthread_mutex_lock(&f->lock);
	f->stop = true;
	pthread_cond_broadcast(&f->changed);
	pthread_mutex_unlock(&f->lock);
	for (unsigned int i = 0; i < f->n_threads; i++)
		pthread_join(f->thread[i], NULL);
}

void frames_service_drain(struct strait_frames *f)
{
	pthread_mutex_lock(&f->lock);
	while (f->polling)
		pthread_cond_wait(&f->changed, &f->lock);
	pthread_mutex_unlock(&f->lock);
}
