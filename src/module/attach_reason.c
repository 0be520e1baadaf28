/* SPDX-License-Identifier: MIT */
/* The reasons of strait.ko for refusing a device, as sentences. */
#include "module/module.h"

const char *module_attach_reason(uint32_t reason)
{
	static const char *const text[STRAIT_ATTACH_COUNT] = {
		[STRAIT_ATTACH_NO_IOMMU] = "no IOMMU translates its addresses",
		[STRAIT_ATTACH_IDENTITY] = "its IOMMU domain is an identity mapping: addresses are not translated",
		[STRAIT_ATTACH_DOMAIN] = "its IOMMU domain is managed by another driver",
		[STRAIT_ATTACH_GROUP] = "another device is in its IOMMU group",
		[STRAIT_ATTACH_UNTRUSTED] =
			"it is an untrusted external device, for which the kernel uses bounce buffers",
		[STRAIT_ATTACH_NOT_COHERENT] = "its DMA is not coherent with the CPU's caches",
		[STRAIT_ATTACH_NO_PATH] = "the kernel finds no P2PDMA path from it to the device that has the memory",
		[STRAIT_ATTACH_EXPORTER] =
			"the exporter of the memory, or its peer client, does not map it for this device",
		[STRAIT_ATTACH_INTERRUPTS] = "interrupt remapping is off, so it could raise any interrupt",
		[STRAIT_ATTACH_RESERVED] = "the firmware reserves memory that it must always reach (RMRR, IVMD)",
		[STRAIT_ATTACH_NO_P2PDMA] = "this kernel has no PCI P2PDMA to check whether it reaches the device "
					    "that has the memory: load strait with assume_peers=1 if it does",
	};

	return reason < STRAIT_ATTACH_COUNT && text[reason] ? text[reason] : "strait.ko gives no reason";
}

void module_attach_explain(const char *name, const struct strait_ioc_attach *req, char *why, size_t len)
{
	switch (req->reason) {
	case STRAIT_ATTACH_NO_IOMMU:
		str_format(why, len,
			   "%s: %s: enable the IOMMU in the firmware setup, and on an Intel machine boot with "
			   "intel_iommu=on",
			   name, module_attach_reason(req->reason));
		break;
	case STRAIT_ATTACH_IDENTITY:
		str_format(why, len,
			   "%s: %s: echo %s > /sys/bus/pci/drivers/strait/unbind; echo DMA-FQ > "
			   "/sys/kernel/iommu_groups/%d/type; echo %s > /sys/bus/pci/drivers/strait/bind; or boot with "
			   "iommu.passthrough=0",
			   name, module_attach_reason(req->reason), name, req->group, name);
		break;
	case STRAIT_ATTACH_GROUP:
		str_format(
			why, len,
			"%s: %s: ls /sys/kernel/iommu_groups/%d/devices; a slot below a root port of its own, or ACS on the "
			"ports above it, separates them",
			name, module_attach_reason(req->reason), req->group);
		break;
	case STRAIT_ATTACH_INTERRUPTS:
		str_format(why, len,
			   "%s: %s: enable interrupt remapping in the firmware setup, and boot without intremap=off",
			   name, module_attach_reason(req->reason));
		break;
	case STRAIT_ATTACH_RESERVED:
		str_format(why, len,
			   "%s: %s: cat /sys/kernel/iommu_groups/%d/reserved_regions; it cannot be driven "
			   "from user space unless a firmware setting removes the reservation",
			   name, module_attach_reason(req->reason), req->group);
		break;
	default:
		str_format(why, len, "%s: %s", name, module_attach_reason(req->reason));
	}
}
