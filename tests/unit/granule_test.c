/* SPDX-License-Identifier: MIT */
/*
 * The transition function of coherent mappings, exhaustively: every order of steps that the CPU and two devices can make on
 * one granule, with what each copy would contain beside the state that the library has. One side stores at a time, and all
 * read at any time; the views are alike, so only the first has a second thread that reads, and is evicted. The invariants of
 * src/mapping/granule.h hold in each state, and every state has a way on. Seeded faults show that a violation is found.
 *
 * In a second exploration the first view is the CPU's (src/mapping/copy.h): its page comes by faults, which a handler serves,
 * and goes by acquires and evictions. In a third, views read the newest bytes directly from the one that has them.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"
#include "harness/harness.h"
#include "mapping/granule.h"

#define VIEWS 2u
#define PUBLISHED_MAX 3u /* states with more publications are not followed */

/* What an agent is doing. The host's agent has READ and WRITE only. */
enum phase {
	IDLE,
	READING,     /* wants to read: acquire is not done */
	OPENING,     /* wants to write */
	TOUCHING,    /* has acquired for reading, and loads from its page */
	OVERWRITING, /* wants to overwrite */
	TWINNING,    /* has opened, its twin is being taken */
	WRITING,     /* acquired for writing, nothing stored yet */
	STORED,	     /* has stored something new */
};

/* Bytes of a granule are the number of the store that made them. */
struct world {
	struct granule g;
	struct granule_copy c[VIEWS];
	uint8_t latest;	     /* bytes that were published last; what an acquire must see, or newer */
	uint8_t host;	     /* bytes of the host */
	uint8_t data[VIEWS]; /* bytes of the view */
	uint8_t twin[VIEWS];
	uint8_t next;		  /* bytes of the next store */
	uint8_t storing;	  /* view whose bytes are on their way to the host, + 1 */
	uint8_t store_bytes;	  /* which these are, once they were read; 0: not yet */
	uint8_t fetch[VIEWS];	  /* bytes on their way to the view, + 1; 0: not read yet */
	uint8_t peer[VIEWS];	  /* the view that they come from, + 1; 0: the host */
	uint8_t phase[VIEWS + 1]; /* of each agent; [VIEWS] is the CPU */
	uint8_t goal[VIEWS + 1];  /* what it must see at the end of its acquire */
	uint8_t reader[VIEWS];	  /* a second thread, which reads on the view: what it must see, + 1; 0: idle */
	uint8_t touching;	  /* that thread has acquired, and loads from its page */
	uint8_t page;		  /* of the CPU's view: it is there */
	uint8_t serving;	  /* what the handler has done of a fault, enum serving */
	uint8_t served;		  /* the bytes it has read */
	uint8_t discarded; /* overwriting has given up the bytes that were published: no promise until the next */
};

enum serving { SERVED, MARKED, READ, FILLED };
enum seeded {
	NONE,
	LOSE_AGAIN,
	FETCH_OVER_WRITER,
	STALE_IS_CURRENT,
	STORE_FROM_DATA,
	DROP_NEWEST,
	/* Of page faults. */
	FAULT_IS_CURRENT,
	ZAP_NEWEST,
	EVICT_WRITTEN,
	/* Of direct copies. */
	PEER_IS_STORED,
};
static enum seeded seeded;
static bool faults; /* the first view is the CPU's */
static bool peers;  /* views read each other's memory */
static const char *violation;

#define HOLDS(cond)                                                                                                    \
	do {                                                                                                           \
		if (!(cond) && !violation)                                                                             \
			violation = #cond;                                                                             \
	} while (0)

static enum granule_step event(struct world *w, unsigned int view, enum granule_event e)
{
	struct granule_copy *c = view < VIEWS ? &w->c[view] : NULL;

	return granule_event(&w->g, c, view < VIEWS ? view + 1 : 0, e);
}

/* All sides may have acquired it for writing, but one stores at a time, and to the newest bytes: the application's part. */
static bool may_store(const struct world *w, unsigned int side)
{
	for (unsigned int i = 0; i <= VIEWS; i++)
		if (w->phase[i] == STORED)
			return false;
	return side == VIEWS ? !w->g.newest && !w->storing : w->c[side].version == w->g.version + 1;
}

static void step_store(struct world *w)
{
	HOLDS(!w->storing && w->g.newest);
	w->storing = w->g.newest;
	w->store_bytes = 0;
}

static enum granule_event read_event(unsigned int v)
{
	return faults && !v ? GRANULE_READ_FAULTS : peers ? GRANULE_READ_PEER : GRANULE_READ_COPY;
}

/* STEP_FETCH, STEP_PEER */
static void step_fetch(struct world *w, unsigned int v, enum granule_step s)
{
	w->fetch[v] = 0;
	w->peer[v] = s == STEP_PEER ? w->g.newest : 0;
}

/* A page is there if its copy has a version, unless it is being filled or removed. What is overwritten was touched. */
static void check_page(const struct world *w)
{
	const struct granule_copy *c = &w->c[0];

	if (!(c->state & COPY_BUSY))
		HOLDS(w->page == (c->version != 0));
	HOLDS(w->g.newest != 1 || w->page);
	HOLDS(!(c->state & COPY_FILLING) || !c->writers);
	HOLDS(w->phase[0] != STORED || w->page);
}

static void check(const struct world *w)
{
	if (faults)
		check_page(w);
	/* one-newest: the view that has them has the version, and the bytes, unless they are being written over. */
	if (w->g.newest) {
		unsigned int v = w->g.newest - 1u;

		HOLDS(w->c[v].version == w->g.version + 1);
		HOLDS(w->data[v] == w->latest || w->twin[v] == w->latest || w->c[v].writers || w->discarded);
	} else if (!w->storing) {
		/* kept: the host has what was published last. */
		HOLDS(w->host == w->latest || w->discarded || w->phase[VIEWS] == STORED);
	}
	for (unsigned int v = 0; v < VIEWS; v++) {
		const struct granule_copy *c = &w->c[v];

		/* unreleased */
		HOLDS(!(c->state & COPY_FILLING) || !c->writers);
		/* A copy that counts as current is. */
		if (c->version == w->g.version + 1 && !(c->state & COPY_BUSY) && !c->writers && !w->discarded &&
		    w->phase[VIEWS] != STORED)
			HOLDS(w->data[v] == w->latest);
	}
}

/* At the end of an acquire: the page is acquired for writing, so it stays as it is, or its bytes are undefined. */
static bool no_promise(const struct world *w)
{
	return w->c[0].writers || w->discarded;
}

/* A thread of the CPU loads from its page, which it has acquired. False: the page is missing, so it waits. */
static bool touch(const struct world *w, unsigned int goal)
{
	if (!w->page)
		return false;
	/* visible: not older than what was published when the acquire began. */
	HOLDS(w->c[0].writers || w->data[0] >= goal || w->discarded);
	return true;
}

/* The CPU's view acquires for writing: what only it has is stored first. */
static bool cpu_view_open(struct world *w)
{
	enum granule_step s;

	if (w->g.newest == 1 && !w->c[0].writers) {
		s = event(w, VIEWS, GRANULE_READ_HOST);
		if (s == STEP_STORE)
			step_store(w);
		return s == STEP_STORE;
	}
	if (event(w, 0, GRANULE_WRITE_DECLARED) == STEP_WAIT)
		return false;
	w->phase[0] = WRITING;
	return true;
}

/* One step of a view's agent; @choice selects among several. False: it cannot make one now. */
static bool view_step(struct world *w, unsigned int v, unsigned int choice)
{
	enum granule_step s;

	switch (w->phase[v]) {
	case IDLE:
		if (choice > 2 || (v == 0 && !choice && !faults))
			return false;
		w->phase[v] = choice == 0 ? READING : choice == 1 ? OPENING : OVERWRITING;
		w->goal[v] = w->latest;
		return true;
	case READING:
	case OPENING:
		if (choice)
			return false;
		if (seeded == STALE_IS_CURRENT && w->c[v].version && !(w->c[v].state & COPY_FILLING) && !w->g.newest)
			w->c[v].version = w->g.version + 1;
		s = event(w, v, read_event(v));
		if (s == STEP_WAIT)
			return false;
		if (s == STEP_STORE) {
			step_store(w);
			return true;
		}
		if (s == STEP_FETCH || s == STEP_PEER) {
			step_fetch(w, v, s);
			return true;
		}
		if (s == STEP_ZAP)
			return true;
		if (faults && !v) {
			if (w->phase[v] == OPENING)
				return cpu_view_open(w);
			w->phase[v] = TOUCHING;
			if (no_promise(w))
				w->goal[v] = 0;
			return true;
		}
		/* visible: not older than what was published when the acquire began. */
		HOLDS(w->c[v].writers || w->data[v] >= w->goal[v] || w->discarded);
		if (w->phase[v] == READING) {
			w->phase[v] = IDLE;
			return true;
		}
		s = event(w, v, GRANULE_WRITE_BEGIN);
		if (s == STEP_WAIT)
			return false;
		w->phase[v] = s == STEP_TWIN ? TWINNING : WRITING;
		return true;
	case TOUCHING:
		if (choice || !touch(w, w->goal[v]))
			return false;
		w->phase[v] = IDLE;
		return true;
	case OVERWRITING:
		if (choice)
			return false;
		for (unsigned int i = 0; i <= VIEWS; i++)
			if (w->phase[i] == STORED)
				return false;
		s = event(w, v, GRANULE_OVERWRITE_COPY);
		if (s == STEP_WAIT)
			return false;
		s = event(w, v, GRANULE_WRITE_DECLARED);
		if (s == STEP_WAIT)
			return false;
		w->discarded = 1;
		/* What was acquired for reading is undefined, too: a page that has it alone may be evicted. */
		if (w->phase[0] == TOUCHING)
			w->goal[0] = 0;
		if (w->touching)
			w->reader[0] = 1;
		w->page |= !v;
		w->data[v] = w->next++;
		w->phase[v] = STORED;
		return true;
	case TWINNING:
		if (choice)
			return false;
		w->twin[v] = w->data[v];
		event(w, v, GRANULE_TWINNED);
		w->phase[v] = WRITING;
		return true;
	case WRITING:
		if (choice > 1)
			return false;
		if (choice == 0) {
			if (!may_store(w, v) || (faults && !v && !w->page))
				return false;
			w->data[v] = w->next++;
			w->phase[v] = STORED;
			return true;
		}
		event(w, v, GRANULE_WRITE_END);
		w->phase[v] = IDLE;
		return true;
	case STORED:
		if (choice)
			return false;
		event(w, v, GRANULE_PUBLISH_COPY);
		w->latest = w->data[v];
		w->discarded = 0;
		event(w, v, GRANULE_WRITE_END);
		w->phase[v] = IDLE;
		return true;
	default:
		return false;
	}
}

/* The second thread on a view. */
static bool reader_step(struct world *w, unsigned int v)
{
	uint16_t writers = w->c[v].writers;
	enum granule_step s;

	if (!w->reader[v]) {
		w->reader[v] = w->latest + 1;
		return true;
	}
	if (w->touching) {
		if (!touch(w, w->reader[v] - 1u))
			return false;
		w->touching = w->reader[v] = 0;
		return true;
	}
	if (seeded == FETCH_OVER_WRITER)
		w->c[v].writers = 0;
	s = event(w, v, read_event(v));
	w->c[v].writers = writers;
	if (s == STEP_WAIT)
		return false;
	if (s == STEP_STORE) {
		step_store(w);
	} else if (faults) {
		w->touching = s == STEP_DONE;
		if (w->touching && no_promise(w))
			w->reader[v] = 1;
	} else if (s == STEP_FETCH || s == STEP_PEER) {
		step_fetch(w, v, s);
	} else {
		HOLDS(writers || w->data[v] >= w->reader[v] - 1 || w->discarded);
		w->reader[v] = 0;
	}
	return true;
}

/* The agent of the CPU. Its stores go to the host at once. */
static bool cpu_step(struct world *w, unsigned int choice)
{
	enum granule_step s;

	switch (w->phase[VIEWS]) {
	case IDLE:
		if (choice > 1)
			return false;
		w->phase[VIEWS] = choice ? OPENING : READING;
		w->goal[VIEWS] = w->latest;
		return true;
	case READING:
	case OPENING:
		if (choice)
			return false;
		s = event(w, VIEWS, GRANULE_READ_HOST);
		if (s == STEP_WAIT)
			return false;
		if (s == STEP_STORE) {
			step_store(w);
			return true;
		}
		HOLDS(w->host >= w->goal[VIEWS] || w->discarded);
		w->phase[VIEWS] = w->phase[VIEWS] == READING ? IDLE : WRITING;
		return true;
	case WRITING:
		if (choice > 1 || (!choice && !may_store(w, VIEWS)))
			return false;
		if (!choice)
			w->host = w->next++;
		w->phase[VIEWS] = choice ? IDLE : STORED;
		return true;
	case STORED:
		if (choice)
			return false;
		event(w, VIEWS, GRANULE_PUBLISH_HOST);
		w->latest = w->host;
		w->discarded = 0;
		w->phase[VIEWS] = IDLE;
		return true;
	default:
		return false;
	}
}

/* The published bytes of a view. */
static uint8_t read_view(const struct world *w, unsigned int v)
{
	bool twin = w->c[v].state & COPY_TWIN && seeded != STORE_FROM_DATA;
	uint8_t bytes = twin ? w->twin[v] : w->data[v];

	/* unreleased: no part of what is being written leaves the view. */
	HOLDS(w->phase[v] != STORED || bytes != w->data[v] || w->discarded);
	return bytes;
}

/* A copy from one view to another, one step after the other. */
static void peer_step(struct world *w, unsigned int v)
{
	if (!w->fetch[v]) {
		w->fetch[v] = read_view(w, w->peer[v] - 1u) + 1;
		return;
	}
	w->data[v] = w->fetch[v] - 1;
	w->fetch[v] = w->peer[v] = 0;
	if (seeded == PEER_IS_STORED)
		w->g.newest = 0;
	event(w, v, GRANULE_PEERED);
}

/* The thread that moves bytes: reads them, then writes them and ends the mark. Choice: 0 the store, then the fetches. */
static bool mover_step(struct world *w, unsigned int choice)
{
	if (choice == 0) {
		unsigned int v = w->storing - 1u;

		if (!w->storing)
			return false;
		if (!w->store_bytes) {
			w->store_bytes = read_view(w, v);
			return true;
		}
		w->host = w->store_bytes;
		w->storing = 0;
		if (seeded == LOSE_AGAIN)
			w->g.state &= (uint8_t)~GRANULE_AGAIN;
		event(w, VIEWS, GRANULE_STORED);
		return true;
	}
	if (choice > VIEWS || !(w->c[choice - 1].state & COPY_FILLING))
		return false;
	if (faults && choice == 1) {
		/* The page is removed, then the mark. */
		if (w->page) {
			w->page = w->data[0] = 0;
			return true;
		}
		event(w, 0, GRANULE_ZAPPED);
		return true;
	}
	if (w->peer[choice - 1]) {
		peer_step(w, choice - 1);
		return true;
	}
	if (!w->fetch[choice - 1]) {
		w->fetch[choice - 1] = w->host + 1;
		return true;
	}
	w->data[choice - 1] = w->fetch[choice - 1] - 1;
	w->fetch[choice - 1] = 0;
	event(w, choice - 1, GRANULE_FETCHED);
	return true;
}

/* Eviction of a copy that nothing pins. */
static bool evict_step(struct world *w, unsigned int v)
{
	enum granule_step s;

	if (w->phase[v] != IDLE || w->reader[v])
		return false;
	if (seeded == DROP_NEWEST && w->g.newest == v + 1 && !w->storing) {
		w->g.newest = 0;
		w->c[v].version = 0;
		w->data[v] = 0;
		return true;
	}
	if (!w->c[v].version)
		return false;
	if (faults && seeded == ZAP_NEWEST && w->g.newest == 1 && w->page && !w->storing && !w->c[0].writers) {
		w->page = w->data[0] = 0;
		return true;
	}
	s = event(w, v, faults ? GRANULE_EVICT_PAGE : GRANULE_DROP);
	if (s == STEP_ZAP)
		return true;
	if (faults && s == STEP_DONE)
		return false;
	if (s == STEP_STORE)
		step_store(w);
	else if (s == STEP_DONE)
		w->data[v] = 0;
	return s != STEP_WAIT;
}

/* The thread that fills pages, and evicts clean ones. */
static bool handler_step(struct world *w, unsigned int choice)
{
	struct granule_copy *c = &w->c[0];
	uint16_t writers = c->writers;
	bool evicted;

	if (choice == 1) {
		if (seeded == EVICT_WRITTEN)
			c->writers = 0;
		evicted = w->serving == SERVED && c->version && event(w, 0, GRANULE_EVICT_CLEAN) == STEP_ZAP;
		c->writers = writers;
		return evicted;
	}
	if (choice)
		return false;
	switch (w->serving) {
	case SERVED:
		if (w->page || c->version || event(w, 0, GRANULE_FAULT) != STEP_FETCH)
			return false;
		if (seeded == FAULT_IS_CURRENT)
			c->version = w->g.version + 1;
		w->serving = MARKED;
		return true;
	case MARKED:
		w->served = w->host;
		w->serving = READ;
		return true;
	case READ:
		/* The kernel fills no page that is there. */
		if (!w->page)
			w->data[0] = w->served;
		w->page = 1;
		w->served = 0;
		w->serving = FILLED;
		return true;
	default:
		event(w, 0, GRANULE_FAULTED);
		w->serving = SERVED;
		return true;
	}
}

#define AGENTS (VIEWS + 1 + 1 + 2 * VIEWS + 1)
#define CHOICES 4u

static bool world_step(struct world *w, unsigned int agent, unsigned int choice)
{
	if (agent < VIEWS)
		return view_step(w, agent, choice);
	if (agent == VIEWS)
		return cpu_step(w, choice);
	if (agent == VIEWS + 1)
		return mover_step(w, choice);
	if (agent == AGENTS - 1)
		return faults && handler_step(w, choice);
	if (agent < 2 * VIEWS + 2)
		return !choice && agent == VIEWS + 2 && evict_step(w, 0);
	return !choice && agent == 2 * VIEWS + 2 && reader_step(w, 0);
}

/* The states that were reached: a hash table of their bytes. */
static struct world *states;
static uint64_t n_states, room;
static uint32_t *table;

static uint64_t hash(const struct world *w)
{
	const unsigned char *p = (const unsigned char *)w;
	uint64_t h = 14695981039346656037ull;

	for (size_t i = 0; i < sizeof(*w); i++)
		h = (h ^ p[i]) * 1099511628211ull;
	return h ^ h >> 29;
}

static void reach(const struct world *w)
{
	uint64_t at = hash(w) & (room - 1);

	for (; table[at]; at = (at + 1) & (room - 1))
		if (!memcmp(&states[table[at] - 1], w, sizeof(*w)))
			return;
	ASSERT_LT(n_states, room / 2);
	states[n_states] = *w;
	table[at] = (uint32_t)++n_states;
}

/* Clears what no step reads any more, so that fewer states differ. */
static void forget(struct world *w)
{
	for (unsigned int i = 0; i <= VIEWS; i++)
		if (w->phase[i] == IDLE || w->phase[i] == WRITING || w->phase[i] == STORED)
			w->goal[i] = 0;
	for (unsigned int v = 0; v < VIEWS; v++) {
		if (!(w->c[v].state & (COPY_TWIN | COPY_TWINNING)))
			w->twin[v] = 0;
		if (!w->c[v].version)
			w->data[v] = 0;
	}
}

/* Follows every step from every state. Returns the invariant that does not hold somewhere, or NULL. */
static const char *explore(enum seeded fault, bool with_faults, bool with_peers)
{
	struct world first = { .next = 1 };

	faults = with_faults;
	peers = with_peers;
	seeded = fault;
	violation = NULL;
	room = 1 << 24;
	n_states = 0;
	states = calloc(room / 2, sizeof(*states));
	table = calloc(room, sizeof(*table));
	ASSERT_TRUE(states && table);
	reach(&first);
	for (uint64_t i = 0; i < n_states && !violation; i++) {
		bool stuck = true;

		if (states[i].next > PUBLISHED_MAX)
			continue;
		for (unsigned int agent = 0; agent < AGENTS; agent++) {
			for (unsigned int choice = 0; choice < CHOICES; choice++) {
				struct world w = states[i];

				if (!world_step(&w, agent, choice))
					continue;
				stuck = false;
				check(&w);
				forget(&w);
				reach(&w);
			}
		}
		HOLDS(!stuck);
	}
	free(states);
	free(table);
	return violation;
}

static const struct kind {
	const char *name;
	bool faults, peers;
} kinds[] = { { "devices", false, false }, { "page-faults", true, false }, { "peers", false, true } };

TEST_VARIANTS_TIMEOUT(every_order_of_steps, struct kind, kinds, 300)
{
	const char *found = explore(NONE, v->faults, v->peers);

	if (found)
		FAIL("does not hold: %s", found);
	printf("# %llu states\n", (unsigned long long)n_states);
	ASSERT_GT(n_states, 10000);
}

static const struct fault {
	const char *name;
	enum seeded fault;
	bool faults, peers;
} seeds[] = {
	{ "lose-again", LOSE_AGAIN, false, false },
	{ "fetch-over-writer", FETCH_OVER_WRITER, false, false },
	{ "stale-is-current", STALE_IS_CURRENT, false, false },
	{ "store-from-data", STORE_FROM_DATA, false, false },
	{ "drop-newest", DROP_NEWEST, false, false },
	{ "fault-is-current", FAULT_IS_CURRENT, true, false },
	{ "zap-newest", ZAP_NEWEST, true, false },
	{ "evict-written", EVICT_WRITTEN, true, false },
	{ "lose-again-faults", LOSE_AGAIN, true, false },
	{ "peer-is-stored", PEER_IS_STORED, false, true },
	{ "store-from-data-peers", STORE_FROM_DATA, false, true },
};

/* Found by this program, or by a CHECK() of the transition function in builds that have them. */
TEST_VARIANTS_TIMEOUT(finds_seeded_faults, struct fault, seeds, 300)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		fclose(stderr);
		_exit(explore(v->fault, v->faults, v->peers) ? 0 : 1);
	}
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
	ASSERT_TRUE(WIFSIGNALED(status) ? WTERMSIG(status) == SIGABRT : !WEXITSTATUS(status));
}
