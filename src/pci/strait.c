/* SPDX-License-Identifier: MIT */
/* A PCI device through strait.ko. */
#include <fcntl.h>
#include <stdlib.h>

#include "base/util.h"
#include "module/module.h"
#include "os/os.h"
#include "pci/backend.h"

struct strait_pci {
	struct pci_device dev;
	int fd;			      /* the open device node; the device is attached to it */
	struct strait_status *status; /* a page that the kernel writes and this side only reads */
	int *irq;		      /* eventfds of dev.vectors; -1: not opened yet */
};

/* pci_mapping.priv */
struct strait_mapping {
	uint32_t region, handle;
	uint32_t where;	  /* STRAIT_WHERE_* */
	uint32_t revoked; /* strait_status.revoked when the mapping was last known to be valid */
};

static struct strait_pci *strait_pci(const struct pci_device *dev)
{
	return container_of(dev, struct strait_pci, dev);
}

static int config_read(struct pci_device *dev, unsigned int off, unsigned int size, uint32_t *value)
{
	struct strait_ioc_config req = { .size = sizeof(req), .offset = off, .width = size };
	int rc = os_ioctl(strait_pci(dev)->fd, STRAIT_IOC_CONFIG, &req);

	if (!rc)
		*value = req.value;
	return rc;
}

static int control(struct pci_device *dev, uint32_t what, uint32_t value)
{
	struct strait_ioc_control req = { .size = sizeof(req), .what = what, .value = value };

	return os_ioctl(strait_pci(dev)->fd, STRAIT_IOC_CONTROL, &req);
}

static int bus_master(struct pci_device *dev, bool on)
{
	return control(dev, STRAIT_CONTROL_BUS_MASTER, on);
}

static int reset(struct pci_device *dev)
{
	return control(dev, STRAIT_CONTROL_RESET, 0);
}

static int address_bits(struct pci_device *dev, unsigned int bits)
{
	return control(dev, STRAIT_CONTROL_ADDRESS_BITS, bits);
}

static int irq(struct pci_device *dev, unsigned int vector, int *fd)
{
	struct strait_ioc_irq req = { .size = sizeof(req), .vector = vector };
	struct strait_pci *p = strait_pci(dev);
	int rc, event;

	if (vector >= dev->vectors)
		return -EINVAL;
	if (p->irq[vector] < 0) {
		rc = os_event_fd(&event);
		if (rc)
			return rc;
		req.fd = event;
		rc = os_ioctl(p->fd, STRAIT_IOC_IRQ, &req);
		if (rc) {
			os_close(event);
			return rc;
		}
		p->irq[vector] = event;
	}
	*fd = p->irq[vector];
	return 0;
}

static void unmap_handle(struct strait_pci *p, uint32_t handle)
{
	struct strait_ioc_mapping req = { .size = sizeof(req), .handle = handle };

	os_ioctl(p->fd, STRAIT_IOC_UNMAP, &req);
}

static int read_runs(struct strait_pci *p, const struct strait_ioc_map *map, struct pci_run **ret)
{
	struct pci_run *runs = malloc(map->runs * sizeof(*runs));
	struct strait_ioc_runs req = { .size = sizeof(req), .handle = map->handle };
	int rc = 0;

	_Static_assert(sizeof(struct pci_run) == sizeof(struct strait_run), "the kernel fills them");
	if (!runs)
		return -ENOMEM;
	if (map->runs == 1)
		runs[0] = (struct pci_run){ map->bus, map->contiguous };
	while (map->runs > 1 && !rc && req.first < map->runs) {
		req.runs = (uintptr_t)(runs + req.first);
		req.count = map->runs - req.first;
		rc = os_ioctl(p->fd, STRAIT_IOC_RUNS, &req);
		if (!rc && !req.count)
			rc = -EPROTO;
		req.first += req.count;
	}
	if (rc)
		free(runs);
	else
		*ret = runs;
	return rc;
}

static int map_imported(struct strait_pci *p, uint32_t region, uint64_t length, unsigned int flags, uint64_t head,
			struct pci_mapping *m)
{
	struct strait_ioc_map req = { .size = sizeof(req), .region = region, .length = length };
	struct strait_mapping *s = malloc(sizeof(*s));
	struct pci_run *runs;
	int rc;

	if (!s)
		return -ENOMEM;
	req.flags = (flags & PCI_MAP_READ ? STRAIT_MAP_READ : 0) | (flags & PCI_MAP_WRITE ? STRAIT_MAP_WRITE : 0);
	/* Read the count before mapping: a later revocation changes it. */
	*s = (struct strait_mapping){ .region = region,
				      .revoked = __atomic_load_n(&p->status->revoked, __ATOMIC_ACQUIRE) };
	rc = os_ioctl(p->fd, STRAIT_IOC_MAP, &req);
	if (rc == -EOPNOTSUPP)
		log_warn(p->dev.log, "%s: memory cannot be mapped for its DMA: %s", p->dev.name,
			 module_attach_reason(req.reason));
	if (rc)
		goto free_mapping;
	if (req.access & ~req.flags)
		log_info(p->dev.log,
			 "%s: the kernel mapped the memory for both reading and writing, although one was requested",
			 p->dev.name);
	rc = read_runs(p, &req, &runs);
	if (rc)
		goto unmap;
	s->handle = req.handle;
	s->where = req.where;
	pci_fill_runs(m, runs, req.runs, head);
	m->priv = s;
	return 0;
unmap:
	unmap_handle(p, req.handle);
free_mapping:
	free(s);
	return rc;
}

/* Map an import. Releases it if mapping fails. */
static int map_or_release(struct strait_pci *p, const struct strait_ioc_import *req, unsigned int flags, uint64_t head,
			  struct pci_mapping *m)
{
	int rc = map_imported(p, req->handle, req->length, flags, head, m);

	if (rc)
		module_release(p->fd, req->handle);
	return rc;
}

static int map_address(struct strait_pci *p, uint32_t kind, uint64_t addr, unsigned int flags, struct pci_mapping *m)
{
	struct strait_ioc_import req;
	struct page_span pages;
	int rc = module_import_pages(p->fd, kind, addr, m->length, &pages, &req);

	if (!rc)
		rc = map_or_release(p, &req, flags, pages.head, m);
	if (rc == -ENOMEM && kind == STRAIT_IMPORT_USER)
		log_warn(p->dev.log, "%s: %llu bytes cannot be locked in memory: ulimit -l may be too small",
			 p->dev.name, (unsigned long long)pages.length);
	return rc;
}

/*
 * Memory of the process that the kernel cannot pin may be that of a peer memory client, as drivers of devices map their
 * memory: ask the clients, as ibv_reg_mr() does on a vendor's kernel.
 */
static int map_process(struct strait_pci *p, uint64_t addr, unsigned int flags, struct pci_mapping *m)
{
	int rc = map_address(p, STRAIT_IMPORT_USER, addr, flags, m), peer;

	if (rc != -EOPNOTSUPP && rc != -EFAULT)
		return rc;
	peer = map_address(p, STRAIT_IMPORT_PEER, addr, flags, m);
	return peer == -EOPNOTSUPP || peer == -EFAULT ? rc : peer;
}

static int map_host(struct pci_device *dev, void *addr, uint64_t len, unsigned int flags, struct pci_mapping *m)
{
	return map_process(strait_pci(dev), (uintptr_t)addr, flags, m);
}

/* The region as a dma-buf, up to the end of its last page: -EOPNOTSUPP where its provider has no such dma-buf. */
static int map_dmabuf(struct strait_pci *p, struct strait_region *r, uint64_t off, unsigned int flags,
		      struct pci_mapping *m)
{
	struct page_span pages = page_span(r->mem.addr + off, m->length, os_page_size());
	struct strait_ioc_import req = { .kind = STRAIT_IMPORT_DMABUF, .length = pages.length };
	uint64_t at;
	int rc, fd;

	if (!(r->mem.caps & STRAIT_REGION_DMABUF) || pages.start < r->mem.addr)
		return -EOPNOTSUPP;
	rc = r->dev->ops->mem_dmabuf_part(r->dev, &r->mem, pages.start - r->mem.addr, pages.length, &fd, &at);
	if (rc)
		return rc == -EINVAL ? -EOPNOTSUPP : rc;
	req.fd = fd;
	req.address = at;
	rc = module_import(p->fd, &req);
	if (!rc)
		rc = map_or_release(p, &req, flags, pages.head, m);
	os_close(fd);
	/* The exporter may migrate device memory to host memory if the two devices cannot reach each other. */
	if (!rc && r->dev->import_kind && ((struct strait_mapping *)m->priv)->where == STRAIT_WHERE_HOST)
		log_warn(p->dev.log,
			 "%s: the driver of %s migrated the memory to host memory for this device: DMA does not "
			 "reach device memory",
			 p->dev.name, r->dev->name);
	return rc;
}

/*
 * Prefer a dma-buf: its exporter revokes the mapping before it frees the memory, and waits for that. Otherwise map pages,
 * by their address in the process or on the GPU.
 */
static int map_used(struct strait_pci *p, struct strait_region *r, uint64_t off, unsigned int flags,
		    struct pci_mapping *m)
{
	uint32_t kind = r->dev->import_kind;
	void *cpu;
	int rc;

	rc = map_dmabuf(p, r, off, flags, m);
	if (rc != -EOPNOTSUPP)
		return rc;
	if (kind == STRAIT_IMPORT_NVP2P)
		return map_address(p, kind, r->mem.addr + off, flags, m);
	rc = r->dev->ops->mem_map(r->dev, &r->mem, &cpu);
	if (rc)
		return rc;
	return kind ? map_address(p, kind, (uintptr_t)cpu + off, flags, m) :
		      map_process(p, (uintptr_t)cpu + off, flags, m);
}

static int map_region(struct pci_device *dev, struct strait_region *region, uint64_t off, uint64_t len,
		      unsigned int flags, struct pci_mapping *m)
{
	int rc = region_use(region, off, len);

	if (rc)
		return rc;
	rc = map_used(strait_pci(dev), region, off, flags, m);
	region_unuse(region);
	if (rc == -EOPNOTSUPP)
		log_warn(dev->log, "%s: memory of %s cannot be mapped for its DMA", dev->name, region->dev->name);
	return rc;
}

static void unmap(struct pci_device *dev, struct pci_mapping *m)
{
	struct strait_mapping *s = m->priv;

	unmap_handle(strait_pci(dev), s->handle);
	module_release(strait_pci(dev)->fd, s->region);
	free(s);
}

static int mapping_check(struct pci_device *dev, const struct pci_mapping *m)
{
	struct strait_pci *p = strait_pci(dev);
	struct strait_mapping *s = m->priv;
	struct strait_ioc_mapping req = { .size = sizeof(req), .handle = s->handle };
	uint32_t revoked = __atomic_load_n(&p->status->revoked, __ATOMIC_ACQUIRE);
	int rc;

	if (__atomic_load_n(&p->status->gone, __ATOMIC_RELAXED))
		return -ENODEV;
	if (revoked == s->revoked)
		return 0;
	rc = os_ioctl(p->fd, STRAIT_IOC_MAPPED, &req);
	if (!rc)
		s->revoked = revoked;
	return rc;
}

static void close_device(struct pci_device *dev)
{
	struct strait_pci *p = strait_pci(dev);

	for (unsigned int i = 0; i < PCI_BARS; i++)
		if (dev->bar[i].at)
			os_unmap((void *)dev->bar[i].at, dev->bar[i].length);
	if (p->status)
		os_unmap(p->status, os_page_size());
	/* The device is detached when its node is closed and no mapping is left. */
	os_close(p->fd);
	for (unsigned int i = 0; p->irq && i < dev->vectors; i++)
		if (p->irq[i] >= 0)
			os_close(p->irq[i]);
	free(p->irq);
	free(p);
}

static const struct pci_ops ops = {
	.name = "strait",
	.revokes = true,
	.close = close_device,
	.config_read = config_read,
	.bus_master = bus_master,
	.reset = reset,
	.irq = irq,
	.map_region = map_region,
	.map_host = map_host,
	.unmap = unmap,
	.mapping_check = mapping_check,
	.address_bits = address_bits,
};

static int attach(int fd, const char *name, struct strait_ioc_attach *req, char *why, size_t len)
{
	struct strait_ioc_info info;
	int rc = module_info(fd, &info);

	if (rc || !(info.features & STRAIT_FEATURE_ATTACH)) {
		str_format(why, len, "the version of strait.ko does not match this library: load the matching module");
		return -EPROTO;
	}
	rc = os_ioctl(fd, STRAIT_IOC_ATTACH, req);
	if (rc == -EOPNOTSUPP)
		module_attach_explain(name, req, why, len);
	else if (rc == -EBUSY)
		str_format(why, len, "%s is open in another process", name);
	else if (rc)
		str_format(why, len, "%s cannot be attached: %s", name, strerror(-rc));
	return rc;
}

static int map_bars(struct strait_pci *p, const struct strait_ioc_attach *info)
{
	void *at;
	int rc;

	for (unsigned int i = 0; i < PCI_BARS; i++) {
		if (!info->bar_length[i])
			continue;
		rc = os_map_device(p->fd, STRAIT_MMAP_BAR(i), info->bar_length[i], os_page_size(), &at);
		if (rc)
			return rc;
		p->dev.bar[i].at = at;
		p->dev.bar[i].length = info->bar_length[i];
	}
	rc = os_map_file(p->fd, STRAIT_MMAP_STATUS, os_page_size(), &at);
	if (!rc)
		p->status = at;
	return rc;
}

static int set_up(struct strait_pci *p, const struct strait_ioc_attach *info)
{
	struct pci_device *dev = &p->dev;
	int rc;

	dev->ops = &ops;
	str_copy(dev->name, sizeof(dev->name), info->pci);
	dev->vendor = (uint16_t)info->vendor;
	dev->device = (uint16_t)info->device;
	dev->class_code = info->class_code;
	dev->node = info->node;
	rc = map_bars(p, info);
	if (rc)
		return rc;
	p->irq = malloc((info->vectors + 1) * sizeof(*p->irq));
	if (!p->irq)
		return -ENOMEM;
	dev->vectors = info->vectors;
	for (unsigned int i = 0; i < dev->vectors; i++)
		p->irq[i] = -1;
	return 0;
}

static int open_node(const char *name, char *why, size_t len)
{
	char path[64];
	int fd;

	str_format(path, sizeof(path), PCI_NODES "/%s", name);
	fd = os_open(path, O_RDWR | O_CLOEXEC, 0);
	if (fd == -EACCES || fd == -EPERM)
		str_format(why, len, "%s cannot be opened by this user: as root, strait bind %s --owner USER", path,
			   name);
	else if (fd == -ENOENT)
		str_format(why, len, "%s does not exist: load the version of strait.ko that matches this library",
			   path);
	else if (fd < 0)
		str_format(why, len, "%s cannot be opened: %s", path, strerror(-fd));
	return fd;
}

int pci_open_strait(const struct log_sink *log, const char *name, const char *backend, char *why, size_t why_len,
		    struct pci_device **ret)
{
	struct strait_ioc_attach req = { .size = sizeof(req) };
	struct strait_pci *p = calloc(1, sizeof(*p));
	int rc;

	if (!p)
		return -ENOMEM;
	p->dev.log = log;
	p->fd = open_node(name, why, why_len);
	if (p->fd < 0) {
		rc = p->fd;
		free(p);
		return rc;
	}
	rc = attach(p->fd, name, &req, why, why_len);
	if (!rc) {
		rc = set_up(p, &req);
		if (rc)
			str_format(why, why_len, "%s: its registers cannot be mapped: %s", name, strerror(-rc));
	}
	if (rc) {
		close_device(&p->dev);
		return rc;
	}
	*ret = &p->dev;
	return 0;
}
