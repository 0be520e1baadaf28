/* SPDX-License-Identifier: MIT */
/*
 * Xilinx XDMA: a channel per direction, which processes a chain of descriptors in host memory. Registers are at
 * target << 12 | channel << 8 | register of the BAR whose identifier registers match.
 */
#include <stdlib.h>

#include "base/util.h"
#include "endpoint/dma/dma.h"
#include "hw/barrier.h"
#include "hw/endian.h"
#include "os/os.h"

enum {
	H2C = 0,
	C2H = 1,
	IRQ = 2,
	CONFIG = 3,
	SGDMA = 4, /* SGDMA target of H2C; that of C2H is one more */

	IDENTITY = 0x00,
	CONTROL = 0x04,
	CONTROL_CLEAR = 0x0c,
	STATUS = 0x40,
	STATUS_CLEAR = 0x44, /* cleared by reading */
	COMPLETED = 0x48,
	ALIGNMENTS = 0x4c,
	ENABLE_MASK = 0x90,
	CHANNEL_MASK = 0x10,   /* of target IRQ */
	CHANNEL_VECTOR = 0xa0, /* of target IRQ */
	FIRST_LO = 0x80,       /* of target SGDMA */
	FIRST_HI = 0x84,
	FIRST_ADJACENT = 0x88,

	RUN = 1 << 0,
	BUSY = 1 << 0,
	STOPPED = 1 << 1,
	DONE = 1 << 2,
	MISALIGNED = 1 << 3,
	MAGIC_STOPPED = 1 << 4,
	INVALID_LENGTH = 1 << 5,
	READ_ERRORS = 0x1f << 9,
	WRITE_ERRORS = 0x1f << 14,
	DESC_ERRORS = 0x1f << 19,
};

#define ERRORS (MISALIGNED | MAGIC_STOPPED | INVALID_LENGTH | READ_ERRORS | WRITE_ERRORS | DESC_ERRORS)
#define IDENTITY_MASK 0xffff0000u
#define IDENTITY_OF(target) (0x1fc00000u | (uint32_t)(target) << 16)
#define DESC_MAGIC 0xad4b0000u
#define DESC_STOP 1u
#define DESC_DONE 2u
#define DESC_BYTES 32u
#define CHUNK_MOST ((1u << 28) - 64) /* most bytes of one descriptor: 28 bits, whole words */
#define STOP_NS 1000000000u
#define NAP_NS 10000u

/* A page of descriptors for each direction. */
struct xdma {
	void *page[2];
	struct pci_mapping *map[2];
	uint32_t expected[2]; /* descriptors of the current run */
};

static uint64_t at(const struct strait_dma *d, unsigned int target, unsigned int reg)
{
	return (uint64_t)target << 12 | (uint64_t)(target == IRQ || target == CONFIG ? 0 : d->channel) << 8 | reg;
}

static uint32_t get(struct strait_dma *d, unsigned int target, unsigned int reg)
{
	return pci_read32(d->pci, d->bar, at(d, target, reg));
}

static void set(struct strait_dma *d, unsigned int target, unsigned int reg, uint32_t value)
{
	pci_write32(d->pci, d->bar, at(d, target, reg), value);
}

static bool is_nvidia_card(const struct pci_device *pci)
{
	return pci->vendor == 0x10de && pci->device == 0x0001;
}

static bool xdma_knows(const struct pci_device *pci)
{
	return is_nvidia_card(pci) || pci->vendor == 0x10ee;
}

/* The PicoEVB has 64 KiB, the HTG-K800 2 GiB; the size of other cards is unknown. */
static uint64_t known_memory(struct strait_dma *d)
{
	uint32_t subsystem = 0;

	if (!is_nvidia_card(d->pci) || d->pci->ops->config_read(d->pci, 0x2e, 2, &subsystem))
		return KIB(64);
	return subsystem == 2 ? GIB(2) : KIB(64);
}

static bool find_bar(struct strait_dma *d)
{
	for (d->bar = 0; d->bar < PCI_BARS; d->bar++)
		if (d->pci->bar[d->bar].length >= 0x8000 &&
		    (get(d, CONFIG, IDENTITY) & IDENTITY_MASK) == IDENTITY_OF(CONFIG))
			return true;
	return false;
}

static void xdma_close(struct strait_dma *d)
{
	struct xdma *x = d->priv;

	if (!x)
		return;
	for (int i = 0; i < 2; i++) {
		pci_unmap(x->map[i]);
		if (x->page[i])
			os_unmap(x->page[i], 4096);
	}
	free(x);
	d->priv = NULL;
}

static int make_page(struct strait_dma *d, struct xdma *x, int i)
{
	int rc = os_map_anon(4096, d->pci->node, &x->page[i]);

	if (rc)
		return rc;
	os_dont_fork(x->page[i], 4096);
	return pci_map_host(d->pci, x->page[i], 4096, PCI_MAP_READ, &x->map[i]);
}

static int xdma_open(struct strait_dma *d)
{
	struct xdma *x;
	uint32_t align;
	int rc;

	if (d->channel > 3 || !find_bar(d))
		return -EPROTO;
	if ((get(d, H2C, IDENTITY) & IDENTITY_MASK) != IDENTITY_OF(H2C) ||
	    (get(d, C2H, IDENTITY) & IDENTITY_MASK) != IDENTITY_OF(C2H))
		return -EPROTO;
	x = calloc(1, sizeof(*x));
	if (!x)
		return -ENOMEM;
	d->priv = x;
	align = get(d, H2C, ALIGNMENTS) >> 16 & 0xff;
	d->align = is_pow2(align) ? align : 1;
	d->card_bytes = d->card_bytes ? d->card_bytes : known_memory(d);
	d->chunk = CHUNK_MOST;
	d->pieces = DMA_PIECES;
	d->address_bits = 64;
	for (d->channels = 1; d->channels < 4; d->channels++)
		if ((pci_read32(d->pci, d->bar, (uint64_t)d->channels << 8) & IDENTITY_MASK) != IDENTITY_OF(H2C))
			break;
	rc = make_page(d, x, 0);
	if (!rc)
		rc = make_page(d, x, 1);
	/* Put both channels in their state after reset. */
	for (unsigned int i = 0; !rc && i < 2; i++) {
		set(d, i, CONTROL_CLEAR, UINT32_MAX);
		get(d, i, STATUS_CLEAR);
		set(d, i, ENABLE_MASK, d->irq >= 0 ? STOPPED | DONE | ERRORS : 0);
	}
	if (!rc && d->irq >= 0) {
		set(d, IRQ, CHANNEL_VECTOR, 0); /* all interrupts on vector 0 */
		set(d, IRQ, CHANNEL_MASK, UINT32_MAX);
	}
	return rc;
}

static void write_descriptor(void *page, unsigned int i, bool last, bool to_card, const struct dma_piece *p,
			     uint64_t next)
{
	unsigned int off = i * DESC_BYTES;

	hw_put32(page, off, DESC_MAGIC | (last ? DESC_STOP | DESC_DONE : 0));
	hw_put32(page, off + 4, (uint32_t)p->length);
	hw_put64(page, off + 8, to_card ? p->bus : p->card);
	hw_put64(page, off + 16, to_card ? p->card : p->bus);
	hw_put64(page, off + 24, last ? 0 : next);
}

static int xdma_start(struct strait_dma *d, bool to_card, const struct dma_piece *p, unsigned int n)
{
	struct xdma *x = d->priv;
	unsigned int dir = to_card ? H2C : C2H;
	uint64_t run, bus = pci_bus(x->map[dir], 0, &run);
	uint32_t status = get(d, dir, STATUS);

	if (status & BUSY)
		return status == UINT32_MAX ? -ENODEV : -EBUSY;
	for (unsigned int i = 0; i < n; i++)
		write_descriptor(x->page[dir], i, i + 1 == n, to_card, &p[i], bus + (i + 1) * DESC_BYTES);
	x->expected[dir] = n;
	get(d, dir, STATUS_CLEAR);
	set(d, SGDMA + dir, FIRST_LO, (uint32_t)bus);
	set(d, SGDMA + dir, FIRST_HI, (uint32_t)(bus >> 32));
	set(d, SGDMA + dir, FIRST_ADJACENT, 0);
	hw_before_doorbell();
	set(d, dir, CONTROL, RUN | (d->irq >= 0 ? STOPPED | DONE | ERRORS : 0));
	return 0;
}

static int xdma_ended(struct strait_dma *d, bool to_card, int32_t *status)
{
	struct xdma *x = d->priv;
	unsigned int dir = to_card ? H2C : C2H;
	uint32_t s = get(d, dir, STATUS);

	if (s == UINT32_MAX)
		return -ENODEV;
	if (s & ERRORS) {
		*status = (int32_t)s;
		return -EIO;
	}
	if (s & BUSY)
		return -EAGAIN;
	/* Neither busy nor done: it has halted with an error, or not started. */
	if (!(s & (STOPPED | DONE)))
		return -EAGAIN;
	*status = (int32_t)s;
	if (get(d, dir, COMPLETED) != x->expected[dir])
		return -EIO;
	*status = 0;
	set(d, dir, CONTROL_CLEAR, RUN);
	return 0;
}

static int xdma_stop(struct strait_dma *d, bool to_card)
{
	unsigned int dir = to_card ? H2C : C2H;

	set(d, dir, CONTROL_CLEAR, RUN);
	for (uint64_t end = os_now_ns() + STOP_NS;;) {
		uint32_t s = get(d, dir, STATUS);

		if (s == UINT32_MAX)
			return -ENODEV;
		if (!(s & BUSY))
			break;
		if (os_now_ns() >= end)
			return -ETIMEDOUT;
		os_sleep_ns(NAP_NS);
	}
	get(d, dir, STATUS_CLEAR);
	return 0;
}

const struct dma_engine dma_xdma = {
	.name = "xdma",
	.knows = xdma_knows,
	.open = xdma_open,
	.close = xdma_close,
	.start = xdma_start,
	.ended = xdma_ended,
	.stop = xdma_stop,
};
