/* SPDX-License-Identifier: MIT */
#ifndef REGION_ABSENT_H
#define REGION_ABSENT_H

#include "region/provider.h"

/* Providers whose open fails with the reason, so that a name such as "vgpu:0" can be explained. */
extern const struct provider_ops absent_vgpu_ops;

#endif
