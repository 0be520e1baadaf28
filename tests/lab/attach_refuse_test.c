/* SPDX-License-Identifier: MIT */
/* A PCI device in user space: whether that is allowed, with whatever IOMMU the machine has. */
#include "edu.h"

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

/* The message is the command that helps. */
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
