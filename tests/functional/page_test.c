/* SPDX-License-Identifier: MIT */
/* A kernel with pages of 64 KiB, as on some ARM machines: every offset and length can be mapped. */
#include "common.h"

#define PAGE KIB(64)
#define LEN (MIB(24) + 3 * PAGE) /* whole pages: this kernel maps less than such a page past the last one */

static const struct mode modes[] = {
	{ "pagecache", "emu:0", ROUTE(PAGECACHE), 0, 0 },
	{ "pagecache-immutable", "emu:0", ROUTE(PAGECACHE), STRAIT_FILE_IMMUTABLE, 0 },
	{ "any", "emu:0", 0, 0, 0 },
	{ "any-immutable", "emu:0", 0, STRAIT_FILE_IMMUTABLE, 0 },
	{ "staged", "emu:0", ROUTE(STAGED), 0, 0 },
};

TEST_VARIANTS(reads_at_any_offset, struct mode, modes)
{
	static const uint64_t at[] = { 0, 1, 4096, 4097, 65535, 65536, 100000, MIB(9) + 4096, MIB(17) + 12345 };
	static const uint64_t lengths[] = { 1, 4096, 70000, KIB(300), MIB(3) + 5 };
	unsigned char *want = pattern_new(0, LEN, 3);
	struct strait_context *ctx = context_for(v);
	struct strait_endpoint *ep = file_new(ctx, make_file("file", LEN, 3), O_RDONLY, v->file);
	struct strait_region *r = region_new(device_named(ctx, v->device), MIB(4));

	os_page_override = PAGE;
	for (size_t i = 0; i < ARRAY_SIZE(at); i++)
		for (size_t k = 0; k < ARRAY_SIZE(lengths); k++) {
			struct strait_result res = move(STRAIT_READ, v->routes, ep, at[i], r, 7, lengths[k]);

			ASSERT_EQ(res.status, 0);
			ASSERT_EQ(res.bytes, lengths[k]);
			region_expect(r, 7, want + at[i], lengths[k]);
		}
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	os_page_override = 0;
	free(want);
}
