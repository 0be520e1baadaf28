/* SPDX-License-Identifier: MIT */
#ifndef CUFILE_HASH_H
#define CUFILE_HASH_H

/* A hash table of objects that embed a node. Several objects may have the same key. The caller does the locking. */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct cf_node {
	struct cf_node *next;
	uintptr_t key;
};

struct cf_hash {
	struct cf_node **buckets;
	size_t size, n; /* buckets, a power of two; objects */
};

#define cf_object(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

static inline size_t cf_hash_place(const struct cf_hash *h, uintptr_t key)
{
	return (size_t)(((uint64_t)key * 0x9e3779b97f4a7c15u) >> 32) & (h->size - 1);
}

static inline struct cf_node *cf_hash_find(const struct cf_hash *h, uintptr_t key)
{
	struct cf_node *n = h->size ? h->buckets[cf_hash_place(h, key)] : NULL;

	while (n && n->key != key)
		n = n->next;
	return n;
}

/* The next object with the same key. */
static inline struct cf_node *cf_hash_again(const struct cf_node *n)
{
	struct cf_node *next = n->next;

	while (next && next->key != n->key)
		next = next->next;
	return next;
}

/* Doubles the number of buckets. Without memory for that the table stays as it is. */
static inline void cf_hash_grow(struct cf_hash *h)
{
	struct cf_hash more = { .size = h->size ? 2 * h->size : 64, .n = h->n };

	more.buckets = calloc(more.size, sizeof(struct cf_node *));
	if (!more.buckets)
		return;
	for (size_t i = 0; i < h->size; i++)
		while (h->buckets[i]) {
			struct cf_node *n = h->buckets[i], **to = &more.buckets[cf_hash_place(&more, n->key)];

			h->buckets[i] = n->next;
			n->next = *to;
			*to = n;
		}
	free(h->buckets);
	*h = more;
}

/* Return: 0, or -1 if the table is empty and cannot be allocated. */
static inline int cf_hash_add(struct cf_hash *h, struct cf_node *n, uintptr_t key)
{
	struct cf_node **to;

	if (h->n >= h->size)
		cf_hash_grow(h);
	if (!h->size)
		return -1;
	to = &h->buckets[cf_hash_place(h, key)];
	n->key = key;
	n->next = *to;
	*to = n;
	h->n++;
	return 0;
}

static inline void cf_hash_del(struct cf_hash *h, struct cf_node *n)
{
	struct cf_node **at = &h->buckets[cf_hash_place(h, n->key)];

	while (*at != n)
		at = &(*at)->next;
	*at = n->next;
	h->n--;
}

/* Removes and returns any object. NULL if there is none; the buckets are freed then. */
static inline struct cf_node *cf_hash_take(struct cf_hash *h)
{
	for (size_t i = 0; h->n && i < h->size; i++)
		if (h->buckets[i]) {
			struct cf_node *n = h->buckets[i];

			h->buckets[i] = n->next;
			h->n--;
			return n;
		}
	free(h->buckets);
	*h = (struct cf_hash){ 0 };
	return NULL;
}

#endif
