/* SPDX-License-Identifier: MIT */
#ifndef PCI_PCI_H
#define PCI_PCI_H

/*
 * A PCI device driven from user space: its registers, its interrupts, and memory mapped for its DMA.
 *
 * A backend gives access to the device: strait.ko, VFIO, or in the tests a model of the hardware. Drivers
 * (endpoint/nvme, endpoint/dma) call the functions below and do not depend on the backend.
 *
 * A bus address is valid for this device only, and only while its mapping exists.
 *
 * Any thread may access registers. All other calls: one thread at a time for each object.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "device/region.h"

#define PCI_BARS 6
#define PCI_NODES "/dev/strait-pci" /* nodes of devices bound to strait, by address */
#define PCI_NAME 16		    /* "0000:01:00.0" */

struct pci_ops;

struct pci_bar {
	volatile uint8_t *at; /* NULL: registers are accessed through the backend's read and write */
	uint64_t length;      /* 0: the device has no such BAR, or one that cannot be mapped */
};

struct pci_device {
	const struct pci_ops *ops;
	const struct log_sink *log;
	char name[PCI_NAME];
	uint16_t vendor, device;
	uint32_t class_code;  /* 24 bits: class, subclass, interface */
	int node;	      /* NUMA, -1 unknown */
	unsigned int vectors; /* number of interrupt vectors, 0: no usable ones */
	struct pci_bar bar[PCI_BARS];
};

/* One contiguous range of bus addresses. */
struct pci_run {
	uint64_t bus;
	uint64_t length;
};

enum {
	PCI_MAP_READ = 1,  /* the device reads the memory */
	PCI_MAP_WRITE = 2, /* the device writes it */
	/*
	 * Map device memory even with a backend that does not revoke: the caller unmaps it before the memory is
	 * freed, or the device keeps access to memory that may belong to another allocation.
	 */
	PCI_MAP_UNREVOCABLE = 4,
};

/* Memory mapped for the device's DMA. Offset 0 of the mapping is the first requested byte. */
struct pci_mapping {
	struct pci_device *dev;
	struct strait_region *region; /* NULL: plain memory of the process */
	uint64_t length;
	size_t count;	     /* of @run; adjacent runs are joined, so 1 means contiguous */
	struct pci_run *run; /* in order; the lengths add up to @length */
	uint64_t *start;     /* the offset of each run; filled by pci_map_region() and pci_map_host() */
	void *priv;	     /* private to the backend */
};

/*
 * Operations of a backend. Outputs are written only on success. After the device was removed all operations but unmap
 * and close return -ENODEV, and registers read as all ones.
 */
struct pci_ops {
	const char *name; /* "strait", "vfio", "model" */
	bool revokes;	  /* a mapping is revoked before its memory is freed */
	void (*close)(struct pci_device *dev);
	/* Only where bar[].at is NULL. */
	uint32_t (*read32)(struct pci_device *dev, unsigned int bar, uint64_t off);
	uint64_t (*read64)(struct pci_device *dev, unsigned int bar, uint64_t off);
	void (*write32)(struct pci_device *dev, unsigned int bar, uint64_t off, uint32_t value);
	void (*write64)(struct pci_device *dev, unsigned int bar, uint64_t off, uint64_t value);
	/* Configuration space: 1, 2 or 4 bytes, aligned. */
	int (*config_read)(struct pci_device *dev, unsigned int off, unsigned int size, uint32_t *value);
	/* Enable or disable bus mastering (DMA). Disabled when the device is opened. */
	int (*bus_master)(struct pci_device *dev, bool on);
	/* Function-level reset, or the closest reset the device has: -EOPNOTSUPP for none. */
	int (*reset)(struct pci_device *dev);
	/* An eventfd for interrupt @vector. The backend owns it and closes it with the device. */
	int (*irq)(struct pci_device *dev, unsigned int vector, int *fd);
	/*
	 * @addr of plain memory is page-aligned. Set @m->run, allocated with malloc() and freed by pci_unmap(),
	 * @m->count and @m->priv. -EOPNOTSUPP if this backend cannot map such memory; the log says why.
	 */
	int (*map_region)(struct pci_device *dev, struct strait_region *region, uint64_t off, uint64_t len,
			  unsigned int flags, struct pci_mapping *m);
	int (*map_host)(struct pci_device *dev, void *addr, uint64_t len, unsigned int flags, struct pci_mapping *m);
	/* When this returns, the device can no longer access the memory. */
	void (*unmap)(struct pci_device *dev, struct pci_mapping *m);
	/*
	 * 0, or -ENODEV after the mapping was revoked or the device removed. A revocation disables bus mastering;
	 * bus_master() enables it again.
	 */
	int (*mapping_check)(struct pci_device *dev, const struct pci_mapping *m);
	/* Set the width of the device's addresses, 24 to 64 bits (default 64), for later mappings. */
	int (*address_bits)(struct pci_device *dev, unsigned int bits);
};

/*
 * Open "0000:01:00.0", or "01:00.0". @backend is "strait", "vfio" ("vfio-type1" or "vfio-iommufd" for one of the
 * kernel's two interfaces), or NULL for the driver the device is bound to. -ENODEV: no such device; -EBUSY: bound to
 * another driver or open in another process; -EOPNOTSUPP: cannot be used from user space, and @why says what to change.
 */
int pci_open(const struct log_sink *log, const char *name, const char *backend, char *why, size_t why_len,
	     struct pci_device **ret);
/*
 * pci_open() with the reason written to the log. With PCI_MAP_UNREVOCABLE in @flags, "vfio" selects the interface that
 * maps device memory, where the kernel has it.
 */
int pci_open_or_say(const struct log_sink *log, const char *name, const char *backend, unsigned int flags,
		    struct pci_device **ret);
void pci_close(struct pci_device *dev);

int pci_map_region(struct pci_device *dev, struct strait_region *region, uint64_t off, uint64_t len, unsigned int flags,
		   struct pci_mapping **ret);
int pci_map_host(struct pci_device *dev, void *addr, uint64_t len, unsigned int flags, struct pci_mapping **ret);
void pci_unmap(struct pci_mapping *m);

/* The bus address of offset @off; *@run is the number of contiguous bytes from there. */
uint64_t pci_bus(const struct pci_mapping *m, uint64_t off, uint64_t *run);

static inline int pci_address_bits(struct pci_device *dev, unsigned int bits)
{
	return dev->ops->address_bits ? dev->ops->address_bits(dev, bits) : 0;
}

static inline uint32_t pci_read32(struct pci_device *dev, unsigned int bar, uint64_t off)
{
	volatile uint8_t *at = dev->bar[bar].at;

	return at ? *(volatile uint32_t *)(at + off) : dev->ops->read32(dev, bar, off);
}

static inline uint64_t pci_read64(struct pci_device *dev, unsigned int bar, uint64_t off)
{
	volatile uint8_t *at = dev->bar[bar].at;

	return at ? *(volatile uint64_t *)(at + off) : dev->ops->read64(dev, bar, off);
}

static inline void pci_write32(struct pci_device *dev, unsigned int bar, uint64_t off, uint32_t value)
{
	volatile uint8_t *at = dev->bar[bar].at;

	if (at)
		*(volatile uint32_t *)(at + off) = value;
	else
		dev->ops->write32(dev, bar, off, value);
}

static inline void pci_write64(struct pci_device *dev, unsigned int bar, uint64_t off, uint64_t value)
{
	volatile uint8_t *at = dev->bar[bar].at;

	if (at)
		*(volatile uint64_t *)(at + off) = value;
	else
		dev->ops->write64(dev, bar, off, value);
}

#endif
