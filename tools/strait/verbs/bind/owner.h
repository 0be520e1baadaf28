/* SPDX-License-Identifier: MIT */
#ifndef CLI_BIND_OWNER_H
#define CLI_BIND_OWNER_H

/* The users that may drive a bound device: the owner and group of its device node. */

#include <stddef.h>

/* "root", "alice:storage": as long as all of them may open @node. "-" if it is not there. */
void owner_text(const char *node, char *buf, size_t len);

/*
 * Give @node to "USER", "USER:GROUP" or ":GROUP", names or numbers. A group that is named may open it too.
 * An exit code, after saying what was wrong.
 */
int owner_set(const char *node, const char *text);

#endif
