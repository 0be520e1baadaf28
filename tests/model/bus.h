/* SPDX-License-Identifier: MIT */
#ifndef MODEL_BUS_H
#define MODEL_BUS_H

/*
 * Memory as a modelled device sees it: bus addresses that are valid only while a mapping lives. Any other access is a
 * fault, which is counted and moves nothing.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "pci/pci.h"

struct bus_page;

#define BUS_LOSES 8u /* with PCI_MAP_*: writes are lost without an error */

struct bus {
	pthread_mutex_t lock;
	struct bus_page *pages; /* each of 4 KiB, sorted by address */
	size_t count, room;
	uint64_t next;
	bool scattered; /* pages are never adjacent */
	bool refuse_regions;
	uint64_t faults;
	uint64_t mapped; /* mappings alive */
};

/* Members of every model, by the names of the functions in its file. */
#define BUS_PCI_OPS                                                                                                    \
	{                                                                                                              \
		.name = "model", .revokes = true, .close = close_device, .read32 = read32, .read64 = read64,           \
		.write32 = write32, .write64 = write64, .config_read = config_read, .bus_master = bus_master,          \
		.reset = reset, .irq = irq, .map_region = map_region, .map_host = map_host, .unmap = unmap,            \
		.mapping_check = mapping_check,                                                                        \
	}

void bus_init(struct bus *b, bool scattered);
void bus_fini(struct bus *b);
/* The functions of pci_ops. */
int bus_map_host(struct bus *b, void *addr, uint64_t len, unsigned int flags, struct pci_mapping *m);
int bus_map_region(struct bus *b, struct strait_region *r, uint64_t off, uint64_t len, unsigned int flags,
		   struct pci_mapping *m);
void bus_unmap(struct bus *b, struct pci_mapping *m);
/* Accesses by the device. False: a fault. */
bool bus_read(struct bus *b, uint64_t bus, void *to, uint64_t len);
bool bus_write(struct bus *b, uint64_t bus, const void *from, uint64_t len);
/* Writes a word that the driver polls: visible after all earlier writes. */
bool bus_write_last(struct bus *b, uint64_t bus, uint32_t value);
/* Writes one word of a pair that each side writes before it reads the other. */
bool bus_exchange(struct bus *b, uint64_t store, uint32_t value, uint64_t load, uint32_t *seen);

#endif
