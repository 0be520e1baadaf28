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
/* Binds it to a driver, whatever it is bound to now; NULL: to its default driver. */
void pci_bind(const char *name, const char *driver);
/* The driver it is bound to, "" for none; valid until the next call. */
const char *pci_driver(const char *name);

/* Opens it with bus mastering on. The test ends if that is refused, with the reason in edu_why. */
struct pci_device *edu_open(const char *backend);
int edu_try_open(const char *backend, struct pci_device **ret);
extern char edu_why[512];

/* Between a bus address and the engine's own buffer: starts, or waits as well. A transfer takes 0.1 s. */
void edu_start(struct pci_device *dev, uint64_t bus, uint64_t at, uint32_t len, bool from_edu, bool irq);
void edu_wait(struct pci_device *dev);
bool edu_busy(struct pci_device *dev);
void edu_load(struct pci_device *dev, uint64_t bus, uint32_t len);
void edu_store(struct pci_device *dev, uint64_t bus, uint32_t len);

#endif
