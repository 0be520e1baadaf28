/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_DMA_H
#define STRAIT_DMA_H

/*
 * DMA engines on PCIe cards, driven from user space: the engine reads and writes the memory of regions, and the memory
 * of the card is an endpoint of transfers. Supported engines: xdma (Xilinx XDMA, as on the PicoEVB and the HTG-K800)
 * and edu (of QEMU).
 *
 * Experimental: not part of the stable interface (docs/abi.md), it may change with any version.
 */

#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct strait_dma;

/* Flags of a DMA engine. */
#define STRAIT_DMA_INTERRUPTS (1u << 0) /* sleep until it interrupts; without it the engine is polled */
/* Map device memory even by a backend that cannot revoke it from the card: see STRAIT_NVME_UNREVOCABLE. */
#define STRAIT_DMA_UNREVOCABLE (1u << 1)

/**
 * struct strait_dma_opts - Options of a DMA engine
 * @size: sizeof(struct strait_dma_opts)
 * @backend: "strait" or "vfio", NULL for the driver it is bound to
 * @engine: "xdma" or "edu", NULL to detect it
 * @flags: STRAIT_DMA_*
 * @channel: channel of the engine
 * @card_bytes: bytes of memory on the card; 0: the size known for this card
 * @timeout_ns: timeout of one run of the engine; 0: 10 seconds
 */
struct strait_dma_opts {
	size_t size;
	const char *backend;
	const char *engine;
	uint32_t flags;
	uint32_t channel;
	uint64_t card_bytes;
	uint64_t timeout_ns;
};

#define STRAIT_DMA_OPTS_SIZE_V1 48

/**
 * struct strait_dma_info - Properties and counters of a DMA engine
 * @size: sizeof(struct strait_dma_info), set by the caller
 * @name: PCI address of its card
 * @backend: the driver it is used through, "strait" or "vfio"
 * @engine: "xdma", "edu"
 * @vendor: PCI vendor ID
 * @device: PCI device ID
 * @address_bits: width of its addresses in bits
 * @align: alignment of addresses and lengths
 * @card_bytes: bytes of memory on the card
 * @chunk_bytes: most bytes of one descriptor
 * @channels: channels per direction
 * @revokes: 1 if memory is unmapped from the card before it is freed
 * @reserved: 0
 * @starts: runs of the engine
 * @errors: runs that failed
 * @stops: runs that were stopped before they completed
 * @bytes_to_card: bytes written to the card
 * @bytes_from_card: bytes read from the card
 */
struct strait_dma_info {
	size_t size;
	char name[16];
	char backend[16];
	char engine[16];
	uint16_t vendor;
	uint16_t device;
	uint32_t address_bits;
	uint32_t align;
	uint32_t channels;
	uint32_t revokes;
	uint32_t reserved;
	uint64_t card_bytes;
	uint64_t chunk_bytes;
	uint64_t starts;
	uint64_t errors;
	uint64_t stops;
	uint64_t bytes_to_card;
	uint64_t bytes_from_card;
};

#define STRAIT_DMA_INFO_SIZE_V1 136

/**
 * strait_dma_open() - Open a DMA engine
 * @ctx: the context
 * @name: PCI address of its card
 * @opts: options, or NULL for the defaults
 * @ret: the engine
 *
 * Return: 0; -ENODEV: no such device; -EBUSY: bound to another driver, or open in another process;
 * -EOPNOTSUPP: cannot be driven from user space: the log says why and what to do; -EPROTO: no supported engine;
 * -EINVAL; -ENOMEM.
 */
STRAIT_API int strait_dma_open(struct strait_context *ctx, const char *name, const struct strait_dma_opts *opts,
			       struct strait_dma **ret);

/**
 * strait_dma_close() - Close a DMA engine
 * @dma: the engine, or NULL
 *
 * Endpoints reference the engine: it is released when the last of them is closed.
 */
STRAIT_API void strait_dma_close(struct strait_dma *dma);

/**
 * strait_dma_info() - Get the properties and counters of a DMA engine
 * @dma: the engine
 * @info: filled; @info->size must be set before
 *
 * Return: 0; -EINVAL.
 */
STRAIT_API int strait_dma_info(struct strait_dma *dma, struct strait_dma_info *info);

/**
 * strait_dma_endpoint() - Open the card's memory as an endpoint of transfers
 * @dma: the engine
 * @ret: the endpoint; closed by strait_endpoint_close()
 *
 * A write transfers bytes of a region to the card, a read transfers them back. A deadline or cancellation stops the
 * engine.
 *
 * Return: 0; -EINVAL; -ENOMEM.
 */
STRAIT_API int strait_dma_endpoint(struct strait_dma *dma, struct strait_endpoint **ret);

/**
 * struct strait_dma_mmio - A mapping of a card's registers for a device
 * @size: sizeof(struct strait_dma_mmio), set by the caller
 * @address: address of the registers in kernels of the device
 * @length: bytes
 * @priv: private to the library
 */
struct strait_dma_mmio {
	size_t size;
	uint64_t address;
	uint64_t length;
	void *priv;
};

#define STRAIT_DMA_MMIO_SIZE_V1 32

/**
 * strait_dma_mmio_map() - Map registers of a card for a device
 * @dma: the engine
 * @dev: the device whose kernels access them
 * @bar: BAR of the card
 * @offset: first byte in the BAR, a multiple of 4096
 * @len: bytes, a multiple of 4096
 * @mmio: filled; @mmio->size must be set before
 *
 * Return: 0; -EOPNOTSUPP when the device has no STRAIT_DEVICE_MMIO; -EINVAL outside the BAR.
 */
STRAIT_API int strait_dma_mmio_map(struct strait_dma *dma, struct strait_device *dev, unsigned int bar, uint64_t offset,
				   uint64_t len, struct strait_dma_mmio *mmio);

/**
 * strait_dma_mmio_unmap() - Undo strait_dma_mmio_map()
 * @dma: the engine
 * @dev: the device
 * @mmio: the mapping
 *
 * No kernel of the device may use it any more.
 */
STRAIT_API void strait_dma_mmio_unmap(struct strait_dma *dma, struct strait_device *dev, struct strait_dma_mmio *mmio);

#ifdef __cplusplus
}
#endif

#endif
