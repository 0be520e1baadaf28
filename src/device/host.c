/* SPDX-License-Identifier: MIT */
#include "device/host.h"

#include <fcntl.h>
#include <stdlib.h>

#include <strait/region.h>

#include "base/util.h"
#include "device/soft/engine.h"
#include "os/os.h"

static int host_open(struct provider *p)
{
	struct strait_device *dev;
	struct soft_engine *eng;

	eng = calloc(1, sizeof(*eng));
	if (!eng)
		return -ENOMEM;
	dev = provider_add_device(p);
	if (!dev) {
		free(eng);
		return -ENOMEM;
	}
	soft_engine_init(eng, dev);
	dev->priv = eng;
	dev->caps = STRAIT_DEVICE_HOST | STRAIT_DEVICE_CPU_MAP | STRAIT_DEVICE_REGISTER | STRAIT_DEVICE_STREAMS;
	return 0;
}

static void host_close(struct provider *p)
{
	list_for_each(it, &p->devices) {
		struct soft_engine *eng = soft_engine(list_entry(it, struct strait_device, node));

		soft_engine_fini(eng);
		free(eng);
	}
}

/* MemAvailable of /proc/meminfo in bytes, 0 if it cannot be read. */
static uint64_t memory_available(void)
{
	static const char key[] = "MemAvailable:";
	char text[512], *at;
	ssize_t n;
	int fd;

	fd = os_open("/proc/meminfo", O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return 0;
	n = os_pread(fd, text, sizeof(text) - 1, 0);
	os_close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	at = strstr(text, key);
	return at ? KIB(strtoull(at + sizeof(key) - 1, NULL, 10)) : 0;
}

static int host_info(struct strait_device *dev, struct strait_device_info *info)
{
	device_info_common(dev, info);
	str_copy(info->model, sizeof(info->model), "Host memory");
	info->pci[0] = '\0';
	info->page_size = (uint32_t)os_page_size();
	info->mem_total = os_memory_total();
	info->mem_free = min_u64(memory_available(), info->mem_total);
	return 0;
}

static int host_mem_import(struct strait_device *dev, uint64_t addr, uint64_t len, uint32_t flags,
			   struct provider_mem *m)
{
	*m = (struct provider_mem){
		.addr = addr, .len = len, .caps = STRAIT_REGION_CPU_MAP, .page_size = (uint32_t)os_page_size()
	};
	return 0;
}

static int host_mem_alloc(struct strait_device *dev, uint64_t len, struct provider_mem *m)
{
	void *p;
	int rc;

	rc = os_map_anon(align_up(len, os_page_size()), dev->numa_node, &p);
	if (rc)
		return rc;
	host_mem_import(dev, (uint64_t)(uintptr_t)p, len, 0, m);
	m->caps |= STRAIT_REGION_PINNABLE;
	return 0;
}

static void host_mem_free(struct strait_device *dev, struct provider_mem *m)
{
	os_unmap((void *)(uintptr_t)m->addr, align_up(m->len, os_page_size()));
}

static int host_mem_map(struct strait_device *dev, const struct provider_mem *m, void **cpu)
{
	*cpu = (void *)(uintptr_t)m->addr;
	return 0;
}

static int host_mem_sync_memops(struct strait_device *dev, const struct provider_mem *m, bool on)
{
	return 0; /* copies by the CPU are always synchronous */
}

const struct provider_ops host_provider_ops = {
	.name = "host",
	.open = host_open,
	.close = host_close,
	.info = host_info,
	.mem_alloc = host_mem_alloc,
	.mem_alloc_pinnable = host_mem_alloc,
	.mem_free = host_mem_free,
	.mem_import = host_mem_import,
	.mem_map = host_mem_map,
	.mem_sync_memops = host_mem_sync_memops,
	SOFT_ENGINE_OPS,
};
