/* SPDX-License-Identifier: MIT */
/*
 * Registration of host memory. Long-lived registrations are made in the primary context; file windows, which are
 * registered and unregistered often, in the provider's own context (see cuda_ctx_get_windows()). All are portable:
 * streams of any context can use them.
 */
#include <stdlib.h>

#include "base/util.h"
#include "device/cuda/cuda.h"
#include "os/os.h"

/* host_reg.priv */
struct cuda_reg {
	struct list node; /* in cuda_device.files if it is a file window */
	struct cuda_ctx *ctx;
	const char *ptr;
	uint64_t dev_addr;
	size_t len;
};

/* Consumes the reference on @cc, also on failure. */
static int host_reg_new(struct cuda_ctx *cc, void *ptr, size_t len, unsigned int how, struct host_reg *ret)
{
	struct cuda_reg *reg = calloc(1, sizeof(*reg));
	struct cuda_entry e;
	cu_ptr addr = 0;
	cu_result r;
	int rc;

	rc = reg ? cuda_enter(cc, &e) : -ENOMEM;
	if (rc)
		goto put_ctx;
	r = cu.host_register(ptr, len, CU_HOST_PORTABLE | CU_HOST_DEVICEMAP | how);
	if (!r) {
		r = cu.host_device_ptr(&addr, ptr, 0);
		if (r)
			cu.host_unregister(ptr);
	}
	cuda_leave(&e);
	rc = cuda_errno(r);
	if (rc)
		goto put_ctx;
	*reg = (struct cuda_reg){ .ctx = cc, .ptr = ptr, .dev_addr = addr, .len = len };
	list_init(&reg->node);
	*ret = (struct host_reg){ .ptr = ptr, .len = len, .dev_addr = addr, .priv = reg };
	return 0;
put_ctx:
	cuda_ctx_put(cc);
	free(reg);
	return rc;
}

const void *cuda_file_window_ptr(struct cuda_device *cd, uint64_t dev_addr)
{
	const void *at = NULL;

	pthread_mutex_lock(&cd->reg_lock);
	list_for_each(it, &cd->files) {
		const struct cuda_reg *reg = list_entry(it, struct cuda_reg, node);

		if (dev_addr - reg->dev_addr < reg->len) {
			at = reg->ptr + (dev_addr - reg->dev_addr);
			break;
		}
	}
	pthread_mutex_unlock(&cd->reg_lock);
	return at;
}

int cuda_host_register(struct strait_device *dev, void *ptr, size_t len, uint32_t flags, struct host_reg *ret)
{
	bool read_only = flags & HOST_REG_READ_ONLY;
	struct cuda_ctx *cc;
	int rc;

	if (flags & ~(HOST_REG_READ_ONLY | HOST_REG_FILE) || !ptr || !len)
		return -EINVAL;
	if (flags & HOST_REG_FILE) {
		if (!(dev->caps & STRAIT_DEVICE_REGISTER_FILE))
			return -EOPNOTSUPP;
		/*
		 * Gives -EFAULT for a page past the end of the file. If the kernel lacks the call, the driver fails
		 * when it pins such a page. In both cases a later access cannot raise SIGBUS.
		 */
		rc = os_populate_read(ptr, len);
		if (rc && rc != -EOPNOTSUPP)
			return rc;
		rc = cuda_ctx_get_windows(cuda_device(dev), &cc);
	} else {
		rc = cuda_ctx_get(cuda_device(dev), NULL, &cc);
	}
	if (rc)
		return rc;
	/* Without support for it, read-only registration is only a hint. */
	if (!cuda_device(dev)->read_only)
		read_only = false;
	rc = host_reg_new(cc, ptr, len, read_only ? CU_HOST_READ_ONLY : 0, ret);
	if (!rc && flags & HOST_REG_FILE) {
		pthread_mutex_lock(&cuda_device(dev)->reg_lock);
		list_add(&cuda_device(dev)->files, &((struct cuda_reg *)ret->priv)->node);
		pthread_mutex_unlock(&cuda_device(dev)->reg_lock);
	}
	/* The arguments are valid, so -EINVAL means that pages were truncated since os_populate_read(). */
	return rc == -EINVAL && flags & HOST_REG_FILE ? -EFAULT : rc;
}

void cuda_host_unregister(struct strait_device *dev, struct host_reg *host)
{
	struct cuda_reg *reg = host->priv;
	struct cuda_entry e;

	if (!reg)
		return;
	pthread_mutex_lock(&cuda_device(dev)->reg_lock);
	list_del(&reg->node);
	pthread_mutex_unlock(&cuda_device(dev)->reg_lock);
	if (!cuda_enter(reg->ctx, &e)) {
		/* Windows are unregistered in the background, also while the application resets the device: ask again. */
		if (cuda_ctx_alive(reg->ctx))
			cu.host_unregister(host->ptr);
		cuda_leave(&e);
	}
	cuda_ctx_put(reg->ctx);
	free(reg);
	host->priv = NULL;
}

int cuda_mmio_map(struct strait_device *dev, void *mmio, size_t len, struct host_reg *ret)
{
	struct cuda_ctx *cc;
	int rc;

	if (!mmio || !len)
		return -EINVAL;
	rc = cuda_ctx_get(cuda_device(dev), NULL, &cc);
	return rc ? rc : host_reg_new(cc, mmio, len, CU_HOST_IOMEMORY, ret);
}
