/* SPDX-License-Identifier: MIT */
#ifndef CLI_REPLACE_H
#define CLI_REPLACE_H

/*
 * A file that replaces another one completely or not at all. It has no name until replace_commit(), so a run that fails or
 * is killed leaves the previous file and nothing else.
 */

#include <stdbool.h>
#include <stdint.h>

struct replace {
	char *path; /* symbolic links resolved */
	int fd;
	bool in_place; /* a block device, or a file system without O_TMPFILE */
	bool created;  /* in place, and it did not exist before */
	bool block;
};

/*
 * Prepare to write @bytes to @path, and reserve the space. A block device needs @force. Returns an exit code, having
 * printed what was wrong.
 */
int replace_open(struct replace *r, const char *path, uint64_t bytes, bool force);

/* Link the file to its name and sync the directory. Its data must have been synced. Returns an exit code. */
int replace_commit(struct replace *r);

/* Always call it after replace_open(). Without a commit the file is dropped. */
void replace_close(struct replace *r);

#endif
