/* SPDX-License-Identifier: MIT */
/* Tests that end in every way a test can end. Run by selftest, never by itself. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"

TEST(passes)
{
	printf("not shown\n");
	ASSERT_EQ(1, 1u);
	ASSERT_NE(-1, UINT64_MAX);
	ASSERT_LT(-1, 0u);
	ASSERT_LE((unsigned char)3, 3LL);
	ASSERT_GT(UINT64_MAX, INT64_MAX);
	ASSERT_GE(test_dir(), NULL);
	ASSERT_TRUE(2);
	ASSERT_FALSE(0);
	ASSERT_STREQ("a", "a");
	ASSERT_STREQ(NULL, NULL);
	ASSERT_MEMEQ("abc", "abd", 2);
	ASSERT_EQ(ASSERT_OK(5), 5);
}

TEST(fails_eq)
{
	printf("shown\nwith two lines\n");
	ASSERT_EQ(-EINVAL, 0);
}

TEST(fails_lt)
{
	ASSERT_LT(0u, -1);
}

TEST(fails_le)
{
	ASSERT_LE(2, 1);
}

TEST(fails_gt)
{
	ASSERT_GT(1, 1);
}

TEST(fails_ge)
{
	ASSERT_GE(-2, -1);
}

TEST(fails_ne)
{
	ASSERT_NE(7u, 7);
}

TEST(fails_true)
{
	ASSERT_TRUE(1 > 2);
}

TEST(fails_false)
{
	ASSERT_FALSE(2 > 1);
}

TEST(fails_streq)
{
	ASSERT_STREQ("left", NULL);
}

TEST(fails_memeq)
{
	ASSERT_MEMEQ("0123456789", "01234x678y", 10);
}

TEST(fails_ok)
{
	ASSERT_OK(-ENOSPC);
}

TEST(crashes)
{
	raise(SIGSEGV);
}

TEST(exits_early)
{
	exit(0);
}

TEST(exits_with_a_code)
{
	exit(3);
}

TEST(skips)
{
	SKIP("no %s here", "hardware");
}

TEST_TIMEOUT(hangs, 1)
{
	/* Its child hangs too: the whole group must go. */
	fork();
	for (;;)
		pause();
}

TEST(leaves_a_process)
{
	if (!fork()) {
		/* Out of the group, which a kill of the group would miss. */
		setsid();
		for (;;)
			pause();
	}
}

TEST(leaves_one_that_ends)
{
	if (!fork())
		_exit(0);
}

TEST(makes_a_directory)
{
	FILE *f = fopen(test_path("file"), "w");

	ASSERT_TRUE(f);
	fclose(f);
	ASSERT_STREQ(test_dir(), test_dir());
	fprintf(stderr, "dir %s\n", test_dir());
	FAIL("and dies");
}

TEST(prints_much)
{
	for (int i = 0; i < 40000; i++)
		printf("line %d\n", i);
	FAIL("the end");
}

static const struct variant {
	const char *name;
	int value;
} variants[] = { { "one", 1 }, { "two", 2 } };

TEST_VARIANTS(varies, struct variant, variants)
{
	ASSERT_EQ(v->value, 1);
}

/* Exists where the selftest says so. */
static bool where_asked_for(const void *v)
{
	return getenv("SAMPLE_WHERE") && (!v || strcmp(*(const char *const *)v, getenv("SAMPLE_WHERE")) == 0);
}

TEST_WHERE(somewhere, where_asked_for)
TEST_VARIANTS(somewhere, struct variant, variants)
{
}

TEST_WHERE(somewhere_alone, where_asked_for)
TEST(somewhere_alone)
{
}

static void needs_something(char *why, size_t len)
{
	if (getenv("SAMPLE_MISSES"))
		snprintf(why, len, "no %s here", getenv("SAMPLE_MISSES"));
	if (getenv("SAMPLE_DIES"))
		abort();
}

TEST_PROGRAM_NEEDS(needs_something)
