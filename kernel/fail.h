/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_FAIL_H
#define STRAIT_FAIL_H

/* Allocations of a module that fail on purpose: the nth that one process makes, counted from 1. */

#include <linux/atomic.h>
#include <linux/debugfs.h>
#include <linux/errno.h>
#include <linux/limits.h>
#include <linux/sched.h>

struct fail_nth {
	atomic_t in;	/* 0: none */
	pid_t tgid;
};

static inline bool fail_nth_now(struct fail_nth *f)
{
	if (likely(!atomic_read(&f->in)) || READ_ONCE(f->tgid) != current->tgid)
		return false;
	return atomic_dec_if_positive(&f->in) == 0;
}

static inline int fail_nth_left(const struct fail_nth *f)
{
	return atomic_read(&f->in);
}

static inline int fail_nth_set(struct fail_nth *f, u64 n)
{
	if (n > INT_MAX)
		return -EINVAL;
	atomic_set(&f->in, 0);
	WRITE_ONCE(f->tgid, current->tgid);
	atomic_set(&f->in, n);
	return 0;
}

static int fail_nth_get(void *data, u64 *val)
{
	*val = fail_nth_left(data);
	return 0;
}

static int fail_nth_store(void *data, u64 val)
{
	return fail_nth_set(data, val);
}
DEFINE_DEBUGFS_ATTRIBUTE(fail_nth_fops, fail_nth_get, fail_nth_store, "%llu\n");

/* A file "fail_nth" in @dir: what is left to count, and set by writing. */
static inline void fail_nth_file(struct fail_nth *f, struct dentry *dir)
{
	debugfs_create_file_unsafe("fail_nth", 0600, dir, f, &fail_nth_fops);
}

#endif
