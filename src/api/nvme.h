/* SPDX-License-Identifier: MIT */
#ifndef API_NVME_H
#define API_NVME_H

#include "pci/pci.h"
#include <strait/nvme.h>

/* strait_nvme_open() with an open device, of which it takes ownership: for models of hardware. */
int nvme_adopt(struct strait_context *ctx, struct pci_device *pci, const struct strait_nvme_opts *opts,
	       struct strait_nvme **ret);

#endif
