/* SPDX-License-Identifier: MIT */
/* The "edu" device of QEMU: one engine for both directions, one page of memory, 100 ms per run. */
#include "base/util.h"
#include "endpoint/dma/dma.h"
#include "os/os.h"

enum {
	EDU_IDENTITY = 0x00, /* 0xRRrr00ed */
	EDU_IRQ_STATUS = 0x24,
	EDU_IRQ_ACK = 0x64,
	EDU_SOURCE = 0x80, /* EDU_SOURCE to EDU_COMMAND are 64 bits wide */
	EDU_TARGET = 0x88,
	EDU_COUNT = 0x90,
	EDU_COMMAND = 0x98,

	EDU_RUN = 1,
	EDU_FROM_CARD = 2,
	EDU_INTERRUPT = 4,

	EDU_BUFFER = 0x40000,
	/* Some versions of QEMU abort when the whole page is transferred at once. */
	EDU_MOST = 2048,
};

#define STOP_NS 1000000000u
#define NAP_NS 1000000u

static bool edu_knows(const struct pci_device *pci)
{
	return pci->vendor == 0x1234 && pci->device == 0x11e8;
}

static int edu_open(struct strait_dma *d)
{
	if (d->pci->bar[0].length < 0x1000 || (pci_read32(d->pci, 0, EDU_IDENTITY) & 0xffff) != 0x00ed)
		return -EPROTO;
	d->bar = 0;
	d->card_bytes = d->card_bytes ? min_u64(d->card_bytes, EDU_MOST) : EDU_MOST;
	d->chunk = EDU_MOST;
	d->align = 1;
	d->pieces = 1;
	d->address_bits = 28; /* the default of QEMU's dma_mask option */
	d->channels = 1;
	return 0;
}

static void edu_close(struct strait_dma *d)
{
}

static bool edu_busy(struct strait_dma *d)
{
	return pci_read64(d->pci, 0, EDU_COMMAND) & EDU_RUN;
}

static int edu_start(struct strait_dma *d, bool to_card, const struct dma_piece *p, unsigned int n)
{
	uint64_t card = EDU_BUFFER + p->card;

	if (pci_read32(d->pci, 0, EDU_IDENTITY) == UINT32_MAX)
		return -ENODEV;
	if (edu_busy(d))
		return -EBUSY;
	pci_write64(d->pci, 0, EDU_SOURCE, to_card ? p->bus : card);
	pci_write64(d->pci, 0, EDU_TARGET, to_card ? card : p->bus);
	pci_write64(d->pci, 0, EDU_COUNT, p->length);
	pci_write64(d->pci, 0, EDU_COMMAND,
		    EDU_RUN | (to_card ? 0 : EDU_FROM_CARD) | (d->irq >= 0 ? EDU_INTERRUPT : 0));
	return 0;
}

static int edu_ended(struct strait_dma *d, bool to_card, int32_t *status)
{
	if (pci_read32(d->pci, 0, EDU_IDENTITY) == UINT32_MAX)
		return -ENODEV;
	if (edu_busy(d))
		return -EAGAIN;
	if (d->irq >= 0)
		pci_write32(d->pci, 0, EDU_IRQ_ACK, pci_read32(d->pci, 0, EDU_IRQ_STATUS));
	return 0;
}

/* The engine cannot be stopped: wait until the run completes. */
static int edu_stop(struct strait_dma *d, bool to_card)
{
	for (uint64_t end = os_now_ns() + STOP_NS; edu_busy(d);) {
		if (os_now_ns() >= end)
			return -ETIMEDOUT;
		os_sleep_ns(NAP_NS);
	}
	return 0;
}

const struct dma_engine dma_edu = {
	.name = "edu",
	.knows = edu_knows,
	.open = edu_open,
	.close = edu_close,
	.start = edu_start,
	.ended = edu_ended,
	.stop = edu_stop,
};
