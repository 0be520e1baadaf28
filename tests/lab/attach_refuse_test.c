/* SPDX-License-Identifier: MIT */
/* A PCI device in user space: whether it is allowed, with any IOMMU mode of the machine. */
#include "raw.h"

#include <strait/pci.h>

TEST(only_behind_an_iommu_that_translates)
{
	const char *mode = getenv("LAB_IOMMU");
	struct pci_device *dev;
	char name[PCI_NAME];
	int rc;

	if (!mode)
		SKIP("this is not the lab");
	close(ko_open());
	pci_find(EDU_ID, name);
	pci_bind(name, "strait");
	rc = edu_try_open("strait", &dev);
	if (!strcmp(mode, "off")) {
		ASSERT_EQ(rc, -EOPNOTSUPP);
		ASSERT_TRUE(strstr(edu_why, "intel_iommu=on"));
	} else if (!strcmp(mode, "pt")) {
		ASSERT_EQ(rc, -EOPNOTSUPP);
		ASSERT_TRUE(strstr(edu_why, "/sys/kernel/iommu_groups/"));
	} else {
		ASSERT_OK(rc);
		pci_close(dev);
	}
	ASSERT_EQ(ko_counter("attached"), 0);
}

/* No emulated machine has firmware that reserves memory for a device: the test injects that the module finds some. */
TEST(firmware_reserves_memory)
{
	struct pci_device *dev;
	char name[PCI_NAME];

	if (getenv("LAB_NO_TRANSLATION") && *getenv("LAB_NO_TRANSLATION"))
		SKIP("%s", getenv("LAB_NO_TRANSLATION"));
	close(ko_open());
	pci_find(EDU_ID, name);
	pci_bind(name, "strait");
	inject_nth("strait_reserved", 1);
	ASSERT_EQ(edu_try_open("strait", &dev), -EOPNOTSUPP);
	ASSERT_FALSE(inject_left("strait_reserved"));
	ASSERT_TRUE(strstr(edu_why, "/reserved_regions"));
	ASSERT_OK(edu_try_open("strait", &dev));
	pci_close(dev);
}

/* Memory of another device, on a kernel that cannot tell whether this device reaches it. */
TEST(peers_without_p2pdma)
{
	const char *parameter = "/sys/module/strait/parameters/assume_peers";
	int gpu = gpu_open();
	struct gpu_mem m = gpu_alloc(gpu, PLAIN, KIB(64));
	struct strait_ioc_import import;
	struct strait_ioc_map map;
	struct raw e;

	if (getenv("LAB_NO_TRANSLATION") && *getenv("LAB_NO_TRANSLATION"))
		SKIP("%s", getenv("LAB_NO_TRANSLATION"));
	e = raw_open();
	raw_need_kind(e.ko, STRAIT_IMPORT_NVP2P);
	ASSERT_OK(ko_try_import(e.ko, STRAIT_IMPORT_NVP2P, m.p, KIB(64), &import));
	ASSERT_OK(write_text(parameter, "0"));
	if (ko_info(e.ko).features & STRAIT_FEATURE_P2PDMA) {
		ASSERT_OK(raw_map(e.ko, import.handle, 0, KIB(64), &map));
	} else {
		ASSERT_EQ(raw_map(e.ko, import.handle, 0, KIB(64), &map), -EOPNOTSUPP);
		ASSERT_EQ(map.reason, STRAIT_ATTACH_NO_P2PDMA);
		ASSERT_OK(write_text(parameter, "1"));
		ASSERT_OK(raw_map(e.ko, import.handle, 0, KIB(64), &map));
	}
	ASSERT_EQ(map.where, STRAIT_WHERE_DEVICE);
	ASSERT_OK(write_text(parameter, "1"));
	raw_close(&e);
	ASSERT_OK(gpu_free(&m));
}

/* The message names the command that helps. */
TEST(what_it_says_helps)
{
	char name[PCI_NAME], command[512];
	struct pci_device *dev;

	if (!getenv("LAB_IOMMU") || strcmp(getenv("LAB_IOMMU"), "pt") != 0)
		SKIP("the IOMMU translates, or is off");
	close(ko_open());
	pci_find(EDU_ID, name);
	pci_bind(name, "strait");
	ASSERT_EQ(edu_try_open("strait", &dev), -EOPNOTSUPP);
	snprintf(command, sizeof(command), "%s", strstr(edu_why, "echo "));
	ASSERT_TRUE(strstr(command, "; or boot"));
	*strstr(command, "; or boot") = '\0';
	ASSERT_EQ(system(command), 0);
	ASSERT_OK(edu_try_open("strait", &dev));
	pci_close(dev);
}

/* As ZFS and other exclusive openers do. */
TEST(a_drive_opened_exclusively)
{
	int fd = open("/dev/nvme0n1", O_RDWR | O_EXCL | O_CLOEXEC);
	char name[PCI_NAME], why[512];

	ASSERT_GE(fd, 0);
	close(ko_open());
	pci_find(0x00101b36, name);
	ASSERT_EQ(strait_pci_bind(name, "strait", 0, why, sizeof(why)), -EBUSY);
	ASSERT_TRUE(strstr(why, "opened exclusively"));
	ASSERT_STREQ(pci_driver(name), "nvme");
	close(fd);
}

/* A device is not unbound while a process has it open. */
TEST(one_that_is_open_is_not_given_back)
{
	char name[PCI_NAME], why[512];
	struct pci_device *dev;

	if (getenv("LAB_NO_TRANSLATION") && *getenv("LAB_NO_TRANSLATION"))
		SKIP("%s", getenv("LAB_NO_TRANSLATION"));
	close(ko_open());
	pci_find(EDU_ID, name);
	pci_bind(name, NULL);
	ASSERT_OK(strait_pci_bind(name, "strait", 0, why, sizeof(why)));
	ASSERT_OK(edu_try_open("strait", &dev));
	ASSERT_EQ(strait_pci_unbind(name, 0, why, sizeof(why)), -EBUSY);
	ASSERT_STREQ(pci_driver(name), "strait");
	ASSERT_EQ(pci_read32(dev, 0, 0) & 0xff, 0xed);
	ASSERT_OK(strait_pci_unbind(name, STRAIT_PCI_FORCE, why, sizeof(why)));
	ASSERT_EQ(pci_read32(dev, 0, 0), UINT32_MAX);
	ASSERT_EQ(dev->ops->bus_master(dev, true), -ENODEV);
	pci_close(dev);
}
