/* SPDX-License-Identifier: MIT */
#include <strait/safetensors.h>

#include "functional/common.h"

/* Creates a file with @header, followed by @data bytes of the pattern. */
static const char *make_tensors(const char *header, uint64_t data)
{
	const char *path = test_path("m.safetensors");
	uint64_t len = strlen(header);
	void *bytes = pattern_new(0, data ? data : 1, 5);

	write_at(path, &len, sizeof(len), 0);
	write_at(path, header, len, 8);
	if (data)
		write_at(path, bytes, data, 8 + len);
	free(bytes);
	return path;
}

static struct strait_tensor_info tensor(struct strait_safetensors *st, unsigned int i)
{
	struct strait_tensor_info info = { .size = sizeof(info) };

	ASSERT_OK(strait_safetensors_tensor(st, i, &info));
	return info;
}

TEST(reads_header_and_loads_every_tensor)
{
	static const char header[] =
		"{\"__metadata__\":{\"format\":\"pt\",\"no\\u0074e\":\"a\\n\\u00e9\\ud83d\\ude00\"},"
		" \"w\": {\"dtype\":\"F32\",\"shape\":[100,3],\"data_offsets\":[0,1200]},"
		" \"b\": {\"data_offsets\":[1200,1206],\"dtype\":\"BF16\",\"shape\":[3],\"extra\":[{\"x\":1.5e3},null,true]},"
		" \"empty\": {\"dtype\":\"I64\",\"shape\":[0,7],\"data_offsets\":[1206,1206]},"
		" \"scalar\": {\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[1206,1207]}}  ";
	const char *path = make_tensors(header, 1207);
	struct strait_context *ctx = context_new(NULL);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, 0);
	struct strait_safetensors *st;
	struct strait_region *r;
	struct strait_result res;
	char why[256] = "", *want = pattern_new(0, 1207, 5);

	ASSERT_OK(strait_safetensors_open(ctx, ep, 0, why, sizeof(why), &st));
	ASSERT_EQ(strait_safetensors_count(st), 4);
	ASSERT_STREQ(strait_safetensors_metadata(st, "format"), "pt");
	ASSERT_STREQ(strait_safetensors_metadata(st, "note"), "a\n\xc3\xa9\xf0\x9f\x98\x80");
	ASSERT_EQ(strait_safetensors_metadata(st, "other"), NULL);
	ASSERT_EQ(strait_safetensors_find(st, "b"), 1);
	ASSERT_EQ(strait_safetensors_find(st, "c"), -ENOENT);
	ASSERT_STREQ(tensor(st, 0).name, "w");
	ASSERT_STREQ(tensor(st, 0).dtype, "F32");
	ASSERT_EQ(tensor(st, 0).rank, 2);
	ASSERT_EQ(tensor(st, 0).shape[1], 3);
	ASSERT_EQ(tensor(st, 1).element_bits, 16);
	ASSERT_EQ(tensor(st, 1).file_offset, 8 + strlen(header) + 1200);

	r = region_new(device_named(ctx, "emu:0"), strait_safetensors_bytes(st));
	ASSERT_OK(strait_region_fill(r, 0, 0xee, strait_safetensors_bytes(st)));
	ASSERT_OK(strait_safetensors_load(st, r, 0, STRAIT_FOREVER, &res));
	ASSERT_EQ(res.bytes, 1207);
	for (unsigned int i = 0; i < 4; i++) {
		struct strait_tensor_info info = tensor(st, i);

		ASSERT_EQ(info.region_offset % 256, 0);
		region_expect(r, info.region_offset, want + (info.file_offset - 8 - strlen(header)), info.length);
	}
	region_expect_byte(r, 1200, 0xee, 256 * 5 - 1200);
	free(want);
	strait_region_close(r);
	strait_safetensors_close(st);
	strait_safetensors_close(NULL);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
}

TEST(aligned_tensors_travel_as_one_transfer)
{
	const char *path = make_tensors("{\"a\":{\"dtype\":\"U8\",\"shape\":[4096],\"data_offsets\":[0,4096]},"
					"\"b\":{\"dtype\":\"U8\",\"shape\":[1000000],\"data_offsets\":[4096,1004096]}}",
					1004096);
	struct strait_context *ctx = context_new(NULL);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, 0);
	struct strait_safetensors *st;
	struct strait_region *r;
	struct strait_result res;
	uint64_t before;

	ASSERT_OK(strait_safetensors_open(ctx, ep, 64, NULL, 0, &st));
	r = region_new(device_named(ctx, "emu:0"), strait_safetensors_bytes(st));
	before = stats_of(ctx).transfers;
	ASSERT_OK(strait_safetensors_load(st, r, ROUTE(STAGED), STRAIT_FOREVER, &res));
	ASSERT_EQ(stats_of(ctx).transfers - before, 1);
	ASSERT_EQ(res.routes, ROUTE(STAGED));
	ASSERT_EQ(res.route_bytes[STRAIT_ROUTE_STAGED], 1004096);
	ASSERT_EQ(truncate(path, 500000), 0);
	ASSERT_EQ(strait_safetensors_load(st, r, 0, STRAIT_FOREVER, &res), -ENODATA);
	strait_region_close(r);
	r = region_new(device_named(ctx, "emu:0"), 100);
	ASSERT_EQ(strait_safetensors_load(st, r, 0, STRAIT_FOREVER, &res), -EINVAL);
	strait_region_close(r);
	strait_safetensors_close(st);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
}

TEST_WHERE(the_time_is_for_all_of_them, where_emulated)

/* The timeout is for the whole load, however many transfers it takes: 20 ms each in sequence, 240 ms together. */
TEST(the_time_is_for_all_of_them)
{
	enum { N = 12, BYTES = 1000001 };
	struct strait_emu_model slow = { .size = sizeof(slow), .bytes_per_second = 50000000 };
	struct strait_context_opts one = { .size = sizeof(one), .threads = 1 };
	struct strait_context *ctx = context_new(&one);
	struct strait_device *dev = device_named(ctx, "emu:0");
	struct strait_safetensors *st;
	struct strait_endpoint *ep;
	struct strait_region *r;
	struct strait_result res;
	char header[2000] = "{";
	size_t at = 1;

	for (int i = 0; i < N; i++)
		at += (size_t)snprintf(header + at, sizeof(header) - at,
				       "%s\"t%d\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_offsets\":[%d,%d]}",
				       i ? "," : "", i, BYTES, i * BYTES, (i + 1) * BYTES);
	strcat(header, "}");
	ep = file_new(ctx, make_tensors(header, N * BYTES), O_RDONLY, 0);
	ASSERT_OK(strait_safetensors_open(ctx, ep, 0, NULL, 0, &st));
	r = region_new(dev, strait_safetensors_bytes(st));
	ASSERT_OK(strait_emu_set_model(dev, &slow));
	ASSERT_EQ(strait_safetensors_load(st, r, ROUTE(STAGED), 100000000, &res), -ETIMEDOUT);
	ASSERT_EQ(res.status, -ETIMEDOUT);
	ASSERT_LT(res.bytes, N * BYTES);
	ASSERT_OK(strait_safetensors_load(st, r, ROUTE(STAGED), STRAIT_FOREVER, &res));
	ASSERT_EQ(res.bytes, N * BYTES);
	strait_region_close(r);
	strait_safetensors_close(st);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
}

static const struct broken {
	const char *name;
	const char *header;
	uint64_t data;
	const char *says;
} broken[] = {
	{ "array", "[1,2]", 0, "object is expected" },
	{ "cut", "{\"a\":{\"dtype\":\"U8\"", 0, "ends inside" },
	{ "garbage", "{}x", 0, "unexpected data" },
	{ "comma", "{\"a\":{\"dtype\":\"U8\" \"shape\":[]}}", 0, "comma" },
	{ "type", "{\"a\":{\"dtype\":\"Q7\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "unknown type 'Q7'" },
	{ "field", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "lacks" },
	{ "length", "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1, "type and shape require 2" },
	{ "overflow", "{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,1]}}", 1,
	  "overflows" },
	{ "number", "{\"a\":{\"dtype\":\"U8\",\"shape\":[99999999999999999999],\"data_offsets\":[0,1]}}", 1,
	  "too large" },
	{ "negative", "{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}", 1, "whole number" },
	{ "fraction", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1.5],\"data_offsets\":[0,1]}}", 1, "whole number" },
	{ "backwards", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,0]}}", 1, "damaged" },
	{ "truncated", "{\"a\":{\"dtype\":\"U8\",\"shape\":[9],\"data_offsets\":[0,9]}}", 5, "truncated" },
	{ "three", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1, "more than two" },
	{ "rank", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1,
	  "8 dimensions" },
	{ "overlap",
	  "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
	  "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
	  3, "overlap" },
	{ "gap", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 2, "belong to no tensor" },
	{ "tail", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 2, "belong to no tensor" },
	{ "escape", "{\"a\\q\":1}", 0, "escape is unknown" },
	{ "surrogate", "{\"a\\ud800\":1}", 0, "surrogate" },
	{ "nul", "{\"a\\u0000\":1}", 0, "NUL" },
	{ "deep", "{\"a\":{\"x\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}}",
	  0, "nested" },
	{ "metadata", "{\"__metadata__\":{\"a\":1}}", 0, "string is expected" },
};

TEST_VARIANTS(refuses_broken_files_with_the_reason, struct broken, broken)
{
	const char *path = make_tensors(v->header, v->data);
	struct strait_context *ctx = context_new(NULL);
	struct strait_endpoint *ep = file_new(ctx, path, O_RDONLY, 0);
	struct strait_safetensors *st;
	char why[256] = "";

	ASSERT_EQ(strait_safetensors_open(ctx, ep, 0, why, sizeof(why), &st), -EBADMSG);
	if (!strstr(why, v->says))
		FAIL("it says '%s', which lacks '%s'", why, v->says);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
}

TEST(refuses_what_is_no_safetensors_file)
{
	static const uint64_t lengths[] = { UINT64_MAX, 1, 101u << 20, 5000 };
	struct strait_context *ctx = context_new(NULL);
	struct strait_safetensors *st;
	struct strait_endpoint *ep;
	char why[256];

	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		const char *path = make_tensors("{}", 0);

		write_at(path, &lengths[i], 8, 0);
		ep = file_new(ctx, path, O_RDONLY, 0);
		ASSERT_EQ(strait_safetensors_open(ctx, ep, 0, why, sizeof(why), &st), -EBADMSG);
		ASSERT_TRUE(strstr(why, "not a safetensors file"));
		strait_endpoint_close(ep);
	}
	ep = file_new(ctx, make_file("short", 5, 1), O_RDONLY, 0);
	ASSERT_EQ(strait_safetensors_open(ctx, ep, 0, why, sizeof(why), &st), -EBADMSG);
	ASSERT_EQ(strait_safetensors_open(ctx, ep, 3, why, sizeof(why), &st), -EINVAL);
	ASSERT_EQ(strait_safetensors_open(NULL, ep, 0, why, sizeof(why), &st), -EINVAL);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
}

/* Headers with bytes changed at random: no crash, and accepted tensors lie inside the file. */
TEST(survives_damaged_headers)
{
	static const char header[] =
		"{\"__metadata__\":{\"k\":\"v\"},\"a\":{\"dtype\":\"F16\",\"shape\":[2,3],"
		"\"data_offsets\":[0,12]},\"b\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[12,16]}}";
	struct strait_context *ctx = context_new(NULL);
	struct strait_device *host = device_named(ctx, "host");
	uint64_t seed = 99;

	for (int round = 0; round < 3000; round++) {
		struct strait_safetensors *st;
		struct strait_endpoint *ep;
		char text[sizeof(header)], why[256];

		memcpy(text, header, sizeof(header));
		for (uint64_t n = prng_below(&seed, 4) + 1; n; n--)
			text[prng_below(&seed, sizeof(header) - 1)] = (char)(1 + prng_below(&seed, 255));
		ep = file_new(ctx, make_tensors(text, 16), O_RDONLY, 0);
		if (!strait_safetensors_open(ctx, ep, 0, why, sizeof(why), &st)) {
			struct strait_region *r = region_new(host, strait_safetensors_bytes(st));
			struct strait_result res;

			ASSERT_LE(strait_safetensors_bytes(st), 4096);
			ASSERT_OK(strait_safetensors_load(st, r, 0, STRAIT_FOREVER, &res));
			strait_region_close(r);
			strait_safetensors_close(st);
		}
		strait_endpoint_close(ep);
	}
	strait_context_close(ctx);
}
