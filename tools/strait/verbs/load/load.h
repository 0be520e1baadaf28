/* SPDX-License-Identifier: MIT */
#ifndef CLI_LOAD_H
#define CLI_LOAD_H

/* `strait load`: a file, or the tensors in it, into device memory. */

#include <stdbool.h>
#include <stdint.h>

#include <strait/types.h>

#include "lib/target.h"
#include "lib/transfer_totals.h"

struct load {
	const char *path, *format;
	struct target_opts opts;
	uint64_t offset, length;
	bool verify; /* compare with the file, read again */
	bool all;    /* show every tensor */
	struct target target;
	struct strait_endpoint *ep;
	struct transfer_totals totals;
	uint32_t crc, file_crc;
};

/* Load the tensors of a safetensors file and show them. Returns an exit code, having said what was wrong. */
int load_tensors(struct load *l);

/* Plain reads of the file into host memory, and the CRC-32C of what they gave. */
struct load_check {
	const char *path;
	int fd;
	struct strait_region *region;
	void *buf;
};

/* Return exit codes, having said what was wrong; load_check_close() takes what a failed open left. */
int load_check_open(struct load_check *c, const struct load *l);
int load_check_range(struct load_check *c, uint64_t off, uint64_t len, uint32_t *crc);
void load_check_close(struct load_check *c);

/* What is in device memory is not what the file holds; the report has said so. Returns the exit code. */
int load_mismatch(const struct load *l);

#endif
