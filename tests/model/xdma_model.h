/* SPDX-License-Identifier: MIT */
#ifndef MODEL_XDMA_MODEL_H
#define MODEL_XDMA_MODEL_H

/*
 * A card with a Xilinx XDMA behind the interface of pci/pci.h, at the level of its registers: it fetches and checks
 * descriptors and shares no code with the driver. It works inside the write that starts it, or on a thread of its own.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "bus.h"
#include "pci/pci.h"

enum xdma_fault {
	XDMA_GOOD,
	XDMA_BAD_MAGIC, /* descriptors that it fetches have another magic */
	XDMA_HALT,	/* it stops after the first descriptor, without an error */
	XDMA_DESC_ERROR,
	XDMA_READ_ERROR,
	XDMA_STUCK,	 /* busy until it is stopped */
	XDMA_STUCK_HARD, /* busy whatever the driver does */
	XDMA_GONE,
};

struct xdma_config {
	uint64_t card_bytes; /* 64 KiB */
	uint32_t align;	     /* 1 */
	uint32_t bar;	     /* of the registers, 1 */
	bool threaded, scattered, interrupts, lose_peer_writes, refuse_regions;
};

struct xdma_channel {
	uint32_t control, status, completed, enable, lo, hi;
};

struct xdma_model {
	struct pci_device pci; /* what the driver gets */
	struct xdma_config c;
	struct bus bus;
	pthread_mutex_t lock;
	pthread_t thread;
	bool stop;
	uint8_t *card;
	struct xdma_channel ch[2]; /* to the card, from it */
	uint32_t irq_mask;
	int irq;
	enum xdma_fault fault;
	uint64_t fault_count;
	bool is_open, master;
	uint64_t descriptors, starts, resets;
	bool revoked;
};

struct xdma_model *xdma_new(const struct xdma_config *c);
void xdma_free(struct xdma_model *m);
void xdma_break(struct xdma_model *m, enum xdma_fault fault, uint64_t count);

#endif
