/* SPDX-License-Identifier: MIT */
#ifndef PCI_BACKEND_H
#define PCI_BACKEND_H

/* The backends of pci_open(), and what they share. */

#include "pci/pci.h"

/* Both: as pci_open(), for a device that is there and bound to the backend's driver. */
int pci_open_strait(const struct log_sink *log, const char *name, const char *backend, char *why, size_t why_len,
		    struct pci_device **ret);
int pci_open_vfio(const struct log_sink *log, const char *name, const char *backend, char *why, size_t why_len,
		  struct pci_device **ret);

/* "0000:01:00.0" out of that, or out of "01:00.0". -EINVAL if it is neither. */
int pci_full_name(const char *name, char full[PCI_NAME]);

/* Whole pages around [addr, addr + len). */
struct pci_pages {
	uint64_t start, length;
	uint64_t head; /* bytes in them before the first one that was asked for */
};

struct pci_pages pci_pages_of(uint64_t addr, uint64_t len, uint64_t page);

/*
 * What was mapped is @n runs of whole pages: cut to [head, head + m->length), with neighbours joined, they
 * become m->run. @runs is realloc()'s and goes over to @m.
 */
void pci_fill_runs(struct pci_mapping *m, struct pci_run *runs, size_t n, uint64_t head);

#endif
