/* SPDX-License-Identifier: MIT */
#include "device/range_tree.h"

#include <stddef.h>

/* Turns sequence numbers into pseudo-random priorities, which balance the treap. */
static uint64_t splitmix64(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static bool node_before(uint64_t start, uint64_t seq, const struct range_node *n)
{
	return start < n->start || (start == n->start && seq < n->seq);
}

static void node_update_max_end(struct range_node *n)
{
	n->max_end = n->end;
	if (n->left && n->left->max_end > n->max_end)
		n->max_end = n->left->max_end;
	if (n->right && n->right->max_end > n->max_end)
		n->max_end = n->right->max_end;
}

/* Splits the subtree @n: nodes before @at to @left, the rest to @right. */
static void treap_split(struct range_node *n, const struct range_node *at, struct range_node **left,
			struct range_node **right)
{
	if (!n) {
		*left = *right = NULL;
		return;
	}
	if (node_before(n->start, n->seq, at)) {
		treap_split(n->right, at, &n->right, right);
		*left = n;
	} else {
		treap_split(n->left, at, left, &n->left);
		*right = n;
	}
	node_update_max_end(n);
}

static struct range_node *treap_merge(struct range_node *left, struct range_node *right)
{
	if (!left)
		return right;
	if (!right)
		return left;
	if (left->prio > right->prio) {
		left->right = treap_merge(left->right, right);
		node_update_max_end(left);
		return left;
	}
	right->left = treap_merge(left, right->left);
	node_update_max_end(right);
	return right;
}

static struct range_node *treap_insert(struct range_node *root, struct range_node *n)
{
	if (!root || n->prio > root->prio) {
		treap_split(root, n, &n->left, &n->right);
		node_update_max_end(n);
		return n;
	}
	if (node_before(n->start, n->seq, root))
		root->left = treap_insert(root->left, n);
	else
		root->right = treap_insert(root->right, n);
	node_update_max_end(root);
	return root;
}

static struct range_node *treap_erase(struct range_node *root, struct range_node *n)
{
	if (!root)
		return NULL;
	if (root == n)
		return treap_merge(n->left, n->right);
	if (node_before(n->start, n->seq, root))
		root->left = treap_erase(root->left, n);
	else
		root->right = treap_erase(root->right, n);
	node_update_max_end(root);
	return root;
}

void range_tree_insert(struct range_tree *t, struct range_node *n)
{
	n->seq = ++t->seq;
	n->prio = splitmix64(n->seq);
	t->root = treap_insert(t->root, n);
}

void range_tree_remove(struct range_tree *t, struct range_node *n)
{
	t->root = treap_erase(t->root, n);
	n->left = n->right = NULL;
}

static struct range_node *find_last_at(struct range_node *n, uint64_t addr, range_accept_fn *accept)
{
	struct range_node *found;

	/* Skips subtrees that end before @addr or start after it. */
	while (n && n->max_end > addr) {
		if (n->start > addr) {
			n = n->left;
			continue;
		}
		found = find_last_at(n->right, addr, accept);
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
	return find_last_at(t->root, addr, accept);
}

struct node_key {
	uint64_t start, seq;
};

static struct range_node *find_first_overlap(struct range_node *n, uint64_t start, uint64_t end,
					     const struct node_key *after)
{
	struct range_node *found;

	while (n && n->max_end > start) {
		if (node_before(after->start, after->seq, n)) {
			found = find_first_overlap(n->left, start, end, after);
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
	struct node_key after = { after_start, after_seq };

	return find_first_overlap(t->root, start, end, &after);
}
