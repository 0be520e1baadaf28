/* SPDX-License-Identifier: MIT */
#ifndef LAB_RAW_H
#define LAB_RAW_H

/* The module's calls on an attached device, without the library, and QEMU's "edu" driven by them. */

#include "edu.h"

/* A transfer of the engine takes 100 ms, and accesses memory at its end. */
#define ENGINE_MS 150

struct raw {
	int ko; /* the node */
	volatile unsigned char *bar;
	char name[PCI_NAME];
	unsigned char *host; /* the memory that the engine is loaded from */
	uint64_t host_bus;
};

int raw_control(int ko, uint32_t what, uint32_t value);
/* The node of a bound device, open, or -errno. */
int raw_node(const char *name);
int raw_attach(int ko, struct strait_ioc_attach *req);
/* For reading and writing. */
int raw_map(int ko, uint32_t region, uint64_t off, uint64_t len, struct strait_ioc_map *map);
/* STRAIT_IOC_UNMAP or STRAIT_IOC_MAPPED. */
int raw_mapping(int ko, unsigned long cmd, uint32_t handle);
/* @kind: STRAIT_IMPORT_*. Skips the test if the module does not support it on this kernel. */
void raw_need_kind(int ko, uint32_t kind);
/* Imports memory of the GPU as @kind, or skips the test. Returns the handle. */
uint32_t raw_import(int ko, uint32_t kind, const struct gpu_mem *m);

/* The engine, attached, with bus mastering on. */
struct raw raw_open(void);
void raw_close(struct raw *e);
bool raw_busy(struct raw *e);
void raw_wait(struct raw *e);
void raw_start(struct raw *e, uint64_t bus, uint32_t len, bool from_edu);
/* Sets what the engine writes from now on: fill(..., EDU_MOST, seed). */
void raw_load(struct raw *e, uint64_t seed);

/* Does the device have its bus mastering bit set? */
bool raw_master(const char *name);
/* The number of faults that the IOMMU has reported: its interrupts. Its log lines are rate limited. */
uint64_t raw_faults(void);
/* There were @before of them. Waits for the next: the processor that takes the interrupt may be late. */
void raw_expect_fault(uint64_t before);

#endif
