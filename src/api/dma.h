/* SPDX-License-Identifier: MIT */
#ifndef API_DMA_H
#define API_DMA_H

#include <strait/dma.h>

#include "pci/pci.h"

/* strait_dma_open() with an open device, of which it takes ownership: for models of hardware. */
int dma_adopt(struct strait_context *ctx, struct pci_device *pci, const struct strait_dma_opts *opts,
	      struct strait_dma **ret);

#endif
