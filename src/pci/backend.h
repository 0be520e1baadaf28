/* SPDX-License-Identifier: MIT */
#ifndef PCI_BACKEND_H
#define PCI_BACKEND_H

/* The backends of pci_open(), and what they share. */

#include "pci/pci.h"

/* As pci_open(), for an existing device that is bound to the backend's driver. */
int pci_open_strait(const struct log_sink *log, const char *name, const char *backend, char *why, size_t why_len,
		    struct pci_device **ret);
int pci_open_vfio(const struct log_sink *log, const char *name, const char *backend, char *why, size_t why_len,
		  struct pci_device **ret);

/* Convert "01:00.0" or "0000:01:00.0" to the full form. -EINVAL for anything else. */
int pci_full_name(const char *name, char full[PCI_NAME]);

/*
 * Set m->run from @n runs of whole pages: trimmed to [head, head + m->length), adjacent runs joined. @runs was allocated
 * with malloc() or realloc(); @m takes ownership.
 */
void pci_fill_runs(struct pci_mapping *m, struct pci_run *runs, size_t n, uint64_t head);

#endif
