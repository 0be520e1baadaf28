/* SPDX-License-Identifier: MIT */
#include "consumer.h"

static pid_t program;

__attribute__((constructor)) static void remember(void)
{
	program = getpid();
}

/* After the last test: unload what depends on the driver before the driver. */
__attribute__((destructor)) static void unload(void)
{
	if (getpid() == program && !access("/sys/module/strait_vgpu_test", F_OK) && system("rmmod strait_vgpu_test"))
		fprintf(stderr, "strait_vgpu_test does not unload\n");
}

int consumer_open(void)
{
	int c;

	load_module("strait_vgpu_test");
	c = open("/dev/strait_vgpu_test", O_RDWR | O_CLOEXEC);
	ASSERT_GE(c, 0);
	return c;
}

static void call(int c, unsigned long cmd, void *arg)
{
	ASSERT_OK(gpu_call(c, cmd, arg));
}

int consumer_try_get(int c, struct vt_get *get)
{
	call(c, VT_GET, get);
	return get->result;
}

uint32_t consumer_get(int c, const struct gpu_mem *m, uint32_t flags, uint32_t cb_flags)
{
	struct vt_get get = { .flags = flags, .cb_flags = cb_flags, .va = (uintptr_t)m->p, .len = m->len };

	ASSERT_OK(consumer_try_get(c, &get));
	return get.id;
}

static int operate(int c, unsigned long cmd, uint32_t id, uint32_t flags)
{
	struct vt_op op = { .id = id, .flags = flags };

	call(c, cmd, &op);
	return op.result;
}

int consumer_put(int c, uint32_t id, uint32_t flags)
{
	return operate(c, VT_PUT, id, flags);
}

int consumer_map(int c, uint32_t id)
{
	return operate(c, VT_MAP, id, 0);
}

int consumer_unmap(int c, uint32_t id, uint32_t flags)
{
	return operate(c, VT_UNMAP, id, flags);
}

struct vt_status consumer_status(int c, uint32_t id)
{
	struct vt_status s = { .id = id };

	call(c, VT_STATUS, &s);
	return s;
}

int consumer_dma(int c, uint32_t id, uint32_t flags, uint64_t off, void *data, uint32_t len)
{
	struct vt_dma dma = { .id = id, .flags = flags, .offset = off, .len = len, .data = (uintptr_t)data };

	call(c, VT_DMA, &dma);
	return dma.result;
}

void consumer_dma_wait(int c)
{
	ASSERT_EQ(ioctl(c, VT_DMA_WAIT), 0);
}

bool consumer_dma_busy(int c)
{
	int rc = ioctl(c, VT_DMA_BUSY);

	ASSERT_GE(rc, 0);
	return rc;
}

int importer_try_attach(int c, int fd, uint32_t flags)
{
	struct vt_buf b = { .fd = fd, .flags = flags };

	call(c, VT_ATTACH, &b);
	return b.result ? b.result : (int)b.id;
}

uint32_t importer_attach(int c, int fd, uint32_t flags)
{
	return (uint32_t)ASSERT_OK(importer_try_attach(c, fd, flags));
}

int importer_map(int c, uint32_t id)
{
	struct vt_buf b = { .id = id };

	call(c, VT_BUF_MAP, &b);
	return b.result;
}

void importer_unmap(int c, uint32_t id)
{
	struct vt_buf b = { .id = id };

	call(c, VT_BUF_UNMAP, &b);
}

void importer_detach(int c, uint32_t id)
{
	struct vt_buf b = { .id = id };

	call(c, VT_DETACH, &b);
}

struct vt_buf importer_status(int c, uint32_t id)
{
	struct vt_buf b = { .id = id };

	call(c, VT_BUF_STATUS, &b);
	return b;
}
