/* SPDX-License-Identifier: MIT */
#ifndef ENDPOINT_DMA_DMA_H
#define ENDPOINT_DMA_DMA_H

/*
 * DMA engines on pci/pci.h. An engine is a table of operations; dma.c, io.c and endpoint.c are common to all engines.
 *
 * Lock order: dma.map_lock (mappings); dma.bounce_lock, then dma.lock (the engine, one run at a time). None is held
 * while a region is released.
 */

#include <pthread.h>
#include <stdatomic.h>

#include <strait/dma.h>

#include "base/list.h"
#include "device/verify.h"
#include "endpoint/endpoint.h"
#include "pci/pci.h"

#define DMA_PIECES 64u /* most descriptors of one run */
#define DMA_BOUNCE KIB(64)

/* One descriptor: contiguous in memory and on the card. */
struct dma_piece {
	uint64_t bus, card;
	uint64_t length;
};

struct strait_dma;

struct dma_engine {
	const char *name;
	/* Does the card have this engine, by its PCI IDs? open() verifies it. */
	bool (*knows)(const struct pci_device *pci);
	/* Fills card_bytes, chunk, align, pieces, address_bits and channels. -EPROTO if the card has no such engine. */
	int (*open)(struct strait_dma *d);
	void (*close)(struct strait_dma *d);
	/* Start a run of @n pieces, 1 to d->pieces. start, ended and stop are called with d->lock held. */
	int (*start)(struct strait_dma *d, bool to_card, const struct dma_piece *p, unsigned int n);
	/* 0 if the run is complete, -EAGAIN if not; an error of the engine, with its code in @status. */
	int (*ended)(struct strait_dma *d, bool to_card, int32_t *status);
	/* Stop the run. On 0 the engine does no more DMA; -ETIMEDOUT if it does not stop. */
	int (*stop)(struct strait_dma *d, bool to_card);
};

extern const struct dma_engine dma_xdma, dma_edu;

struct dma_map {
	struct list node;
	struct strait_region *region; /* compared, never dereferenced */
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
	unsigned int bar; /* BAR of its registers */
	int irq;	  /* eventfd, -1: polled */
	void *priv;	  /* private to the engine */
	_Atomic int dead; /* 0, or the errno of every call */

	pthread_mutex_t lock;
	pthread_mutex_t bounce_lock; /* taken before @lock */
	void *bounce;
	struct pci_mapping *bounce_map;
	uint64_t starts, errors, stops, to_card, from_card;

	pthread_mutex_t map_lock;
	struct list maps;
	verify_verdict pair[ENDPOINT_DEVICES];
};

/* A transfer between mapped memory and the card. */
struct dma_job {
	const struct pci_mapping *pm;
	uint64_t offset; /* in @pm */
	uint64_t card;
	uint64_t length;
	bool to_card;
	uint64_t deadline;
	const atomic_bool *cancel;
	int err;
	int32_t status;
};

/* dma.c: takes ownership of @pci, also on failure. */
int dma_open(struct device_set *set, struct pci_device *pci, const struct strait_dma_opts *opts,
	     struct strait_dma **ret);
void dma_ref(struct strait_dma *d);
void dma_unref(struct strait_dma *d);
void dma_info(struct strait_dma *d, struct strait_dma_info *info);
/* The cached mapping of a whole region, created on first use. The caller holds a use of the region. */
int dma_map(struct strait_dma *d, struct strait_region *r, const struct pci_mapping **ret);
/* Can the card transfer to the memory of the region or device? 0, or a negative errno with the enum strait_reason. */
int dma_map_device(struct strait_dma *d, struct strait_device *dev, struct strait_region *r, uint32_t *reason);

/* io.c: how many bytes from the start on were transferred. Nothing is in flight when it returns. */
uint64_t dma_move(struct strait_dma *d, struct dma_job *job);
int dma_bounce(struct strait_dma *d, struct strait_region *src, uint64_t src_off, struct strait_region *dst,
	       uint64_t dst_off, uint64_t len, uint64_t deadline, uint64_t *done);

/* endpoint.c */
int dma_endpoint_open(struct strait_dma *d, struct strait_endpoint **ret);

#endif
