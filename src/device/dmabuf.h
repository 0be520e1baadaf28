/* SPDX-License-Identifier: MIT */
#ifndef DEVICE_DMABUF_H
#define DEVICE_DMABUF_H

#include "device/provider.h"

/* Imported dma-bufs of other drivers. */
extern const struct provider_ops dmabuf_provider_ops;

#endif
