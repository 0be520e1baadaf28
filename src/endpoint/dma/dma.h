/* SPDX-License-Identifier: MIT */
#ifndef ENDPOINT_DMA_DMA_H
#define ENDPOINT_DMA_DMA_H

/*
 * DMA engines above the seam of pci/pci.h. What is common to them is in dma.c, move.c and endpoint.c; an
 * engine is a table of operations.
 *
 * Locks: dma.map_lock (mappings); dma.bounce_lock, then dma.lock (the engine, one start at a time). None while
 * a region is given back.
 */

#include <pthread.h>
#include <stdatomic.h>

#include <strait/dma.h>

#include "base/list.h"
#include "endpoint/endpoint.h"
#include "pci/pci.h"

#define DMA_PIECES 64u /* of one start */
#define DMA_BOUNCE KIB(64)

/* One descriptor: contiguous for both sides. */
struct dma_piece {
	uint64_t bus, card;
	uint64_t length;
};

struct strait_dma;

struct dma_engine {
	const char *name;
	/* Is it this card's? Looks at numbers only; open() makes sure. */
	bool (*knows)(const struct pci_device *pci);
	/* Fills card_bytes, chunk, align, pieces, address_bits and channels. -EPROTO if it is not there after all. */
	int (*open)(struct strait_dma *d);
	void (*close)(struct strait_dma *d);
	/* Begin to move @n pieces, 1 to d->pieces. With the lock held, as the next two. */
	int (*start)(struct strait_dma *d, bool to_card, const struct dma_piece *p, unsigned int n);
	/* 0 when all of them have arrived, -EAGAIN before; an error of the engine, its own code in @status. */
	int (*ended)(struct strait_dma *d, bool to_card, int32_t *status);
	/* Stop. When it returns 0 the engine touches no memory any more; -ETIMEDOUT if it does not stop. */
	int (*stop)(struct strait_dma *d, bool to_card);
};

extern const struct dma_engine dma_xdma, dma_edu;

struct dma_map {
	struct list node;
	struct strait_region *region; /* only compared */
	struct pci_mapping *pm;
};

struct strait_dma {
	struct pci_device *pci;
	struct device_set *set;
	struct region_watcher watcher;
	const struct log_sink *log;
	void *owner; /* struct strait_context, for the API */
	atomic_uint refs;
	const struct dma_engine *engine;
	uint64_t card_bytes, chunk, timeout;
	uint32_t align, pieces, address_bits, channels, channel, flags;
	unsigned int bar; /* of its registers */
	int irq;	  /* eventfd, -1: polled */
	void *priv;	  /* the engine's */
	_Atomic int dead; /* 0, or what everything gets */

	pthread_mutex_t lock;
	pthread_mutex_t bounce_lock; /* taken before @lock */
	void *bounce;
	struct pci_mapping *bounce_map;
	uint64_t starts, errors, stops, to_card, from_card;

	pthread_mutex_t map_lock;
	struct list maps;
	_Atomic int8_t pair[ENDPOINT_DEVICES]; /* as in a drive's */
};

/* Bytes between mapped memory and the card. */
struct dma_job {
	const struct pci_mapping *pm;
	uint64_t offset; /* in it */
	uint64_t card;
	uint64_t length;
	bool to_card;
	uint64_t deadline;
	const atomic_bool *cancel;
	int err;
	int32_t status;
};

/* dma.c: takes @pci over, also on failure. */
int dma_open(struct device_set *set, struct pci_device *pci, const struct strait_dma_opts *opts,
	     struct strait_dma **ret);
void dma_ref(struct strait_dma *d);
void dma_unref(struct strait_dma *d);
void dma_info(struct strait_dma *d, struct strait_dma_info *info);
/* All of a region, made the first time. The region is in use. */
int dma_map(struct strait_dma *d, struct strait_region *r, const struct pci_mapping **ret);
/* Can the card reach memory of the region or device? 0, or a negative errno with the enum strait_reason. */
int dma_map_device(struct strait_dma *d, struct strait_device *dev, struct strait_region *r, uint32_t *reason);

/* move.c: how many bytes from the start on are good. Nothing is in flight any more. */
uint64_t dma_move(struct strait_dma *d, struct dma_job *job);
int dma_bounce(struct strait_dma *d, struct strait_region *src, uint64_t src_off, struct strait_region *dst,
	       uint64_t dst_off, uint64_t len, uint64_t deadline, uint64_t *done);

/* endpoint.c */
int dma_endpoint_open(struct strait_dma *d, struct strait_endpoint **ret);

#endif
