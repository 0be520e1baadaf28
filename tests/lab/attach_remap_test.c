/* SPDX-License-Identifier: MIT */
/* A device in user space on a machine whose IOMMU does not remap interrupts. */
#include "raw.h"

TEST(refused_without_interrupt_remapping)
{
	const char *none = getenv("LAB_NO_REMAPPING");
	struct strait_ioc_attach attach;
	struct pci_device *dev;
	char name[PCI_NAME];
	int fd;

	if (!none || !*none)
		SKIP("interrupts are remapped here");
	if (getenv("LAB_NO_TRANSLATION") && *getenv("LAB_NO_TRANSLATION"))
		SKIP("%s", getenv("LAB_NO_TRANSLATION"));
	close(ko_open());
	pci_find(EDU_ID, name);
	pci_bind(name, "strait");
	fd = (int)ASSERT_OK(raw_node(name));
	ASSERT_EQ(raw_attach(fd, &attach), -EOPNOTSUPP);
	ASSERT_EQ(attach.reason, STRAIT_ATTACH_INTERRUPTS);
	ASSERT_GE(attach.group, 0);
	close(fd);
	ASSERT_EQ(edu_try_open("strait", &dev), -EOPNOTSUPP);
	ASSERT_TRUE(strstr(edu_why, "interrupt remapping"));
	ASSERT_EQ(ko_counter("attached"), 0);
}
