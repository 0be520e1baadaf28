/* SPDX-License-Identifier: MIT */
#ifndef REGION_HOST_H
#define REGION_HOST_H

#include "region/provider.h"

/* Ordinary memory of this process, as a device like the others. Always there. */
extern const struct provider_ops host_provider_ops;

#endif
