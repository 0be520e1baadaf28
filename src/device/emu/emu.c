/* SPDX-License-Identifier: MIT */
#include "device/emu/emu.h"

#include <fcntl.h>
#include <stdlib.h>

#include "base/lock.h"
#include "base/util.h"
#include "os/os.h"

/* The value of an environment variable, @fallback if it is unset or not a number in [0, max]. */
static uint64_t env_number(const struct log_sink *log, const char *name, uint64_t max, uint64_t fallback)
{
	const char *text = getenv(name);
	unsigned long long v;
	char *end;

	if (!text || !*text)
		return fallback;
	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || *end || *text < '0' || *text > '9' || v > max) {
		log_warn(log, "%s=%s is ignored: it must be a number from 0 to %llu", name, text,
			 (unsigned long long)max);
		return fallback;
	}
	return v;
}

/* Can this process make dma-bufs of a memfd? */
static bool have_udmabuf(void)
{
	int fd = os_open("/dev/udmabuf", O_RDWR | O_CLOEXEC, 0);

	if (fd < 0)
		return false;
	os_close(fd);
	return true;
}

static int emu_add_device(struct provider *p, uint64_t memory, bool dmabuf, bool vm_read)
{
	struct strait_device *dev;
	struct emu_device *emu;

	emu = calloc(1, sizeof(*emu));
	if (!emu)
		return -ENOMEM;
	dev = provider_add_device(p);
	if (!dev) {
		free(emu);
		return -ENOMEM;
	}
	soft_engine_init(&emu->eng, dev);
	emu->eng.pin = emu_pin;
	emu->eng.unpin = emu_unpin;
	emu->fork_generation = os_fork_generation();
	emu->dmabuf = dmabuf;
	emu->total = memory;
	rwlock_init(&emu->lock);
	pthread_mutex_init(&emu->idle_lock, NULL);
	pthread_cond_init(&emu->idle, NULL);
	dev->priv = emu;
	dev->caps = STRAIT_DEVICE_CPU_MAP | STRAIT_DEVICE_REGISTER | STRAIT_DEVICE_STREAMS |
		    STRAIT_DEVICE_REVOKE_NOTICE | STRAIT_DEVICE_MMIO | STRAIT_DEVICE_EMULATED |
		    (dmabuf ? STRAIT_DEVICE_DMABUF : 0) | (vm_read ? STRAIT_DEVICE_REGISTER_FILE : 0);
	dev->tuning.chunk_bytes = KIB(512); /* small enough to stay cached between the read and the copy */
	dev->tuning.cache_window = MIB(2);
	dev->tuning.peer_copies = true;
	return 0;
}

static int emu_open(struct provider *p)
{
	const struct log_sink *log = p->set->log;
	uint64_t n = env_number(log, "STRAIT_EMU_DEVICES", EMU_MAX_DEVICES, 1);
	uint64_t memory = env_number(log, "STRAIT_EMU_MEMORY", INT64_MAX, os_memory_total() / 2);
	bool dmabuf = have_udmabuf(), vm_read = soft_have_vm_read();
	int rc = 0;

	if (!n) {
		str_copy(p->missing_reason, sizeof(p->missing_reason),
			 "STRAIT_EMU_DEVICES=0 turns emulated devices off: unset it, or set it to a number up to 8");
		return -ENODEV;
	}
	p->more_devices_hint = "set STRAIT_EMU_DEVICES to the number you want, up to 8";
	while (!rc && n--)
		rc = emu_add_device(p, align_down(memory, EMU_PAGE), dmabuf, vm_read);
	return rc;
}

static void emu_close(struct provider *p)
{
	list_for_each(it, &p->devices) {
		struct emu_device *emu = emu_device(list_entry(it, struct strait_device, node));

		/* Stop the engine first: its pending ops access the memory. */
		soft_engine_fini(&emu->eng);
		emu_alloc_free_all(emu);
		pthread_cond_destroy(&emu->idle);
		pthread_mutex_destroy(&emu->idle_lock);
		pthread_rwlock_destroy(&emu->lock);
		free(emu);
	}
}

static int emu_info(struct strait_device *dev, struct strait_device_info *info)
{
	struct emu_device *emu = emu_device(dev);

	if (soft_removed(&emu->eng))
		return -ENODEV;
	device_info_common(dev, info);
	str_copy(info->model, sizeof(info->model), "Strait emulated device");
	info->pci[0] = '\0';
	info->page_size = EMU_PAGE;
	info->mem_total = emu->total;
	info->mem_free = emu->total - atomic_load_explicit(&emu->used, memory_order_relaxed);
	return 0;
}

/* The CPU does the work of the device, so the CPU address is the device address. */
static int emu_mmio_map(struct strait_device *dev, void *mmio, size_t len, struct host_reg *ret)
{
	if (soft_removed(soft_engine(dev)))
		return -ENODEV;
	*ret = (struct host_reg){ .ptr = mmio, .len = len, .dev_addr = (uint64_t)(uintptr_t)mmio };
	return 0;
}

void emu_inject_copy_error(struct strait_device *dev, int64_t after_copies, int err)
{
	struct soft_engine *eng = soft_engine(dev);

	atomic_store_explicit(&eng->inject_left, after_copies, memory_order_relaxed);
	atomic_store_explicit(&eng->inject_err, err, memory_order_relaxed);
	atomic_store_explicit(&eng->inject_on, true, memory_order_release);
}

const struct provider_ops emu_provider_ops = {
	.name = "emu",
	.open = emu_open,
	.close = emu_close,
	.info = emu_info,
	.mem_alloc = emu_mem_alloc,
	.mem_alloc_pinnable = emu_mem_alloc,
	.mem_free = emu_mem_free,
	.ptr_device = emu_ptr_device,
	.ptr_extent = emu_ptr_extent,
	.mem_import = emu_mem_import,
	.mem_release = emu_mem_release,
	.mem_check = emu_mem_check,
	.mem_dmabuf = emu_mem_dmabuf,
	.mem_map = emu_mem_map,
	.mem_sync_memops = emu_mem_sync_memops,
	SOFT_ENGINE_OPS,
	.mmio_map = emu_mmio_map,
};
