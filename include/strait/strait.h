/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_STRAIT_H
#define STRAIT_STRAIT_H

/*
 * The stable core (docs/abi.md): devices, regions, files, transfers, routes. Headers for particular devices and callers
 * are included by name: strait/nvme.h, pci.h, dma.h, rdma.h, mapping.h, frames.h, prepare.h, rows.h, safetensors.h,
 * interpose.h, bounce.h, emu.h.
 */

#include <strait/context.h>
#include <strait/device.h>
#include <strait/endpoint.h>
#include <strait/log.h>
#include <strait/reason.h>
#include <strait/region.h>
#include <strait/route.h>
#include <strait/stats.h>
#include <strait/stream.h>
#include <strait/topo.h>
#include <strait/transfer.h>
#include <strait/types.h>

#endif
