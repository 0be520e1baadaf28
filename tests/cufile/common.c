/* SPDX-License-Identifier: MIT */
#include "cufile/common.h"

#include "../../cufile/core.h"

struct strait_device *emu_device_of_driver(void)
{
	ASSERT_TRUE(cf_context() != NULL);
	return device_named(cf_context(), "emu:0");
}

struct buffer buffer_new(const struct kind *k, size_t len)
{
	struct buffer b = { .kind = k, .len = len };

	if (k->emu) {
		ASSERT_EQ(cf_open_implicit(), 0);
		ASSERT_OK(strait_emu_malloc(emu_device_of_driver(), len, &b.ptr));
	} else {
		b.ptr = calloc(1, len);
	}
	ASSERT_TRUE(b.ptr != NULL);
	if (k->registered)
		ASSERT_CU(cuFileBufRegister(b.ptr, len, 0));
	return b;
}

void buffer_free(struct buffer *b)
{
	if (b->kind->registered)
		ASSERT_CU(cuFileBufDeregister(b->ptr));
	if (b->kind->emu)
		ASSERT_OK(strait_emu_free(emu_device_of_driver(), b->ptr));
	else
		free(b->ptr);
}

/* Through a region of the test: the CPU may not be able to access the memory. */
static struct strait_region *region_of(const struct buffer *b)
{
	struct strait_device *dev = NULL;
	struct strait_region *r;

	if (!b->kind->emu)
		ASSERT_OK(strait_device_find(cf_context(), "host", &dev));
	ASSERT_OK(strait_region_import(cf_context(), dev, b->ptr, b->len, &r));
	return r;
}

void buffer_put(const struct buffer *b, size_t off, const void *from, size_t len)
{
	struct strait_region *r;

	if (!b->kind->emu) {
		memcpy((char *)b->ptr + off, from, len);
		return;
	}
	r = region_of(b);
	region_put_bytes(r, off, from, len);
	strait_region_close(r);
}

void buffer_expect(const struct buffer *b, size_t off, const void *want, size_t len)
{
	struct strait_region *r;

	if (!b->kind->emu) {
		ASSERT_MEMEQ((char *)b->ptr + off, want, len);
		return;
	}
	r = region_of(b);
	region_expect(r, off, want, len);
	strait_region_close(r);
}

CUfileError_t handle_try(int fd, CUfileHandle_t *fh)
{
	CUfileDescr_t d = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd };

	return cuFileHandleRegister(fh, &d);
}

CUfileHandle_t handle_new(const char *path, int oflags, int *fd)
{
	CUfileHandle_t fh = NULL;

	*fd = open(path, oflags | O_CLOEXEC, 0644);
	ASSERT_GE(*fd, 0);
	ASSERT_CU(handle_try(*fd, &fh));
	return fh;
}

void handle_free(CUfileHandle_t fh, int fd)
{
	cuFileHandleDeregister(fh);
	close(fd);
}
