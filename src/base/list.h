/* SPDX-License-Identifier: MIT */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/util.h"

/* A circular doubly linked list; the head is a node too. A node not on a list points to itself. */
struct list {
	struct list *next, *prev;
};

#define LIST_INIT(head)                                                                                                \
	{                                                                                                              \
		&(head), &(head)                                                                                       \
	}

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_add_tail(struct list *head, struct list *node)
{
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}

static inline void list_add(struct list *head, struct list *node)
{
	list_add_tail(head->next, node);
}

static inline void list_del(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

/* Move the first nodes of @from, up to and including @last, to the front of @to. */
static inline void list_move_front(struct list *to, struct list *from, struct list *last)
{
	struct list *first = from->next;

	from->next = last->next;
	from->next->prev = from;
	last->next = to->next;
	last->next->prev = last;
	first->prev = to;
	to->next = first;
}

#define list_entry(ptr, type, member) container_of(ptr, type, member)
#define list_first(head, type, member) list_entry((head)->next, type, member)

#define list_for_each(it, head) for (struct list *it = (head)->next; it != (head); it = it->next)
#define list_for_each_safe(it, tmp, head)                                                                              \
	for (struct list *it = (head)->next, *tmp = it->next; it != (head); it = tmp, tmp = it->next)

#endif
