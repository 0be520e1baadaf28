/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "harness/harness.h"

/* A value as a reader wants it: what looks like a negative errno comes with its text. */
static const char *value_text(struct test_value v, char *buf, size_t size)
{
	if (v.negative && v.magnitude < 4096)
		snprintf(buf, size, "-%" PRIu64 " (%s)", v.magnitude, strerror((int)v.magnitude));
	else if (v.magnitude > 4096)
		snprintf(buf, size, "%s%" PRIu64 " (%#" PRIx64 ")", v.negative ? "-" : "", v.magnitude, v.magnitude);
	else
		snprintf(buf, size, "%s%" PRIu64, v.negative ? "-" : "", v.magnitude);
	return buf;
}

static int value_order(struct test_value a, struct test_value b)
{
	int order = (a.magnitude > b.magnitude) - (a.magnitude < b.magnitude);

	if (a.negative != b.negative)
		return a.negative ? -1 : 1;
	return a.negative ? -order : order;
}

void test_compare(const char *file, int line, const char *expr, const char *op, struct test_value a,
		  struct test_value b)
{
	int order = value_order(a, b);
	char ta[128], tb[128];
	bool good;

	switch (op[0]) {
	case '=':
		good = order == 0;
		break;
	case '!':
		good = order != 0;
		break;
	case '<':
		good = order < 0 || (op[1] && order == 0);
		break;
	default:
		good = order > 0 || (op[1] && order == 0);
		break;
	}
	if (!good)
		test_fail(file, line, "not true: %s\n  left:  %s\n  right: %s", expr, value_text(a, ta, sizeof(ta)),
			  value_text(b, tb, sizeof(tb)));
}

void test_streq(const char *file, int line, const char *expr, const char *a, const char *b)
{
	if (a == b || (a && b && !strcmp(a, b)))
		return;
	test_fail(file, line, "not true: %s\n  left:  \"%s\"\n  right: \"%s\"", expr, a ? a : "(null)",
		  b ? b : "(null)");
}

static void dump(const char *name, const unsigned char *p, size_t at, size_t len)
{
	fprintf(stderr, "  %s", name);
	for (size_t i = at; i < len && i < at + 16; i++)
		fprintf(stderr, " %02x", p[i]);
	fprintf(stderr, "\n");
}

void test_memeq(const char *file, int line, const char *expr, const void *a, const void *b, size_t len)
{
	const unsigned char *pa = a, *pb = b;
	size_t first = 0, count = 0;

	if (!len || !memcmp(a, b, len))
		return;
	for (size_t i = len; i-- > 0;)
		if (pa[i] != pb[i]) {
			first = i;
			count++;
		}
	dump("left: ", pa, first, len);
	dump("right:", pb, first, len);
	test_fail(file, line, "not true: %s\n  first difference at %zu of %zu bytes, %zu differ", expr, first, len,
		  count);
}

long long test_ok(const char *file, int line, const char *expr, long long rc)
{
	char text[128];

	if (rc < 0)
		test_fail(file, line, "failed: %s\n  gave:  %s", expr, value_text(test_signed(rc), text, sizeof(text)));
	return rc;
}
