/* SPDX-License-Identifier: MIT */
/* The public calls on regions: what they refuse, what they report, and operations of a device on the bytes. */
#include <liburing.h>

#include "common.h"

TEST(malformed_regions)
{
	struct strait_context *ctx = context_new(NULL), *other = context_new(NULL);
	struct strait_device *dev = device_named(ctx, "emu"), *host = device_named(ctx, "host");
	struct strait_region *r;
	char buf[100];

	ASSERT_EQ(strait_region_alloc(NULL, 10, &r), -EINVAL);
	ASSERT_EQ(strait_region_alloc(dev, 0, &r), -EINVAL);
	ASSERT_EQ(strait_region_alloc(dev, 10, NULL), -EINVAL);
	ASSERT_EQ(strait_region_import(NULL, NULL, buf, 10, &r), -EINVAL);
	ASSERT_EQ(strait_region_import(ctx, NULL, NULL, 10, &r), -EINVAL);
	ASSERT_EQ(strait_region_import(ctx, NULL, buf, 0, &r), -EINVAL);
	ASSERT_EQ(strait_region_import(ctx, NULL, buf, 10, NULL), -EINVAL);
	ASSERT_EQ(strait_region_import(ctx, NULL, buf, SIZE_MAX, &r), -EOVERFLOW);
	ASSERT_EQ(strait_region_import(ctx, device_named(other, "emu"), buf, 10, &r), -EINVAL);
	ASSERT_EQ(strait_region_import(ctx, dev, buf, 10, &r), -EFAULT);
	/* Memory that no provider knows is not taken for host memory: the address may be wrong. */
	ASSERT_EQ(strait_region_import(ctx, NULL, buf, 10, &r), -ENOENT);
	ASSERT_OK(strait_region_import(ctx, host, buf, 10, &r));
	strait_region_close(r);
	ASSERT_EQ(strait_region_import_flags(ctx, host, buf, 10, ~0u, &r), -EINVAL);
	ASSERT_EQ(strait_region_import_flags(ctx, host, buf, 0, STRAIT_REGION_IMPORT_ORDERED, &r), -EINVAL);
	ASSERT_OK(strait_region_import_flags(ctx, host, buf, 10, STRAIT_REGION_IMPORT_ORDERED, &r));
	strait_region_close(r);
	strait_region_close(NULL);
	strait_context_close(ctx);
	strait_context_close(other);
}

TEST_WHERE(regions, where_emulated)
TEST(regions)
{
	struct strait_context *ctx = context_new(NULL), *other = context_new(NULL);
	struct strait_device *dev = device_named(ctx, "emu"), *host = device_named(ctx, "host"), *found_dev;
	struct strait_region_info info = { .size = sizeof(info) };
	struct strait_region *r, *over, *found;
	uint64_t off;
	void *p, *map;
	int fd;

	ASSERT_OK(strait_emu_malloc(dev, KIB(100), &p));
	ASSERT_EQ(strait_region_import(other, NULL, p, KIB(100), &r), -ENOENT);
	ASSERT_OK(strait_region_extent(ctx, (char *)p + 100, &found_dev, &off));
	ASSERT_EQ(found_dev, dev);
	ASSERT_EQ(off, KIB(100) - 100);
	ASSERT_OK(strait_region_extent(ctx, (char *)p + KIB(100) - 1, NULL, &off));
	ASSERT_EQ(off, 1);
	ASSERT_EQ(strait_region_extent(ctx, &off, &found_dev, &off), -ENOENT);
	ASSERT_EQ(strait_region_extent(other, p, &found_dev, &off), -ENOENT);
	ASSERT_EQ(strait_region_extent(NULL, p, &found_dev, &off), -EINVAL);
	ASSERT_EQ(strait_region_extent(ctx, NULL, &found_dev, &off), -EINVAL);
	ASSERT_EQ(strait_region_extent(ctx, p, &found_dev, NULL), -EINVAL);
	ASSERT_EQ(strait_region_import(ctx, NULL, (char *)p + KIB(50), KIB(51), &r), -EFAULT);
	ASSERT_OK(strait_region_import(ctx, NULL, (char *)p + 1, KIB(50), &r));
	ASSERT_OK(strait_region_info(r, &info));
	ASSERT_EQ(info.device, dev);
	ASSERT_EQ(info.addr, (uint64_t)(uintptr_t)p + 1);
	ASSERT_EQ(info.length, KIB(50));
	ASSERT_FALSE(info.caps & STRAIT_REGION_OWNED);
	ASSERT_TRUE(info.caps & STRAIT_REGION_IDENTITY);
	ASSERT_NE(info.identity, 0);
	/* Of overlapping regions, lookup returns the one that starts nearest before the address. */
	ASSERT_OK(strait_region_import(ctx, dev, (char *)p + 100, 1000, &over));
	ASSERT_OK(strait_region_lookup(ctx, (char *)p + 150, &off, &found));
	ASSERT_EQ(found, over);
	ASSERT_EQ(off, 50);
	strait_region_close(found);
	ASSERT_OK(strait_region_lookup(ctx, (char *)p + 50, NULL, &found));
	ASSERT_EQ(found, r);
	strait_region_close(found);
	ASSERT_EQ(strait_region_lookup(ctx, p, &off, &found), -ENOENT);
	ASSERT_EQ(strait_region_lookup(other, (char *)p + 150, &off, &found), -ENOENT);
	ASSERT_EQ(strait_region_lookup(NULL, p, &off, &found), -EINVAL);
	ASSERT_EQ(strait_region_lookup(ctx, p, &off, NULL), -EINVAL);
	ASSERT_OK(strait_region_map(r, &map));
	ASSERT_EQ(map, (char *)p + 1);
	ASSERT_EQ(strait_region_map(r, NULL), -EINVAL);
	ASSERT_EQ(strait_region_map(NULL, &map), -EINVAL);
	ASSERT_EQ(strait_region_check(NULL), -EINVAL);
	ASSERT_EQ(strait_region_check(r), 0);
	ASSERT_EQ(strait_region_revoke(NULL), -EINVAL);
	ASSERT_EQ(strait_region_on_revoke(NULL, NULL, NULL), -EINVAL);
	ASSERT_EQ(strait_region_info(NULL, &info), -EINVAL);
	ASSERT_EQ(strait_region_info(r, NULL), -EINVAL);
	info.size = 1;
	ASSERT_EQ(strait_region_info(r, &info), -EINVAL);
	strait_region_close(r);
	strait_region_close(over);
	ASSERT_OK(strait_emu_free(dev, p));

	/* A dma-buf, where the kernel can make one of such memory. */
	r = region_new(dev, KIB(128));
	info.size = sizeof(info);
	ASSERT_OK(strait_region_info(r, &info));
	ASSERT_TRUE(info.caps & STRAIT_REGION_OWNED);
	ASSERT_EQ(strait_region_export_dmabuf(NULL, 0, KIB(64), &fd), -EINVAL);
	ASSERT_EQ(strait_region_export_dmabuf(r, 0, KIB(64), NULL), -EINVAL);
	ASSERT_EQ(strait_region_export_dmabuf(r, KIB(128), KIB(64), &fd), -EINVAL);
	if (info.caps & STRAIT_REGION_DMABUF) {
		ASSERT_EQ(strait_region_export_dmabuf(r, 1, KIB(64), &fd), -EINVAL);
		ASSERT_OK(strait_region_export_dmabuf(r, KIB(64), KIB(64), &fd));
		close(fd);
	} else {
		ASSERT_EQ(strait_region_export_dmabuf(r, 0, KIB(64), &fd), -EOPNOTSUPP);
	}
	strait_region_close(r);
	r = region_new(host, KIB(64));
	ASSERT_EQ(strait_region_export_dmabuf(r, 0, KIB(64), &fd), -EOPNOTSUPP);
	strait_region_close(r);
	strait_context_close(other);
	strait_context_close(ctx);
}

static const struct mode devices_[] = { { "emu", "emu:0", 0, 0, 0 }, { "host", "host", 0, 0, 0 } };

/* Memory with requested properties: pinnable for long, as software RDMA needs it, and the others. */
TEST_VARIANTS(memory_by_properties, struct mode, devices_)
{
	const uint32_t want = STRAIT_REGION_PINNABLE | STRAIT_REGION_CPU_MAP;
	struct strait_context *ctx = context_new(NULL);
	struct strait_device *dev = device_named(ctx, v->device);
	struct strait_region_info info = { .size = sizeof(info) };
	struct strait_region *r = NULL;
	struct io_uring ring;
	struct iovec iov;
	int rc;

	ASSERT_EQ(strait_region_alloc_caps(dev, KIB(64), STRAIT_REGION_OWNED, &r), -EINVAL);
	ASSERT_EQ(strait_region_alloc_caps(dev, KIB(64), 1u << 31, &r), -EINVAL);
	ASSERT_EQ(strait_region_alloc_caps(dev, 0, want, &r), -EINVAL);
	ASSERT_EQ(strait_region_alloc_caps(NULL, KIB(64), want, &r), -EINVAL);
	ASSERT_EQ(strait_region_alloc_caps(dev, KIB(64), want, NULL), -EINVAL);
	ASSERT_EQ(strait_region_alloc_caps(dev, SIZE_MAX, want, &r), -EOVERFLOW);
	rc = strait_region_alloc_caps(dev, KIB(64), STRAIT_REGION_IDENTITY, &r);
	ASSERT_EQ(rc, strcmp(v->device, "host") ? 0 : -EOPNOTSUPP);
	strait_region_close(r);

	rc = strait_region_alloc_caps(dev, KIB(256) + 5, want, &r);
	if (on_cuda() && strcmp(v->device, "host")) {
		ASSERT_EQ(rc, -EOPNOTSUPP);
		strait_context_close(ctx);
		return;
	}
	ASSERT_OK(rc);
	ASSERT_OK(strait_region_info(r, &info));
	ASSERT_EQ(info.caps & want, want);
	ASSERT_EQ(info.length, KIB(256) + 5);
	ASSERT_OK(strait_region_map(r, &iov.iov_base));
	iov.iov_len = info.length;
	rc = io_uring_queue_init(4, &ring, 0);
	if (rc)
		SKIP("no io_uring to pin it for long: %s", strerror(-rc));
	ASSERT_OK(io_uring_register_buffers(&ring, &iov, 1));
	ASSERT_OK(io_uring_unregister_buffers(&ring));
	io_uring_queue_exit(&ring);
	strait_region_close(r);
	strait_context_close(ctx);
}

TEST_VARIANTS(what_a_device_does_to_bytes, struct mode, devices_)
{
	const uint64_t len = MIB(9) + 13;
	struct strait_context *ctx = context_new(NULL);
	struct strait_device *dev = device_named(ctx, v->device);
	struct strait_region *a = region_new(dev, len), *b = region_new(dev, len);
	struct strait_region *elsewhere =
		region_new(device_named(ctx, strcmp(v->device, "host") ? "host" : "emu"), 100);
	unsigned char *data = pattern_new(0, len, 1), *zeros = calloc(1, len);
	uint32_t crc = 0, part = 0;
	uint64_t where = 7;

	if (!on_cuda() || !strcmp(v->device, "host"))
		region_expect(a, 0, zeros, len);
	region_put_bytes(a, 0, data, len);
	region_expect(a, 0, data, len);
	region_put_bytes(b, 3, data + 3, len - 3);
	ASSERT_OK(strait_region_compare(a, 3, b, 3, len - 3, &where));
	ASSERT_EQ(where, len - 3);
	/* The first difference, wherever it is. */
	for (uint64_t at = 3; at < len; at += MIB(2) + 333) {
		ASSERT_OK(strait_region_fill(b, at, (uint8_t)(data[at] + 1), 1));
		ASSERT_OK(strait_region_compare(a, 3, b, 3, len - 3, &where));
		ASSERT_EQ(where, at - 3);
		ASSERT_OK(strait_region_fill(b, at, data[at], 1));
	}
	ASSERT_OK(strait_region_compare(a, 5, a, 5, 0, &where));
	ASSERT_EQ(where, 0);
	ASSERT_EQ(strait_region_compare(a, 0, elsewhere, 0, 10, &where), -EXDEV);
	ASSERT_EQ(strait_region_compare(a, 0, b, len, 1, &where), -EINVAL);
	ASSERT_EQ(strait_region_compare(a, len, b, 0, 1, &where), -EINVAL);
	ASSERT_EQ(strait_region_compare(NULL, 0, b, 0, 1, &where), -EINVAL);
	ASSERT_EQ(strait_region_compare(a, 0, NULL, 0, 1, &where), -EINVAL);
	ASSERT_EQ(strait_region_compare(a, 0, b, 0, 1, NULL), -EINVAL);

	/* The checksum of the whole equals that of its parts chained; "123456789" is 0xe3069283. */
	ASSERT_OK(strait_region_crc32c(a, 0, len, &crc));
	ASSERT_OK(strait_region_crc32c(a, 0, 12345, &part));
	ASSERT_OK(strait_region_crc32c(a, 12345, len - 12345, &part));
	ASSERT_EQ(crc, part);
	region_put_bytes(a, 1, "123456789", 9);
	crc = 0;
	ASSERT_OK(strait_region_crc32c(a, 1, 9, &crc));
	ASSERT_EQ(crc, 0xe3069283u);
	ASSERT_OK(strait_region_crc32c(a, len, 0, &crc));
	ASSERT_EQ(crc, 0xe3069283u);
	ASSERT_EQ(strait_region_crc32c(a, 1, len, &crc), -EINVAL);
	ASSERT_EQ(strait_region_crc32c(a, 0, 1, NULL), -EINVAL);
	ASSERT_EQ(strait_region_crc32c(NULL, 0, 1, &crc), -EINVAL);

	ASSERT_OK(strait_region_fill(a, 100, 0xee, len - 200));
	region_expect_byte(a, 100, 0xee, len - 200);
	region_expect(a, len - 100, data + len - 100, 100);
	ASSERT_EQ(strait_region_fill(a, len, 0, 1), -EINVAL);
	ASSERT_EQ(strait_region_fill(a, UINT64_MAX, 0, 2), -EINVAL);
	ASSERT_EQ(strait_region_fill(a, 0, 0, SIZE_MAX), -EINVAL);
	ASSERT_EQ(strait_region_fill(NULL, 0, 0, 1), -EINVAL);
	ASSERT_EQ(strait_region_copy_in(a, len - 1, data, 2), -EINVAL);
	ASSERT_EQ(strait_region_copy_in(a, 0, NULL, 2), -EINVAL);
	ASSERT_EQ(strait_region_copy_in(a, 0, NULL, 0), 0);
	ASSERT_EQ(strait_region_copy_in(NULL, 0, data, 2), -EINVAL);
	ASSERT_EQ(strait_region_copy_out(a, len, data, 1), -EINVAL);
	ASSERT_EQ(strait_region_copy_out(a, 0, NULL, 1), -EINVAL);
	ASSERT_EQ(strait_region_copy_out(NULL, 0, data, 1), -EINVAL);
	ASSERT_EQ(strait_region_copy_out(a, len, NULL, 0), 0);
	free(data);
	free(zeros);
	strait_region_close(a);
	strait_region_close(b);
	strait_region_close(elsewhere);
	strait_context_close(ctx);
}
