/* SPDX-License-Identifier: MIT */
#ifndef OS_DIR_H
#define OS_DIR_H

/* Directories and small files, such as those of sysfs. */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Names in a directory, sorted, without "." and "..". */
struct os_names {
	char **name;
	unsigned int n;
};

int os_names_read(const char *path, struct os_names *ret);
void os_names_free(struct os_names *names);

/* Read the first @len bytes of a file: how many it has, up to @len. */
ssize_t os_read_bytes(const char *path, void *buf, size_t len);

/* Write to an existing file, such as those of sysfs. */
int os_write_text(const char *path, const char *text);
/* Create a file or replace its content, atomically. */
int os_create_text(const char *path, const char *text);
/* Create a directory and its missing parents. */
int os_make_dirs(const char *path);
int os_remove(const char *path);

/*
 * Does a text file contain @word, delimited by blanks or line ends? 1, 0 or a negative errno. Reads in pieces: the file
 * may be megabytes long (/proc/kallsyms).
 */
int os_file_has_word(const char *path, const char *word);

#endif
