/* SPDX-License-Identifier: MIT */
/* Bytes that tests write to files and regions, and expect there. */
#include "common.h"

#include <sys/syscall.h>

static inline uint64_t pattern_word(uint64_t index, uint64_t seed)
{
	uint64_t z = (index + 1) * 0x9e3779b97f4a7c15u + seed;

	z = (z ^ (z >> 29)) * 0xbf58476d1ce4e5b9u;
	return z ^ (z >> 32);
}

/* Not instrumented for ThreadSanitizer: it would take most of the time of many tests. */
__attribute__((no_sanitize("thread"))) static void pattern_words(uint64_t *words, size_t n, uint64_t index,
								 uint64_t seed)
{
	for (size_t i = 0; i < n; i++)
		words[i] = pattern_word(index + i, seed);
}

void pattern(void *buf, uint64_t off, size_t len, uint64_t seed)
{
	unsigned char *p = buf;
	uint64_t words[512];

	if (!(off % 8) && !((uintptr_t)buf % 8)) {
		size_t whole = len / 8 * 8;

		pattern_words(buf, whole / 8, off / 8, seed);
		p += whole;
		off += whole;
		len -= whole;
	}
	while (len) {
		size_t skip = off % 8, n = min_u64(sizeof(words) - skip, len);

		pattern_words(words, (skip + n + 7) / 8, off / 8, seed);
		memcpy(p, (unsigned char *)words + skip, n);
		p += n;
		off += n;
		len -= n;
	}
}

void *pattern_new(uint64_t off, size_t len, uint64_t seed)
{
	void *buf = malloc(len ? len : 1);

	ASSERT_TRUE(buf);
	pattern(buf, off, len, seed);
	return buf;
}

/* System calls by number, which ThreadSanitizer does not intercept: the buffers belong to the test. */
void write_at(const char *path, const void *buf, size_t len, uint64_t off)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	ASSERT_GE(fd, 0);
	while (len) {
		ssize_t n = syscall(SYS_pwrite64, fd, buf, len, off);

		ASSERT_GT(n, 0);
		buf = (const char *)buf + n;
		len -= (size_t)n;
		off += (uint64_t)n;
	}
	close(fd);
}

void read_at(const char *path, void *buf, size_t len, uint64_t off)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	ASSERT_GE(fd, 0);
	while (len) {
		ssize_t n = syscall(SYS_pread64, fd, buf, len, off);

		ASSERT_GT(n, 0);
		buf = (char *)buf + n;
		len -= (size_t)n;
		off += (uint64_t)n;
	}
	close(fd);
}

const char *make_file(const char *name, uint64_t len, uint64_t seed)
{
	const char *path = test_path(name);
	size_t piece = min_u64(len, MIB(4));
	char *buf = malloc(piece ? piece : 1);

	ASSERT_TRUE(buf);
	unlink(path);
	write_at(path, "", 0, 0);
	for (uint64_t at = 0; at < len; at += piece) {
		size_t n = min_u64(len - at, piece);

		pattern(buf, at, n, seed);
		write_at(path, buf, n, at);
	}
	free(buf);
	return path;
}

uint64_t file_length(const char *path)
{
	struct stat st;

	ASSERT_EQ(stat(path, &st), 0);
	return (uint64_t)st.st_size;
}

/* Compare in pieces of this length: allocating fresh memory costs most, more so with instrumentation. */
#define PIECE MIB(1)

__attribute__((no_sanitize("thread"))) static bool same_words(const uint64_t *a, const uint64_t *b, size_t n)
{
	size_t i = 0;

	while (i < n && a[i] == b[i])
		i++;
	return i == n;
}

static bool same(const void *a, const void *b, size_t len)
{
	if (((uintptr_t)a | (uintptr_t)b | len) % 8)
		return !memcmp(a, b, len);
	return same_words(a, b, len / 8);
}

static void expect_piece(const void *have, const void *want, size_t at, size_t len)
{
	if (!same(have, want, len)) {
		fprintf(stderr, "in the piece that begins at %zu:\n", at);
		ASSERT_MEMEQ(have, want, len);
	}
}

void file_expect(const char *path, uint64_t off, const void *want, size_t len)
{
	char *buf = malloc(min_u64(max_u64(len, 1), PIECE));

	ASSERT_TRUE(buf);
	for (size_t at = 0, n; at < len; at += n) {
		n = min_u64(len - at, PIECE);
		read_at(path, buf, n, off + at);
		expect_piece(buf, (const char *)want + at, at, n);
	}
	free(buf);
}

uint64_t cached(const char *path, uint64_t off, uint64_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t bytes = 0;

	ASSERT_GE(fd, 0);
	ASSERT_OK(os_cached_bytes(fd, off, len, &bytes));
	close(fd);
	return bytes;
}

bool evict(const char *path, uint64_t off, uint64_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t left = 1;

	ASSERT_GE(fd, 0);
	/* The kernel keeps pages that are only partly in the range. */
	if (len)
		len = align_up(off + len, 4096) - align_down(off, 4096);
	else
		len = align_up(max_u64(file_length(path), off + 1), 4096) - align_down(off, 4096);
	off = align_down(off, 4096);
	/* Pages under writeback, or mapped by a process, stay: try again. */
	for (int i = 0; left && i < 4; i++) {
		fdatasync(fd);
		posix_fadvise(fd, (off_t)off, (off_t)len, POSIX_FADV_DONTNEED);
		ASSERT_OK(os_cached_bytes(fd, off, len, &left));
		if (left)
			sleep_ms(2);
	}
	close(fd);
	return !left;
}

void warm(const char *path)
{
	uint64_t len = file_length(path);
	void *buf = malloc(PIECE);

	ASSERT_TRUE(buf);
	for (uint64_t at = 0; at < len; at += PIECE)
		read_at(path, buf, min_u64(len - at, PIECE), at);
	free(buf);
}

void region_put_bytes(struct strait_region *r, uint64_t off, const void *buf, size_t len)
{
	ASSERT_OK(strait_region_copy_in(r, off, buf, len));
}

void region_expect(struct strait_region *r, uint64_t off, const void *want, size_t len)
{
	char *buf = malloc(min_u64(max_u64(len, 1), PIECE));

	ASSERT_TRUE(buf);
	for (size_t at = 0, n; at < len; at += n) {
		n = min_u64(len - at, PIECE);
		ASSERT_OK(strait_region_copy_out(r, off + at, buf, n));
		expect_piece(buf, (const char *)want + at, at, n);
	}
	free(buf);
}

__attribute__((no_sanitize("thread"))) static size_t first_other(const unsigned char *buf, uint8_t value, size_t n)
{
	size_t i = 0;

	while (i < n && buf[i] == value)
		i++;
	return i;
}

void region_expect_byte(struct strait_region *r, uint64_t off, uint8_t value, size_t len)
{
	unsigned char *buf = malloc(min_u64(max_u64(len, 1), PIECE));
	size_t i;

	ASSERT_TRUE(buf);
	for (size_t at = 0, n; at < len; at += n) {
		n = min_u64(len - at, PIECE);
		ASSERT_OK(strait_region_copy_out(r, off + at, buf, n));
		i = first_other(buf, value, n);
		if (i < n)
			FAIL("byte %zu of the region is 0x%02x, not 0x%02x", (size_t)off + at + i, buf[i], value);
	}
	free(buf);
}
