/* SPDX-License-Identifier: MIT */
#ifndef DEVICE_HOST_H
#define DEVICE_HOST_H

#include "device/provider.h"

/* Ordinary memory of this process, as a device like the others. Always there. */
extern const struct provider_ops host_provider_ops;

#endif
