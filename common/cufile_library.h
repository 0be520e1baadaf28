/* SPDX-License-Identifier: MIT */
#ifndef COMMON_CUFILE_LIBRARY_H
#define COMMON_CUFILE_LIBRARY_H

/* The libcufile that measurements compare Strait with. */

#include <stddef.h>

/* The environment variable that names it. */
#define CUFILE_LIBRARY_ENV "CUFILE_LIBRARY"

/*
 * Opens the library that CUFILE_LIBRARY_ENV names, or the one that is installed. A program in a build directory finds
 * the libcufile that was built with it first, and would compare Strait with itself: a library that depends on libstrait
 * is never returned.
 *
 * @path: set to the file that was opened, if one was; also where it is refused
 * @why: set to the reason on failure
 * Return: a handle of dlopen(), or NULL.
 */
void *cufile_library_open(char *path, size_t path_len, char *why, size_t why_len);

#endif
