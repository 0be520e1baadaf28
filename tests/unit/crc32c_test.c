/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "harness/harness.h"

/* By the definition, bit by bit. */
static uint32_t by_bit(uint32_t crc, const unsigned char *p, size_t len)
{
	crc = ~crc;
	while (len--) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
	}
	return ~crc;
}

static unsigned char *random_bytes(size_t len)
{
	unsigned char *p = malloc(len);

	ASSERT_TRUE(p);
	prng_fill(p, len, 1);
	return p;
}

/* RFC 3720, B.4, and the usual check value. */
TEST(known_values)
{
	unsigned char buf[32];

	ASSERT_EQ(crc32c_update(0, "123456789", 9), 0xe3069283u);
	memset(buf, 0, sizeof(buf));
	ASSERT_EQ(crc32c_update(0, buf, sizeof(buf)), 0x8a9136aau);
	memset(buf, 0xff, sizeof(buf));
	ASSERT_EQ(crc32c_update(0, buf, sizeof(buf)), 0x62a8ab43u);
	for (unsigned int i = 0; i < 32; i++)
		buf[i] = (unsigned char)i;
	ASSERT_EQ(crc32c_update(0, buf, sizeof(buf)), 0x46dd794eu);
	ASSERT_EQ(crc32c_update(0, NULL, 0), 0u);
	ASSERT_EQ(crc32c_update(0x12345678u, NULL, 0), 0x12345678u);
}

/* Both implementations agree with the definition at every length near the block sizes and every alignment. */
TEST(lengths_and_alignments)
{
	static const size_t around[] = { 0, 8, 64, 255, 768, 1536, 4096, 12288, 24576, 13056 };
	unsigned char *p = random_bytes(32768);

	for (size_t i = 0; i < sizeof(around) / sizeof(around[0]); i++) {
		for (size_t len = around[i] > 9 ? around[i] - 9 : 0; len < around[i] + 9; len++) {
			for (size_t skew = 0; skew < 8; skew += 1 + (len > 1000) * 2) {
				uint32_t want = by_bit(7, p + skew, len);

				ASSERT_EQ(crc32c_update(7, p + skew, len), want);
				ASSERT_EQ(crc32c_update_table(7, p + skew, len), want);
			}
		}
	}
	free(p);
}

TEST(chained_and_combined)
{
	static const size_t cuts[] = { 0, 1, 7, 8, 255, 256, 4095, 12288, 50000, 99999, 100000 };
	const size_t len = 100000;
	unsigned char *p = random_bytes(len);
	uint32_t whole = by_bit(0, p, len);

	for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
		size_t cut = cuts[i];
		uint32_t a = crc32c_update(0, p, cut), b = crc32c_update(0, p + cut, len - cut);

		ASSERT_EQ(crc32c_update(a, p + cut, len - cut), whole);
		ASSERT_EQ(crc32c_combine(a, b, len - cut), whole);
	}
	/* Lengths past 32 bits: appending zeros twice is appending them together. */
	ASSERT_EQ(crc32c_combine(crc32c_combine(whole, 0, 1ull << 33), 0, 12345),
		  crc32c_combine(whole, 0, (1ull << 33) + 12345));
	free(p);
}
