/* SPDX-License-Identifier: MIT */
/*
 * random_update: HPCC's RandomAccess on a file: threads of a device update random words of a table that is larger than their
 * frames.
 *
 *	example-random_update [--device emu:0|host] [--log2 N] [--updates N] [--budget MIB] FILE
 *
 * FILE becomes a table of 2^N words of 8 bytes, word i being i. Each update is table[a mod 2^N] ^= a, with a from HPCC's
 * sequence. Updates are atomic, so that doing them all again restores the table: that is checked, in the file.
 */
#include "view_threads.h"

#include <sys/stat.h>
#include <unistd.h>

#define POLY 7u

struct work {
	uint64_t mask, updates;
};

/* The n-th number of the sequence. */
static uint64_t sequence_start(uint64_t n)
{
	uint64_t m2[64], ran = 2, temp = 1;
	int i = 62;

	if (!n)
		return 1;
	for (int k = 0; k < 64; k++) {
		m2[k] = temp;
		temp = (temp << 1) ^ ((int64_t)temp < 0 ? POLY : 0);
		temp = (temp << 1) ^ ((int64_t)temp < 0 ? POLY : 0);
	}
	while (i >= 0 && !(n >> i & 1))
		i--;
	while (i > 0) {
		temp = 0;
		for (int k = 0; k < 64; k++)
			if (ran >> k & 1)
				temp ^= m2[k];
		ran = temp;
		i--;
		if (n >> i & 1)
			ran = (ran << 1) ^ ((int64_t)ran < 0 ? POLY : 0);
	}
	return ran;
}

static int update(struct launch *l, uint64_t thread, uint64_t threads)
{
	struct strait_cursor c = STRAIT_CURSOR_INIT;
	struct work *w = l->arg;
	uint64_t from = w->updates * thread / threads, to = w->updates * (thread + 1) / threads,
		 ran = sequence_start(from);

	for (; from < to; from++) {
		ran = (ran << 1) ^ ((int64_t)ran < 0 ? POLY : 0);
		strait_atomic_xor_u64(&l->view, &c, (ran & w->mask) * 8, ran);
	}
	return c.error;
}

/* Words that differ from their number. */
static uint64_t changed(const char *path, uint64_t words)
{
	uint64_t buf[4096], at = 0, n = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got;

	while (at < words && (got = pread(fd, buf, sizeof(buf), (off_t)(at * 8))) > 0)
		for (ssize_t i = 0; i < got / 8; i++, at++)
			n += buf[i] != at;
	close(fd);
	return n + (words - at);
}

static int make_table(const char *path, uint64_t words)
{
	FILE *file = fopen(path, "w");

	if (!file)
		return -errno;
	for (uint64_t i = 0; i < words; i++)
		if (fwrite(&i, 8, 1, file) != 1)
			return -EIO;
	return fclose(file) ? -errno : 0;
}

int main(int argc, char **argv)
{
	uint64_t words = 1ull << option(argc, argv, "log2", 16), once;
	struct work w = { words - 1, option(argc, argv, "updates", 4 * words) };
	const char *path = operand(argc, argv);
	struct paged p;
	int rc;

	if (!path) {
		fprintf(stderr,
			"usage: random_update [--device DEVICE] [--log2 N] [--updates N] [--budget MIB] FILE\n");
		return 2;
	}
	rc = make_table(path, words);
	if (!rc)
		rc = paged_open(&p, option_text(argc, argv, "device", "emu:0"), path, 0, 1,
				option(argc, argv, "budget", 1) << 20);
	if (!rc)
		rc = paged_launch(&p, STRAIT_INTENT_WRITE, update, &w);
	if (rc)
		return fail("random_update", path, rc);
	once = changed(path, words);
	rc = paged_launch(&p, STRAIT_INTENT_WRITE, update, &w);
	paged_close(&p);
	if (rc)
		return fail("random_update", path, rc);
	printf("%llu updates of %llu words: %llu differ after them, %llu after all of them again\n",
	       (unsigned long long)w.updates, (unsigned long long)words, (unsigned long long)once,
	       (unsigned long long)changed(path, words));
	return !once || changed(path, words);
}
