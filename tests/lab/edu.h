/* SPDX-License-Identifier: MIT */
#ifndef LAB_EDU_H
#define LAB_EDU_H

/* PCI devices for tests that drive one from user space, and QEMU's "edu" as a DMA engine. */

#include "p2p.h"
#include "pci/pci.h"

#define EDU_ID 0x11e81234u
#define EDU_MOST 2048u /* bytes at once */

/* The first device with that ID (device << 16 | vendor). Skips the test where there is none. */
void pci_find(uint32_t id, char name[PCI_NAME]);
/* Bind to a driver, whatever it is bound to now; NULL: to the one it would have by itself. */
void pci_bind(const char *name, const char *driver);
/* The driver it is bound to, "" for none: good until the next call. */
const char *pci_driver(const char *name);

/* Open with bus mastering on. The test ends if that is refused; why it was is in edu_why. */
struct pci_device *edu_open(const char *backend);
int edu_try_open(const char *backend, struct pci_device **ret);
extern char edu_why[512];

/* Between a bus address and the engine's own buffer: start, or wait as well. A tenth of a second each. */
void edu_start(struct pci_device *dev, uint64_t bus, uint64_t at, uint32_t len, bool from_edu, bool irq);
void edu_wait(struct pci_device *dev);
bool edu_busy(struct pci_device *dev);
void edu_load(struct pci_device *dev, uint64_t bus, uint32_t len);
void edu_store(struct pci_device *dev, uint64_t bus, uint32_t len);

#endif
