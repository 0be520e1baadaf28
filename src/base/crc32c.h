/* SPDX-License-Identifier: MIT */
#ifndef BASE_CRC32C_H
#define BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* CRC-32C (Castagnoli) of @len bytes. @crc is the checksum of the preceding bytes, 0 to start. */
uint32_t crc32c_update(uint32_t crc, const void *buf, size_t len);

/* The checksum of A followed by B, from that of A, that of B, and the length of B. */
uint32_t crc32c_combine(uint32_t crc1, uint32_t crc2, uint64_t len2);

/* The implementation for CPUs without a CRC instruction; for tests. */
uint32_t crc32c_update_table(uint32_t crc, const void *buf, size_t len);

#endif
