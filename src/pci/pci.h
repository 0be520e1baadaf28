/* SPDX-License-Identifier: MIT */
#ifndef PCI_PCI_H
#define PCI_PCI_H

/*
 * A PCI device driven from user space: its registers, its interrupts, and memory it can reach.
 *
 * Who gives access to it is a backend: strait.ko, VFIO, or in the tests a model of the hardware. Drivers
 * (endpoint/nvme, endpoint/dma) call the functions below and know none of them.
 *
 * An address that the device uses is a bus address: it means something to this device alone, and only
 * while the mapping it came from lives.
 *
 * Registers may be touched by any thread. Everything else: one thread at a time for each object.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "device/region.h"

#define PCI_BARS 6
#define PCI_NODES "/dev/strait-pci" /* of devices bound to strait, by address */
#define PCI_NAME 16		    /* "0000:01:00.0" */

struct pci_ops;

struct pci_bar {
	volatile uint8_t *at; /* NULL: registers are reached by the backend's read and write */
	uint64_t length;      /* 0: the device has no such BAR, or one that cannot be mapped */
};

struct pci_device {
	const struct pci_ops *ops;
	const struct log_sink *log;
	char name[PCI_NAME];
	uint16_t vendor, device;
	uint32_t class_code;  /* 24 bits: class, subclass, interface */
	int node;	      /* NUMA, -1 unknown */
	unsigned int vectors; /* interrupts it can raise, 0: none that work */
	struct pci_bar bar[PCI_BARS];
};

/* One run of addresses as the device sees it. */
struct pci_run {
	uint64_t bus;
	uint64_t length;
};

enum {
	PCI_MAP_READ = 1,  /* the device reads the memory */
	PCI_MAP_WRITE = 2, /* the device writes it */
	/*
	 * Device memory is to be mapped even by a backend that does not revoke: whoever frees it must have
	 * unmapped it before, or the device goes on to reach what is another's by then.
	 */
	PCI_MAP_UNREVOCABLE = 4,
};

/* Memory the device can reach. Offset 0 of the mapping is the first byte that was asked for. */
struct pci_mapping {
	struct pci_device *dev;
	struct strait_region *region; /* NULL: plain memory of the process */
	uint64_t length;
	size_t count;	     /* of @run; neighbours are joined, so 1 means contiguous */
	struct pci_run *run; /* in order; the lengths add up to @length */
	uint64_t *start;     /* the offset of each run; filled by pci_map_region() and pci_map_host() */
	void *priv;	     /* the backend's */
};

/*
 * What a backend does. Outputs are written only on success. After the device was removed everything but
 * unmap and close gives -ENODEV; registers read as ones.
 */
struct pci_ops {
	const char *name; /* "strait", "vfio", "model" */
	bool revokes;	  /* a mapping dies with the memory behind it, before that is given back */
	void (*close)(struct pci_device *dev);
	/* Only where bar[].at is NULL. */
	uint32_t (*read32)(struct pci_device *dev, unsigned int bar, uint64_t off);
	uint64_t (*read64)(struct pci_device *dev, unsigned int bar, uint64_t off);
	void (*write32)(struct pci_device *dev, unsigned int bar, uint64_t off, uint32_t value);
	void (*write64)(struct pci_device *dev, unsigned int bar, uint64_t off, uint64_t value);
	/* Configuration space: 1, 2 or 4 bytes, aligned. */
	int (*config_read)(struct pci_device *dev, unsigned int off, unsigned int size, uint32_t *value);
	/* May the device start transfers by itself? Off when it is opened. */
	int (*bus_master)(struct pci_device *dev, bool on);
	/* Function-level reset, or the nearest the device has: -EOPNOTSUPP for none. */
	int (*reset)(struct pci_device *dev);
	/* An eventfd for interrupt @vector, which stays the backend's; all are undone at close. */
	int (*irq)(struct pci_device *dev, unsigned int vector, int *fd);
	/*
	 * @addr is page-aligned for plain memory. Fills @m->run, @m->count and @m->priv: an allocation of
	 * malloc's, given back by pci_unmap(). -EOPNOTSUPP where this backend cannot map such memory; the
	 * log says why.
	 */
	int (*map_region)(struct pci_device *dev, struct strait_region *region, uint64_t off, uint64_t len,
			  unsigned int flags, struct pci_mapping *m);
	int (*map_host)(struct pci_device *dev, void *addr, uint64_t len, unsigned int flags, struct pci_mapping *m);
	/* When this returns, nothing the device does reaches the memory. */
	void (*unmap)(struct pci_device *dev, struct pci_mapping *m);
	/*
	 * 0, or -ENODEV after the memory behind it was taken back or the device removed. Where memory was
	 * taken back the device may start no more transfers: bus_master() lets it again.
	 */
	int (*mapping_check)(struct pci_device *dev, const struct pci_mapping *m);
	/* How wide the device's addresses are: 24 to 64, which it is unless told. For what is mapped afterwards. */
	int (*address_bits)(struct pci_device *dev, unsigned int bits);
};

/*
 * Open "0000:01:00.0", or "01:00.0". @backend is "strait", "vfio" (or, to have one of the kernel's
 * two interfaces for it, "vfio-type1", "vfio-iommufd"), or NULL for the one it is bound to.
 * -ENODEV: no such device; -EBUSY: bound to another driver or open elsewhere; -EOPNOTSUPP: cannot be
 * used from user space, and @why says what would have to change.
 */
int pci_open(const struct log_sink *log, const char *name, const char *backend, char *why, size_t why_len,
	     struct pci_device **ret);
/*
 * The same; what would have to change goes to the log. With PCI_MAP_UNREVOCABLE in @flags "vfio" is the interface that
 * maps memory of devices, where the kernel has that.
 */
int pci_open_or_say(const struct log_sink *log, const char *name, const char *backend, unsigned int flags,
		    struct pci_device **ret);
void pci_close(struct pci_device *dev);

int pci_map_region(struct pci_device *dev, struct strait_region *region, uint64_t off, uint64_t len, unsigned int flags,
		   struct pci_mapping **ret);
int pci_map_host(struct pci_device *dev, void *addr, uint64_t len, unsigned int flags, struct pci_mapping **ret);
void pci_unmap(struct pci_mapping *m);

/* The bus address of offset @off, and how many bytes from there are contiguous. */
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
