/* SPDX-License-Identifier: MIT */
/* Does the harness report what happened? Runs tests of the program `sample` and reads its output. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"

static char output[256 << 10];

/* Run the sample with these arguments: its exit status, its output in `output`. */
static int sample(const char *args)
{
	char self[PATH_MAX], command[PATH_MAX + 256];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	size_t len;
	int status;
	FILE *f;

	ASSERT_TRUE(n > 0);
	self[n] = '\0';
	*strrchr(self, '/') = '\0';
	snprintf(command, sizeof(command), "exec '%s/harness-sample' %s 2>&1", self, args);
	f = popen(command, "re");
	ASSERT_TRUE(f);
	len = fread(output, 1, sizeof(output) - 1, f);
	output[len] = '\0';
	status = pclose(f);
	printf("%s", output);
	ASSERT_TRUE(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void assert_says(const char *text)
{
	if (!strstr(output, text))
		FAIL("the output lacks: %s", text);
}

static void assert_silent_about(const char *text)
{
	if (strstr(output, text))
		FAIL("the output has: %s", text);
}

TEST(plan_comes_first)
{
	ASSERT_EQ(sample("passes skips"), 0);
	ASSERT_EQ(strncmp(output, "1..2\n", 5), 0);
	assert_says("\nok 1 - passes\n");
	assert_silent_about("not shown");
}

TEST(skip_has_its_reason)
{
	ASSERT_EQ(sample("skips"), 0);
	ASSERT_STREQ(output, "1..1\nok 1 - skips # SKIP no hardware here\n");
}

TEST(no_match_is_an_empty_plan)
{
	ASSERT_EQ(sample("nothing_of_that_name"), 0);
	ASSERT_STREQ(output, "1..0\n");
}

TEST(unknown_option_is_refused)
{
	ASSERT_EQ(sample("--nonsense"), 2);
}

TEST(failure_shows_values_and_output)
{
	ASSERT_EQ(sample("passes fails_eq"), 1);
	assert_says("\nok 1 - passes\n");
	assert_says("\nnot ok 2 - fails_eq\n# shown\n# with two lines\n");
	assert_says("sample.c:");
	assert_says("-EINVAL == 0\n#   left:  -22 (Invalid argument)\n#   right: 0\n");
}

static const struct assertion {
	const char *name;
	const char *says;
} assertions[] = {
	{ "fails_lt", "0u < -1\n#   left:  0\n#   right: -1" },
	{ "fails_le", "2 <= 1" },
	{ "fails_gt", "1 > 1" },
	{ "fails_ge", "-2 >= -1" },
	{ "fails_ne", "7u != 7" },
	{ "fails_true", "not true: 1 > 2" },
	{ "fails_false", "not false: 2 > 1" },
	{ "fails_streq", "left:  \"left\"\n#   right: \"(null)\"" },
	{ "fails_memeq", "first difference at 5 of 10 bytes, 2 differ" },
	{ "fails_ok", "gave:  -28 (No space left on device)" },
};

TEST_VARIANTS(assertion_fails, struct assertion, assertions)
{
	ASSERT_EQ(sample(v->name), 1);
	assert_says("\nnot ok 1 - fails_");
	assert_says(v->says);
}

TEST(crash_is_a_failure)
{
	ASSERT_EQ(sample("crashes passes"), 1);
	assert_says("\nnot ok 2 - crashes\n");
	assert_says("\nok 1 - passes\n");
	/* A sanitizer reports the signal itself and exits. */
	ASSERT_TRUE(strstr(output, "# died of signal 11") || strstr(output, "SEGV"));
}

TEST(early_exit_is_a_failure)
{
	ASSERT_EQ(sample("exits_*"), 1);
	assert_says("\nnot ok 1 - exits_early\n# exited before its end\n");
	assert_says("\nnot ok 2 - exits_with_a_code\n# exit status 3\n");
}

TEST(deadline_ends_the_whole_group)
{
	ASSERT_EQ(sample("hangs passes"), 1);
	assert_says("\nnot ok 2 - hangs\n# killed after ");
	assert_says("ok 1 - passes\n");
}

TEST(process_left_behind_is_a_failure)
{
	ASSERT_EQ(sample("leaves_*"), 1);
	assert_says("\nnot ok 1 - leaves_a_process\n# left a process behind\n");
	assert_says("\nok 2 - leaves_one_that_ends\n");
}

TEST(directory_is_removed_after_a_failure)
{
	char *at, *end;

	ASSERT_EQ(sample("makes_a_directory"), 1);
	at = strstr(output, "# dir ");
	ASSERT_TRUE(at);
	at += 6;
	end = strchr(at, '\n');
	ASSERT_TRUE(end);
	*end = '\0';
	ASSERT_NE(access(at, F_OK), 0);
	*strrchr(at, '/') = '\0';
	ASSERT_NE(access(at, F_OK), 0);
}

TEST(long_output_is_cut_at_its_start)
{
	ASSERT_EQ(sample("prints_much"), 1);
	assert_says("bytes of output before this are not shown");
	assert_says("# line 39999\n");
	assert_silent_about("# line 1\n");
}

TEST(variants_are_tests_of_their_own)
{
	ASSERT_EQ(sample("--list varies"), 0);
	ASSERT_STREQ(output, "varies/one\nvaries/two\n");
	ASSERT_EQ(sample("varies/one"), 0);
	ASSERT_STREQ(output, "1..1\nok 1 - varies/one\n");
	ASSERT_EQ(sample("varies"), 1);
	assert_says("\nok 1 - varies/one\nnot ok 2 - varies/two\n");
}

TEST(termination_cleans_up)
{
	ASSERT_EQ(sample("hangs & pid=$!; sleep 0.3; kill $pid; wait $pid; echo status $?; :"), 0);
	assert_says("Bail out! Terminated\n");
	assert_says("status 143\n");
}

TEST(lost_reader_cleans_up)
{
	char command[PATH_MAX + 64];

	snprintf(command, sizeof(command), "makes_a_directory prints_much | head -n 1; ls -A '%s'", test_dir());
	ASSERT_EQ(setenv("TMPDIR", test_dir(), 1), 0);
	ASSERT_EQ(sample(command), 0);
	ASSERT_STREQ(output, "1..2\n");
}

TEST(what_makes_no_sense_here_is_no_test)
{
	ASSERT_EQ(sample("--list 'somewhere*' passes"), 0);
	ASSERT_STREQ(output, "passes\n");
	ASSERT_EQ(setenv("SAMPLE_WHERE", "two", 1), 0);
	ASSERT_EQ(sample("'somewhere*' passes"), 0);
	ASSERT_STREQ(output, "1..3\nok 1 - passes\nok 2 - somewhere/two\nok 3 - somewhere_alone\n");
}

TEST(a_program_that_lacks_something_is_one_skip)
{
	ASSERT_EQ(setenv("SAMPLE_MISSES", "hardware", 1), 0);
	ASSERT_EQ(sample("passes fails_eq"), 0);
	ASSERT_STREQ(output, "1..0 # SKIP no hardware here\n");
	/* A check that dies has not said that anything is missing. */
	ASSERT_EQ(setenv("SAMPLE_DIES", "1", 1), 0);
	ASSERT_EQ(sample("passes fails_eq"), 1);
	assert_says("1..2\nok 1 - passes\nnot ok 2 - fails_eq\n");
}
