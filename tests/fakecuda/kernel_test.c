/* SPDX-License-Identifier: MIT */
/* The GPU's kernels, run on the CPU: what they compute, not how fast. */
#include "base/crc32c.h"
#include "device/cuda/kernel.h"
#include "functional/common.h"

#include "fakecuda/simt.h"

#include "device/cuda/kernels.cu"

/* The structs of both sides are the same. */
#define SAME(a, b, member)                                                                                             \
	_Static_assert(offsetof(struct a, member) == offsetof(struct b, member) &&                                     \
			       sizeof(struct a) == sizeof(struct b),                                                   \
		       #member)
SAME(copy_args, cuda_copy_args, seg);
SAME(copy_args, cuda_copy_args, n);
SAME(copy_args, cuda_copy_args, pieces);
SAME(marked_args, cuda_marked_args, seg);
SAME(marked_args, cuda_marked_args, words);
SAME(marked_args, cuda_marked_args, n);
SAME(marked_args, cuda_marked_args, pieces);
SAME(marked_arg, cuda_marked_arg, src);
SAME(marked_arg, cuda_marked_arg, len);
SAME(marked_arg, cuda_marked_arg, first);
SAME(marked_arg, cuda_marked_arg, filler);
SAME(marked_arg, cuda_marked_arg, total);
SAME(marked_arg, cuda_marked_arg, value);
SAME(marked_arg, cuda_marked_arg, mark);
_Static_assert(MARKED_SEGS == CUDA_MARKED_SEGS && MARKS == CUDA_MARKS && MARK_STEP == CUDA_MARK_STEP, "numbers");
SAME(copy_arg, cuda_copy_arg, len);
SAME(copy_arg, cuda_copy_arg, first);
SAME(compare_args, cuda_compare_args, slice);
SAME(compare_args, cuda_compare_args, found);
SAME(pages_args, cuda_pages_args, pages);
SAME(pages_args, cuda_pages_args, bits);
SAME(crc_args, cuda_crc_args, slice);
SAME(crc_args, cuda_crc_args, crc);
SAME(crc_args, cuda_crc_args, row);
SAME(crc_args, cuda_crc_args, full);
SAME(crc_args, cuda_crc_args, last);
SAME(crc_args, cuda_crc_args, word);
SAME(crc_args, cuda_crc_args, lane);
_Static_assert(COPY_PIECE == CUDA_COPY_PIECE && COPY_SEGS == CUDA_COPY_SEGS && ROW == CUDA_ROW &&
		       PAGE == CUDA_COMPARE_BLOCK,
	       "numbers");

static void run_copy(const void *args)
{
	strait_copy_list(*(const struct copy_args *)args);
}

static void run_compare(const void *args)
{
	strait_compare(*(const struct compare_args *)args);
}

static void run_pages(const void *args)
{
	strait_compare_pages(*(const struct pages_args *)args);
}

static void run_crc(const void *args)
{
	strait_crc32c(*(const struct crc_args *)args);
}

static uint64_t number(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

static void copy_round(uint64_t *state, unsigned int n, uint64_t max)
{
	uint64_t room = max + 64;
	char *src = pattern_new(0, n * room, 1), *dst = calloc(n, room), *want = calloc(n, room);
	struct copy_args a = { .n = n };

	for (unsigned int i = 0; i < n; i++) {
		uint64_t len = 1 + prng_below(state, max), from = prng_below(state, 32), to = prng_below(state, 32);

		a.seg[i] = (struct copy_arg){ number(dst + i * room + to), number(src + i * room + from), (u32)len,
					      a.pieces };
		a.pieces += (u32)((len + COPY_PIECE - 1) / COPY_PIECE);
		memcpy(want + i * room + to, src + i * room + from, len);
	}
	simt_run(a.pieces, run_copy, &a);
	ASSERT_MEMEQ(dst, want, n * room);
	free(src);
	free(dst);
	free(want);
}

TEST(copies_lists)
{
	uint64_t state = 1;

	for (int i = 0; i < 40; i++)
		copy_round(&state, 1 + (unsigned int)prng_below(&state, COPY_SEGS), i % 2 ? 40 : 700);
	for (int i = 0; i < 10; i++)
		copy_round(&state, 1 + (unsigned int)prng_below(&state, 20), 20000);
}

static void run_marked(const void *args)
{
	strait_copy_marked(*(const struct marked_args *)args);
}

static u32 mark_words[MARKS * MARK_STEP / 4];

/*
 * Transfers of several segments each, in lists of random composition: a mark's word is written by the list that has the
 * last bytes of the transfer, and not before.
 */
static void marked_round(uint64_t *state)
{
	enum { TRANSFERS = 9, SEGS = 5, ROOM = 5000 };
	uint32_t left[TRANSFERS], sent[TRANSFERS] = { 0 }, total[TRANSFERS] = { 0 }, len[TRANSFERS][SEGS];
	char *src = pattern_new(0, TRANSFERS * SEGS * ROOM, 1), *dst = calloc(TRANSFERS * SEGS, ROOM);
	static u32 value;
	uint32_t open = 0;

	value++;
	for (unsigned int t = 0; t < TRANSFERS; t++) {
		left[t] = 1 + (uint32_t)prng_below(state, SEGS);
		open += left[t];
		for (unsigned int k = 0; k < left[t]; k++) {
			/* The last may be a filler. */
			len[t][k] = (uint32_t)prng_below(state, 3) || k + 1 < left[t] ?
					    1 + (uint32_t)prng_below(state, ROOM) :
					    0;
			total[t] += len[t][k] ? len[t][k] : 7;
		}
	}
	while (open) {
		struct marked_args a = { .words = number(mark_words) };

		for (unsigned int t = 0; t < TRANSFERS; t++) {
			while (left[t] && prng_below(state, 2) && a.n < MARKED_SEGS) {
				unsigned int k = sent[t]++, at = (t * SEGS + k) * ROOM;

				ASSERT_EQ(mark_words[t * MARK_STEP / 4] == value, false);
				a.seg[a.n++] = (struct marked_arg){
					number(dst + at), number(src + at), len[t][k], a.pieces, 7, total[t], value, t
				};
				a.pieces += len[t][k] ? (len[t][k] + COPY_PIECE - 1) / COPY_PIECE : 1;
				left[t]--;
				open--;
			}
		}
		if (a.n)
			simt_run(a.pieces, run_marked, &a);
		for (unsigned int t = 0; t < TRANSFERS; t++) {
			ASSERT_EQ(mark_words[t * MARK_STEP / 4] == value, !left[t]);
			ASSERT_EQ(left[t] || !bytes_done[t], true);
		}
	}
	for (unsigned int t = 0; t < TRANSFERS; t++)
		for (unsigned int k = 0; k < sent[t]; k++)
			ASSERT_MEMEQ(dst + (t * SEGS + k) * ROOM, src + (t * SEGS + k) * ROOM, len[t][k]);
	free(src);
	free(dst);
}

TEST(marks_the_end_of_each_transfer)
{
	uint64_t state = 3;

	for (int i = 0; i < 60; i++)
		marked_round(&state);
}

/* All pairs of alignments, at every short length. */
TEST(copies_at_every_alignment)
{
	char src[256], dst[256], want[256];

	pattern(src, 0, sizeof(src), 1);
	for (unsigned int from = 0; from < 17; from++) {
		for (unsigned int to = 0; to < 17; to++) {
			for (unsigned int len = 1; len < 70; len += len < 36 ? 1 : 7) {
				memset(dst, 0, sizeof(dst));
				memset(want, 0, sizeof(want));
				memcpy(want + to, src + from, len);
				for (threadIdx.x = 0; threadIdx.x < 32; threadIdx.x++)
					copy_piece((u8 *)dst + to, (u8 *)src + from, len, threadIdx.x);
				ASSERT_MEMEQ(dst, want, sizeof(dst));
			}
		}
	}
}

TEST(compares)
{
	uint64_t state = 2, len = 100000, found[64];
	char *a = malloc(len + 32), *b = malloc(len + 32);

	for (int i = 0; i < 100; i++) {
		uint64_t off_a = i % 2 ? 0 : prng_below(&state, 32), off_b = i % 2 ? 0 : prng_below(&state, 32);
		uint64_t n = 1 + prng_below(&state, i % 4 ? 3000 : len), at = prng_below(&state, n), first = UINT64_MAX;
		struct compare_args c = { .len = n,
					  .slice = ROW * (1 + prng_below(&state, 8)),
					  .found = number(found) };
		unsigned int warps;

		if (n > 60 * c.slice)
			c.slice = ROW * 16;
		c.a = number(a + off_a);
		c.b = number(b + off_b);
		pattern(a + off_a, 0, n, 3);
		pattern(b + off_b, 0, n, 3);
		if (i % 5)
			b[off_b + at] ^= 0x10;
		warps = (unsigned int)((n + c.slice - 1) / c.slice);
		ASSERT_LE(warps, ARRAY_SIZE(found));
		simt_run(warps, run_compare, &c);
		for (unsigned int w = 0; w < warps && first == UINT64_MAX; w++)
			first = found[w];
		ASSERT_EQ(first, i % 5 ? at : UINT64_MAX);
	}
	free(a);
	free(b);
}

static uint32_t zeros(uint64_t bytes)
{
	return crc32c_combine(0x80000000u, 0, bytes);
}

/* One byte anywhere in a page is found, in each of its words and rows, and no other page is reported. */
TEST(compares_pages)
{
	uint64_t state = 3, pages = 70;
	char *a = aligned_alloc(PAGE, pages * PAGE), *b = aligned_alloc(PAGE, pages * PAGE);
	uint32_t bits[4], want[4];

	for (int i = 0; i < 60; i++) {
		struct pages_args p = {
			.a = number(a), .b = number(b), .pages = 1 + prng_below(&state, pages), .bits = number(bits)
		};
		unsigned int warps = (unsigned int)((p.pages + 31) / 32);

		pattern(a, 0, pages * PAGE, 4);
		memcpy(b, a, pages * PAGE);
		memset(want, 0, sizeof(want));
		memset(bits, 0xff, sizeof(bits));
		for (unsigned int k = 0; k < (unsigned int)i % 5; k++) {
			uint64_t page = prng_below(&state, p.pages);

			b[page * PAGE + prng_below(&state, PAGE)] ^= 0x20;
			want[page / 32] |= 1u << page % 32;
		}
		/* Past the end nothing is compared. */
		if (p.pages < pages)
			b[p.pages * PAGE] ^= 1;
		simt_run(warps, run_pages, &p);
		ASSERT_MEMEQ(bits, want, warps * sizeof(*bits));
		ASSERT_EQ(bits[3], 0xffffffffu);
	}
	free(a);
	free(b);
}

TEST(checksums)
{
	uint32_t result[64];
	uint64_t state = 3;

	for (int i = 0; i < 40; i++) {
		uint64_t rows = 1 + prng_below(&state, 200), slice = 1 + prng_below(&state, 20), block = slice * 8;
		char *data = aligned_alloc(16, rows * ROW);
		struct crc_args c = { .addr = number(data),
				      .rows = rows,
				      .slice = slice,
				      .crc = number(result),
				      .row = zeros(ROW),
				      .full = zeros(slice * ROW),
				      .last = zeros(((rows - 1) % slice + 1) * ROW),
				      .word = zeros(4) };
		uint32_t sum = ~0u;
		unsigned int b = 0;

		for (unsigned int lane = 0; lane < WARP; lane++)
			c.lane[lane] = zeros((WARP - 1 - lane) * 16);
		pattern(data, 0, rows * ROW, (uint64_t)i);
		simt_run((unsigned int)((rows + slice - 1) / slice), run_crc, &c);
		for (uint64_t row = 0; row < rows; row += block)
			sum = crc32c_combine(sum, result[b++], min_u64(block, rows - row) * ROW);
		ASSERT_EQ(~sum, crc32c_update(0, data, rows * ROW));
		free(data);
	}
}

/* Machine code is for GPUs of the same major architecture that are not older. */
TEST(machine_code_for_a_gpu)
{
	static const struct cuda_sass table[] = { { 75, "75" }, { 80, "80" }, { 86, "86" }, { 90, "90" }, { 0, NULL } };

	ASSERT_TRUE(cuda_sass_for(table, 75) == table[0].image);
	ASSERT_TRUE(cuda_sass_for(table, 80) == table[1].image);
	ASSERT_TRUE(cuda_sass_for(table, 86) == table[2].image);
	ASSERT_TRUE(cuda_sass_for(table, 89) == table[2].image);
	ASSERT_TRUE(cuda_sass_for(table, 90) == table[3].image);
	ASSERT_FALSE(cuda_sass_for(table, 70));
	ASSERT_FALSE(cuda_sass_for(table, 100));
	ASSERT_FALSE(cuda_sass_for(table, 0));
}
