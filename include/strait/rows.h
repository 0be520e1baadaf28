/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_ROWS_H
#define STRAIT_ROWS_H

/*
 * Reads of many short rows of a cached file, for parts of matrices.
 *
 * Experimental: not part of the stable interface (docs/abi.md), it may change with any version.
 */

#include <strait/transfer.h>
#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct strait_rows - Rows of bytes at equal distances in an endpoint
 * @offset: first byte of the first row
 * @pitch: bytes from the start of a row to the start of the next, at least @length
 * @length: bytes of each row, not 0
 * @count: rows, not 0
 */
struct strait_rows {
	uint64_t offset;
	uint64_t pitch;
	uint64_t length;
	uint64_t count;
};

/**
 * strait_read_rows() - Read short rows of a cached file into a region, one after the other
 * @ep: the endpoint to read from
 * @rows: the rows
 * @region: the region to read into
 * @offset: first byte in the region
 * @result: bytes by route
 *
 * For a part of a matrix: several threads read the rows from the page cache into staging memory, and only their bytes
 * cross the bus. After a failure the contents of the region from @offset on are undefined.
 *
 * Return: 0; -EAGAIN when rows cannot be read this way, and the caller reads the bytes between them as well: the file is
 * not in the page cache or open for direct I/O, the region is host memory, a row is longer than 256 KiB or than
 * a chunk of staging memory; -ENODATA when the file ends before the last row; otherwise as strait_transfer_run().
 */
STRAIT_API int strait_read_rows(struct strait_endpoint *ep, const struct strait_rows *rows,
				struct strait_region *region, uint64_t offset, struct strait_result *result);

#ifdef __cplusplus
}
#endif

#endif
