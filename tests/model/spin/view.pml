/* SPDX-License-Identifier: MIT */
/*
 * The protocol of include/strait/device/core.h, fault.h and view.h: device threads load without a pin, store with one, flush,
 * and evict each other's pages; a thread of the host for each slot completes its requests late, with errors, and twice.
 * Pages of one granule. A compare-and-exchange whose caller starts over when it fails is one step with the load before it.
 *
 * The bytes of a granule are its number and the number of the store that made them. Invariants, as core.h names them:
 *
 *	bound, pinned, filled, dirty, ordered, again, once
 *
 * and: a load returns what was stored last, of its own page; a flush ends after the host has what was stored before it; every
 * wait ends. Timeouts happen only to requests, so that none hides a thread that waits for ever.
 */
#ifndef FRAMES
#define FRAMES 1
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef TIMEOUTS
#define TIMEOUTS 1
#endif
#ifndef ERRORS
#define ERRORS 0
#endif
/* Operations of threads: bits. */
#define LOAD 1
#define STORE 2
#define FLUSH 4
/* How many of which kinds, of each thread: tens and ones. */
#ifndef A
#define A 21
#endif
#ifndef B
#define B 22
#endif
#ifndef C
#define C 00
#endif

#define PAGES 2
#define VALUE(g, n) ((g) * 16 + (n))
#define JUNK 255

#define FREE 0
#define TAKEN 1
#define PAGE 2

mtype = { ABSENT, FILLING, VALID, FAILED, READ, WRITE };

typedef page_word {
	bit bound, busy;
	byte frame, generation, pins;
};

page_word page[PAGES];
byte held[PAGES];   /* pins that have an effect */
byte latest[PAGES]; /* the number of the last store */
byte made[PAGES];   /* of the last one whose call has returned */
byte file[PAGES];
byte owner[FRAMES];
mtype state[FRAMES] = ABSENT;
bit dirty[FRAMES];
byte data[FRAMES] = JUNK;
bit taken[SLOTS], quarantine[SLOTS];
byte seq[SLOTS];
byte slot_data[SLOTS] = JUNK;
byte request_seq[SLOTS], request_page[SLOTS];
mtype request_op[SLOTS] = READ;
byte completion[SLOTS]; /* sequence numbers, as in seq and request_seq */
bit completion_error[SLOTS];
byte timeouts = TIMEOUTS, errors = ERRORS;
byte running; /* device threads */

#define is_bound(g) (page[g].bound && !page[g].busy)
#ifdef BUG_EVICT_PINNED
#define unpinned(g) true
#else
#define unpinned(g) (!page[g].pins)
#endif
/* A write of this page that timed out and that the host may still make. */
#define late(s, g) (completion[s] != seq[s] && request_op[s] == WRITE && request_page[s] == (g))
#if defined(BUG_LATE_WRITE)
#define overdue(g) false
#elif SLOTS == 1
#define overdue(g) late(0, g)
#else
#define overdue(g) (late(0, g) || late(1, g))
#endif
#if FRAMES == 1
#define may_take (owner[0] == FREE || (owner[0] >= PAGE && is_bound(owner[0] - PAGE) && !page[owner[0] - PAGE].pins))
#else
#define may_take true
#endif

inline take_slot()
{
	do
	:: atomic { !taken[0] -> taken[0] = 1; s = 0; break }
#if SLOTS > 1
	:: atomic { taken[0] && !taken[1] -> taken[1] = 1; s = 1; break }
	:: atomic { quarantine[1] && completion[1] == seq[1] -> s = 1 }; reclaim()
#endif
	:: atomic { quarantine[0] && completion[0] == seq[0] -> s = 0 }; reclaim()
	od
}

/* The thread that clears the bit of the quarantine owns the slot: it has to look again whether it is complete. */
inline reclaim()
{
	atomic {
		if
		:: quarantine[s] ->
			quarantine[s] = 0;
#ifdef BUG_RECLAIM_UNCHECKED
			taken[s] = 0; s = 0
#endif
		:: else -> s = SLOTS
		fi
	}
#ifndef BUG_RECLAIM_UNCHECKED
	atomic {
		if
		:: s == SLOTS
		:: s < SLOTS && completion[s] == seq[s] -> taken[s] = 0
		:: s < SLOTS && completion[s] != seq[s] -> quarantine[s] = 1
		fi;
		s = 0
	}
#endif
}

inline make_request(o, g)
{
	/* once: what the slot was used for is complete. */
	assert(completion[s] == seq[s]);
	assert(taken[s] && !quarantine[s]);
	seq[s]++;
	request_page[s] = g;
	request_op[s] = o;
	request_seq[s] = seq[s]
}

/* Sets error. After a timeout the slot is no longer the caller's. */
inline complete()
{
	atomic {
		if
		:: completion[s] == seq[s] -> error = completion_error[s]
		:: completion[s] != seq[s] && timeouts ->
			timeouts--;
			error = 2
		fi
	}
	if
	:: atomic { error == 2 ->
#ifdef BUG_SLOT_REUSED
		taken[s] = 0
#else
		quarantine[s] = 1
#endif
	}
	:: else
	fi
}

inline unpin(g)
{
	atomic { page[g].pins--; held[g]-- }
}

/* A thread of the device: @ops operations of the kinds @kinds. */
proctype device(byte ops; byte kinds)
{
	byte g, op, f, s, victim, x, seen, generation, error;
	bit flushing;

next:
	atomic {
		error = 0; f = 0; s = 0; victim = 0; x = 0; seen = 0; generation = 0; flushing = 0; op = 0; g = 0;
		if
		:: !ops -> goto ended
		:: else -> ops--
		fi;
		if
		:: kinds & LOAD -> op = LOAD
		:: kinds & STORE -> op = STORE
		:: kinds & FLUSH -> op = FLUSH
		fi;
		if
		:: g = 0
		:: g = 1
		fi;
		if
		:: op == FLUSH -> seen = made[g]; goto flush
		:: op == STORE -> goto acquire
		:: op == LOAD
		fi
	}

	/* strait_vc_look() */
	atomic {
		if
		:: is_bound(g) -> f = page[g].frame; generation = page[g].generation
		:: else -> goto acquire
		fi
	}
	atomic {
		if
		:: state[f] == VALID
		:: else -> goto acquire
		fi
	}
	atomic { x = data[f]; seen = latest[g] }
	/* strait_vc_still() */
	atomic {
#ifndef BUG_NO_RECHECK
		if
		:: is_bound(g) && page[g].frame == f && page[g].generation == generation
		:: else -> x = 0; seen = 0; goto acquire
		fi;
#endif
		assert(x == VALUE(g, seen));
		goto next
	}

acquire:
	/* strait_vc_pin() */
	atomic {
		page[g].pins++;
		if
		:: is_bound(g) -> f = page[g].frame; held[g]++; goto submit
		:: else
		fi
	}
	page[g].pins--;
	/* strait_vc_bind() */
	atomic {
		if
		:: !page[g].bound && !page[g].busy -> page[g].busy = 1
		:: else -> goto wait_page
		fi
	}
	/* strait_vc_take_frame() */
	atomic {
		f = 0;
#if FRAMES > 1
		if
		:: true
		:: f = 1
		fi;
#endif
		victim = owner[f]
	}
	atomic {
		if
		:: victim == TAKEN -> goto no_frame
		:: victim == FREE && owner[f] == FREE -> owner[f] = TAKEN; goto bind
		:: victim == FREE && owner[f] != FREE -> goto no_frame
		:: victim >= PAGE
		fi;
		/* strait_vc_evict() */
		victim = victim - PAGE;
		if
		:: is_bound(victim) && page[victim].frame == f && unpinned(victim) -> page[victim].busy = 1
		:: else -> goto no_frame
		fi
	}
#ifndef BUG_NO_WRITE_BACK
	if
	:: dirty[f] -> goto store_granule
	:: else
	fi;
#endif
evict:
	/* dirty: it leaves its frame after the host has stored it. */
	atomic { assert(!dirty[f]); assert(state[f] != FILLING); state[f] = ABSENT }
	atomic { assert(owner[f] == victim + PAGE); owner[f] = TAKEN }
	atomic {
		/* pinned */
		assert(!held[victim]);
		assert(file[victim] == VALUE(victim, latest[victim]));
		page[victim].busy = 0;
		page[victim].bound = 0;
		page[victim].frame = 0;
#ifndef BUG_SAME_GENERATION
		page[victim].generation++
#endif
	}
bind:
	/* Before another thread can find the frame. */
	atomic { victim = 0; assert(state[f] == ABSENT); state[f] = FILLING; owner[f] = g + PAGE }
	atomic {
		/* bound */
		assert(owner[f] == g + PAGE && !page[g].bound && page[g].busy);
		page[g].bound = 1;
		page[g].frame = f;
		page[g].busy = 0;
		page[g].pins++;
		held[g]++;
		goto fill
	}
submit:
	/* strait_vc_fault_submit() */
	atomic {
		if
		:: state[f] == FAILED -> unpin(g); goto next
		:: state[f] == VALID -> goto valid
		:: state[f] == FILLING -> goto wait_fill
		:: state[f] == ABSENT -> state[f] = FILLING
		fi
	}
fill:
	take_slot();
	atomic { make_request(READ, g) }
	complete();
	if
	:: error != 0
	:: else ->
		/* filled: by the thread that made it FILLING, which has a pin. */
		atomic {
			assert(state[f] == FILLING && page[g].bound && page[g].frame == f && held[g]);
			data[f] = slot_data[s]
		}
	fi;
	if
	:: error != 2 -> taken[s] = 0
	:: else
	fi;
	atomic {
		assert(state[f] == FILLING);
		s = 0;
		if
		:: error != 0 -> state[f] = FAILED; unpin(g); goto next
		:: else -> state[f] = VALID; goto valid
		fi
	}
wait_fill:
	atomic {
		state[f] != FILLING;
		if
		:: state[f] == VALID -> goto valid
		:: else -> assert(state[f] == FAILED); unpin(g); goto next
		fi
	}
valid:
	atomic {
		assert(page[g].bound && page[g].frame == f && owner[f] == g + PAGE && state[f] == VALID);
		assert(data[f] == VALUE(g, latest[g]));
		if
		:: op == LOAD -> unpin(g); goto next
		:: else ->
			latest[g]++;
			seen = latest[g];
			data[f] = VALUE(g, seen)
		fi
	}
	/* strait_vc_mark_dirty() */
	atomic { assert(state[f] == VALID); dirty[f] = 1 }
	atomic {
		unpin(g);
		made[g] = (seen > made[g] -> seen : made[g]);
		goto next
	}

no_frame:
	atomic { page[g].busy = 0; victim = 0; f = 0 }
	atomic { may_take || page[g].bound -> goto acquire }
wait_page:
	atomic { !page[g].busy -> goto acquire }

flush:
#ifdef BUG_FLUSH_SHARED
	!page[g].busy;
	atomic {
		if
		:: is_bound(g) -> page[g].pins++; held[g]++; f = page[g].frame
		:: else -> goto next
		fi
	}
#else
	atomic {
		!page[g].busy ->
		if
		:: page[g].bound -> page[g].busy = 1; f = page[g].frame
		:: else -> goto flushed
		fi
	}
#endif
	if
	:: dirty[f] -> flushing = 1; victim = g; goto store_granule
	:: else
	fi;
flush_end:
#ifdef BUG_FLUSH_SHARED
	unpin(g);
#else
	page[g].busy = 0;
#endif
flushed:
	atomic { assert(error || file[g] >= VALUE(g, seen)); goto next }

	/* strait_vc_store_granule() of the page victim */
store_granule:
	!overdue(victim);
	take_slot();
#ifdef BUG_CLEAR_DIRTY_LATE
	slot_data[s] = data[f];
	atomic {
		if
		:: dirty[f] -> dirty[f] = 0
		:: else -> taken[s] = 0; goto stored
		fi
	}
#else
	atomic {
		if
		:: dirty[f] -> dirty[f] = 0
		:: else -> taken[s] = 0; goto stored
		fi
	}
	slot_data[s] = data[f];
#endif
	atomic { make_request(WRITE, victim) }
	complete();
	if
	:: error != 0 -> dirty[f] = 1
	:: else
	fi;
	if
	:: error != 2 -> taken[s] = 0
	:: else
	fi;
stored:
	atomic {
		s = 0;
		if
		:: flushing -> goto flush_end
		:: !flushing && !error -> goto evict
		:: !flushing && error -> page[victim].busy = 0; error = 0; goto no_frame
		fi
	}
ended:
	running--
}

/* The thread of the host that serves a slot. */
proctype host(byte s)
{
	byte n, g;
	mtype op = READ;

	do
	:: atomic { request_seq[s] != completion[s] -> n = request_seq[s]; g = request_page[s]; op = request_op[s] };
		atomic {
			if
			:: op == READ -> slot_data[s] = file[g]; completion_error[s] = 0
			:: op == WRITE -> file[g] = slot_data[s]; completion_error[s] = 0
			:: errors -> errors--; completion_error[s] = 1
			fi
		}
		completion[s] = n;
#ifdef REPEAT
		if
		:: true
		:: completion[s] = n
		fi;
#endif
		atomic { n = 0; g = 0; op = READ }
	:: atomic { !running && request_seq[s] == completion[s] -> break }
	od
}

/* At rest: what was stored is in the file, or in a frame that is dirty. */
inline check_rest(g)
{
	assert(!page[g].busy && !page[g].pins);
	if
	:: page[g].bound && state[page[g].frame] == VALID ->
		assert(data[page[g].frame] == VALUE(g, latest[g]));
		/* again, ordered */
		assert(dirty[page[g].frame] || file[g] == VALUE(g, latest[g]))
	:: else -> assert(file[g] == VALUE(g, latest[g]))
	fi
}

init {
	atomic {
		file[0] = VALUE(0, 0);
		file[1] = VALUE(1, 0);
		running = 3;
		run device(A / 10, A % 10);
		run device(B / 10, B % 10);
		run device(C / 10, C % 10);
		run host(0);
#if SLOTS > 1
		run host(1);
#endif
	}
	atomic {
		_nr_pr == 1;
		check_rest(0);
		check_rest(1)
	}
}
