/* SPDX-License-Identifier: MIT */
/* The devices of a context: which exist, their names, and why one is missing. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "device/device_set.h"
#include "device/region.h"
#include "harness/harness.h"
#include "os/os.h"

static struct device_set set;
static const struct log_sink no_log;

TEST(devices_come_best_first)
{
	struct strait_device *dev;

	setenv("STRAIT_EMU_DEVICES", "3", 1);
	ASSERT_OK(device_set_open(&set, &no_log, NULL));
	ASSERT_EQ(set.n_listed, 4u);
	ASSERT_EQ(set.n_devices, 5u);
	ASSERT_STREQ(set.devices[4]->name, "dmabuf");
	ASSERT_STREQ(set.devices[0]->name, "emu:0");
	ASSERT_STREQ(set.devices[2]->name, "emu:2");
	ASSERT_STREQ(set.devices[3]->name, "host");
	ASSERT_OK(device_set_find(&set, "emu", &dev));
	ASSERT_EQ(dev, set.devices[0]);
	ASSERT_OK(device_set_find(&set, "emu:1", &dev));
	ASSERT_EQ(dev, set.devices[1]);
	ASSERT_OK(device_set_find(&set, "host", &dev));
	ASSERT_TRUE(dev->caps & STRAIT_DEVICE_HOST);
	device_set_close(&set);
}

TEST(names_that_are_not_there)
{
	struct strait_device *dev = NULL;
	char why[256];

	unsetenv("STRAIT_EMU_DEVICES");
	ASSERT_OK(device_set_open(&set, &no_log, NULL));
	ASSERT_EQ(device_set_find(&set, "cuda:0", &dev), -ENODEV);
	ASSERT_OK(device_set_missing_reason(&set, "cuda:0", why, sizeof(why)));
	ASSERT_TRUE(strstr(why, "libcuda.so.1"));
	ASSERT_EQ(device_set_find(&set, "vgpu", &dev), -ENODEV);
	ASSERT_OK(device_set_missing_reason(&set, "vgpu", why, sizeof(why)));
	ASSERT_TRUE(strstr(why, "vgpu"));
	ASSERT_EQ(device_set_find(&set, "emu:7", &dev), -ENODEV);
	ASSERT_OK(device_set_missing_reason(&set, "emu:7", why, sizeof(why)));
	ASSERT_STREQ(why, "emu has 1 device, the last one is emu:0: "
			  "set STRAIT_EMU_DEVICES to the number you want, up to 8");
	ASSERT_EQ(device_set_missing_reason(&set, "emu:0", why, sizeof(why)), -EEXIST);

	static const char *const malformed[] = { "",	   ":",	 "emu:", "emu:x", "emu:1x",
						 "emu:-1", "em", "emus", "tpu:0", "emu:9999999" };
	for (size_t i = 0; i < ARRAY_SIZE(malformed); i++) {
		ASSERT_EQ(device_set_find(&set, malformed[i], &dev), -EINVAL);
		ASSERT_EQ(device_set_missing_reason(&set, malformed[i], why, sizeof(why)), -EINVAL);
		ASSERT_TRUE(strstr(why, "emu:0, host"));
		ASSERT_TRUE(strstr(why, "cuda"));
	}
	ASSERT_EQ(dev, NULL);
	/* A short buffer gets a short text, terminated. */
	memset(why, 'x', sizeof(why));
	ASSERT_EQ(device_set_missing_reason(&set, "tpu", why, 10), -EINVAL);
	ASSERT_EQ(strlen(why), 9u);
	ASSERT_EQ(why[10], 'x');
	device_set_close(&set);
}

TEST(a_provider_without_devices_says_why)
{
	char why[256];

	setenv("STRAIT_EMU_DEVICES", "0", 1);
	ASSERT_OK(device_set_open(&set, &no_log, NULL));
	ASSERT_EQ(set.n_listed, 1u);
	ASSERT_EQ(set.n_providers, 5u);
	ASSERT_STREQ(set.providers[0].ops->name, "cuda");
	ASSERT_LT(set.providers[0].status, 0);
	ASSERT_TRUE(set.providers[0].missing_reason[0]);
	ASSERT_OK(device_set_missing_reason(&set, "emu", why, sizeof(why)));
	ASSERT_TRUE(strstr(why, "STRAIT_EMU_DEVICES"));
	device_set_close(&set);
}

static bool no_dlopen(enum os_call call, int64_t *ret)
{
	*ret = -ENOENT;
	return call == OS_DLOPEN;
}

TEST(cuda_without_its_library)
{
	char why[256];

	os_inject = no_dlopen;
	ASSERT_OK(device_set_open(&set, &no_log, NULL));
	os_inject = NULL;
	ASSERT_OK(device_set_missing_reason(&set, "cuda", why, sizeof(why)));
	ASSERT_TRUE(strstr(why, "cannot be loaded"));
	ASSERT_TRUE(strstr(why, "install the NVIDIA driver"));
	device_set_close(&set);
}

static int bare_open(struct provider *p)
{
	return provider_add_device(p) ? 0 : -ENOMEM;
}

/* Operations that a provider does not implement return -EOPNOTSUPP, and none is NULL. */
TEST(operations_have_defaults)
{
	static const struct provider_ops bare = { .name = "bare", .open = bare_open };
	static const struct provider_ops *const table[] = { &bare };
	struct dev_stream s = { 0 }, *stream = NULL;
	struct strait_device *dev;
	struct strait_region *r;
	_Atomic uint32_t word = 0;
	struct provider_mem m;

	ASSERT_OK(device_set_open_table(&set, &no_log, NULL, table, 1));
	ASSERT_OK(device_set_find(&set, "bare:0", &dev));
	for (size_t at = 0; at < sizeof(*dev->ops); at += sizeof(void *)) {
		void *slot;

		memcpy(&slot, (const char *)dev->ops + at, sizeof(slot));
		ASSERT_NE(slot, NULL);
	}
	ASSERT_STREQ(dev->ops->name, "bare");
	ASSERT_EQ(dev->ops->mem_alloc(dev, 1, &m), -EOPNOTSUPP);
	ASSERT_EQ(dev->ops->stream_open(dev, NULL, &stream), -EOPNOTSUPP);
	ASSERT_EQ(dev->ops->copy_in(&s, 0, "", 1), -EOPNOTSUPP);
	ASSERT_EQ(dev->ops->event_record(NULL, &s), -EOPNOTSUPP);
	dev->ops->word_post(dev, &word, 3);
	ASSERT_EQ(atomic_load(&word), 3u);
	ASSERT_EQ(region_alloc(dev, 4096, &r), -EOPNOTSUPP);
	/* No provider knows the pointer and there is no host. */
	ASSERT_EQ(region_import(&set, NULL, (uint64_t)(uintptr_t)&s, 1, 0, &r), -ENOENT);
	device_set_close(&set);
}
