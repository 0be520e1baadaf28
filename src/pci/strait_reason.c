/* SPDX-License-Identifier: MIT */
/* Why strait.ko refuses a device, in words. */
#include "pci/strait_reason.h"

#include "base/util.h"

const char *strait_attach_reason(uint32_t reason)
{
	static const char *const text[STRAIT_ATTACH_COUNT] = {
		[STRAIT_ATTACH_NO_IOMMU] = "no IOMMU translates its addresses",
		[STRAIT_ATTACH_IDENTITY] = "the IOMMU lets its addresses pass untranslated",
		[STRAIT_ATTACH_DOMAIN] = "its IOMMU domain is managed by another driver",
		[STRAIT_ATTACH_GROUP] = "another device is in its IOMMU group",
		[STRAIT_ATTACH_UNTRUSTED] = "it is an external device, for which the kernel copies everything",
		[STRAIT_ATTACH_NOT_COHERENT] = "it does not see the CPU's caches",
		[STRAIT_ATTACH_NO_PATH] = "the kernel knows no way from it to the device that has the memory",
		[STRAIT_ATTACH_EXPORTER] = "the memory's driver does not give it to this device",
		[STRAIT_ATTACH_INTERRUPTS] = "its interrupts are not remapped, so it could raise any interrupt",
		[STRAIT_ATTACH_RESERVED] = "firmware demands memory that it always reaches (RMRR, IVMD)",
		[STRAIT_ATTACH_NO_P2PDMA] =
			"this kernel has no PCI P2PDMA and cannot tell whether it reaches the device "
			"that has the memory: load strait with assume_peers=1 if it does",
	};

	return reason < STRAIT_ATTACH_COUNT && text[reason] ? text[reason] : "the module does not say why";
}

void strait_attach_explain(const char *name, const struct strait_ioc_attach *req, char *why, size_t len)
{
	switch (req->reason) {
	case STRAIT_ATTACH_NO_IOMMU:
		str_format(why, len,
			   "%s: %s: switch the IOMMU on in the firmware's setup, and on an Intel machine boot with "
			   "intel_iommu=on",
			   name, strait_attach_reason(req->reason));
		break;
	case STRAIT_ATTACH_IDENTITY:
		str_format(why, len,
			   "%s: %s: echo %s > /sys/bus/pci/drivers/strait/unbind; echo DMA-FQ > "
			   "/sys/kernel/iommu_groups/%d/type; echo %s > /sys/bus/pci/drivers/strait/bind; or boot with "
			   "iommu.passthrough=0",
			   name, strait_attach_reason(req->reason), name, req->group, name);
		break;
	case STRAIT_ATTACH_GROUP:
		str_format(
			why, len,
			"%s: %s: ls /sys/kernel/iommu_groups/%d/devices; a slot of its own below the root, or ACS on the "
			"ports above it, separates them",
			name, strait_attach_reason(req->reason), req->group);
		break;
	case STRAIT_ATTACH_INTERRUPTS:
		str_format(
			why, len,
			"%s: %s: switch interrupt remapping on in the firmware's setup, and boot without intremap=off",
			name, strait_attach_reason(req->reason));
		break;
	case STRAIT_ATTACH_RESERVED:
		str_format(why, len,
			   "%s: %s: cat /sys/kernel/iommu_groups/%d/reserved_regions; it cannot be driven "
			   "from user space unless the firmware can be told not to",
			   name, strait_attach_reason(req->reason), req->group);
		break;
	default:
		str_format(why, len, "%s: %s", name, strait_attach_reason(req->reason));
	}
}
