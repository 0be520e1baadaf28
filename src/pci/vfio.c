/* SPDX-License-Identifier: MIT */
/* A PCI device through VFIO: opening, registers, interrupts. */
#include <stdlib.h>

#include "base/util.h"
#include "os/dir.h"
#include "os/os.h"
#include "pci/backend.h"
#include "pci/vfio.h"

#define VECTORS_MAX 64u
#define COMMAND 4u /* offset in configuration space */
#define COMMAND_MEMORY 2u
#define COMMAND_MASTER 4u

/* Registers of a BAR that cannot be mapped. A failed read returns all ones, as on the bus. */
static uint64_t read_register(struct pci_device *dev, unsigned int bar, uint64_t off, size_t len)
{
	struct vfio_pci *p = vfio_pci(dev);
	uint64_t value = 0;

	if (os_pread(p->v.device, &value, len, p->bar_at[bar] + off) != (ssize_t)len)
		return UINT64_MAX;
	return value;
}

static void write_register(struct pci_device *dev, unsigned int bar, uint64_t off, uint64_t value, size_t len)
{
	struct vfio_pci *p = vfio_pci(dev);

	if (os_pwrite(p->v.device, &value, len, p->bar_at[bar] + off) != (ssize_t)len)
		log_warn(dev->log, "%s: writing a register failed", dev->name);
}

static uint32_t read32(struct pci_device *dev, unsigned int bar, uint64_t off)
{
	return (uint32_t)read_register(dev, bar, off, 4);
}

static uint64_t read64(struct pci_device *dev, unsigned int bar, uint64_t off)
{
	return read_register(dev, bar, off, 8);
}

static void write32(struct pci_device *dev, unsigned int bar, uint64_t off, uint32_t value)
{
	write_register(dev, bar, off, value, 4);
}

static void write64(struct pci_device *dev, unsigned int bar, uint64_t off, uint64_t value)
{
	write_register(dev, bar, off, value, 8);
}

static int config_read(struct pci_device *dev, unsigned int off, unsigned int size, uint32_t *value)
{
	struct vfio_pci *p = vfio_pci(dev);
	uint32_t read = 0;
	ssize_t n;

	if ((size != 1 && size != 2 && size != 4) || off % size)
		return -EINVAL;
	n = os_pread(p->v.device, &read, size, p->config + off);
	if (n != (ssize_t)size)
		return n < 0 ? (int)n : -EINVAL;
	*value = read;
	return 0;
}

static int bus_master(struct pci_device *dev, bool on)
{
	struct vfio_pci *p = vfio_pci(dev);
	uint32_t command = 0;
	uint16_t word;
	ssize_t n;
	int rc = config_read(dev, COMMAND, 2, &command);

	if (rc)
		return rc;
	word = (uint16_t)((command & ~COMMAND_MASTER) | COMMAND_MEMORY | (on ? COMMAND_MASTER : 0));
	n = os_pwrite(p->v.device, &word, sizeof(word), p->config + COMMAND);
	return n == sizeof(word) ? 0 : n < 0 ? (int)n : -EIO;
}

static int reset(struct pci_device *dev)
{
	return os_vfio_reset(&vfio_pci(dev)->v);
}

static int address_bits(struct pci_device *dev, unsigned int bits)
{
	if (bits < 24 || bits > 64)
		return -EINVAL;
	vfio_pci(dev)->iova.limit = UINT64_MAX >> (64 - bits);
	return 0;
}

static void close_irqs(int *irq, unsigned int n)
{
	for (unsigned int i = 0; irq && i < n; i++)
		if (irq[i] >= 0)
			os_close(irq[i]);
	free(irq);
}

/* All vectors at once: with most devices vectors cannot be added later. */
static int open_irqs(struct vfio_pci *p)
{
	unsigned int n = p->dev.vectors, i;
	int *irq = malloc(n * sizeof(*irq)), rc = 0;

	if (!irq)
		return -ENOMEM;
	for (i = 0; i < n && !rc; i++) {
		irq[i] = -1;
		rc = os_event_fd(&irq[i]);
	}
	if (!rc)
		rc = os_vfio_irqs(&p->v, irq);
	if (rc)
		close_irqs(irq, i);
	else
		p->irq = irq;
	return rc;
}

static int irq(struct pci_device *dev, unsigned int vector, int *fd)
{
	struct vfio_pci *p = vfio_pci(dev);
	int rc = 0;

	if (vector >= dev->vectors)
		return -EINVAL;
	if (!p->irq)
		rc = open_irqs(p);
	if (!rc)
		*fd = p->irq[vector];
	return rc;
}

/* Mappings are never revoked, and vfio-pci does not unbind while the device is open. */
static int mapping_check(struct pci_device *dev, const struct pci_mapping *m)
{
	return 0;
}

static void close_device(struct pci_device *dev)
{
	struct vfio_pci *p = vfio_pci(dev);

	for (unsigned int i = 0; i < PCI_BARS; i++)
		if (dev->bar[i].at)
			os_unmap((void *)dev->bar[i].at, dev->bar[i].length);
	os_vfio_close(&p->v);
	close_irqs(p->irq, dev->vectors);
	iova_fini(&p->iova);
	free(p);
}

static const struct pci_ops ops = {
	.name = "vfio",
	.revokes = false,
	.close = close_device,
	.read32 = read32,
	.read64 = read64,
	.write32 = write32,
	.write64 = write64,
	.config_read = config_read,
	.bus_master = bus_master,
	.reset = reset,
	.irq = irq,
	.map_region = vfio_map_region,
	.map_host = vfio_map_host,
	.unmap = vfio_unmap,
	.mapping_check = mapping_check,
	.address_bits = address_bits,
};

static int open_bars(struct vfio_pci *p)
{
	struct os_vfio_bar bar;
	void *at;
	int rc;

	for (unsigned int i = 0; i < PCI_BARS; i++) {
		/* The upper half of a 64-bit BAR has no length. */
		if (os_vfio_bar(&p->v, i, &bar) || !bar.length)
			continue;
		p->bar_at[i] = bar.offset;
		if (bar.mappable) {
			rc = os_map_device(p->v.device, bar.offset, bar.length, os_page_size(), &at);
			if (rc)
				return rc;
			p->dev.bar[i].at = at;
		}
		p->dev.bar[i].length = bar.length;
	}
	return 0;
}

static int open_iova(struct vfio_pci *p)
{
	struct os_vfio_range found[OS_VFIO_RANGES];
	struct iova_range usable[OS_VFIO_RANGES];
	int n = os_vfio_ranges(&p->v, found);

	if (n < 0)
		return n;
	for (int i = 0; i < n; i++)
		usable[i] = (struct iova_range){ found[i].start, found[i].last };
	return iova_init(&p->iova, usable, (size_t)n);
}

static int set_up(struct vfio_pci *p)
{
	struct pci_device *dev = &p->dev;
	uint32_t id = 0, class_code = 0;
	char path[96], text[16];
	int rc;

	rc = os_vfio_config(&p->v, &p->config);
	if (!rc)
		rc = config_read(dev, 0, 4, &id);
	if (!rc)
		rc = config_read(dev, 8, 4, &class_code);
	if (!rc)
		rc = open_iova(p);
	if (!rc)
		rc = open_bars(p);
	if (rc)
		return rc;
	dev->vendor = (uint16_t)id;
	dev->device = (uint16_t)(id >> 16);
	dev->class_code = class_code >> 8;
	dev->vectors = (unsigned int)min_u64(p->v.vectors, VECTORS_MAX);
	p->v.vectors = dev->vectors;
	str_format(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", dev->name);
	dev->node = os_read_line(path, text, sizeof(text)) ? -1 : atoi(text);
	return 0;
}

/* The device's own node, "vfio0", on kernels with iommufd. */
static int open_node(const char *name, struct os_vfio *v)
{
	struct os_names names;
	char path[96];
	int rc = -ENOENT;

	if (os_access("/dev/iommu"))
		return -ENOENT;
	str_format(path, sizeof(path), "/sys/bus/pci/devices/%s/vfio-dev", name);
	if (os_names_read(path, &names))
		return -ENOENT;
	if (names.n)
		rc = os_vfio_open_device(names.name[0], v);
	os_names_free(&names);
	return rc;
}

static int open_group(const char *name, struct os_vfio *v, char *why, size_t why_len)
{
	char path[96], link[256];
	unsigned int group;
	int rc;

	str_format(path, sizeof(path), "/sys/bus/pci/devices/%s/iommu_group", name);
	rc = os_read_link(path, link, sizeof(link));
	if (rc || !strrchr(link, '/')) {
		str_format(
			why, why_len,
			"%s: no IOMMU translates its addresses: enable the IOMMU in the firmware setup, and on an Intel "
			"machine boot with intel_iommu=on",
			name);
		return -EOPNOTSUPP;
	}
	group = (unsigned int)atoi(strrchr(link, '/') + 1);
	rc = os_vfio_open_group(name, group, v);
	if (rc == -EPERM)
		str_format(
			why, why_len,
			"%s: another device of IOMMU group %u is bound to a kernel driver: ls /sys/kernel/iommu_groups/%u/devices",
			name, group, group);
	else if (rc == -EBUSY)
		str_format(why, why_len, "%s is open in another process", name);
	else if (rc == -ENOENT)
		str_format(why, why_len, "%s: /dev/vfio/%u does not exist: modprobe vfio_iommu_type1", name, group);
	else if (rc)
		str_format(why, why_len, "%s cannot be opened through /dev/vfio/%u: %s", name, group, strerror(-rc));
	return rc == -EPERM ? -EOPNOTSUPP : rc;
}

static int open_either(const char *name, const char *backend, struct os_vfio *v, char *why, size_t why_len)
{
	bool type1 = !strcmp(backend, "vfio-type1"), iommufd = !strcmp(backend, "vfio-iommufd");
	int rc = type1 ? -ENOENT : open_node(name, v);

	if (!rc)
		return 0;
	if (iommufd) {
		str_format(why, why_len, "%s cannot be opened through iommufd: %s", name,
			   rc == -ENOENT ? "this kernel has no iommufd" : strerror(-rc));
		return rc == -ENOENT ? -EOPNOTSUPP : rc;
	}
	return open_group(name, v, why, why_len);
}

int pci_open_vfio(const struct log_sink *log, const char *name, const char *backend, char *why, size_t why_len,
		  struct pci_device **ret)
{
	struct vfio_pci *p = calloc(1, sizeof(*p));
	int rc;

	if (!p)
		return -ENOMEM;
	p->dev.ops = &ops;
	p->dev.log = log;
	str_copy(p->dev.name, sizeof(p->dev.name), name);
	rc = open_either(name, backend, &p->v, why, why_len);
	if (rc) {
		free(p);
		return rc;
	}
	rc = set_up(p);
	if (rc) {
		str_format(why, why_len, "%s cannot be set up through VFIO: %s", name, strerror(-rc));
		close_device(&p->dev);
		return rc;
	}
	*ret = &p->dev;
	return 0;
}
