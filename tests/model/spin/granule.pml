/* SPDX-License-Identifier: MIT */
/*
 * The protocol of src/mapping/granule.h on one granule: the host, two views, a thread of each side that acquires, stores and
 * releases, a second thread that reads on the first view, and one that evicts there. granule_event() is one step under the
 * index's lock; the thread that it told to move bytes reads and writes them in steps of their own. tests/unit/granule_test.c
 * runs the function itself: here the rules are written down a second time, and threads wait as src/mapping/walk.c does.
 *
 * The bytes of a copy are the number of the store that made them. Invariants, as granule.h names them:
 *
 *	one-newest, visible, kept, again, unreleased, pure-read
 *
 * and: every thread that waits can go on. With PEERS a view may read the newest bytes from the other one: GRANULE_READ_PEER.
 */
#ifndef STORES
#define STORES 2 /* of all sides together */
#endif

#define HOST 0
#define VIEWS 3 /* with the host as number 0, which has no copy */

/* The granule. */
byte version, newest, twinning;
bit storing, again;
/* Its copies. */
byte copy_version[VIEWS], writers[VIEWS];
bit filling[VIEWS], twinning_copy[VIEWS], has_twin[VIEWS];

/* Bytes. */
byte data[VIEWS], twin[VIEWS]; /* data[HOST]: of the host */
byte latest;		       /* published last */
byte stores;
byte acquired[VIEWS]; /* by threads, which keep the memory of the copy */
bit dirty[VIEWS]; /* has stored, and not released: one side at a time, the application's part */

#define busy(v) (filling[v] || twinning_copy[v])
#define current(v) (copy_version[v] == version + 1)
#define nobody_stores (!dirty[0] && !dirty[1] && !dirty[2])

mtype = { DONE, STORE, FETCH, TWIN };

inline check(v)
{
	assert(!again || storing);
	/* one-newest, visible */
	assert(newest == HOST || copy_version[newest] == version + 1);
	assert(newest == HOST || !filling[newest]);
	/* kept */
	assert(newest != HOST || storing || dirty[HOST] || data[HOST] == latest);
	/* unreleased */
	assert(!filling[v] || !writers[v]);
	assert(!(has_twin[v] || twinning_copy[v]) || writers[v]);
	/* A copy that counts as current is. */
	assert(v == HOST || !current(v) || busy(v) || writers[v] || dirty[HOST] || data[v] == latest)
}

inline publish(v)
{
	version++;
	newest = v;
#ifndef BUG_STORE_LOST
	if
	:: storing -> again = 1
	:: else
	fi
#endif
}

/* STEP_STORE: the bytes of view newest to the host. */
inline store()
{
#ifndef BUG_STORE_FROM_DATA
	/* The twin has what was published, while the view is written. */
	from_twin = has_twin[from];
#endif
	atomic {
		bytes = (from_twin -> twin[from] : data[from]);
		/* unreleased */
		assert(!dirty[from] || bytes != data[from])
	}
	data[HOST] = bytes;
	atomic {
		assert(storing);
		if
		:: !again -> newest = HOST
		:: else
		fi;
#ifdef BUG_MARK_LEFT
		storing = again;
#else
		storing = 0;
#endif
		again = 0;
		from = 0; bytes = 0; from_twin = 0;
		check(HOST)
	}
}

/* STEP_FETCH: the host's bytes to the view. */
inline fetch(v)
{
	bytes = data[HOST];
	atomic { assert(!writers[v] && filling[v]); data[v] = bytes };
	atomic { filling[v] = 0; bytes = 0; check(v) }
}

/* STEP_PEER: the bytes of view newest to the view. The host does not get them. */
inline peer(v)
{
	from_twin = has_twin[from];
	atomic {
		bytes = (from_twin -> twin[from] : data[from]);
		/* unreleased */
		assert(!dirty[from] || bytes != data[from])
	}
	atomic { assert(!writers[v] && filling[v]); data[v] = bytes };
	atomic {
#ifdef BUG_PEER_IS_STORED
		newest = (again -> newest : HOST);
#endif
		filling[v] = 0; storing = 0; again = 0;
		from = 0; bytes = 0; from_twin = 0;
		check(v)
	}
}

#ifdef BUG_STORE_BESIDE_TWIN
#define may_store (!storing)
#else
#define may_store (!storing && !twinning)
#endif

#ifdef BUG_FETCH_OVER_WRITER
#define is_written(v) false
#else
#define is_written(v) (writers[v])
#endif

/* GRANULE_READ_COPY. Blocks where the step is STEP_WAIT. */
inline read_copy(v)
{
	do
	:: atomic { !filling[v] && (is_written(v) || current(v)) ->
			/* visible: not older than what was published before, unless the view is being written. */
			assert(writers[v] || data[v] >= goal); goal = 0;
			check(v); break }
#ifdef BUG_STALE_IS_CURRENT
	:: atomic { !filling[v] && copy_version[v] && newest == HOST -> copy_version[v] = version + 1; check(v); break }
#endif
	:: atomic { !filling[v] && !is_written(v) && !current(v) && newest != HOST && may_store -> storing = 1; from = newest; check(v) };
		store()
#ifdef PEERS
#ifdef BUG_PEER_BESIDE_TWIN
	:: atomic { !filling[v] && !is_written(v) && !current(v) && newest != HOST && !storing ->
#else
	:: atomic { !filling[v] && !is_written(v) && !current(v) && newest != HOST && may_store ->
#endif
			storing = 1; from = newest; filling[v] = 1; copy_version[v] = version + 1; check(v) };
		peer(v)
#endif
	:: atomic { !filling[v] && !is_written(v) && !current(v) && newest == HOST && !storing ->
			filling[v] = 1; copy_version[v] = version + 1; check(v) };
		fetch(v)
	od
}

/* GRANULE_READ_HOST */
inline read_host()
{
	do
	:: atomic { newest == HOST && !storing -> assert(data[HOST] >= goal); goal = 0; break }
	:: atomic { newest != HOST && may_store -> storing = 1; from = newest };
		store()
	od
}

/* The thread of view @v that reads, or writes. */
proctype view(byte v; byte rounds)
{
	byte goal, bytes, from;
	bit from_twin, write;

next:
	atomic {
		goal = 0; write = 0;
		if
		:: !rounds -> goto ended
		:: else -> rounds--; goal = latest
		fi;
		if
		:: write = 0
		:: write = 1
		fi;
		acquired[v]++
	}
	read_copy(v);
	atomic {
		if
		:: !write -> acquired[v]--; goto next
		:: else
		fi
	}
	/* GRANULE_WRITE_BEGIN */
	atomic {
#ifdef BUG_OPEN_DURING_STORE
		!busy(v);
#else
		!busy(v) && !storing;
#endif
		writers[v]++;
		twinning_copy[v] = 1;
		twinning++;
		check(v)
	}
	twin[v] = data[v];
	atomic { twinning--; twinning_copy[v] = 0; has_twin[v] = 1; check(v) }
	/* Stores to the newest bytes, or to nothing. */
	atomic {
		if
		:: nobody_stores && current(v) && stores < STORES -> stores++; dirty[v] = 1; data[v] = stores
		:: goto released
		fi
	}
	/* GRANULE_PUBLISH_COPY */
	atomic {
		assert(data[v] > latest);
		publish(v);
		copy_version[v] = version + 1;
		latest = data[v];
		dirty[v] = 0;
released:
		/* GRANULE_WRITE_END, under the same lock */
		acquired[v]--;
		writers[v]--;
		has_twin[v] = 0;
		check(v);
		goto next
	}
ended:
	skip
}

/* A second thread on a view, which reads. */
proctype reader(byte v)
{
	byte goal, bytes, from;
	bit from_twin;

	atomic { goal = latest; acquired[v]++ };
	read_copy(v);
	acquired[v]--
}

/* GRANULE_DROP: the memory of the copy is needed for other granules. */
proctype evictor(byte v)
{
	byte bytes, from;
	bit from_twin;

	do
	:: atomic {
#ifdef BUG_DROP_NEWEST
		!acquired[v] && !writers[v] && !busy(v) && !storing -> newest = (newest == v -> HOST : newest);
#else
		!acquired[v] && !writers[v] && !busy(v) && newest != v && !storing ->
#endif
			copy_version[v] = 0; data[v] = 0; check(v); break }
	:: atomic { !acquired[v] && !writers[v] && !busy(v) && newest == v && may_store -> storing = 1; from = newest };
		store()
	od
}

/* The CPU, whose stores go to the host at once. */
proctype cpu()
{
	byte goal, bytes, from;
	bit from_twin;

	goal = latest;
	read_host();
	atomic {
		if
		:: goto ended
		:: nobody_stores && newest == HOST && !storing && stores < STORES ->
			stores++; dirty[HOST] = 1; data[HOST] = stores
		fi
	}
	/* GRANULE_PUBLISH_HOST */
	atomic {
		publish(HOST);
		latest = data[HOST];
		dirty[HOST] = 0;
		check(HOST)
	}
ended:
	skip
}

init {
	byte goal, bytes, from, was;
	bit from_twin;

	atomic {
		run view(1, 2);
		run view(2, 1);
		run cpu();
#ifndef NO_READER
		run reader(1);
#endif
		run evictor(1)
	}
	_nr_pr == 1;
	/* At rest: nothing is lost, and reads change nothing. */
	was = version;
	goal = latest;
	read_host();
	/* kept, again */
	assert(data[HOST] == latest);
	goal = latest;
	read_copy(1);
	goal = latest;
	read_copy(2);
	assert(data[1] == latest && data[2] == latest);
	/* pure-read */
	assert(version == was && newest == HOST && !storing && !twinning)
}
