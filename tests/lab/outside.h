/* SPDX-License-Identifier: MIT */
#ifndef LAB_OUTSIDE_H
#define LAB_OUTSIDE_H

/* The machine's host, which reads memory and drive from outside. All functions end the test on failure. */

#include <stddef.h>
#include <stdint.h>

/* Asks the host and returns its answer without the newline. Skips the test where there is none. */
void outside_ask(char *answer, size_t len, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* @what is "bar" or "drive": its @len bytes at @off equal those at @want. */
void outside_expect(const char *what, uint64_t off, const void *want, uint64_t len);

/* The same for @len bytes of a file at @off, which are looked up on the drive. All of them must be there. */
void outside_expect_file(int fd, uint64_t off, const void *want, uint64_t len);

#endif
