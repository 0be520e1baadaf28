/* SPDX-License-Identifier: MIT */
#ifndef DEVICE_HOST_H
#define DEVICE_HOST_H

#include "device/provider.h"

/* Host memory as a device; always present. */
extern const struct provider_ops host_provider_ops;

#endif
