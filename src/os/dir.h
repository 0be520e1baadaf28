/* SPDX-License-Identifier: MIT */
#ifndef OS_DIR_H
#define OS_DIR_H

/* What reading a tree such as sysfs takes beyond single lines, and asking the kernel what it offers. */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Names in a directory, sorted, "." and ".." left out. */
struct os_names {
	char **name;
	unsigned int n;
};

int os_names_read(const char *path, struct os_names *ret);
void os_names_free(struct os_names *names);

/* The first bytes of a file: how many there were, up to @len. */
ssize_t os_read_bytes(const char *path, void *buf, size_t len);

/* Give a file that is there, such as sysfs has, something to read. */
int os_write_text(const char *path, const char *text);
/* A new file, or another content for one; nobody sees a part of it. */
int os_create_text(const char *path, const char *text);
/* A folder and those above it, as far as they are not there. */
int os_make_dirs(const char *path);
int os_remove(const char *path);

/*
 * Does a text file have a line that is @word, or has it as a word between blanks? 1, 0 or a negative
 * errno. Made for files of megabytes (/proc/kallsyms), read piece by piece.
 */
int os_file_has_word(const char *path, const char *word);

#endif
