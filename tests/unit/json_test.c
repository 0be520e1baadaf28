/* SPDX-License-Identifier: MIT */
/* The JSON reader: what it accepts, what it refuses, and comments where they are allowed. */
#include "common/json.h"

#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"

static struct json reader(const char *text, bool comments)
{
	struct json j;

	json_read_init(&j, text, strlen(text));
	j.comments = comments;
	return j;
}

static bool whole(const char *text, bool comments)
{
	struct json j = reader(text, comments);

	return json_read_skip(&j) && json_read_end(&j);
}

TEST(values_and_kinds)
{
	struct json j =
		reader(" { \"a\" : [ 1 , -2.5e3 , true , false , null , \"x\\u00e4\\n\" , { } , [ ] ] } ", false);
	bool yes = false;
	double d = 0;
	uint64_t n = 0;
	char *s;

	ASSERT_EQ((int)json_read_kind(&j), JSON_OBJECT);
	ASSERT_TRUE(json_read_enter(&j, '{'));
	ASSERT_TRUE(json_read_next(&j, '}'));
	s = json_read_key(&j);
	ASSERT_STREQ(s, "a");
	free(s);
	ASSERT_EQ((int)json_read_kind(&j), JSON_ARRAY);
	ASSERT_TRUE(json_read_enter(&j, '['));
	ASSERT_TRUE(json_read_next(&j, ']') && json_read_u64(&j, &n));
	ASSERT_EQ(n, 1);
	ASSERT_TRUE(json_read_next(&j, ']'));
	ASSERT_EQ((int)json_read_kind(&j), JSON_NUMBER);
	ASSERT_TRUE(json_read_number(&j, &d));
	ASSERT_TRUE(d > -2500.5 && d < -2499.5);
	ASSERT_TRUE(json_read_next(&j, ']') && json_read_bool(&j, &yes) && yes);
	ASSERT_TRUE(json_read_next(&j, ']') && json_read_bool(&j, &yes) && !yes);
	ASSERT_TRUE(json_read_next(&j, ']'));
	ASSERT_EQ((int)json_read_kind(&j), JSON_NULL);
	ASSERT_TRUE(json_read_skip(&j));
	ASSERT_TRUE(json_read_next(&j, ']'));
	s = json_read_string(&j);
	ASSERT_STREQ(s, "x\303\244\n");
	free(s);
	ASSERT_TRUE(json_read_next(&j, ']') && json_read_skip(&j));
	ASSERT_TRUE(json_read_next(&j, ']') && json_read_skip(&j));
	ASSERT_FALSE(json_read_next(&j, ']'));
	ASSERT_FALSE(json_read_next(&j, '}'));
	ASSERT_TRUE(json_read_end(&j));
}

TEST(comments)
{
	static const char text[] =
		"// first\n{ /* a */ \"k\" /**/ : // b\n 1 /* c\nd */ , \"l\": \"// no /* comment */\" } // end";

	ASSERT_TRUE(whole(text, true));
	ASSERT_FALSE(whole(text, false));
	ASSERT_FALSE(whole("{ } /* does not end", true));
	ASSERT_FALSE(whole("{ / } ", true));
	ASSERT_FALSE(whole("/", true));
	ASSERT_TRUE(whole("1//", true));
}

TEST(refuses)
{
	static const char *const bad[] = { "",	       "{",	"[1,", "[1 2]",	  "{\"a\"}",
					   "{\"a\":}", "{1:2}", "\"a", "\"\\q\"", "\"\\ud800\"",
					   "[1]]",     "tru",	"-",   "1.2.3",	  "\"\n\"" };
	struct json j;
	double d;
	bool yes;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		j = reader(bad[i], false);
		switch (json_read_kind(&j)) {
		case JSON_NUMBER:
			ASSERT_FALSE(json_read_number(&j, &d) && json_read_end(&j));
			break;
		case JSON_BOOL:
			ASSERT_FALSE(json_read_bool(&j, &yes) && json_read_end(&j));
			break;
		default:
			ASSERT_FALSE(json_read_skip(&j) && json_read_end(&j));
		}
	}
}

TEST(lines)
{
	struct json j = reader("{\n\n\"a\":\n oops }", true);
	char *s;

	ASSERT_TRUE(json_read_enter(&j, '{') && json_read_next(&j, '}'));
	s = json_read_key(&j);
	free(s);
	ASSERT_EQ((int)json_read_kind(&j), JSON_NONE);
	ASSERT_EQ(json_read_line(&j), 4);
}
