/* SPDX-License-Identifier: MIT */
#ifndef HARNESS_H
#define HARNESS_H

/*
 * One test, one process, a deadline. A program that links this has a main() which runs each test in
 * a forked child of its own process group and reports in TAP, the plan first:
 *
 *	TEST(reads_what_was_written)
 *	{
 *		ASSERT_EQ(strait_read(...), 4096);
 *	}
 *
 *	static const struct variant {
 *		const char *name;
 *		int route;
 *	} variants[] = { { "staged", STRAIT_ROUTE_STAGED }, { "host", STRAIT_ROUTE_HOST } };
 *
 *	TEST_VARIANTS(reads_the_end, struct variant, variants)
 *	{
 *		... v->route ...
 *	}
 *
 * Arguments of the program: --list, and patterns as fnmatch(3) has them; a pattern that names a
 * test means its variants too. HARNESS_SLOW=n in the environment makes every deadline n times as
 * long. The output of a test is shown when it fails. A test fails when it leaves a process behind.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TEST_DEADLINE 60 /* seconds, unless the test says otherwise */

#define TEST(fn) TEST_TIMEOUT(fn, TEST_DEADLINE)

#define TEST_TIMEOUT(fn, seconds)                                                                                      \
	static void fn(void);                                                                                          \
	static void fn##_run(const void *v)                                                                            \
	{                                                                                                              \
		(void)v;                                                                                               \
		fn();                                                                                                  \
	}                                                                                                              \
	__attribute__((constructor)) static void fn##_register(void)                                                   \
	{                                                                                                              \
		test_register(#fn, NULL, fn##_run, NULL, seconds);                                                     \
	}                                                                                                              \
	static void fn(void)

/* The same body over each element of an array; the element's first member is its name. */
#define TEST_VARIANTS(fn, type, table) TEST_VARIANTS_TIMEOUT(fn, type, table, TEST_DEADLINE)

#define TEST_VARIANTS_TIMEOUT(fn, type, table, seconds)                                                                \
	static void fn(const type *v);                                                                                 \
	static void fn##_run(const void *v)                                                                            \
	{                                                                                                              \
		fn(v);                                                                                                 \
	}                                                                                                              \
	__attribute__((constructor)) static void fn##_register(void)                                                   \
	{                                                                                                              \
		for (size_t i = 0; i < sizeof(table) / sizeof((table)[0]); i++)                                        \
			test_register(#fn, *(const char *const *)(const void *)&(table)[i], fn##_run, &(table)[i],     \
				      seconds);                                                                        \
	}                                                                                                              \
	static void fn(__attribute__((unused)) const type *v)

/*
 * Leaves out a test, or variants of it, where @cond is false: they are neither listed nor skipped. @cond gets the variant,
 * NULL for a test without, and is called before any test runs.
 */
#define TEST_WHERE(fn, cond)                                                                                           \
	__attribute__((constructor)) static void fn##_where(void)                                                      \
	{                                                                                                              \
		test_where(#fn, cond);                                                                                 \
	}

/*
 * Skips the whole program, in one line, if @why writes a reason into its buffer: what all its tests need is missing. @why
 * is called in a process of its own.
 */
#define TEST_PROGRAM_NEEDS(why)                                                                                        \
	__attribute__((constructor)) static void why##_register(void)                                                  \
	{                                                                                                              \
		test_program_needs(why);                                                                               \
	}

/* Integers of any type and pointers, compared by value: -1 is less than 0u. */
#define ASSERT_EQ(a, b) TEST_COMPARE("==", #a " == " #b, a, b)
#define ASSERT_NE(a, b) TEST_COMPARE("!=", #a " != " #b, a, b)
#define ASSERT_LT(a, b) TEST_COMPARE("<", #a " < " #b, a, b)
#define ASSERT_LE(a, b) TEST_COMPARE("<=", #a " <= " #b, a, b)
#define ASSERT_GT(a, b) TEST_COMPARE(">", #a " > " #b, a, b)
#define ASSERT_GE(a, b) TEST_COMPARE(">=", #a " >= " #b, a, b)
#define ASSERT_TRUE(cond) ((cond) ? (void)0 : test_fail(__FILE__, __LINE__, "not true: %s", #cond))
#define ASSERT_FALSE(cond) ((cond) ? test_fail(__FILE__, __LINE__, "not false: %s", #cond) : (void)0)
#define ASSERT_STREQ(a, b) test_streq(__FILE__, __LINE__, #a " == " #b, a, b)
#define ASSERT_MEMEQ(a, b, len) test_memeq(__FILE__, __LINE__, #a " == " #b, a, b, len)
/* Not a negative errno. Gives the value. */
#define ASSERT_OK(rc) test_ok(__FILE__, __LINE__, #rc, rc)

#define FAIL(...) test_fail(__FILE__, __LINE__, __VA_ARGS__)
/* End the test here, as skipped. The reason is printf-like. */
#define SKIP(...) test_skip(__VA_ARGS__)

/* A directory of the test's own, on a disk if there is one, removed however the test ends. */
const char *test_dir(void);
/* test_dir() with a file name. Valid until the fourth call after this one. */
const char *test_path(const char *name);
/* The factor by which deadlines are longer: HARNESS_SLOW, at least 1. */
unsigned int test_slow(void);

/* True on an emulated kernel with checkers: a test does all it does, but fewer times. */
static inline bool very_slow(void)
{
	return test_slow() > 8;
}

/* Pseudorandom numbers, the same in every run. */
uint64_t prng_next(uint64_t *state);
uint64_t prng_below(uint64_t *state, uint64_t n);
/* Fills @buf with pseudorandom bytes. Fast in instrumented builds too. */
void prng_fill(void *buf, size_t len, uint64_t seed);

/* Used by the macros. */
typedef void test_fn(const void *variant);

struct test_value {
	bool negative;
	uint64_t magnitude;
};

typedef bool test_cond(const void *variant);
typedef void test_missing(char *why, size_t len);

void test_where(const char *name, test_cond *cond);
void test_program_needs(test_missing *missing);
void test_register(const char *name, const char *variant, test_fn *fn, const void *arg, unsigned int seconds);
void test_fail(const char *file, int line, const char *fmt, ...) __attribute__((noreturn, format(printf, 3, 4)));
void test_skip(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
void test_compare(const char *file, int line, const char *expr, const char *op, struct test_value a,
		  struct test_value b);
void test_streq(const char *file, int line, const char *expr, const char *a, const char *b);
void test_memeq(const char *file, int line, const char *expr, const void *a, const void *b, size_t len);
long long test_ok(const char *file, int line, const char *expr, long long rc);

static inline struct test_value test_signed(long long v)
{
	return (struct test_value){ v < 0, v < 0 ? -(uint64_t)v : (uint64_t)v };
}

static inline struct test_value test_unsigned(unsigned long long v)
{
	return (struct test_value){ false, v };
}

static inline struct test_value test_pointer(const volatile void *v)
{
	return (struct test_value){ false, (uintptr_t)v };
}

/* clang-format off */
#define TEST_VALUE(x)                                                                                                  \
	_Generic((x),                                                                                                  \
		char: test_signed, signed char: test_signed, short: test_signed, int: test_signed,                     \
		long: test_signed, long long: test_signed,                                                             \
		bool: test_unsigned, unsigned char: test_unsigned, unsigned short: test_unsigned,                      \
		unsigned int: test_unsigned, unsigned long: test_unsigned, unsigned long long: test_unsigned,          \
		default: test_pointer)(x)
/* clang-format on */

#define TEST_COMPARE(op, text, a, b) test_compare(__FILE__, __LINE__, text, op, TEST_VALUE(a), TEST_VALUE(b))

#endif
