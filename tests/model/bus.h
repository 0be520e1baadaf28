/* SPDX-License-Identifier: MIT */
#ifndef MODEL_BUS_H
#define MODEL_BUS_H

/*
 * Memory as a modelled device sees it: bus addresses that mean something only while a mapping lives. An
 * access to anything else is a fault, which is counted and moves nothing.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "pci/pci.h"

struct bus_page;

#define BUS_LOSES 8u /* with PCI_MAP_*: what is written does not arrive, and nobody is told */

struct bus {
	pthread_mutex_t lock;
	struct bus_page *pages; /* each of 4 KiB, sorted by address */
	size_t count, room;
	uint64_t next;
	bool scattered; /* no two pages are neighbours */
	bool refuse_regions;
	uint64_t faults;
	uint64_t mapped; /* mappings alive */
};

/* What every model has, by the names of the functions in its file. */
#define BUS_PCI_OPS                                                                                                    \
	{                                                                                                              \
		.name = "model", .revokes = true, .close = close_device, .read32 = read32, .read64 = read64,           \
		.write32 = write32, .write64 = write64, .config_read = config_read, .bus_master = bus_master,          \
		.reset = reset, .irq = irq, .map_region = map_region, .map_host = map_host, .unmap = unmap,            \
		.mapping_check = mapping_check,                                                                        \
	}

void bus_init(struct bus *b, bool scattered);
void bus_fini(struct bus *b);
/* As pci_ops has them. */
int bus_map_host(struct bus *b, void *addr, uint64_t len, unsigned int flags, struct pci_mapping *m);
int bus_map_region(struct bus *b, struct strait_region *r, uint64_t off, uint64_t len, unsigned int flags,
		   struct pci_mapping *m);
void bus_unmap(struct bus *b, struct pci_mapping *m);
/* What the device does. False: a fault. */
bool bus_read(struct bus *b, uint64_t bus, void *to, uint64_t len);
bool bus_write(struct bus *b, uint64_t bus, const void *from, uint64_t len);
/* A word that the driver polls: seen after everything written before. */
bool bus_write_last(struct bus *b, uint64_t bus, uint32_t value);
/* And one of the pair that each side writes and then reads the other of. */
bool bus_exchange(struct bus *b, uint64_t store, uint32_t value, uint64_t load, uint32_t *seen);

#endif
