/* SPDX-License-Identifier: MIT */
#include "outside.h"

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "vgpu.h"

#define HOST "/lab/bin/host "
#define POLY 0xedb88320u /* of CRC-32 as in zlib, which the host computes fast */
#define EXTENTS 64

static uint32_t slices[8][256];

static void make_slices(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t v = i;

		for (int bit = 0; bit < 8; bit++)
			v = v >> 1 ^ (v & 1 ? POLY : 0);
		slices[0][i] = v;
	}
	for (uint32_t i = 0; i < 256; i++)
		for (int s = 1; s < 8; s++)
			slices[s][i] = slices[s - 1][i] >> 8 ^ slices[0][slices[s - 1][i] & 255];
}

static uint32_t crc32(const void *data, size_t len)
{
	const unsigned char *p = data;
	uint32_t crc = ~0u;
	uint64_t v;

	if (!slices[0][1])
		make_slices();
	for (; len >= 8; len -= 8, p += 8) {
		memcpy(&v, p, 8);
		v ^= crc;
		crc = slices[7][v & 255] ^ slices[6][v >> 8 & 255] ^ slices[5][v >> 16 & 255] ^
		      slices[4][v >> 24 & 255] ^ slices[3][v >> 32 & 255] ^ slices[2][v >> 40 & 255] ^
		      slices[1][v >> 48 & 255] ^ slices[0][v >> 56];
	}
	while (len--)
		crc = crc >> 8 ^ slices[0][(crc ^ *p++) & 255];
	return ~crc;
}

void outside_ask(char *answer, size_t len, const char *fmt, ...)
{
	char cmd[256] = HOST;
	va_list args;
	FILE *f;

	if (access("/lab/bin/host", X_OK))
		SKIP("nobody looks from outside");
	va_start(args, fmt);
	vsnprintf(cmd + strlen(HOST), sizeof(cmd) - strlen(HOST), fmt, args);
	va_end(args);
	f = popen(cmd, "r");
	ASSERT_TRUE(f);
	answer[0] = '\0';
	if (!fgets(answer, (int)len, f))
		answer[0] = '\0';
	if (pclose(f))
		FAIL("the host does not answer: %s", cmd);
	answer[strcspn(answer, "\n")] = '\0';
}

void outside_expect(const char *what, uint64_t off, const void *want, uint64_t len)
{
	char have[64], sum[16];

	outside_ask(have, sizeof(have), "%s %llu %llu crc32", what, (unsigned long long)off, (unsigned long long)len);
	snprintf(sum, sizeof(sum), "%08x", crc32(want, len));
	if (strcmp(have, sum))
		FAIL("%s at %#llx, %llu bytes, seen from outside: %s, should be %s", what, (unsigned long long)off,
		     (unsigned long long)len, have, sum);
}

void outside_expect_file(int fd, uint64_t off, const void *want, uint64_t len)
{
	const uint32_t plain = FIEMAP_EXTENT_LAST | FIEMAP_EXTENT_MERGED;
	union {
		struct fiemap map;
		char room[sizeof(struct fiemap) + EXTENTS * sizeof(struct fiemap_extent)];
	} u;
	const struct fiemap_extent *e = (const void *)(u.room + sizeof(struct fiemap));
	uint64_t at = off, end = off + len;
	struct stat st;

	ASSERT_EQ(fsync(fd), 0);
	ASSERT_EQ(fstat(fd, &st), 0);
	if (S_ISBLK(st.st_mode)) {
		outside_expect("drive", off, want, len);
		return;
	}
	while (at < end) {
		memset(&u, 0, sizeof(u));
		u.map.fm_start = at;
		u.map.fm_length = end - at;
		u.map.fm_flags = FIEMAP_FLAG_SYNC;
		u.map.fm_extent_count = EXTENTS;
		ASSERT_EQ(ioctl(fd, FS_IOC_FIEMAP, &u.map), 0);
		ASSERT_GT(u.map.fm_mapped_extents, 0);
		for (uint32_t i = 0; i < u.map.fm_mapped_extents && at < end; i++) {
			uint64_t skip = at - e[i].fe_logical, n = min_u64(e[i].fe_length - skip, end - at);

			ASSERT_EQ(e[i].fe_flags & ~plain, 0);
			ASSERT_LE(e[i].fe_logical, at);
			outside_expect("drive", e[i].fe_physical + skip, (const char *)want + (at - off), n);
			at += n;
		}
	}
}
