/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_STRAIT_H
#define STRAIT_STRAIT_H

/* Everything but the emulated device's own interface (strait/emu.h). */

#include <strait/context.h>
#include <strait/device.h>
#include <strait/dma.h>
#include <strait/endpoint.h>
#include <strait/log.h>
#include <strait/nvme.h>
#include <strait/pci.h>
#include <strait/reason.h>
#include <strait/region.h>
#include <strait/route.h>
#include <strait/stats.h>
#include <strait/stream.h>
#include <strait/topo.h>
#include <strait/transfer.h>
#include <strait/types.h>

#endif
