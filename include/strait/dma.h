/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_DMA_H
#define STRAIT_DMA_H

/*
 * DMA engines on PCIe cards, driven from user space: the card reads and writes memory of regions itself.
 * Its own memory is an endpoint of transfers. Engines known: xdma (Xilinx XDMA, as on the PicoEVB and the
 * HTG-K800) and edu (QEMU's).
 *
 * Experimental: not part of the stable interface (docs/abi.md), it may change with any version.
 */

#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct strait_dma;

/* How an engine is used. */
#define STRAIT_DMA_INTERRUPTS (1u << 0) /* sleep until it interrupts; it is polled without */
/* Map device memory even by a backend that cannot take it away from the card: see STRAIT_NVME_UNREVOCABLE. */
#define STRAIT_DMA_UNREVOCABLE (1u << 1)

/**
 * struct strait_dma_opts - How a DMA engine is opened
 * @size: sizeof(struct strait_dma_opts)
 * @backend: "strait" or "vfio", NULL for the driver it is bound to
 * @engine: "xdma" or "edu", NULL for the one that knows the card
 * @flags: STRAIT_DMA_*
 * @channel: of the engine, if it has several
 * @card_bytes: memory of the card, 0: as much as is known to be there
 * @timeout_ns: how long one start of the engine may take; 0: 10 seconds
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
 * struct strait_dma_info - What is known about a DMA engine
 * @size: sizeof(struct strait_dma_info), set by the caller
 * @name: PCI address of its card
 * @backend: who gives access to it
 * @engine: "xdma", "edu"
 * @vendor: PCI vendor
 * @device: PCI device
 * @address_bits: how wide the addresses are that it can name
 * @align: addresses and lengths are multiples of this
 * @card_bytes: memory of the card
 * @chunk_bytes: of one descriptor at most
 * @channels: of each direction
 * @revokes: 1 if it cannot reach memory that was given back
 * @reserved: 0
 * @starts: times it was started
 * @errors: of those that failed
 * @stops: of those it was stopped by force
 * @bytes_to_card: moved
 * @bytes_from_card: moved
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
 * strait_dma_open() - Take a DMA engine
 * @ctx: the context
 * @name: PCI address of its card
 * @opts: how, or NULL for the defaults
 * @ret: the engine
 *
 * Return: 0; -ENODEV: no such device; -EBUSY: bound to another driver, or open elsewhere; -EOPNOTSUPP:
 * cannot be driven from user space, and the log says what would have to change; -EPROTO: no engine that is
 * known; -EINVAL; -ENOMEM.
 */
STRAIT_API int strait_dma_open(struct strait_context *ctx, const char *name, const struct strait_dma_opts *opts,
			       struct strait_dma **ret);

/**
 * strait_dma_close() - Give a DMA engine back
 * @dma: the engine, or NULL
 *
 * Endpoints keep it.
 */
STRAIT_API void strait_dma_close(struct strait_dma *dma);

/**
 * strait_dma_info() - What is known about a DMA engine
 * @dma: the engine
 * @info: filled; @info->size must be set before
 *
 * Return: 0; -EINVAL.
 */
STRAIT_API int strait_dma_info(struct strait_dma *dma, struct strait_dma_info *info);

/**
 * strait_dma_endpoint() - The card's memory as an endpoint of transfers
 * @dma: the engine
 * @ret: the endpoint; closed by strait_endpoint_close()
 *
 * A write takes bytes of a region to the card, a read brings them back. Deadline and cancel stop the engine.
 *
 * Return: 0; -EINVAL; -ENOMEM.
 */
STRAIT_API int strait_dma_endpoint(struct strait_dma *dma, struct strait_endpoint **ret);

/**
 * struct strait_dma_mmio - Registers of a card as a device sees them
 * @size: sizeof(struct strait_dma_mmio), set by the caller
 * @address: where kernels of the device find them
 * @length: bytes
 * @priv: the library's own
 */
struct strait_dma_mmio {
	size_t size;
	uint64_t address;
	uint64_t length;
	void *priv;
};

#define STRAIT_DMA_MMIO_SIZE_V1 32

/**
 * strait_dma_mmio_map() - Let a device reach registers of a card
 * @dma: the engine
 * @dev: the device, whose kernels are to write them
 * @bar: of the card
 * @offset: first byte in it, a multiple of 4096
 * @len: bytes, likewise
 * @mmio: filled; @mmio->size must be set before
 *
 * Return: 0; -EOPNOTSUPP when the device cannot (no STRAIT_DEVICE_MMIO); -EINVAL outside the BAR.
 */
STRAIT_API int strait_dma_mmio_map(struct strait_dma *dma, struct strait_device *dev, unsigned int bar, uint64_t offset,
				   uint64_t len, struct strait_dma_mmio *mmio);

/**
 * strait_dma_mmio_unmap() - Undo strait_dma_mmio_map()
 * @dma: the engine
 * @dev: the device
 * @mmio: what was filled
 *
 * No kernel may use it any more.
 */
STRAIT_API void strait_dma_mmio_unmap(struct strait_dma *dma, struct strait_device *dev, struct strait_dma_mmio *mmio);

#ifdef __cplusplus
}
#endif

#endif
