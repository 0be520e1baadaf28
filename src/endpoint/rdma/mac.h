/* SPDX-License-Identifier: MIT */
#ifndef ENDPOINT_RDMA_MAC_H
#define ENDPOINT_RDMA_MAC_H

/* HMAC-SHA-256 of OpenSSL's libcrypto, loaded at its first use. */

#include "endpoint/rdma/wire.h"

/* 0; -EOPNOTSUPP with the reason in @why: the library is missing, or this build does not use it. */
int mac_load(char *why, size_t len);
/* After mac_load() succeeded. */
wire_hmac_fn mac_hmac;

#endif
