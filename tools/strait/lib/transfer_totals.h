/* SPDX-License-Identifier: MIT */
#ifndef CLI_TRANSFER_TOTALS_H
#define CLI_TRANSFER_TOTALS_H

/* Bytes transferred in one direction: how many, in what time, by which routes. */

#include <stdint.h>

#include <strait/transfer.h>
#include <strait/types.h>

#include "lib/json.h"

struct transfer_totals {
	uint64_t bytes;
	uint64_t ns;
	uint64_t route_bytes[STRAIT_ROUTE_COUNT];
};

#define TOTALS_NO_PROGRESS UINT64_MAX

/*
 * Run one transfer and add it to @f; messages call its file @path. While a progress bar is shown, a long transfer is
 * split, and the bar starts at @base bytes; TOTALS_NO_PROGRESS for no bar. A file that ends early is a failure.
 * Returns an exit code, having printed what was wrong.
 */
int totals_run(struct transfer_totals *f, const struct strait_transfer *t, const char *path, uint64_t base);

/* Print why a transfer failed. Returns the exit code for it. */
int transfer_failed(const struct strait_transfer *t, const struct strait_result *result, int err, const char *path);

void totals_add(struct transfer_totals *f, const struct strait_result *result);

/* "staged 60 %, pagecache 40 %"; "-" if no bytes were transferred. @buf holds at least 96 bytes. Returns @buf. */
const char *routes_text(const uint64_t route_bytes[STRAIT_ROUTE_COUNT], char *buf);

/* The members "bytes", "seconds", "gb_per_s" and "routes". */
void totals_json(const struct transfer_totals *f, struct json *j);
void routes_json(const uint64_t route_bytes[STRAIT_ROUTE_COUNT], struct json *j);

#endif
