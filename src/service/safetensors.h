/* SPDX-License-Identifier: MIT */
#ifndef SERVICE_SAFETENSORS_H
#define SERVICE_SAFETENSORS_H

/* A model file: its header is read once, when it is opened; tensors are loaded by transfers of the public API. */

#include <strait/safetensors.h>

struct tensor {
	char *name;
	char dtype[16];
	uint32_t bits;
	uint32_t rank;
	uint64_t shape[STRAIT_TENSOR_DIMS];
	uint64_t begin, end; /* offsets in the data section */
	uint64_t region_offset;
};

struct metadata {
	char *key, *value;
};

struct strait_safetensors {
	struct strait_context *ctx;
	struct strait_endpoint *ep;
	uint64_t data; /* offset of the data section in the file */
	uint64_t data_len;
	uint64_t align; /* of each tensor in the region */
	uint64_t bytes; /* length of a region that holds all tensors */
	struct tensor *tensors;
	unsigned int n, room;
	struct metadata *meta;
	unsigned int n_meta, meta_room;
	char *why; /* where the header's fault is written while it is read; NULL after that */
	size_t why_len;
};

/* Read and check the header, and give each tensor its offset in the region. -EBADMSG with the reason in @st->why. */
int safetensors_read_header(struct strait_safetensors *st);

#endif
