/* SPDX-License-Identifier: MIT */
#include "device/vgpu/vgpu.h"

#include <fcntl.h>
#include <stdlib.h>

#include <strait/region.h>

#include "base/lock.h"
#include "base/util.h"
#include "os/os.h"
#include "uapi/strait.h"

int vgpu_call(struct vgpu_device *gpu, unsigned long request, void *arg)
{
	int rc = os_ioctl(gpu->fd, request, arg);

	if (rc == -ENODEV && !atomic_exchange_explicit(&gpu->eng.dev->removed, true, memory_order_acq_rel)) {
		log_warn(gpu->eng.dev->provider->set->log, "%s: the device was removed", gpu->eng.dev->name);
		soft_engine_wake(&gpu->eng);
	}
	return rc;
}

static void vgpu_set_caps(struct strait_device *dev, const struct strait_vgpu_info *info)
{
	struct vgpu_device *gpu = vgpu_device(dev);

	gpu->caps = STRAIT_REGION_CPU_MAP | STRAIT_REGION_IDENTITY |
		    (info->caps & STRAIT_VGPU_CAP_DMABUF ? STRAIT_REGION_DMABUF : 0);
	memcpy(gpu->total, info->mem_total, sizeof(gpu->total));
	memcpy(gpu->pci, info->pci, sizeof(gpu->pci));
	gpu->pci[sizeof(gpu->pci) - 1] = '\0';
	dev->numa_node = info->numa_node;
	dev->import_kind = info->caps & STRAIT_VGPU_CAP_P2PDMA ? STRAIT_IMPORT_P2P : 0;
	dev->caps = STRAIT_DEVICE_CPU_MAP | STRAIT_DEVICE_REGISTER | STRAIT_DEVICE_STREAMS | STRAIT_DEVICE_MMIO |
		    STRAIT_DEVICE_REVOKE_NOTICE | (info->caps & STRAIT_VGPU_CAP_DMABUF ? STRAIT_DEVICE_DMABUF : 0) |
		    (soft_have_vm_read() ? STRAIT_DEVICE_REGISTER_FILE : 0);
	dev->tuning.chunk_bytes = KIB(512); /* small enough to stay cached between the read and the copy */
}

/* Consumes @fd, also on failure. */
static int vgpu_add_device(struct provider *p, int fd, const struct strait_vgpu_info *info)
{
	struct strait_device *dev;
	struct vgpu_device *gpu;

	gpu = calloc(1, sizeof(*gpu));
	dev = gpu ? provider_add_device(p) : NULL;
	if (!dev) {
		free(gpu);
		os_close(fd);
		return -ENOMEM;
	}
	soft_engine_init(&gpu->eng, dev);
	gpu->eng.pin = vgpu_pin;
	gpu->eng.unpin = vgpu_unpin;
	gpu->fd = fd;
	gpu->stop_fd = -1;
	pthread_mutex_init(&gpu->watch_lock, NULL);
	rwlock_init(&gpu->lock);
	pthread_mutex_init(&gpu->idle_lock, NULL);
	pthread_cond_init(&gpu->idle, NULL);
	dev->priv = gpu;
	vgpu_set_caps(dev, info);
	return 0;
}

/* Opens /dev/strait_vgpu<n>. -ENOENT: it does not exist. Other errors are described in p->missing_reason. */
static int vgpu_open_node(struct provider *p, unsigned int n)
{
	struct strait_vgpu_info info = { .size = sizeof(info) };
	char path[32];
	int fd, rc;

	str_format(path, sizeof(path), "/dev/strait_vgpu%u", n);
	fd = os_open(path, O_RDWR, 0);
	if (fd == -ENOENT)
		return fd;
	if (fd < 0) {
		str_format(p->missing_reason, sizeof(p->missing_reason), "cannot open %s: %s%s", path, strerror(-fd),
			   fd == -EACCES ? "; run as the owner of that file, by default root" : "");
		return fd;
	}
	rc = os_ioctl(fd, STRAIT_VGPU_INFO, &info);
	if (!rc && info.abi != STRAIT_VGPU_ABI)
		rc = -EPROTO;
	if (rc) {
		str_format(p->missing_reason, sizeof(p->missing_reason),
			   "the driver of %s is not compatible (%s): load the strait_vgpu of this version of Strait",
			   path, strerror(-rc));
		os_close(fd);
		return rc;
	}
	return vgpu_add_device(p, fd, &info);
}

static int vgpu_open(struct provider *p)
{
	int rc, first = -ENODEV;

	for (unsigned int n = 0; n < VGPU_MAX_DEVICES; n++) {
		rc = vgpu_open_node(p, n);
		if (rc == -ENOMEM)
			return rc;
		if (rc && rc != -ENOENT)
			first = rc;
	}
	if (p->n)
		return 0;
	if (!p->missing_reason[0])
		str_copy(p->missing_reason, sizeof(p->missing_reason),
			 "/dev/strait_vgpu0 does not exist: the lab GPU is available in the lab's virtual machine "
			 "(strait lab shell), with the driver strait_vgpu loaded");
	return first;
}

static void vgpu_close(struct provider *p)
{
	list_for_each(it, &p->devices) {
		struct vgpu_device *gpu = vgpu_device(list_entry(it, struct strait_device, node));

		vgpu_watch_stop(gpu);
		/* Stop the engine first: its pending ops access the memory. */
		soft_engine_fini(&gpu->eng);
		vgpu_alloc_free_all(gpu);
		os_close(gpu->fd);
		pthread_mutex_destroy(&gpu->watch_lock);
		pthread_cond_destroy(&gpu->idle);
		pthread_mutex_destroy(&gpu->idle_lock);
		pthread_rwlock_destroy(&gpu->lock);
		free(gpu);
	}
}

static int vgpu_info(struct strait_device *dev, struct strait_device_info *info)
{
	struct strait_vgpu_info now = { .size = sizeof(now) };
	struct vgpu_device *gpu = vgpu_device(dev);
	int rc;

	rc = vgpu_call(gpu, STRAIT_VGPU_INFO, &now);
	if (rc)
		return -ENODEV;
	device_info_common(dev, info);
	str_format(info->model, sizeof(info->model), "Strait lab GPU%s",
		   now.caps & STRAIT_VGPU_CAP_P2PDMA ? ", peer-to-peer pages" : "");
	str_copy(info->pci, sizeof(info->pci), gpu->pci);
	info->page_size = VGPU_PAGE;
	info->mem_total = gpu->total[STRAIT_VGPU_MEM_PLAIN];
	info->mem_free = now.mem_free[STRAIT_VGPU_MEM_PLAIN];
	return 0;
}

/* The CPU does the work of the device, so the CPU address is the device address. */
static int vgpu_mmio_map(struct strait_device *dev, void *mmio, size_t len, struct host_reg *ret)
{
	if (soft_removed(soft_engine(dev)))
		return -ENODEV;
	*ret = (struct host_reg){ .ptr = mmio, .len = len, .dev_addr = (uint64_t)(uintptr_t)mmio };
	return 0;
}

const struct provider_ops vgpu_provider_ops = {
	.name = "vgpu",
	.open = vgpu_open,
	.close = vgpu_close,
	.info = vgpu_info,
	.mem_alloc = vgpu_mem_alloc,
	.mem_alloc_pinnable = vgpu_mem_alloc_pinnable,
	.mem_free = vgpu_mem_free,
	.ptr_device = vgpu_ptr_device,
	.ptr_extent = vgpu_ptr_extent,
	.mem_import = vgpu_mem_import,
	.mem_release = vgpu_mem_release,
	.mem_check = vgpu_mem_check,
	.mem_dmabuf = vgpu_mem_dmabuf,
	.mem_map = vgpu_mem_map,
	.mem_map_io = vgpu_mem_map_io,
	.mem_unmap_io = vgpu_mem_unmap_io,
	.mem_sync_memops = vgpu_mem_sync_memops,
	SOFT_ENGINE_OPS,
	.mmio_map = vgpu_mmio_map,
};
