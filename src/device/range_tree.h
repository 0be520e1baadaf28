/* SPDX-License-Identifier: MIT */
#ifndef DEVICE_RANGE_TREE_H
#define DEVICE_RANGE_TREE_H

/*
 * Ranges of addresses, which may overlap, found in logarithmic time: a treap ordered by start whose
 * nodes know the largest end below them. Nodes live inside the objects they index. The caller locks;
 * the find functions change nothing and may run at the same time.
 */

#include <stdbool.h>
#include <stdint.h>

struct range_node {
	uint64_t start;
	uint64_t end;	  /* exclusive */
	uint64_t seq;	  /* orders nodes of the same start: later ones come after */
	uint64_t max_end; /* of this node and all below it */
	uint64_t prio;
	struct range_node *left, *right;
};

struct range_tree {
	struct range_node *root;
	uint64_t seq;
};

typedef bool range_accept_fn(const struct range_node *n);

/* @n->start and @n->end are set by the caller, start < end. */
void range_tree_insert(struct range_tree *t, struct range_node *n);
void range_tree_remove(struct range_tree *t, struct range_node *n);

/*
 * The node that starts nearest before @addr (the last one inserted, of several with that start) among
 * those that hold @addr and that @accept, if not NULL, says yes to. NULL if there is none.
 */
struct range_node *range_tree_at(const struct range_tree *t, uint64_t addr, range_accept_fn *accept);

/*
 * The first node, in order of start, that overlaps [start, end) and comes after the place
 * (@after_start, @after_seq); {0, 0} is before all. The place of a node outlives the node, so a
 * caller may walk the tree and let go of its lock between steps.
 */
struct range_node *range_tree_next(const struct range_tree *t, uint64_t start, uint64_t end, uint64_t after_start,
				   uint64_t after_seq);

/* Any node that overlaps [start, end). */
static inline struct range_node *range_tree_overlap(const struct range_tree *t, uint64_t start, uint64_t end)
{
	return range_tree_next(t, start, end, 0, 0);
}

#endif
