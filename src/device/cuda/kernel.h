/* SPDX-License-Identifier: MIT */
#ifndef DEVICE_CUDA_KERNEL_H
#define DEVICE_CUDA_KERNEL_H

/* Parameters of the kernels in src/device/cuda/kernels.cu, which declares the same structs. */

#include <stdint.h>

#define CUDA_WARP 32u
#define CUDA_BLOCK_WARPS 8u
#define CUDA_ROW 512u

#define CUDA_COPY_PIECE 4096u
#define CUDA_COPY_SEGS 160u

struct cuda_copy_arg {
	uint64_t dst;
	uint64_t src;
	uint32_t len;
	uint32_t first; /* number of the segment's first piece of CUDA_COPY_PIECE bytes */
};

struct cuda_copy_args {
	struct cuda_copy_arg seg[CUDA_COPY_SEGS];
	uint32_t n;
	uint32_t pieces; /* one per warp */
};

/* The driver limits the parameters of a kernel to 4 KiB. */
_Static_assert(sizeof(struct cuda_copy_args) <= 4096, "too many segments for the parameters of a kernel");

#define CUDA_MARKED_SEGS 64u
#define CUDA_MARKS 1024u
#define CUDA_MARK_STEP 64u /* bytes from one mark's word to the next */

struct cuda_marked_arg {
	uint64_t dst;
	uint64_t src;
	uint32_t len;	/* 0: nothing is copied, and counts as @filler bytes */
	uint32_t first; /* number of the segment's first piece of CUDA_COPY_PIECE bytes; every segment has one */
	uint32_t filler;
	uint32_t total; /* when so many bytes have been copied for the mark, @value is stored to its word */
	uint32_t value;
	uint32_t mark;
};

struct cuda_marked_args {
	struct cuda_marked_arg seg[CUDA_MARKED_SEGS];
	uint64_t words; /* address of the word of mark 0 */
	uint32_t n;
	uint32_t pieces; /* one per warp */
};

struct cuda_compare_args {
	uint64_t a;
	uint64_t b;
	uint64_t len;
	uint64_t slice; /* bytes for one warp, a multiple of CUDA_ROW */
	uint64_t found; /* results: per warp the offset of the first difference, UINT64_MAX if there is none */
};

struct cuda_crc_args {
	uint64_t addr;		  /* a multiple of 16 */
	uint64_t rows;		  /* of CUDA_ROW bytes */
	uint64_t slice;		  /* rows for one warp */
	uint64_t crc;		  /* results: per block the remainder of its slices */
	uint32_t row;		  /* x^(8 * CUDA_ROW) */
	uint32_t full;		  /* x^(8 * bytes of a slice) */
	uint32_t last;		  /* x^(8 * bytes of the last slice) */
	uint32_t word;		  /* x^32 */
	uint32_t lane[CUDA_WARP]; /* x^(8 * 16 * (31 - lane)) */
};

struct cuda_pages_args {
	uint64_t a; /* multiples of 16 */
	uint64_t b;
	uint64_t pages;
	uint64_t bits; /* results: a word per warp, which compares 32 pages of CUDA_COMPARE_BLOCK bytes */
};

#define CUDA_COMPARE_BLOCK 4096u

/* Machine code for one architecture, 90 for sm_90. */
struct cuda_sass {
	unsigned int arch;
	const void *image;
};

/* The image of @table, which ends with an empty one, for a GPU of architecture @arch. NULL: there is none. */
const void *cuda_sass_for(const struct cuda_sass *table, unsigned int arch);

#endif
