/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_SAFETENSORS_H
#define STRAIT_SAFETENSORS_H

/*
 * Model files in the safetensors format: a header that lists tensors, then their bytes. The tensors are loaded into one
 * region at aligned offsets, in the order of the file, so that a file whose tensors are already aligned is loaded by
 * one transfer.
 *
 * Experimental: not part of the stable interface (docs/abi.md), it may change with any version.
 */

#include <strait/transfer.h>
#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct strait_safetensors;

#define STRAIT_TENSOR_DIMS 8

/**
 * struct strait_tensor_info - One tensor of a file
 * @size: sizeof(struct strait_tensor_info), set by the caller
 * @name: its name; valid until strait_safetensors_close()
 * @dtype: its type as the format names it: "F32", "BF16", "I64", ...
 * @element_bits: bits per element
 * @rank: number of dimensions, 0 for a scalar
 * @shape: the dimensions
 * @length: bytes
 * @file_offset: first byte in the file
 * @region_offset: first byte in a region that strait_safetensors_load() filled
 */
struct strait_tensor_info {
	size_t size;
	const char *name;
	char dtype[16];
	uint32_t element_bits;
	uint32_t rank;
	uint64_t shape[STRAIT_TENSOR_DIMS];
	uint64_t length;
	uint64_t file_offset;
	uint64_t region_offset;
};

#define STRAIT_TENSOR_INFO_SIZE_V1 128

/**
 * strait_safetensors_open() - Read and check the header of a safetensors file
 * @ctx: the context of @ep
 * @ep: the file; must stay open until strait_safetensors_close()
 * @align: alignment of each tensor in the region in bytes, a power of two; 0: 256
 * @why: set to what is wrong with the file, if it is refused; may be NULL
 * @why_len: size of @why
 * @ret: the tensors
 *
 * Checks the whole header: lengths, types, shapes, overlaps, and that all tensors lie inside the file.
 *
 * Return: 0; -EBADMSG for a file that is not a well-formed safetensors file, with the reason in @why;
 * -EINVAL; -ENOMEM; an error of reading the file.
 */
STRAIT_API int strait_safetensors_open(struct strait_context *ctx, struct strait_endpoint *ep, uint64_t align,
				       char *why, size_t why_len, struct strait_safetensors **ret);

/**
 * strait_safetensors_close() - Free the tensors of strait_safetensors_open()
 * @st: the tensors, or NULL
 */
STRAIT_API void strait_safetensors_close(struct strait_safetensors *st);

/**
 * strait_safetensors_count() - Number of tensors
 * @st: the tensors
 *
 * Return: the number; -EINVAL.
 */
STRAIT_API int strait_safetensors_count(const struct strait_safetensors *st);

/**
 * strait_safetensors_bytes() - Length of a region that holds all tensors
 * @st: the tensors
 *
 * Return: the number of bytes, at least 1.
 */
STRAIT_API uint64_t strait_safetensors_bytes(const struct strait_safetensors *st);

/**
 * strait_safetensors_tensor() - Get the properties of a tensor
 * @st: the tensors
 * @index: 0 to strait_safetensors_count() - 1, in the order of the file
 * @info: filled; @info->size must be set before
 *
 * Return: 0; -ENOENT past the last one; -EINVAL.
 */
STRAIT_API int strait_safetensors_tensor(const struct strait_safetensors *st, unsigned int index,
					 struct strait_tensor_info *info);

/**
 * strait_safetensors_find() - Find a tensor by name
 * @st: the tensors
 * @name: the name
 *
 * Return: the index; -ENOENT; -EINVAL.
 */
STRAIT_API int strait_safetensors_find(const struct strait_safetensors *st, const char *name);

/**
 * strait_safetensors_metadata() - Get a value of the file's metadata
 * @st: the tensors
 * @key: the key
 *
 * Return: the value, valid until strait_safetensors_close(); NULL if there is none.
 */
STRAIT_API const char *strait_safetensors_metadata(const struct strait_safetensors *st, const char *key);

/**
 * strait_safetensors_load() - Load all tensors into a region
 * @st: the tensors
 * @region: a region of at least strait_safetensors_bytes()
 * @routes: as in struct strait_transfer
 * @timeout_ns: deadline of the whole load in nanoseconds from now; STRAIT_FOREVER for none
 * @result: filled, also on failure: the sum of all transfers
 *
 * Return: 0 when all bytes are in device memory; -EINVAL if the region is too short; -ENODATA if the file
 * was truncated since it was opened; otherwise as of strait_transfer_run().
 */
STRAIT_API int strait_safetensors_load(struct strait_safetensors *st, struct strait_region *region, uint32_t routes,
				       int64_t timeout_ns, struct strait_result *result);

#ifdef __cplusplus
}
#endif

#endif
