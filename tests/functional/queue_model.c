/* SPDX-License-Identifier: MIT */
#include "queue_model_world.h"

#include <poll.h>
#include <time.h>

#include "base/lock.h"

static uint64_t number_from(const char *name, uint64_t otherwise)
{
	const char *s = getenv(name);

	return s ? strtoull(s, NULL, 0) : otherwise;
}

/* A group of reads: short or long, on any endpoint, sometimes at or past the end of the file. */
static void choose_read(struct model_thread *t, struct group *g, struct strait_transfer *first)
{
	bool last = !any(t, 6);
	unsigned int ep = (unsigned int)any(t, ENDPOINTS - 1);

	g->n = any(t, 4) ? 1 + (unsigned int)any(t, MOST) : 1;
	g->len = 1 + any(t, g->n == 1 && !any(t, 3) ? UNIT : SMALL);
	if (last)
		g->n = 1;
	g->off = last ? FILE_LEN - any(t, g->len + 1) + any(t, 3) * 50000 : any(t, FILE_LEN - g->n * g->len);
	if (any(t, 2) && !last)
		g->off = align_down(g->off, 4096);
	g->bytes = g->off >= FILE_LEN ? 0 : min_u64(g->len, FILE_LEN - g->off);
	g->status = 0;
	first->endpoint = t->w->ep[ep];
	if (ep == WRITABLE) {
		g->status = -EBADF;
	} else if (!any(t, 30)) {
		first->routes = ROUTE(HOST);
		g->status = -EOPNOTSUPP;
	}
	if (g->status)
		g->bytes = 0;
}

/* A group of writes, into the group's own part of the file. */
static void choose_write(struct model_thread *t, struct group *g, struct strait_transfer *first)
{
	g->n = 1 + (unsigned int)any(t, 8);
	g->len = 1 + any(t, any(t, 3) ? SMALL : UNIT / 8);
	g->off = group_number(t->w, g) * UNIT + any(t, UNIT - g->n * g->len + 1);
	g->bytes = g->len;
	g->status = 0;
	first->endpoint = t->w->ep[OUT];
}

/* The requests of a group that belongs to this thread. */
static void fill_requests(struct model_thread *t, struct group *g, struct strait_transfer *r)
{
	struct strait_transfer first = { .op = any(t, 4) ? STRAIT_READ : STRAIT_WRITE };

	g->op = first.op;
	if (g->op == STRAIT_READ)
		choose_read(t, g, &first);
	else
		choose_write(t, g, &first);
	first.length = g->len;
	for (unsigned int i = 0; i < g->n; i++) {
		r[i] = first;
		r[i].user_data = transfer_id(t->w, g, i);
		r[i].endpoint_offset = g->off + i * g->len;
		r[i].region = g->op == STRAIT_READ ? g->r : t->w->src;
		r[i].region_offset = g->op == STRAIT_READ ? group_number(t->w, g) * UNIT + i * g->len :
							    r[i].endpoint_offset % MIB(1);
	}
}

/* The queue's place is locked for reading. */
static void submit_one(struct model_thread *t, struct strait_queue *q)
{
	struct world *w = t->w;
	unsigned int ri = (unsigned int)any(t, REGIONS);
	struct place *rp = &w->region[ri];
	struct strait_transfer r[MOST];
	bool bad = !any(t, 20);
	struct group *g;
	int rc;

	g = group_get(t);
	if (!g)
		return;
	pthread_rwlock_rdlock(&rp->lock);
	g->region = ri;
	g->q = q;
	g->r = rp->r;
	g->made = rp->made;
	g->canceled = false;
	g->shared = !any(t, 3);
	g->delivered = 0;
	g->generation++;
	fill_requests(t, g, r);
	if (bad)
		r[g->n - 1].region_offset = UINT64_MAX - 10;
	g->left = g->n;
	g->used = true;
	/* Results that arrive before the call returns wait for the group's lock. */
	rc = strait_queue_submit(q, r, g->n);
	if (rc)
		g->used = false;
	else
		atomic_fetch_add(&w->accepted, g->n);
	if (!bad && rc && rc != -EAGAIN) {
		ASSERT_EQ(rc, -ENODEV);
		ASSERT_TRUE(rp->gone);
		ASSERT_EQ(g->op, STRAIT_READ);
	}
	if (bad)
		ASSERT_TRUE(rc == -EINVAL || rc == -EAGAIN || (rc == -ENODEV && rp->gone));
	if (!rc && rp->gone)
		ASSERT_EQ(g->op, STRAIT_WRITE);
	pthread_rwlock_unlock(&rp->lock);
	pthread_mutex_unlock(&g->lock);
}

static unsigned int fetch(struct model_thread *t, struct strait_queue *q, unsigned int min, unsigned int max,
			  int64_t timeout)
{
	struct strait_result res[512];
	unsigned int n;

	ASSERT_LE(max, ARRAY_SIZE(res));
	n = (unsigned int)ASSERT_OK(strait_queue_wait(q, min, max, timeout, res));
	ASSERT_LE(n, max);
	for (unsigned int i = 0; i < n; i++)
		take_result(t->w, q, &res[i]);
	return n;
}

static void wait_for_some(struct model_thread *t, struct strait_queue *q)
{
	unsigned int max = 1 + (unsigned int)any(t, t->w->m->entries), min = (unsigned int)any(t, max + 1);

	switch (any(t, 8)) {
	case 0:
		fetch(t, q, t->w->m->entries, t->w->m->entries, STRAIT_FOREVER);
		break;
	case 1:
		fetch(t, q, min, max, STRAIT_FOREVER);
		break;
	case 2:
		/* As good as for ever. */
		fetch(t, q, min, max, STRAIT_FOREVER - 1 - (int64_t)any(t, 1000));
		break;
	case 3 ... 5:
		fetch(t, q, min, max, (int64_t)any(t, any(t, 2) ? 30000 : 2000000));
		break;
	default:
		fetch(t, q, min, max, 0);
	}
}

static void wait_for_descriptor(struct model_thread *t, struct strait_queue *q)
{
	struct pollfd p = { .fd = (int)ASSERT_OK(strait_queue_fd(q)), .events = POLLIN };

	if (poll(&p, 1, (int)any(t, 3)) == 1)
		fetch(t, q, 0, t->w->m->entries, 0);
}

/* Transfers complete although threads only poll. */
static void poll_for_group(struct model_thread *t, struct strait_queue *q)
{
	uint64_t end = os_now_ns() + 30000000000u * test_slow(), generation;
	struct group *g = group_of(t, q, &generation);
	bool there = g;

	while (there) {
		ASSERT_LT(os_now_ns(), end);
		fetch(t, q, 0, t->w->m->entries, 0);
		pthread_mutex_lock(&g->lock);
		there = g->used && g->generation == generation;
		pthread_mutex_unlock(&g->lock);
	}
}

/* A wait that times out while transfers it has started are in flight. */
static void submit_wait_and_poll(struct model_thread *t, struct strait_queue *q)
{
	submit_one(t, q);
	fetch(t, q, 1 + (unsigned int)any(t, MOST), t->w->m->entries, 1 + (int64_t)any(t, 100000));
	poll_for_group(t, q);
}

/* Cancels a group's transfers, one after the other if each has its own user_data. Locked. */
static void cancel_group(struct world *w, struct strait_queue *q, struct group *g)
{
	g->canceled = true;
	for (unsigned int i = 0; i < (g->shared ? 1 : g->n); i++) {
		int rc = strait_queue_cancel(q, transfer_id(w, g, i));

		if (rc != -ENOENT) {
			ASSERT_GT(rc, 0);
			ASSERT_LE(rc, g->shared ? g->left : 1);
			ASSERT_EQ(g->delivered >> i & 1, 0);
		}
	}
}

/*
 * Cancels one group, or all of the queue. Each is marked first: from then on a result may be canceled. Its lock is held
 * during the call: otherwise all its results could be fetched before, and another thread's group of the same number be
 * canceled.
 */
static void cancel_some(struct model_thread *t, unsigned int qi)
{
	struct world *w = t->w;
	bool all = !any(t, 4);
	unsigned int one = (unsigned int)any(t, GROUPS);

	for (unsigned int i = 0; i < GROUPS; i++) {
		struct group *g = &w->group[i];

		if (!all && i != one)
			continue;
		pthread_mutex_lock(&g->lock);
		if (g->used && g->q == w->queue[qi].q)
			cancel_group(w, w->queue[qi].q, g);
		pthread_mutex_unlock(&g->lock);
	}
}

/* Results that a closed queue still had are lost. */
static void close_queue(struct model_thread *t, struct place *p)
{
	struct world *w = t->w;
	struct strait_queue *old, *new = queue_new(w->ctx, w->m->entries);
	struct strait_queue *mark = (struct strait_queue *)&old; /* owned by this call; never used as a queue */

	pthread_rwlock_wrlock(&p->lock);
	old = p->q;
	p->q = new;
	pthread_rwlock_unlock(&p->lock);
	/* Marked first: once it is closed, another queue may have its address. */
	for (unsigned int i = 0; i < GROUPS; i++) {
		struct group *g = &w->group[i];

		pthread_mutex_lock(&g->lock);
		if (g->used && g->q == old)
			g->q = mark;
		pthread_mutex_unlock(&g->lock);
	}
	strait_queue_close(old);
	for (unsigned int i = 0; i < GROUPS; i++) {
		struct group *g = &w->group[i];

		pthread_mutex_lock(&g->lock);
		if (g->used && g->q == mark) {
			atomic_fetch_add(&w->lost, g->left);
			g->used = false;
		}
		pthread_mutex_unlock(&g->lock);
	}
}

/*
 * The memory of closed regions comes back late where it is still referenced: the lab's GPU drains pages of I/O in flight
 * first, and a child of fork_child() has them mapped until it exits.
 */
static struct strait_region *another_region(struct world *w)
{
	struct strait_region *r;
	int rc = strait_region_alloc(w->dev, GROUPS * UNIT, &r);

	for (int i = 0; rc == -ENOMEM && !where_emulated(NULL) && i < 200; i++) {
		sleep_ms(10);
		rc = strait_region_alloc(w->dev, GROUPS * UNIT, &r);
	}
	ASSERT_OK(rc);
	return r;
}

/* A region can be revoked or closed without any thread fetching results. */
static void lose_region(struct model_thread *t, struct place *p)
{
	struct world *w = t->w;
	struct strait_region *old, *new;
	bool gone;

	if (any(t, 2)) {
		pthread_rwlock_wrlock(&p->lock);
		ASSERT_EQ(strait_region_revoke(p->r), p->gone ? -EALREADY : 0);
		p->gone = true;
		pthread_rwlock_unlock(&p->lock);
		return;
	}
	new = another_region(w);
	pthread_rwlock_wrlock(&p->lock);
	old = p->r;
	gone = p->gone;
	p->r = new;
	p->made++;
	p->gone = false;
	pthread_rwlock_unlock(&p->lock);
	if (any(t, 2))
		ASSERT_EQ(strait_region_revoke(old), gone ? -EALREADY : 0);
	strait_region_close(old);
}

/* A child does not use the queue, whatever its threads were doing at the fork. */
static void fork_child(struct strait_queue *q)
{
	struct strait_result res;
	pid_t pid = fork();
	int status;

	ASSERT_GE(pid, 0);
	if (!pid) {
		bool dead = strait_queue_wait(q, 1, 1, STRAIT_FOREVER, &res) == -EOWNERDEAD &&
			    strait_queue_cancel(q, 0) == -EOWNERDEAD && strait_queue_fd(q) == -EOWNERDEAD;

		strait_queue_close(q);
		_exit(dead ? 0 : 1);
	}
	while (waitpid(pid, &status, 0) < 0)
		ASSERT_EQ(errno, EINTR);
	ASSERT_EQ(status, 0);
}

static void one_call(struct model_thread *t)
{
	unsigned int qi = (unsigned int)any(t, QUEUES), kind = (unsigned int)any(t, 100);
	struct place *p = &t->w->queue[qi];

	if (kind == 99) {
		if (!any(t, 3))
			close_queue(t, p);
	} else if (kind == 98) {
		lose_region(t, &t->w->region[any(t, REGIONS)]);
	} else {
		pthread_rwlock_rdlock(&p->lock);
		if (kind < 40)
			submit_one(t, p->q);
		else if (kind < 50)
			submit_wait_and_poll(t, p->q);
		else if (kind < 80)
			wait_for_some(t, p->q);
		else if (kind < 86)
			poll_for_group(t, p->q);
		else if (kind < 90)
			wait_for_descriptor(t, p->q);
		else if (kind < 97)
			cancel_some(t, qi);
		else if (!any(t, 10))
			fork_child(p->q);
		pthread_rwlock_unlock(&p->lock);
	}
}

static void *calls(void *arg)
{
	struct world *w = arg;
	unsigned int number = atomic_fetch_add(&w->next, 1);
	struct model_thread t = { w, w->seed * 1000003u + number };

	for (unsigned int i = 0; i < w->m->rounds; i++)
		one_call(&t);
	return NULL;
}

static bool no_more_threads(enum os_call call, int64_t *ret)
{
	if (call != OS_THREAD)
		return false;
	*ret = -EAGAIN;
	return true;
}

static void open_world(struct world *w)
{
	static const uint32_t flags[] = {
		[AS_IS] = 0, [DIRECT] = STRAIT_FILE_DIRECT, [IMMUTABLE] = STRAIT_FILE_IMMUTABLE, [LEASED] = STRAIT_FILE_LEASE
	};
	struct strait_context_opts opts = {
		.size = sizeof(opts), .threads = w->m->workers, .pool_bytes = w->m->pool, .chunk_bytes = w->m->chunk
	};
	struct strait_emu_model model = { .size = sizeof(model), .latency_ns = w->m->latency_ns };

	w->ctx = context_new(&opts);
	w->dev = device_named(w->ctx, "emu:0");
	w->want = pattern_new(0, FILE_LEN, 1);
	make_file("in", FILE_LEN, 1);
	make_file("leased", FILE_LEN, 1);
	for (int i = AS_IS; i <= LEASED; i++)
		w->ep[i] = file_new(w->ctx, test_path(i == LEASED ? "leased" : "in"), O_RDONLY, flags[i]);
	w->ep[WRITABLE] = file_new(w->ctx, test_path("in"), O_WRONLY, 0);
	snprintf(w->out, sizeof(w->out), "%s", make_file("out", GROUPS * UNIT, 2));
	w->ep[OUT] = file_new(w->ctx, w->out, O_RDWR, 0);
	w->src = region_new(w->dev, MIB(1) + UNIT);
	region_put_bytes(w->src, 0, w->want, MIB(1) + UNIT);
	for (int i = 0; i < QUEUES; i++) {
		rwlock_init(&w->queue[i].lock);
		w->queue[i].q = queue_new(w->ctx, w->m->entries);
	}
	for (int i = 0; i < REGIONS; i++) {
		rwlock_init(&w->region[i].lock);
		w->region[i].r = region_new(w->dev, GROUPS * UNIT);
	}
	for (unsigned int i = 0; i < GROUPS; i++)
		pthread_mutex_init(&w->group[i].lock, NULL);
	if (w->m->latency_ns)
		ASSERT_OK(strait_emu_set_model(w->dev, &model));
	if (w->m->no_threads) {
		/* Only the device's own threads, none of the context. */
		ASSERT_EQ(strait_read(w->ep[AS_IS], 0, w->src, 0, 4096), 4096);
		region_expect(w->src, 0, w->want, 4096);
		os_inject = no_more_threads;
	}
}

/* All transfers in flight complete, and then the queue is empty. */
static void close_world(struct world *w)
{
	struct model_thread t = { w, 0 };

	for (int i = 0; i < QUEUES; i++) {
		struct strait_queue *q = w->queue[i].q;
		struct pollfd p = { .fd = (int)ASSERT_OK(strait_queue_fd(q)), .events = POLLIN };

		while (fetch(&t, q, w->m->entries, w->m->entries, STRAIT_FOREVER))
			;
		ASSERT_EQ(poll(&p, 1, 0), 0);
	}
	for (unsigned int i = 0; i < GROUPS; i++)
		ASSERT_FALSE(w->group[i].used);
	ASSERT_EQ(atomic_load(&w->accepted), atomic_load(&w->delivered) + atomic_load(&w->lost));
	for (int i = 0; i < QUEUES; i++)
		strait_queue_close(w->queue[i].q);
	for (int i = 0; i < REGIONS; i++)
		strait_region_close(w->region[i].r);
	strait_region_close(w->src);
	for (int i = 0; i < ENDPOINTS; i++)
		strait_endpoint_close(w->ep[i]);
	strait_context_close(w->ctx);
	os_inject = NULL;
	ASSERT_EQ(stats_of(NULL).pool_bytes, 0);
	free(w->want);
}

void queue_model_run(const struct queue_model *m)
{
	struct queue_model of = *m;
	pthread_t threads[64];
	struct timespec now;
	static struct world w;

	clock_gettime(CLOCK_REALTIME, &now);
	of.rounds = (unsigned int)number_from("STRAIT_TEST_ROUNDS", m->rounds);
	w.m = &of;
	w.seed = number_from("STRAIT_TEST_SEED", (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000);
	dprintf(STDERR_FILENO, "repeat with STRAIT_TEST_SEED=%llu\n", (unsigned long long)w.seed);
	ASSERT_LE(m->threads, ARRAY_SIZE(threads));
	open_world(&w);
	for (unsigned int i = 0; i < m->threads; i++)
		thread_start(&threads[i], calls, &w);
	for (unsigned int i = 0; i < m->threads; i++)
		thread_join(threads[i]);
	close_world(&w);
}
