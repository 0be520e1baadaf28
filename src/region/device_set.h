/* SPDX-License-Identifier: MIT */
#ifndef REGION_DEVICE_SET_H
#define REGION_DEVICE_SET_H

#include "region/provider.h"

/* device_set_open() with providers of the caller's choosing, for tests. */
int device_set_open_table(struct device_set *set, const struct log_sink *log, void *owner,
			  const struct provider_ops *const *table, unsigned int n);

#endif
