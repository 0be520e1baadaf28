/* SPDX-License-Identifier: MIT */
#ifndef CLI_REPLACE_H
#define CLI_REPLACE_H

/*
 * A file that takes the place of another one whole or not at all. Until replace_commit() it has no name,
 * so a run that fails or is killed leaves what was there before and nothing else.
 */

#include <stdbool.h>
#include <stdint.h>

struct replace {
	char *path; /* of the file itself, symbolic links followed */
	int fd;
	bool in_place; /* block device, or a file system without O_TMPFILE: written where it is */
	bool created;  /* in place, and not there before */
	bool block;
};

/*
 * Prepare to write @bytes to @path, with the room reserved. A block device needs @force. Returns an exit
 * code, having said what was wrong.
 */
int replace_open(struct replace *r, const char *path, uint64_t bytes, bool force);

/* Give the file its name, durably. What was written must have been synced. Returns an exit code. */
int replace_commit(struct replace *r);

/* After replace_open() in any case, last: without a commit the file is dropped. */
void replace_close(struct replace *r);

#endif
