/* SPDX-License-Identifier: MIT */
#ifndef LAB_NVME_H
#define LAB_NVME_H

/* The lab's drive, driven from user space. Everything here ends the test when it fails. */

#include <strait/nvme.h>
#include <strait/strait.h>

#include "edu.h"

#define DRIVE_ID 0x00101b36u

/* What a test is run over; the name comes first, for variants. */
struct nvme_way {
	const char *name;
	const char *backend;
	const char *device; /* where the data is */
	bool interrupts;
	bool inside; /* queues in device memory */
};

/* clang-format off */
#define NVME_WAYS(backend)                                                                                             \
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

/* The drive, bound and open. @timeout_ns: of a command, 0 for the default. */
void drive_open(struct drive *d, const struct nvme_way *w, uint64_t timeout_ns);
/* With STRAIT_NVME_* beside those of the way. */
void drive_open_flags(struct drive *d, const struct nvme_way *w, uint64_t timeout_ns, uint32_t flags);
/* Another drive than the first. */
void drive_open_named(struct drive *d, const char *name, const struct nvme_way *w, uint64_t timeout_ns, uint32_t flags);
void drive_close(struct drive *d);
/* The drive with that serial number, which is the kernel's now. Skips the test where there is none. */
void drive_find(const char *serial, char name[PCI_NAME]);
/* A drive to the kernel's driver; waits for the block device of its namespace 1. */
void drive_to_kernel(const char *name, char *path, size_t len);
/* The first drive likewise: /dev/nvme0n1. */
void drive_give_back(void);
void drive_bind(const char *backend, char name[PCI_NAME]);
struct strait_region *drive_region(struct drive *d, size_t len);
unsigned char *drive_cpu(struct strait_region *r);
/* [off, off + len) of the drive is file_pattern() of @seed, as the machine's host sees it. */
void drive_expect(uint64_t off, uint64_t len, uint64_t seed);

#endif
