/* SPDX-License-Identifier: MIT */
#ifndef PCI_STRAIT_REASON_H
#define PCI_STRAIT_REASON_H

#include <stddef.h>
#include <stdint.h>

#include "uapi/strait.h"

/* STRAIT_ATTACH_* as a part of a sentence about the device. */
const char *strait_attach_reason(uint32_t reason);

/* Why the device @name was refused with -EOPNOTSUPP, and what to do. */
void strait_attach_explain(const char *name, const struct strait_ioc_attach *req, char *why, size_t len);

#endif
