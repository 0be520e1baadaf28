/* SPDX-License-Identifier: MIT */
/* Two devices that share a mapping: what one publishes goes to the other without the host. */
#include "device/emu/emu.h"
#include "mapping_rig.h"

static const struct mapping_mode modes[] = {
	{ "emu", "emu:0", 0, false },
	{ "emu-compare", "emu:0", STRAIT_MAPPING_COMPARE, false },
	{ "emu-copy", "emu:0", STRAIT_MAPPING_COPY, false },
};

#define LEN MIB(6)

static struct strait_device *open_two(struct mapping_rig *r, const struct mapping_mode *v)
{
	setenv("STRAIT_EMU_DEVICES", "2", 1);
	mapping_rig_open(r, v, LEN, NULL);
	return device_named(r->ctx, "emu:1");
}

TEST_WHERE(directly, where_emulated)
TEST_VARIANTS(directly, struct mapping_mode, modes)
{
	unsigned char *file = pattern_new(0, LEN, 1), *want = pattern_new(0, LEN, 1);
	struct strait_mapping_info before;
	struct strait_device *second;
	struct mapping_rig r;

	second = open_two(&r, v);
	side_expect(&r, r.dev, 0, want, LEN);
	side_expect(&r, second, 0, want, LEN);
	before = mapping_info_of(r.m);
	/* Two runs, and an odd number of bytes. */
	memset(want + 3 * G + 5, 1, 4 * G);
	memset(want + MIB(3), 2, 1001);
	side_write(&r, r.dev, 3 * G + 5, want + 3 * G + 5, 4 * G);
	side_write(&r, r.dev, MIB(3), want + MIB(3), 1001);
	side_expect(&r, second, 0, want, LEN);
	ASSERT_EQ(mapping_info_of(r.m).between_bytes, 6 * G);
	ASSERT_EQ(mapping_info_of(r.m).copies, before.copies + 1);
	ASSERT_EQ(mapping_info_of(r.m).to_host_bytes, before.to_host_bytes);
	ASSERT_EQ(mapping_info_of(r.m).to_device_bytes, before.to_device_bytes);
	/* The file has it when that is asked for, once. */
	file_expect(r.path, 0, file, LEN);
	ASSERT_OK(strait_mapping_flush(r.m, 0, LEN));
	file_expect(r.path, 0, want, LEN);
	ASSERT_EQ(mapping_info_of(r.m).to_host_bytes, before.to_host_bytes + 6 * G);
	/* And back. */
	memset(want + 4 * G, 3, G);
	side_write(&r, second, 4 * G, want + 4 * G, G);
	side_expect(&r, r.dev, 0, want, LEN);
	ASSERT_EQ(mapping_info_of(r.m).between_bytes, 7 * G);
	side_expect(&r, NULL, 0, want, LEN);
	ASSERT_EQ(mapping_info_of(r.m).conflicts, 0);
	free(file);
	free(want);
	mapping_rig_close(&r);
}

/* What a device has acquired for writing again is not seen elsewhere before its release. */
TEST_WHERE(published_bytes_only, where_emulated)
TEST_VARIANTS(published_bytes_only, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct strait_device *second;
	struct mapping_rig r;
	void *at;

	second = open_two(&r, v);
	memset(want, 1, 2 * G);
	side_write(&r, r.dev, 0, want, 2 * G);
	ASSERT_OK(strait_mapping_acquire(r.m, r.dev, 0, 4 * G, STRAIT_INTENT_WRITE, &at));
	device_store(r.ctx, (char *)at + G, "unreleased", 10);
	side_expect(&r, second, 0, want, LEN);
	ASSERT_EQ(mapping_info_of(r.m).between_bytes, 2 * G);
	ASSERT_OK(strait_mapping_release(r.m, r.dev, 0, 4 * G, STRAIT_INTENT_WRITE));
	memcpy(want + G, "unreleased", 10);
	side_expect(&r, second, 0, want, LEN);
	ASSERT_EQ(mapping_info_of(r.m).between_bytes, 3 * G);
	free(want);
	mapping_rig_close(&r);
}

/* Where a copy between the devices fails, the bytes take the way through the file. */
TEST_WHERE(through_the_host, where_emulated)
TEST_VARIANTS(through_the_host, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct strait_device *second;
	struct mapping_rig r;

	second = open_two(&r, v);
	side_expect(&r, second, 0, want, LEN);
	memset(want + G, 1, 3 * G);
	side_write(&r, r.dev, G, want + G, 3 * G);
	emu_inject_copy_error(second, 0, -EIO);
	ASSERT_OK(strait_mapping_acquire(r.m, second, 0, LEN, STRAIT_INTENT_READ, NULL));
	emu_inject_copy_error(second, -1, 0);
	ASSERT_OK(strait_mapping_release(r.m, second, 0, LEN, STRAIT_INTENT_READ));
	side_expect(&r, second, 0, want, LEN);
	ASSERT_EQ(mapping_info_of(r.m).between_bytes, 0);
	ASSERT_EQ(mapping_info_of(r.m).to_host_bytes, 3 * G);
	file_expect(r.path, 0, want, LEN);
	free(want);
	mapping_rig_close(&r);
}

/* The device that has the bytes goes away: they are lost, and the other one says so. */
TEST_WHERE(a_device_is_removed, where_emulated)
TEST_VARIANTS(a_device_is_removed, struct mapping_mode, modes)
{
	unsigned char *want = pattern_new(0, LEN, 1);
	struct strait_device *second;
	struct mapping_rig r;

	second = open_two(&r, v);
	side_expect(&r, second, 0, want, LEN);
	side_write(&r, r.dev, G, "lost", 4);
	strait_emu_remove(r.dev);
	ASSERT_LT(strait_mapping_acquire(r.m, second, 0, LEN, STRAIT_INTENT_READ, NULL), 0);
	ASSERT_EQ(mapping_info_of(r.m).acquired, 0);
	side_expect(&r, second, 2 * G, want + 2 * G, LEN - 2 * G);
	free(want);
	mapping_rig_close(&r);
}
