/* SPDX-License-Identifier: MIT */
#ifndef CLI_BIND_OWNER_H
#define CLI_BIND_OWNER_H

/* The owner and group of a device node: the users that may open the device. */

#include <stddef.h>

/* "root", or "alice:storage" if the group may open @node too. "-" if there is no such node. */
void owner_text(const char *node, char *buf, size_t len);

/*
 * Set the owner of @node to @text: "USER", "USER:GROUP" or ":GROUP", names or numbers. A group given here may open it
 * too. Returns an exit code, having printed what was wrong.
 */
int owner_set(const char *node, const char *text);

#endif
