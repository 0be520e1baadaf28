/* SPDX-License-Identifier: MIT */
#include "device/range_tree.h"

#include <stddef.h>

/* splitmix64: sequence numbers in, the balance of a random tree out. */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static bool before(uint64_t start, uint64_t seq, const struct range_node *n)
{
	return start < n->start || (start == n->start && seq < n->seq);
}

static void update(struct range_node *n)
{
	n->max_end = n->end;
	if (n->left && n->left->max_end > n->max_end)
		n->max_end = n->left->max_end;
	if (n->right && n->right->max_end > n->max_end)
		n->max_end = n->right->max_end;
}

/* Everything before @at goes to @left, the rest to @right. */
static void split(struct range_node *n, const struct range_node *at, struct range_node **left,
		  struct range_node **right)
{
	if (!n) {
		*left = *right = NULL;
		return;
	}
	if (before(n->start, n->seq, at)) {
		split(n->right, at, &n->right, right);
		*left = n;
	} else {
		split(n->left, at, left, &n->left);
		*right = n;
	}
	update(n);
}

static struct range_node *merge(struct range_node *left, struct range_node *right)
{
	if (!left)
		return right;
	if (!right)
		return left;
	if (left->prio > right->prio) {
		left->right = merge(left->right, right);
		update(left);
		return left;
	}
	right->left = merge(left, right->left);
	update(right);
	return right;
}

static struct range_node *insert(struct range_node *root, struct range_node *n)
{
	if (!root || n->prio > root->prio) {
		split(root, n, &n->left, &n->right);
		update(n);
		return n;
	}
	if (before(n->start, n->seq, root))
		root->left = insert(root->left, n);
	else
		root->right = insert(root->right, n);
	update(root);
	return root;
}

static struct range_node *erase(struct range_node *root, struct range_node *n)
{
	if (!root)
		return NULL;
	if (root == n)
		return merge(n->left, n->right);
	if (before(n->start, n->seq, root))
		root->left = erase(root->left, n);
	else
		root->right = erase(root->right, n);
	update(root);
	return root;
}

void range_tree_insert(struct range_tree *t, struct range_node *n)
{
	n->seq = ++t->seq;
	n->prio = mix(n->seq);
	t->root = insert(t->root, n);
}

void range_tree_remove(struct range_tree *t, struct range_node *n)
{
	t->root = erase(t->root, n);
	n->left = n->right = NULL;
}

static struct range_node *last_at(struct range_node *n, uint64_t addr, range_accept_fn *accept)
{
	struct range_node *found;

	/* Whole subtrees end before @addr or start behind it: those are not walked. */
	while (n && n->max_end > addr) {
		if (n->start > addr) {
			n = n->left;
			continue;
		}
		found = last_at(n->right, addr, accept);
		if (found)
			return found;
		if (n->end > addr && (!accept || accept(n)))
			return n;
		n = n->left;
	}
	return NULL;
}

struct range_node *range_tree_at(const struct range_tree *t, uint64_t addr, range_accept_fn *accept)
{
	return last_at(t->root, addr, accept);
}

struct place {
	uint64_t start, seq;
};

static struct range_node *first_overlap(struct range_node *n, uint64_t start, uint64_t end, const struct place *after)
{
	struct range_node *found;

	while (n && n->max_end > start) {
		if (before(after->start, after->seq, n)) {
			found = first_overlap(n->left, start, end, after);
			if (found)
				return found;
			if (n->start < end && n->end > start)
				return n;
		}
		if (n->start >= end)
			return NULL;
		n = n->right;
	}
	return NULL;
}

struct range_node *range_tree_next(const struct range_tree *t, uint64_t start, uint64_t end, uint64_t after_start,
				   uint64_t after_seq)
{
	struct place after = { after_start, after_seq };

	return first_overlap(t->root, start, end, &after);
}
