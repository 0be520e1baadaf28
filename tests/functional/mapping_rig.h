/* SPDX-License-Identifier: MIT */
#ifndef FUNCTIONAL_MAPPING_RIG_H
#define FUNCTIONAL_MAPPING_RIG_H

#include <strait/mapping.h>

#include "common.h"

#define G ((uint64_t)STRAIT_MAPPING_GRANULE)

/* A device and how stores of the CPU are found. */
struct mapping_mode {
	const char *name;
	const char *device;
	uint32_t flags; /* STRAIT_MAPPING_* */
	bool user;	/* as an ordinary user */
};

/* clang-format off */
#define MAPPING_MODES                                                                                                  \
	{ "emu", "emu:0", 0, false },                                                                                  \
	{ "emu-compare", "emu:0", STRAIT_MAPPING_COMPARE, false },                                                     \
	{ "emu-copy", "emu:0", STRAIT_MAPPING_COPY, false },                                                           \
	{ "emu-copy-user", "emu:0", STRAIT_MAPPING_COPY, true },                                                       \
	{ "emu-copy-compare", "emu:0", STRAIT_MAPPING_COPY | STRAIT_MAPPING_COMPARE, false },                          \
	{ "host", "host", 0, false },                                                                                  \
	{ "host-compare", "host", STRAIT_MAPPING_COMPARE, false },                                                     \
	{ "host-copy", "host", STRAIT_MAPPING_COPY, false }
/* clang-format on */

struct mapping_rig {
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_endpoint *ep;
	struct strait_mapping *m;
	const char *path;
	uint64_t len;
	unsigned char *cpu; /* the CPU's address */
};

/* Gives up the privileges of root, and the test's folder to an ordinary user. */
void become_user(void);

/* A mapping of a new file that holds the pattern of seed 1. @opts: NULL for the mode's flags alone. */
void mapping_rig_open(struct mapping_rig *r, const struct mapping_mode *v, uint64_t len,
		      const struct strait_mapping_opts *opts);
/* A mapping of a file that exists, with the mode's flags. */
void mapping_rig_map(struct mapping_rig *r, const struct mapping_mode *v, const char *path);
void mapping_rig_close(struct mapping_rig *r);
struct strait_mapping_info mapping_info_of(struct strait_mapping *m);

/* Loads and stores of a device, at an address of its memory. */
void device_store(struct strait_context *ctx, void *addr, const void *buf, size_t len);
void device_load(struct strait_context *ctx, const void *addr, void *buf, size_t len);
void device_expect(struct strait_context *ctx, const void *addr, const void *want, size_t len);

/* Acquires, copies and releases. @dev: NULL for the CPU. */
void side_write(struct mapping_rig *r, struct strait_device *dev, uint64_t off, const void *buf, size_t len);
void side_expect(struct mapping_rig *r, struct strait_device *dev, uint64_t off, const void *want, size_t len);

#endif
