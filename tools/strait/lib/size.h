/* SPDX-License-Identifier: MIT */
#ifndef CLI_SIZE_H
#define CLI_SIZE_H

#include <stdint.h>

/*
 * "4096", "32M", "1GiB", "1.5G", "10GB": K, M, G and T are powers of 1024, with or without "iB"; with "B"
 * alone they are powers of 1000. Returns 0, -EINVAL, or -ERANGE if it does not fit.
 */
int size_parse(const char *text, uint64_t *ret);

enum { SIZE_TEXT = 32 };

/* "1.5 GiB", "512 B". Returns @buf. */
const char *size_format(uint64_t bytes, char buf[SIZE_TEXT]);
/* The shortest form size_parse() takes back exactly: "64K", "1M", "65537". */
const char *size_short(uint64_t bytes, char buf[SIZE_TEXT]);
/* "3.21 GB/s", a GB being 1e9 bytes. */
const char *rate_format(uint64_t bytes, uint64_t ns, char buf[SIZE_TEXT]);
double rate_gbs(uint64_t bytes, uint64_t ns);

#endif
