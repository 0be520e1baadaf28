/* SPDX-License-Identifier: MIT */
#ifndef LAB_NVME_H
#define LAB_NVME_H

/* The lab's drive, driven from user space. All functions end the test on failure. */

#include <strait/nvme.h>
#include <strait/strait.h>

#include "edu.h"

#define DRIVE_ID 0x00101b36u

/* A configuration that a test is run over; the name comes first, for variants. */
struct nvme_setup {
	const char *name;
	const char *backend;
	const char *device; /* the device that holds the data */
	bool interrupts;
	bool inside; /* queues in device memory */
};

/* clang-format off */
#define NVME_SETUPS(backend)                                                                                           \
	{ backend "-vgpu-polled", backend, "vgpu:0", false, false },                                                   \
	{ backend "-vgpu-interrupts", backend, "vgpu:0", true, false },                                                \
	{ backend "-vgpu-polled-inside", backend, "vgpu:0", false, true },                                             \
	{ backend "-vgpu-interrupts-inside", backend, "vgpu:0", true, true },                                          \
	{ backend "-host-polled", backend, "host", false, false },                                                     \
	{ backend "-host-interrupts", backend, "host", true, false },                                                  \
	{ backend "-host-polled-inside", backend, "host", false, true },                                               \
	{ backend "-host-interrupts-inside", backend, "host", true, true }
/* clang-format on */

struct drive {
	char name[PCI_NAME];
	struct strait_context *ctx;
	struct strait_nvme *nvme;
	struct strait_endpoint *ep; /* of namespace 1 */
	struct strait_region *queues;
	struct strait_device *dev;
};

/* Binds and opens the drive. @timeout_ns: of a command, 0 for the default. */
void drive_open(struct drive *d, const struct nvme_setup *w, uint64_t timeout_ns);
/* With STRAIT_NVME_* in addition to those of the configuration. */
void drive_open_flags(struct drive *d, const struct nvme_setup *w, uint64_t timeout_ns, uint32_t flags);
/* Another drive than the first. */
void drive_open_named(struct drive *d, const char *name, const struct nvme_setup *w, uint64_t timeout_ns,
		      uint32_t flags);
void drive_close(struct drive *d);
/* The drive with that serial number, bound to the kernel's driver. Skips the test where there is none. */
void drive_find(const char *serial, char name[PCI_NAME]);
/* Binds a drive to the kernel's driver and waits for the block device of its namespace 1. */
void drive_to_kernel(const char *name, char *path, size_t len);
/* The same for the first drive: /dev/nvme0n1. */
void drive_give_back(void);
void drive_bind(const char *backend, char name[PCI_NAME]);
struct strait_region *drive_region(struct drive *d, size_t len);
unsigned char *drive_cpu(struct strait_region *r);
/* [off, off + len) of the drive is file_pattern() of @seed, as the machine's host reads it. */
void drive_expect(uint64_t off, uint64_t len, uint64_t seed);

#endif
