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
	  "the drive transfers to and from device memory by DMA; a test block between the two arrived", "" },
	{ STRAIT_WHY_COPY_ENGINE, "the device's copy engine reads the page cache in place", "" },
	{ STRAIT_WHY_COPY_ENGINE_REGISTERED,
	  "the device's copy engine reads the page cache in place; registrations are cached, the file is immutable",
	  "" },
	{ STRAIT_WHY_ENDS, "transfers the bytes at both ends that are not aligned for direct I/O", "" },
	{ STRAIT_WHY_DRIVE_TO_HOST, "the drive transfers to host memory by DMA, and the bytes are copied from there",
	  "" },
	{ STRAIT_WHY_UNCACHED_PART, "transfers the windows that are not cached, and a share of the cached ones", "" },
	{ STRAIT_WHY_RING_DIRECT, "through a pinned ring; direct I/O for what is not cached", "" },
	{ STRAIT_WHY_RING_BUFFERED, "through a pinned ring; buffered I/O", "" },
	{ STRAIT_WHY_RING_DIRECT_FORCED, "through a pinned ring; direct I/O where offset and length are aligned", "" },
	{ STRAIT_WHY_DRIVE_HOST_DMA, "the drive transfers to and from host memory by DMA", "" },
	{ STRAIT_WHY_DRIVE_BOUNCE, "the drive transfers to and from a bounce buffer by DMA, and the bytes are copied",
	  "" },
	{ STRAIT_WHY_FILE_IO, "plain file I/O: the region is host memory", "" },
	{ STRAIT_WHY_DRIVE_DMA_UNVERIFIED,
	  "the drive transfers to and from the memory by DMA; a dma-buf cannot be verified with a test block", "" },

	{ STRAIT_WHY_NOT_READABLE, "the file is not open for reading", "open it for reading" },
	{ STRAIT_WHY_NOT_WRITABLE, "the file is not open for writing", "open it for writing" },
	{ STRAIT_WHY_NOT_REQUESTED, "possible, but the request allows other routes only", "" },
	{ STRAIT_WHY_HOST_MEMORY, "the region is host memory: file I/O reaches it directly", "" },
	{ STRAIT_WHY_NOT_HOST, "the region is device memory: file I/O cannot reach it", "" },
	{ STRAIT_WHY_NO_MODULE, "/dev/strait cannot be opened",
	  "load the kernel module strait.ko; p2p also needs a kernel with PCI P2PDMA, and a drive and a GPU that reach each other" },
	{ STRAIT_WHY_NO_PAGES, "no driver offers the device's memory for P2PDMA",
	  "needs a device driver that maps its memory with P2PDMA pages" },
	{ STRAIT_WHY_NO_IMPORT, "strait.ko cannot import the device's memory",
	  "needs a kernel with PCI P2PDMA; dmesg may say more" },
	{ STRAIT_WHY_NO_BRIDGE, "strait.ko has no bridge module for the device's driver",
	  "load strait_nvp2p, built for that driver" },
	{ STRAIT_WHY_NO_DIRECT, "no direct I/O", "" },
	{ STRAIT_WHY_MODULE_REFUSES, "strait.ko refuses the file", "" },
	{ STRAIT_WHY_UNVERIFIED, "not verified yet: no test block was transferred between the drive and the device",
	  "open a file with data on that drive for reading: a test block is transferred then" },
	{ STRAIT_WHY_NOT_ARRIVED, "a test block that the drive wrote to device memory did not arrive",
	  "check the IOMMU mode and ACS of the PCIe switches between the two: strait info" },
	{ STRAIT_WHY_UNALIGNED, "no part of the request is aligned for direct I/O in both file and memory", "" },
	{ STRAIT_WHY_CACHED, "most of the range is in the page cache, which is faster than the drive",
	  "use direct I/O, or require this route" },
	{ STRAIT_WHY_READS_ONLY, "this route only reads: writes do not go through a registered page cache", "" },
	{ STRAIT_WHY_NO_REGISTER, "the device cannot register file mappings for its copy engine", "" },
	{ STRAIT_WHY_NO_FILE_MAP, "the file cannot be mapped", "open it for reading" },
	{ STRAIT_WHY_NO_PAGE_CACHE, "a drive driven from user space has no page cache", "" },
	{ STRAIT_WHY_NOT_CACHED, "the file is not in the page cache", "read it once, or require this route" },
	{ STRAIT_WHY_DIRECT_REQUESTED, "direct I/O was requested, which bypasses the page cache",
	  "do not request direct I/O" },
	{ STRAIT_WHY_FEW_BYTES, "a transfer this small is copied faster than its pages are registered",
	  "transfer more bytes at once, or require this route" },
	{ STRAIT_WHY_NO_DEVICE_MAP, "the memory cannot be mapped for the drive's DMA", "" },
	{ STRAIT_WHY_VERIFY_FAILED, "no test block could be transferred to the memory", "" },
	{ STRAIT_WHY_NOT_ON_HARDWARE, "not verified on hardware", "" },
	{ STRAIT_WHY_DMA_ONLY,
	  "the memory is a dma-buf that its exporter does not let the CPU map: only devices can access it", "" },
	{ STRAIT_WHY_CANNOT_VERIFY, "possible, but a dma-buf cannot be verified with a test block",
	  "require this route" },
	{ STRAIT_WHY_UNKNOWN, "a reason this library does not know",
	  "install the version of the library that matches strait.ko" },

	{ STRAIT_WHY_MODULE_NO_REASON, "it gives no reason", "" },
	{ STRAIT_WHY_MODULE_NOT_A_FILE, "it is neither a regular file nor a block device", "" },
	{ STRAIT_WHY_MODULE_NO_DIRECT, "the file has no direct I/O", "" },
	{ STRAIT_WHY_MODULE_FILE_SYSTEM, "the file system may not store the bytes unchanged on a single drive", "" },
	{ STRAIT_WHY_MODULE_TRANSFORMED, "the file is stored encrypted, compressed or otherwise transformed", "" },
	{ STRAIT_WHY_MODULE_OTHER_DRIVE, "the file is on the file system's realtime device", "" },
	{ STRAIT_WHY_MODULE_NO_DRIVE, "no block device holds the file", "" },
	{ STRAIT_WHY_MODULE_NOT_PCI,
	  "the block device is not a single PCI drive (md, LVM, NVMe multipath, loop, network)",
	  "use a drive without md or LVM; to turn off NVMe multipath, boot with nvme_core.multipath=N" },
	{ STRAIT_WHY_MODULE_NO_QUEUE, "the drive's driver does not support P2PDMA", "" },
	{ STRAIT_WHY_MODULE_CHECKSUMS,
	  "the CPU computes checksums over the data, which therefore has to be in host memory", "" },
	{ STRAIT_WHY_MODULE_NO_PATH, "the kernel finds no P2PDMA path between the drive and the device", "" },
	{ STRAIT_WHY_MODULE_NO_PAGES, "the memory has bus addresses but no pages", "" },
	{ STRAIT_WHY_MODULE_NO_P2PDMA, "the kernel has no PCI P2PDMA", "" },
	{ STRAIT_WHY_MODULE_APPEND, "the file is open for appending", "" },
	{ STRAIT_WHY_MODULE_ALIGNMENT, "the request is not aligned", "" },

	{ STRAIT_WHY_FS_NO_DIRECT, "the file system has no direct I/O for this file", "" },
	{ STRAIT_WHY_BUFFERED_REQUESTED, "buffered I/O was requested", "" },
	{ STRAIT_WHY_DIRECT_ALIGNMENT, "direct I/O needs an alignment here that is not supported", "" },
	{ STRAIT_WHY_FS_REFUSES_DIRECT, "the file system refuses O_DIRECT", "" },
	{ STRAIT_WHY_NOT_REOPENED, "the file cannot be opened again through /proc with O_DIRECT",
	  "mount /proc, or open the file by its path" },
	{ STRAIT_WHY_FS_IN_MEMORY, "the file system is in memory: there is no drive to read from", "" },
	{ STRAIT_WHY_NO_FILE_SYSTEM, "a device driven from user space has no file system", "" },

	{ STRAIT_WHY_NS_PROTECTION, "the namespace is formatted with protection information",
	  "format it without protection information" },
	{ STRAIT_WHY_NS_METADATA, "the namespace is formatted with metadata beside each block",
	  "format it without metadata" },
	{ STRAIT_WHY_NS_BLOCK_SIZE, "the block size of the namespace is neither 512 nor 4096 bytes",
	  "format it with blocks of 512 or 4096 bytes" },
	{ STRAIT_WHY_NS_LENGTH, "the namespace reports no blocks, or more than can be addressed", "" },
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
