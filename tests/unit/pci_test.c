/* SPDX-License-Identifier: MIT */
/* The interface to backends: mappings are cut to the requested range. */
#include "pci/pci.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "harness/harness.h"

static struct pci_run given[4];
static size_t n_given;
static unsigned int unmapped;
static void *asked;
static uint64_t asked_len;

static int fake_map_host(struct pci_device *dev, void *addr, uint64_t len, unsigned int flags, struct pci_mapping *m)
{
	asked = addr;
	asked_len = len;
	m->run = malloc(sizeof(given));
	memcpy(m->run, given, sizeof(given));
	m->count = n_given;
	return 0;
}

static void fake_unmap(struct pci_device *dev, struct pci_mapping *m)
{
	unmapped++;
}

static const struct pci_ops fake_ops = { .name = "fake", .map_host = fake_map_host, .unmap = fake_unmap };
static struct pci_device fake = { .ops = &fake_ops };

TEST(bus_addresses)
{
	struct pci_mapping *m;
	uint64_t run;

	given[0] = (struct pci_run){ 0x10000, 4096 };
	given[1] = (struct pci_run){ 0x40000, 8192 };
	given[2] = (struct pci_run){ 0x20000, 4096 };
	n_given = 3;
	ASSERT_OK(pci_map_host(&fake, (void *)0x7000, 16384, PCI_MAP_READ, &m));
	ASSERT_EQ(m->count, 3);
	ASSERT_EQ(pci_bus(m, 0, &run), 0x10000);
	ASSERT_EQ(run, 4096);
	ASSERT_EQ(pci_bus(m, 4095, &run), 0x10fff);
	ASSERT_EQ(run, 1);
	ASSERT_EQ(pci_bus(m, 4096, &run), 0x40000);
	ASSERT_EQ(run, 8192);
	ASSERT_EQ(pci_bus(m, 12287, &run), 0x41fff);
	ASSERT_EQ(pci_bus(m, 12288, &run), 0x20000);
	ASSERT_EQ(pci_bus(m, 16383, &run), 0x20fff);
	pci_unmap(m);
	ASSERT_EQ(unmapped, 1);
	pci_unmap(NULL);
}

/* Memory that does not begin or end at a page boundary. */
TEST(parts_of_pages)
{
	struct pci_mapping *m;
	uint64_t run;

	given[0] = (struct pci_run){ 0x10000, 4096 };
	given[1] = (struct pci_run){ 0x40000, 4096 };
	n_given = 2;
	ASSERT_OK(pci_map_host(&fake, (void *)(uintptr_t)0x7ffd, 10, PCI_MAP_READ, &m));
	ASSERT_EQ((uintptr_t)asked, 0x7000);
	ASSERT_EQ(asked_len, 8192);
	ASSERT_EQ(m->length, 10);
	ASSERT_EQ(pci_bus(m, 0, &run), 0x10ffd);
	ASSERT_EQ(run, 3);
	ASSERT_EQ(pci_bus(m, 3, &run), 0x40000);
	ASSERT_EQ(run, 7);
	pci_unmap(m);
}

TEST(what_is_refused)
{
	struct pci_mapping *m;

	given[0] = (struct pci_run){ 0x10000, 4096 };
	n_given = 1;
	ASSERT_EQ(pci_map_host(&fake, (void *)0x7000, 0, 0, &m), -EINVAL);
	ASSERT_EQ(pci_map_host(&fake, (void *)0x7000, UINT64_MAX, 0, &m), -EINVAL);
	ASSERT_EQ(pci_map_host(&fake, (void *)(UINTPTR_MAX - 100), 4096, 0, &m), -EINVAL);
	/* A backend that maps less than requested. */
	ASSERT_EQ(pci_map_host(&fake, (void *)0x7000, 8192, 0, &m), -EPROTO);
	ASSERT_EQ(unmapped, 1);
	given[0].length = 1 << 20;
	ASSERT_EQ(pci_map_host(&fake, (void *)0x7000, 8192, 0, &m), -EPROTO);
	given[0].length = 0;
	ASSERT_EQ(pci_map_host(&fake, (void *)0x7000, 8192, 0, &m), -EPROTO);
}
