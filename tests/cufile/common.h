/* SPDX-License-Identifier: MIT */
#ifndef CUFILE_COMMON_H
#define CUFILE_COMMON_H

/* Helpers for tests of the cuFile interface. The library is linked with its internal functions. */

#include <cufile.h>

#include "functional/common.h"

#define ASSERT_CU(call) ASSERT_EQ((int)(call).err, CU_FILE_SUCCESS)
#define ASSERT_CU_ERR(call, code) ASSERT_EQ((int)(call).err, code)

/* Memory as a program has it: of the emulated device, or of the host. */
struct kind {
	const char *name;
	bool emu;
	bool registered;
};

#define KINDS                                                                                                          \
	{ "host", false, false }, { "host-registered", false, true }, { "emu", true, false },                          \
	{                                                                                                              \
		"emu-registered", true, true                                                                           \
	}

struct buffer {
	const struct kind *kind;
	size_t len;
	void *ptr;
};

/* The emulated device of the context that the driver has open. */
struct strait_device *emu_device_of_driver(void);

struct buffer buffer_new(const struct kind *k, size_t len);
void buffer_free(struct buffer *b);
void buffer_put(const struct buffer *b, size_t off, const void *from, size_t len);
void buffer_expect(const struct buffer *b, size_t off, const void *want, size_t len);

/* The file opened and registered. */
CUfileHandle_t handle_new(const char *path, int oflags, int *fd);
CUfileError_t handle_try(int fd, CUfileHandle_t *fh);
void handle_free(CUfileHandle_t fh, int fd);

#endif
