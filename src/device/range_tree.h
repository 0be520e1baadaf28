/* SPDX-License-Identifier: MIT */
#ifndef DEVICE_RANGE_TREE_H
#define DEVICE_RANGE_TREE_H

/*
 * An index of address ranges, which may overlap: a treap ordered by start, augmented with the largest end in
 * each subtree. Nodes are embedded in the objects they index. The caller locks; range_tree_at(), _next() and
 * _overlap() only read and may run concurrently.
 */

#include <stdbool.h>
#include <stdint.h>

struct range_node {
	uint64_t start;
	uint64_t end;	  /* exclusive */
	uint64_t seq;	  /* insertion number; orders nodes with the same start */
	uint64_t max_end; /* largest end in the subtree of this node */
	uint64_t prio;	  /* treap priority */
	struct range_node *left, *right;
};

struct range_tree {
	struct range_node *root;
	uint64_t seq;
};

typedef bool range_accept_fn(const struct range_node *n);

/* The caller has set @n->start and @n->end, start < end. */
void range_tree_insert(struct range_tree *t, struct range_node *n);
void range_tree_remove(struct range_tree *t, struct range_node *n);

/*
 * Of the nodes that contain @addr and for which @accept, if not NULL, returns true: the one with the largest
 * start, and of several with that start the last inserted. NULL if there is none.
 */
struct range_node *range_tree_at(const struct range_tree *t, uint64_t addr, range_accept_fn *accept);

/*
 * The first node in order of (start, seq) that overlaps [start, end) and comes after the key
 * (@after_start, @after_seq); {0, 0} is before all nodes. A key stays valid after its node is removed, so a caller
 * may walk the tree and drop its lock between steps.
 */
struct range_node *range_tree_next(const struct range_tree *t, uint64_t start, uint64_t end, uint64_t after_start,
				   uint64_t after_seq);

/* Any node that overlaps [start, end). */
static inline struct range_node *range_tree_overlap(const struct range_tree *t, uint64_t start, uint64_t end)
{
	return range_tree_next(t, start, end, 0, 0);
}

#endif
