/* SPDX-License-Identifier: MIT */
#include <strait/reason.h>

#include "base/util.h"

static const struct reason {
	uint32_t number;
	const char *text;
	const char *fix;
} reasons[] = {
	{ STRAIT_WHY_NONE, "", "" },
	{ STRAIT_WHY_DRIVE_DMA,
	  "the drive moves the bytes to and from the device's memory itself; tried with a block, which arrived", "" },
	{ STRAIT_WHY_COPY_ENGINE, "the device's copy engine reads the page cache in place", "" },
	{ STRAIT_WHY_COPY_ENGINE_KEPT,
	  "the device's copy engine reads the page cache in place; windows stay registered, the file does not change",
	  "" },
	{ STRAIT_WHY_ENDS, "takes the ends that are not aligned for the drive", "" },
	{ STRAIT_WHY_DRIVE_TO_HOST, "the drive moves the bytes to host memory, from where they are copied", "" },
	{ STRAIT_WHY_UNCACHED_PART, "takes the windows that are not cached, and shares the cached ones", "" },
	{ STRAIT_WHY_RING_DIRECT, "through a pinned ring, direct I/O for what is not cached", "" },
	{ STRAIT_WHY_RING_BUFFERED, "through a pinned ring, buffered I/O", "" },
	{ STRAIT_WHY_RING_DIRECT_FORCED, "through a pinned ring, direct I/O where aligned", "" },
	{ STRAIT_WHY_DRIVE_HOST_DMA, "the drive moves the bytes to and from host memory itself", "" },
	{ STRAIT_WHY_DRIVE_BOUNCE, "the drive moves the bytes, then they are copied", "" },
	{ STRAIT_WHY_FILE_IO, "plain file I/O: the region is host memory", "" },
	{ STRAIT_WHY_DRIVE_DMA_UNTRIED,
	  "the drive moves the bytes to and from the memory itself, which cannot be tried beforehand", "" },

	{ STRAIT_WHY_NOT_READABLE, "the file is not open for reading", "open it with the access the transfer needs" },
	{ STRAIT_WHY_NOT_WRITABLE, "the file is not open for writing", "open it with the access the transfer needs" },
	{ STRAIT_WHY_NOT_ASKED, "possible, but the request asks for other routes", "" },
	{ STRAIT_WHY_HOST_MEMORY, "the region is host memory: file I/O reaches it without a detour", "" },
	{ STRAIT_WHY_NOT_HOST, "the region is memory of a device: file I/O cannot reach it", "" },
	{ STRAIT_WHY_NO_MODULE, "no strait.ko: /dev/strait cannot be opened",
	  "needs the kernel module, a kernel with PCI P2PDMA, and a drive and a GPU that reach each other" },
	{ STRAIT_WHY_NO_PAGES, "nothing makes the device's memory known to drives",
	  "needs a driver that maps its memory with P2PDMA pages" },
	{ STRAIT_WHY_NO_IMPORT, "strait.ko does not take the device's memory",
	  "needs a kernel with PCI P2PDMA; dmesg may say more" },
	{ STRAIT_WHY_NO_BRIDGE, "strait.ko has no bridge to the device's driver",
	  "load strait_nvp2p, built for that driver" },
	{ STRAIT_WHY_NO_DIRECT, "no direct I/O", "" },
	{ STRAIT_WHY_MODULE_REFUSES, "strait.ko refuses the file", "" },
	{ STRAIT_WHY_UNVERIFIED, "it is not known whether the drive reaches the device's memory",
	  "found out by the first file with data that is open for reading" },
	{ STRAIT_WHY_NOT_ARRIVED, "a block was tried: what the drive writes to the device's memory does not arrive",
	  "look at the IOMMU's mode and at the switches between the two" },
	{ STRAIT_WHY_UNALIGNED, "no part of the request is aligned for direct I/O in file and memory", "" },
	{ STRAIT_WHY_CACHED, "most of it is in the page cache, which is nearer than the drive",
	  "ask for direct I/O, or require this route" },
	{ STRAIT_WHY_READS_ONLY, "writes do not travel through a registered page cache", "" },
	{ STRAIT_WHY_NO_REGISTER, "the device cannot register file mappings for its copy engine", "" },
	{ STRAIT_WHY_NO_FILE_MAP, "the file cannot be mapped", "open it for reading" },
	{ STRAIT_WHY_NO_PAGE_CACHE, "a drive in user space has no page cache", "" },
	{ STRAIT_WHY_NOT_CACHED, "the file is not in the page cache", "read it once, or require this route" },
	{ STRAIT_WHY_DIRECT_ASKED, "direct I/O was asked for, which goes past the page cache",
	  "open the file without O_DIRECT" },
	{ STRAIT_WHY_FEW_BYTES, "so few bytes are copied faster than their pages are registered",
	  "ask for more at once, or require this route" },
	{ STRAIT_WHY_NO_DEVICE_MAP, "the memory cannot be mapped for the drive", "" },
	{ STRAIT_WHY_NOT_TRIED, "the memory could not be tried with a block", "" },
	{ STRAIT_WHY_NO_HARDWARE_YET, "not verified on hardware", "" },
	{ STRAIT_WHY_DMA_ONLY,
	  "the memory is a dma-buf that its exporter does not let the CPU map: only devices reach it", "" },
	{ STRAIT_WHY_CANNOT_TRY, "possible, but whether bytes arrive in a dma-buf cannot be tried beforehand",
	  "require this route" },
	{ STRAIT_WHY_UNKNOWN, "a reason this library does not know", "install the library of strait.ko's version" },

	{ STRAIT_WHY_MODULE_SILENT, "it cannot tell why", "" },
	{ STRAIT_WHY_MODULE_NOT_A_FILE, "neither a regular file nor a block device", "" },
	{ STRAIT_WHY_MODULE_NO_DIRECT, "the file has no direct I/O", "" },
	{ STRAIT_WHY_MODULE_FILE_SYSTEM, "the file system may keep bytes otherwise than as they are on one drive", "" },
	{ STRAIT_WHY_MODULE_TRANSFORMED, "the file is encrypted, compressed or otherwise not on the drive as it is",
	  "" },
	{ STRAIT_WHY_MODULE_OTHER_DRIVE, "the file lies on the file system's realtime drive", "" },
	{ STRAIT_WHY_MODULE_NO_DRIVE, "there is no drive below the file", "" },
	{ STRAIT_WHY_MODULE_NOT_PCI, "the block device is not one PCI drive (md, LVM, NVMe multipath, loop, network)",
	  "use a drive without md or LVM; against NVMe multipath boot with nvme_core.multipath=N" },
	{ STRAIT_WHY_MODULE_NO_QUEUE, "the drive's driver does not take memory of other devices", "" },
	{ STRAIT_WHY_MODULE_CHECKSUMS, "the CPU makes checksums of what the drive moves", "" },
	{ STRAIT_WHY_MODULE_NO_PATH, "the kernel knows no way from the drive to the device", "" },
	{ STRAIT_WHY_MODULE_NO_PAGES, "the memory has addresses and no pages", "" },
	{ STRAIT_WHY_MODULE_NO_P2PDMA, "the kernel has no PCI P2PDMA", "" },
	{ STRAIT_WHY_MODULE_APPEND, "the file is open for appending", "" },
	{ STRAIT_WHY_MODULE_ALIGNMENT, "not aligned", "" },

	{ STRAIT_WHY_FS_NO_DIRECT, "the file system has no direct I/O for this file", "" },
	{ STRAIT_WHY_BUFFERED_ASKED, "buffered I/O was asked for", "" },
	{ STRAIT_WHY_DIRECT_ALIGNMENT, "direct I/O here needs an alignment that is not supported", "" },
	{ STRAIT_WHY_FS_REFUSES_DIRECT, "the file system refuses O_DIRECT", "" },
	{ STRAIT_WHY_NOT_REOPENED, "the file cannot be opened again through /proc with O_DIRECT",
	  "mount /proc, or open the file by its path" },
	{ STRAIT_WHY_FS_IN_MEMORY, "the file system lives in memory: there is no drive to read directly", "" },
	{ STRAIT_WHY_NO_FILE_SYSTEM, "a device in user space has no file system below it", "" },

	{ STRAIT_WHY_NS_PROTECTION, "formatted with protection information", "format it without" },
	{ STRAIT_WHY_NS_METADATA, "formatted with metadata beside each block", "format it without" },
	{ STRAIT_WHY_NS_BLOCK_SIZE, "its blocks have another size than 512 or 4096 bytes",
	  "format it with one of these" },
	{ STRAIT_WHY_NS_LENGTH, "it says to have no blocks, or more than can be addressed", "" },
};

static const struct reason *find(uint32_t number)
{
	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
		if (reasons[i].number == number)
			return &reasons[i];
	return NULL;
}

STRAIT_API const char *strait_reason_text(uint32_t number)
{
	const struct reason *r = find(number);

	return r ? r->text : "a reason this library does not know";
}

STRAIT_API const char *strait_reason_fix(uint32_t number)
{
	const struct reason *r = find(number);

	return r ? r->fix : "";
}
