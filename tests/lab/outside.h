/* SPDX-License-Identifier: MIT */
#ifndef LAB_OUTSIDE_H
#define LAB_OUTSIDE_H

/* The machine's host, which sees memory and drive from outside. Everything here ends the test when it fails. */

#include <stddef.h>
#include <stdint.h>

/* Ask the host: what it answers, without the end of the line. Skips the test where there is none. */
void outside_ask(char *answer, size_t len, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* @what is "bar" or "drive": its @len bytes at @off are those at @want, which the CPU has made. */
void outside_expect(const char *what, uint64_t off, const void *want, uint64_t len);

/* The same for @len bytes of a file at @off, which are looked for on the drive. All of them must be there. */
void outside_expect_file(int fd, uint64_t off, const void *want, uint64_t len);

#endif
