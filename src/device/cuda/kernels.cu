/* SPDX-License-Identifier: MIT */
/*
 * The kernels of the provider. scripts/build-ptx compiles this file to src/device/cuda/ptx.h; the structs and constants
 * must match src/device/cuda/kernel.h. The file is valid C as well as CUDA, so that tests/fakecuda/kernel_test.c can
 * run it on a CPU.
 */
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifdef __CUDACC__
#define KERNEL extern "C" __global__ void __launch_bounds__(256)
#define DEVICE static __device__
#define ARGS const __grid_constant__
#endif

#define WARP 32u
#define FULL 0xffffffffu

/* ---- copy a list of pieces ---- */

#define COPY_PIECE 4096u /* bytes one warp copies */
#define COPY_SEGS 160u	 /* limited by the size of kernel parameters */

struct copy_arg {
	u64 dst;
	u64 src;
	u32 len;
	u32 first; /* number of the segment's first piece */
};

struct copy_args {
	struct copy_arg seg[COPY_SEGS];
	u32 n;
	u32 pieces;
};

DEVICE void copy_bytes(u8 *dst, const u8 *src, u32 len, u32 lane)
{
#pragma unroll 1
	for (u32 i = lane; i < len; i += WARP)
		dst[i] = src[i];
}

/* 16 bytes per thread, with eight loads in flight to hide the latency of the source. */
DEVICE void copy_vectors(uint4 *dst, const uint4 *src, u32 n, u32 lane)
{
	u32 i = lane;

	for (; i + 7 * WARP < n; i += 8 * WARP) {
		uint4 v[8];

#pragma unroll
		for (u32 k = 0; k < 8; k++)
			v[k] = src[i + k * WARP];
#pragma unroll
		for (u32 k = 0; k < 8; k++)
			dst[i + k * WARP] = v[k];
	}
#pragma unroll 1
	for (; i < n; i += WARP)
		dst[i] = src[i];
}

/* The word at @shift bytes into the two words at @p. Does not read the second word unless it is needed. */
DEVICE u32 load_word(const u32 *p, u32 shift)
{
	return shift ? __funnelshift_r(p[0], p[1], 8 * shift) : p[0];
}

/* Source and destination differ in alignment: each aligned word is assembled from two words of the source. */
DEVICE void copy_words(u32 *dst, const u8 *src, u32 n, u32 lane)
{
	u32 shift = (u32)(u64)src & 3;
	const u32 *from = (const u32 *)(src - shift);
	u32 i = lane;

	for (; i + 7 * WARP < n; i += 8 * WARP) {
		u32 v[8];

#pragma unroll
		for (u32 k = 0; k < 8; k++)
			v[k] = load_word(from + i + k * WARP, shift);
#pragma unroll
		for (u32 k = 0; k < 8; k++)
			dst[i + k * WARP] = v[k];
	}
#pragma unroll 1
	for (; i < n; i += WARP)
		dst[i] = load_word(from + i, shift);
}

DEVICE void copy_piece(u8 *dst, const u8 *src, u32 len, u32 lane)
{
	u32 align = ((u64)dst ^ (u64)src) & 15 ? 4 : 16;
	u32 head = (align - (u32)(u64)dst % align) % align, body;

	if (head > len)
		head = len;
	copy_bytes(dst, src, head, lane);
	body = (len - head) / align * align;
	if (align == 16)
		copy_vectors((uint4 *)(dst + head), (const uint4 *)(src + head), body / 16, lane);
	else
		copy_words((u32 *)(dst + head), src + head, body / 4, lane);
	copy_bytes(dst + head + body, src + head + body, len - head - body, lane);
}

/* The last of @n segments whose first piece is @piece or before it. A macro, as lists differ in the type of a segment. */
#define FIND_SEGMENT(seg, n, piece, lo)                                                                                \
	do {                                                                                                           \
		u32 hi = (n);                                                                                          \
                                                                                                                       \
		(lo) = 0;                                                                                              \
		while (hi - (lo) > 1) {                                                                                \
			u32 mid = ((lo) + hi) / 2;                                                                     \
                                                                                                                       \
			if ((seg)[mid].first <= (piece))                                                               \
				(lo) = mid;                                                                            \
			else                                                                                           \
				hi = mid;                                                                              \
		}                                                                                                      \
	} while (0)

/* One warp per piece. */
KERNEL strait_copy_list(ARGS struct copy_args a)
{
	u32 piece = (blockIdx.x * blockDim.x + threadIdx.x) / WARP, lane = threadIdx.x % WARP;
	u32 lo, off, len;

	if (piece >= a.pieces)
		return;
	FIND_SEGMENT(a.seg, a.n, piece, lo);
	off = (piece - a.seg[lo].first) * COPY_PIECE;
	len = a.seg[lo].len - off;
	copy_piece((u8 *)a.seg[lo].dst + off, (const u8 *)a.seg[lo].src + off, len < COPY_PIECE ? len : COPY_PIECE, lane);
}

/* ---- copy a list of pieces that report to several waiters ---- */

#define MARKED_SEGS 64u
#define MARKS 1024u
#define MARK_STEP 64u /* bytes from one mark's word to the next */

struct marked_arg {
	u64 dst;
	u64 src;
	u32 len;    /* 0: nothing is copied, and counts as @filler bytes */
	u32 first;  /* number of the segment's first piece */
	u32 filler;
	u32 total;  /* when so many bytes have been copied for the mark, @value is stored to its word */
	u32 value;
	u32 mark;   /* below MARKS */
};

struct marked_args {
	struct marked_arg seg[MARKED_SEGS];
	u64 words;
	u32 n;
	u32 pieces;
};

/* Bytes copied for each mark; 0 while none is in flight. */
DEVICE u32 bytes_done[MARKS];

/* Adds what the warp has copied. The bytes are visible to the whole system before the word is. */
DEVICE void count_bytes(const struct marked_args *a, const struct marked_arg *seg, u32 bytes, u32 lane)
{
	__syncwarp();
	if (lane)
		return;
	__threadfence();
	if (atomicAdd(&bytes_done[seg->mark], bytes) + bytes != seg->total)
		return;
	bytes_done[seg->mark] = 0;
	__threadfence_system();
	*(volatile u32 *)(a->words + (u64)seg->mark * MARK_STEP) = seg->value;
}

/* One warp per piece. */
KERNEL strait_copy_marked(ARGS struct marked_args a)
{
	u32 piece = (blockIdx.x * blockDim.x + threadIdx.x) / WARP, lane = threadIdx.x % WARP;
	u32 lo, off, len;

	if (piece >= a.pieces)
		return;
	FIND_SEGMENT(a.seg, a.n, piece, lo);
	off = (piece - a.seg[lo].first) * COPY_PIECE;
	len = a.seg[lo].len - off;
	len = len < COPY_PIECE ? len : COPY_PIECE;
	copy_piece((u8 *)a.seg[lo].dst + off, (const u8 *)a.seg[lo].src + off, len, lane);
	count_bytes(&a, &a.seg[lo], len ? len : a.seg[lo].filler, lane);
}

/* ---- compare two ranges ---- */

#define ROW 512u /* bytes a warp processes in one step */
#define NO_DIFFERENCE (~0ull)

struct compare_args {
	u64 a;
	u64 b;
	u64 len;
	u64 slice; /* bytes for one warp, a multiple of ROW */
	u64 found; /* results: per warp the offset of its first difference */
};

DEVICE u32 first_byte(u32 differs)
{
	return (__ffs((int)differs) - 1) / 8;
}

/* Offset of the first difference among the 16 bytes of a thread, 16 if there is none. */
DEVICE u32 differ16(uint4 a, uint4 b)
{
	if (a.x != b.x)
		return first_byte(a.x ^ b.x);
	if (a.y != b.y)
		return 4 + first_byte(a.y ^ b.y);
	if (a.z != b.z)
		return 8 + first_byte(a.z ^ b.z);
	return a.w != b.w ? 12 + first_byte(a.w ^ b.w) : 16;
}

DEVICE u32 differ_bytes(const u8 *a, const u8 *b, u32 n)
{
	u32 i = 0;

#pragma unroll 1
	while (i < n && a[i] == b[i])
		i++;
	return i == n ? 16 : i;
}

/* One warp per slice. */
KERNEL strait_compare(ARGS struct compare_args c)
{
	u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) / WARP, lane = threadIdx.x % WARP;
	u64 at = warp * c.slice, end = at + c.slice;
	const u8 *a = (const u8 *)c.a, *b = (const u8 *)c.b;
	u32 vectors = !((c.a | c.b) & 15);
	u64 found = NO_DIFFERENCE;

	if (at >= c.len)
		return;
	if (end > c.len)
		end = c.len;
	for (; at < end && found == NO_DIFFERENCE; at += ROW) {
		u64 mine = at + lane * 16;
		u32 n = mine >= end ? 0 : end - mine < 16 ? (u32)(end - mine) : 16, differs, who;

		if (n == 16 && vectors)
			differs = differ16(*(const uint4 *)(a + mine), *(const uint4 *)(b + mine));
		else
			differs = differ_bytes(a + mine, b + mine, n);
		who = __ballot_sync(FULL, differs < 16);
		if (who) {
			u32 first = __ffs((int)who) - 1;

			found = at + first * 16 + __shfl_sync(FULL, differs, first);
		}
	}
	if (!lane)
		((u64 *)c.found)[warp] = found;
}

/* ---- compare two ranges by pages ---- */

#define PAGE 4096u

struct pages_args {
	u64 a; /* multiples of 16 */
	u64 b;
	u64 pages;
	u64 bits; /* results: a word per warp, which compares 32 pages */
};

/* Does the part of a page that this thread compares differ? */
DEVICE u32 page_differs(const uint4 *a, const uint4 *b)
{
	u32 differs = 0;

#pragma unroll
	for (u32 row = 0; row < PAGE / ROW; row++) {
		uint4 v = a[row * WARP], w = b[row * WARP];

		differs |= (v.x ^ w.x) | (v.y ^ w.y) | (v.z ^ w.z) | (v.w ^ w.w);
	}
	return differs;
}

/* One warp per 32 pages. */
KERNEL strait_compare_pages(ARGS struct pages_args p)
{
	u64 warp = (blockIdx.x * blockDim.x + threadIdx.x) / WARP, page = warp * 32;
	u32 lane = threadIdx.x % WARP, bits = 0;
	u32 n = page >= p.pages ? 0 : p.pages - page < 32 ? (u32)(p.pages - page) : 32;
	const uint4 *a = (const uint4 *)(p.a + page * PAGE) + lane, *b = (const uint4 *)(p.b + page * PAGE) + lane;

	if (!n)
		return;
#pragma unroll 1
	for (u32 i = 0; i < n; i++, a += PAGE / 16, b += PAGE / 16)
		bits |= __ballot_sync(FULL, page_differs(a, b) != 0) ? 1u << i : 0;
	if (!lane)
		((u32 *)p.bits)[warp] = bits;
}

/* ---- CRC-32C ---- */

#define POLY 0x82f63b78u
#define ONE 0x80000000u

struct crc_args {
	u64 addr;  /* a multiple of 16 */
	u64 rows;  /* of ROW bytes */
	u64 slice; /* rows for one warp */
	u64 crc;   /* results: per block the remainder of its slices */
	u32 row;   /* x^(8 * ROW): appends a row of zeros */
	u32 full;  /* appends a slice of zeros */
	u32 last;  /* appends zeros of the length of the last slice, which may be shorter */
	u32 word;  /* x^32 */
	u32 lane[WARP]; /* x^(8 * 16 * (31 - lane)) */
};

/* a * b modulo the polynomial, both reflected as the checksum is. */
DEVICE u32 multiply(u32 a, u32 b)
{
	u32 product = 0;

#pragma unroll 1
	for (u32 bit = ONE; bit; bit >>= 1) {
		if (a & bit)
			product ^= b;
		b = b & 1 ? (b >> 1) ^ POLY : b >> 1;
	}
	return product;
}

DEVICE u32 append_row(const u32 (*table)[256], u32 v)
{
	return table[0][v & 255] ^ table[1][v >> 8 & 255] ^ table[2][v >> 16 & 255] ^ table[3][v >> 24];
}

/*
 * The remainder of rows [row, end) alone. Each thread processes the same 16 bytes of every row and accumulates one
 * remainder for each of their four words, as if the rest of the row were zeros. At the end these are shifted to their
 * positions in the last row and added.
 */
DEVICE u32 crc_rows(const struct crc_args *c, const u32 (*table)[256], u64 row, u64 end, u32 lane)
{
	const uint4 *p = (const uint4 *)c->addr + lane;
	uint4 sum = { 0, 0, 0, 0 };
	u32 crc;

#pragma unroll 4
	for (; row < end; row++) {
		uint4 v = p[row * (ROW / 16)];

		sum.x = append_row(table, sum.x) ^ v.x;
		sum.y = append_row(table, sum.y) ^ v.y;
		sum.z = append_row(table, sum.z) ^ v.z;
		sum.w = append_row(table, sum.w) ^ v.w;
	}
	crc = multiply(sum.x, c->word) ^ sum.y;
	crc = multiply(crc, c->word) ^ sum.z;
	crc = multiply(crc, c->word) ^ sum.w;
	crc = multiply(multiply(crc, c->word), c->lane[lane]);
#pragma unroll
	for (u32 step = WARP / 2; step; step /= 2)
		crc ^= __shfl_xor_sync(FULL, crc, step);
	return crc;
}

/* One warp per slice, one result per block. */
KERNEL strait_crc32c(ARGS struct crc_args c)
{
	__shared__ u32 table[4][256];
	__shared__ u32 part[8];
	u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) / WARP, lane = threadIdx.x % WARP;
	u64 row = warp * c.slice, end = row + c.slice < c.rows ? row + c.slice : c.rows;

#pragma unroll 1
	for (u32 i = threadIdx.x; i < 4 * 256; i += blockDim.x)
		table[i / 256][i % 256] = multiply(c.row, (i % 256) << (8 * (i / 256)));
	__syncthreads();
	if (row < end) {
		u32 crc = crc_rows(&c, table, row, end, lane);

		if (!lane)
			part[threadIdx.x / WARP] = crc;
	}
	__syncthreads();
	if (!threadIdx.x) {
		u32 crc = 0;

#pragma unroll 1
		for (u32 i = 0; i < 8 && row < c.rows; i++, row += c.slice)
			crc = multiply(crc, row + c.slice < c.rows ? c.full : c.last) ^ part[i];
		((u32 *)c.crc)[blockIdx.x] = crc;
	}
}
