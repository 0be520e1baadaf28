/* SPDX-License-Identifier: MIT */
/* Changes of files without the library, for the random test against a model. */
#include "model.h"

static void write_past_the_library(struct model_thread *t, const char *path, const unsigned char *bytes, uint64_t len,
				   uint64_t off)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	ASSERT_GE(fd, 0);
	for (uint64_t done = 0; done < len;) {
		ssize_t n = pwrite(fd, bytes + done, len - done, (off_t)(off + done));

		ASSERT_GT(n, 0);
		done += (uint64_t)n;
	}
	close(fd);
}

static void punch(const char *path, uint64_t off, uint64_t len)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), rc = 0;

	ASSERT_GE(fd, 0);
	if (len && fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)len))
		rc = errno;
	close(fd);
	/* A file system without holes: zeros are the same to the model. */
	if (rc == EOPNOTSUPP) {
		unsigned char *zeros = calloc(1, len);

		ASSERT_TRUE(zeros);
		write_at(path, zeros, len, off);
		free(zeros);
		rc = 0;
	}
	ASSERT_EQ(rc, 0);
}

void model_change_own(struct model_thread *t, struct model_file *f)
{
	uint64_t len = model_any_length(t), off = model_any_offset(t, t->max - len);

	switch (model_any(t, 4)) {
	case 0:
		model_say(t, "%s is cut or extended to %llu", "file", (unsigned long long)off);
		ASSERT_EQ(truncate(f->path, (off_t)off), 0);
		model_cut(f, off);
		break;
	case 1:
		len = off < f->len ? min_u64(len, f->len - off) : 0;
		model_say(t, "a hole of %llu at %llu of file %ld", (unsigned long long)len, (unsigned long long)off,
			  (long)(f - t->file));
		punch(f->path, off, len);
		memset(f->now + off, 0, len);
		break;
	default:
		model_say(t, "another writes %llu at %llu of file %ld", (unsigned long long)len,
			  (unsigned long long)off, (long)(f - t->file));
		prng_fill(t->scratch, len, model_any(t, 1000));
		write_past_the_library(t, f->path, t->scratch, len, off);
		model_put(t, f, off, t->scratch, len);
	}
}

void model_change_common(struct model_thread *t)
{
	uint64_t len = model_any_length(t), off = model_any_offset(t, t->max - len);

	if (!model_any(t, 4)) {
		model_say(t, "common is cut or extended to %llu", (unsigned long long)off);
		ASSERT_EQ(truncate(t->w->common, (off_t)off), 0);
	} else {
		unsigned int k = (unsigned int)model_any(t, MODEL_PATTERNS);

		model_say(t, "pattern %u: %llu at %llu of common", k, (unsigned long long)len, (unsigned long long)off);
		write_past_the_library(t, t->w->common, t->w->pattern[k] + off, len, off);
	}
}
