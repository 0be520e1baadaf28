/* SPDX-License-Identifier: MIT */
/*
 * A device writes a register of a card itself: the card's registers are mapped for the device, and work on the
 * device's stream stores there. The kernel is a host function, as emulated devices have them; with CUDA it would
 * be a __global__ function that is given the same address.
 *
 *     example-mailbox CARD [DEVICE]         QEMU's edu: its register 4 reads as the inverse of what was written
 */
#include <stdio.h>
#include <strait/dma.h>
#include <strait/strait.h>
#include <string.h>

struct letter {
	volatile uint32_t *box;
	uint32_t word, answer;
};

/* What the device runs. */
static void kernel(void *arg)
{
	struct letter *letter = arg;

	*letter->box = letter->word;
	letter->answer = *letter->box;
}

static int failed(const char *what, int rc)
{
	fprintf(stderr, "mailbox: %s: %s\n", what, strerror(-rc));
	return 1;
}

int main(int argc, char **argv)
{
	struct strait_dma_mmio mmio = { .size = sizeof(mmio) };
	struct letter letter = { .word = 0x12345678 };
	struct strait_stream *stream;
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_dma *card;
	int rc;

	if (argc < 2) {
		fprintf(stderr, "usage: example-mailbox CARD [DEVICE]\n");
		return 2;
	}
	rc = strait_context_open(NULL, &ctx);
	if (!rc)
		rc = argc > 2 ? strait_device_find(ctx, argv[2], &dev) : strait_device_at(ctx, 0, &dev);
	if (rc)
		return failed("device", rc);
	rc = strait_dma_open(ctx, argv[1], NULL, &card);
	if (rc)
		return failed(argv[1], rc);
	rc = strait_dma_mmio_map(card, dev, 0, 0, 4096, &mmio);
	if (rc)
		return failed("registers for the device", rc);
	rc = strait_stream_open(dev, &stream);
	if (rc)
		return failed("stream", rc);
	letter.box = (volatile uint32_t *)(uintptr_t)(mmio.address + 4);
	rc = strait_stream_call(stream, kernel, &letter);
	if (!rc)
		rc = strait_stream_wait(stream, 10000000000);
	if (rc)
		return failed("kernel", rc);
	printf("the device wrote %08x, the card answers %08x: %s\n", letter.word, letter.answer,
	       letter.answer == ~letter.word ? "delivered" : "not delivered");
	strait_stream_close(stream);
	strait_dma_mmio_unmap(card, dev, &mmio);
	strait_dma_close(card);
	strait_context_close(ctx);
	return letter.answer == ~letter.word ? 0 : 3;
}
