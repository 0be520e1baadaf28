/* SPDX-License-Identifier: MIT */
#include "device/cuda/cuda.h"

#include <ctype.h>
#include <stdlib.h>

#include "base/util.h"
#include "os/os.h"
#include "uapi/strait.h"

static int device_attribute(cu_device ordinal, int which)
{
	int value = 0;

	return cu.device_attribute(&value, which, ordinal) ? 0 : value;
}

/* -1: unknown. */
static int numa_node_of(const char *pci)
{
	char path[80], text[16];

	str_format(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", pci);
	return os_read_line(path, text, sizeof(text)) || !isdigit((unsigned char)text[0]) ? -1 : atoi(text);
}

static void read_device_attributes(struct cuda_device *cd)
{
	size_t total = 0;

	if (cu.device_name(cd->model, sizeof(cd->model), cd->ordinal))
		str_copy(cd->model, sizeof(cd->model), "NVIDIA GPU");
	if (!cu.device_memory(&total, cd->ordinal))
		cd->mem_total = total;
	str_format(cd->pci, sizeof(cd->pci), "%04x:%02x:%02x.0",
		   (unsigned int)device_attribute(cd->ordinal, CU_DEV_PCI_DOMAIN),
		   (unsigned int)device_attribute(cd->ordinal, CU_DEV_PCI_BUS) & 0xff,
		   (unsigned int)device_attribute(cd->ordinal, CU_DEV_PCI_DEVICE) & 0xff);
	cd->arch = (unsigned int)(device_attribute(cd->ordinal, CU_DEV_CAPABILITY_MAJOR) * 10 +
				  device_attribute(cd->ordinal, CU_DEV_CAPABILITY_MINOR));
	cd->dmabuf = cu.range_handle && device_attribute(cd->ordinal, CU_DEV_DMABUF);
	cd->managed_cpu = device_attribute(cd->ordinal, CU_DEV_CONCURRENT_MANAGED);
	cd->read_only = device_attribute(cd->ordinal, CU_DEV_READ_ONLY_HOST_REGISTER);
	cd->flush_options = device_attribute(cd->ordinal, CU_DEV_RDMA_FLUSH_OPTIONS);
	cd->writes_ordering = device_attribute(cd->ordinal, CU_DEV_RDMA_WRITES_ORDERING);
}

static int cuda_add_device(struct provider *p, cu_device ordinal)
{
	struct strait_device *dev;
	struct cuda_device *cd;

	cd = calloc(1, sizeof(*cd));
	if (!cd)
		return -ENOMEM;
	dev = provider_add_device(p);
	if (!dev) {
		free(cd);
		return -ENOMEM;
	}
	cd->dev = dev;
	cd->ordinal = ordinal;
	pthread_mutex_init(&cd->lock, NULL);
	pthread_mutex_init(&cd->reg_lock, NULL);
	list_init(&cd->files);
	cuda_watch_init(&cd->watch);
	cuda_windows_init(&cd->windows);
	list_init(&cd->contexts);
	dev->priv = cd;
	read_device_attributes(cd);
	dev->numa_node = numa_node_of(cd->pci);
	dev->import_kind = STRAIT_IMPORT_NVP2P;
	dev->caps = STRAIT_DEVICE_REGISTER | STRAIT_DEVICE_MMIO | (cd->dmabuf ? STRAIT_DEVICE_DMABUF : 0) |
		    (cd->read_only ? STRAIT_DEVICE_REGISTER_FILE : 0) |
		    (cu.stream_wait_value ? STRAIT_DEVICE_STREAMS : 0);
	dev->tuning = (struct device_tuning){
		.chunk_bytes = MIB(4),
		.pool_bytes = MIB(128),
		.window_bytes = MIB(128),
		.cache_window = MIB(16),
		.mixed_window = MIB(32),
		.register_lanes = 1, /* the driver serializes registrations */
		.readahead = 3,
		.stream_copies = true,
		.pins_host = true,
		.mixed_readers = 6,
		.small_bytes = KIB(256),
		.register_bytes = MIB(8),
		.peer_copies = true,
	};
	return 0;
}

static int cuda_open(struct provider *p)
{
	int rc, n = 0;
	cu_device dev;
	cu_result r;

	rc = cuda_api_load(p->missing_reason, sizeof(p->missing_reason));
	if (rc)
		return rc;
	r = cu.device_count(&n);
	if (r || !n) {
		str_format(
			p->missing_reason, sizeof(p->missing_reason),
			"the CUDA driver sees no GPU%s%s: check nvidia-smi, CUDA_VISIBLE_DEVICES, and the devices given to the container",
			r ? ": " : "", r ? cuda_error_name(r) : "");
		return r ? cuda_open_errno(r) : -ENODEV;
	}
	for (int i = 0; i < n && !rc; i++) {
		r = cu.device_get(&dev, i);
		if (r) {
			str_format(p->missing_reason, sizeof(p->missing_reason),
				   "the CUDA driver cannot open GPU %d (%s): check nvidia-smi and the kernel log", i,
				   cuda_error_name(r));
			rc = cuda_open_errno(r);
		} else {
			rc = cuda_add_device(p, dev);
		}
	}
	return rc;
}

static void cuda_close(struct provider *p)
{
	list_for_each(it, &p->devices) {
		struct strait_device *dev = list_entry(it, struct strait_device, node);
		struct cuda_device *cd = cuda_device(dev);

		cuda_watch_fini(&cd->watch);
		cuda_windows_fini(&cd->windows);
		if (cd->primary)
			cuda_ctx_put(cd->primary);
		pthread_mutex_destroy(&cd->reg_lock);
		pthread_mutex_destroy(&cd->lock);
		free(cd);
	}
}

/* The primary context, if the application or the provider has created it. */
static int cuda_context_get(struct strait_device *dev, struct provider_mem *m)
{
	struct cuda_device *cd = cuda_device(dev);
	struct cuda_ctx *cc;
	unsigned int flags;
	int rc, active = 0;

	if (cu.primary_state(cd->ordinal, &flags, &active) || !active)
		return -ENODEV;
	rc = cuda_ctx_get(cd, NULL, &cc);
	if (!rc)
		*m = (struct provider_mem){ .context = (uintptr_t)cc };
	return rc;
}

static void cuda_context_put(struct strait_device *dev, struct provider_mem *m)
{
	cuda_ctx_put((struct cuda_ctx *)m->context);
}

/*
 * The driver reports free memory in a context only, and creating one takes time and memory. If the primary context is
 * not active this returns the total memory.
 */
static uint64_t device_memory_free(struct cuda_device *cd)
{
	size_t free_bytes = 0, total;
	struct cuda_ctx *cc;
	struct cuda_entry e;
	unsigned int flags;
	int active = 0;

	if (cu.primary_state(cd->ordinal, &flags, &active) || !active || cuda_ctx_get(cd, NULL, &cc))
		return cd->mem_total;
	if (!cuda_enter(cc, &e)) {
		if (cu.mem_info(&free_bytes, &total))
			free_bytes = 0;
		cuda_leave(&e);
	}
	cuda_ctx_put(cc);
	return free_bytes;
}

static int cuda_info(struct strait_device *dev, struct strait_device_info *info)
{
	struct cuda_device *cd = cuda_device(dev);

	if (cuda_removed(cd))
		return -ENODEV;
	device_info_common(dev, info);
	str_copy(info->model, sizeof(info->model), cd->model);
	str_copy(info->pci, sizeof(info->pci), cd->pci);
	info->page_size = CUDA_PAGE;
	info->mem_total = cd->mem_total;
	info->mem_free = device_memory_free(cd);
	return 0;
}

const struct provider_ops cuda_provider_ops = {
	.name = "cuda",
	.open = cuda_open,
	.close = cuda_close,
	.info = cuda_info,
	.mem_alloc = cuda_mem_alloc,
	.mem_free = cuda_mem_free,
	.ptr_device = cuda_ptr_device,
	.ptr_extent = cuda_ptr_extent,
	.mem_import = cuda_mem_import,
	.mem_release = cuda_mem_release,
	.mem_check = cuda_mem_check,
	.mem_dmabuf = cuda_mem_dmabuf,
	.mem_map = cuda_mem_map,
	.mem_sync_memops = cuda_mem_sync_memops,
	.flush_peer_writes = cuda_flush_peer_writes,
	.mmio_map = cuda_mmio_map,
	.mmio_unmap = cuda_host_unregister,
	.host_register = cuda_host_register,
	.host_unregister = cuda_host_unregister,
	.register_ready = cuda_register_ready,
	.context_get = cuda_context_get,
	.context_put = cuda_context_put,
	.stream_open = cuda_stream_open,
	.stream_open_isolated = cuda_stream_open_isolated,
	.stream_scratch = cuda_stream_scratch,
	.stream_import = cuda_stream_import,
	.stream_close = cuda_stream_close,
	.stream_detach = cuda_stream_detach,
	.stream_lost = cuda_stream_lost,
	.stream_wait = cuda_stream_wait,
	.stream_call = cuda_stream_call,
	.stream_notify = cuda_stream_notify,
	.stream_poll_notices = cuda_stream_poll_notices,
	.stream_wait_word = cuda_stream_wait_word,
	.mark_open = cuda_mark_open,
	.copy_marked = cuda_copy_marked,
	.stream_wait_soon = cuda_stream_wait_soon,
	.copy_in = cuda_copy_in,
	.copy_pages = cuda_copy_pages,
	.copy_out = cuda_copy_out,
	.copy_list = cuda_copy_list,
	.copy_peer = cuda_copy_peer,
	.prepare_copy_lists = cuda_prepare_copy_lists,
	.stream_waits_begin = cuda_stream_waits_begin,
	.stream_waits_end = cuda_stream_waits_end,
	.fill = cuda_fill,
	.compare = cuda_compare,
	.crc32c = cuda_crc32c,
	.compare_pages = cuda_compare_pages,
	.event_open = cuda_event_open,
	.event_close = cuda_event_close,
	.event_record = cuda_event_record,
	.event_wait = cuda_event_wait,
	.copy_now = cuda_copy_now,
	.copy_within_now = cuda_copy_within_now,
};
