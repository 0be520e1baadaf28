/* SPDX-License-Identifier: MIT */
#ifndef DEVICE_DEVICE_SET_H
#define DEVICE_DEVICE_SET_H

#include "device/provider.h"

/* For tests: device_set_open() with a given table of providers. */
int device_set_open_table(struct device_set *set, const struct log_sink *log, void *owner,
			  const struct provider_ops *const *table, unsigned int n);

#endif
