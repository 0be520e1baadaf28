/* SPDX-License-Identifier: MIT */
#ifndef REGION_DMABUF_H
#define REGION_DMABUF_H

#include "region/provider.h"

extern const struct provider_ops dmabuf_provider_ops;

#endif
