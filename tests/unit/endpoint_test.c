/* SPDX-License-Identifier: MIT */
/* Endpoints: the operations that a kind does not implement are filled in. */
#include "endpoint/endpoint.h"

#include <errno.h>
#include <string.h>

#include "harness/harness.h"

static unsigned int destroyed;

static int three_bytes(struct strait_endpoint *ep, uint64_t *bytes)
{
	*bytes = 3;
	return 0;
}

static void count_destroy(struct strait_endpoint *ep)
{
	destroyed++;
}

static const struct endpoint_ops sparse = { .kind = "sparse", .length = three_bytes, .destroy = count_destroy };
static const struct endpoint_ops other = { .kind = "other" };

TEST(every_slot_is_filled)
{
	struct strait_endpoint ep = { 0 };
	const char *slot = (const char *)&ep.table;
	void (*none)(void) = NULL;

	endpoint_init(&ep, &other, 0);
	for (size_t at = 0; at < sizeof(ep.table); at += sizeof(none))
		ASSERT_NE(memcmp(slot + at, &none, sizeof(none)), 0);
}

TEST(what_a_kind_has_replaces_the_default)
{
	struct strait_endpoint ep = { 0 };
	uint64_t bytes = 0;

	endpoint_init(&ep, &sparse, 5);
	ASSERT_EQ(strcmp(ep.ops->kind, "sparse"), 0);
	ASSERT_EQ(ep.flags, 5);
	ASSERT_OK(ep.ops->length(&ep, &bytes));
	ASSERT_EQ(bytes, 3);
	ep.ops->destroy(&ep);
	ASSERT_EQ(destroyed, 1);
	ASSERT_TRUE(endpoint_is(&ep, &sparse));
	ASSERT_FALSE(endpoint_is(&ep, &other));
}

TEST(defaults_refuse)
{
	struct strait_endpoint ep = { 0 };
	struct endpoint_io io = { .length = 1 };
	struct endpoint_batch *b;
	uint32_t reason = 0;
	unsigned int room;
	void *map;
	char c;

	endpoint_init(&ep, &other, 0);
	ASSERT_EQ(ep.ops->read(&ep, IO_BUFFERED, &c, 1, 0), -EOPNOTSUPP);
	ASSERT_EQ(ep.ops->read_cached(&ep, &c, 1, 0), -EOPNOTSUPP);
	ASSERT_EQ(ep.ops->fd(&ep, IO_DIRECT), -EBADF);
	ASSERT_EQ(ep.ops->map(&ep, 0, 1, &map), -EOPNOTSUPP);
	ASSERT_FALSE(ep.ops->unchanged(&ep));
	ASSERT_EQ(ep.ops->dma_map(&ep, NULL, NULL, &reason), -EOPNOTSUPP);
	ASSERT_EQ(reason, STRAIT_WHY_NO_DEVICE_MAP);
	ASSERT_EQ(ep.ops->io(&ep, &io), 0);
	ASSERT_EQ(io.err, -EOPNOTSUPP);
	ASSERT_EQ(ep.ops->batch_open(&ep, &room, &b), -EOPNOTSUPP);
}
