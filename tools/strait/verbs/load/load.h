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
	bool verify; /* read the file again and compare */
	bool all;    /* list every tensor */
	struct target target;
	struct strait_endpoint *ep;
	struct transfer_totals totals;
	uint32_t crc, file_crc;
};

/* Load the tensors of a safetensors file and print them. Returns an exit code, having printed what was wrong. */
int load_tensors(struct load *l);

/* Reads the file again with pread(2) into host memory and computes its CRC-32C. */
struct load_check {
	const char *path;
	int fd;
	struct strait_region *region;
	void *buf;
};

/* Each returns an exit code, having printed what was wrong. Call load_check_close() after a failed open, too. */
int load_check_open(struct load_check *c, const struct load *l);
int load_check_range(struct load_check *c, uint64_t off, uint64_t len, uint32_t *crc);
void load_check_close(struct load_check *c);

/* Print that device memory differs from the file, after the report. Returns the exit code. */
int load_mismatch(const struct load *l);

#endif
