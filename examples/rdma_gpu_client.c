/* SPDX-License-Identifier: MIT */
/*
 * The side with the GPU of NVIDIA's gpu_direct_rdma_access: offers device memory to a server, which writes into it by
 * RDMA, checks what arrived, and has the server read it back.
 *
 *	example-rdma_gpu_client DEVICE SERVER [KEY]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strait/rdma.h>
#include <strait/strait.h>

#define BYTES ((uint64_t)1 << 20)
#define SECOND 1000000000ll

static void check(int rc, const char *what)
{
	char why[512];

	if (rc >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(-rc));
	if (!strait_rdma_missing_reason(why, sizeof(why)))
		fprintf(stderr, "%s\n", why);
	exit(1);
}

/* Have the server do @op, 'w' or 'r', with the offered memory. */
static void ask(struct strait_rdma_session *s, char op, const char *offer)
{
	char message[1 + STRAIT_RDMA_OFFER_TEXT], answer[STRAIT_RDMA_MESSAGE_MAX];
	ssize_t n;

	message[0] = op;
	memcpy(message + 1, offer, STRAIT_RDMA_OFFER_TEXT);
	check(strait_rdma_send(s, message, sizeof(message) - 1, SECOND), "cannot send");
	n = strait_rdma_recv(s, answer, sizeof(answer), 60 * SECOND);
	check((int)n, "no answer");
	if (n != 4 || memcmp(answer, "done", 4)) {
		fprintf(stderr, "the server refused the request\n");
		exit(1);
	}
}

int main(int argc, char **argv)
{
	struct strait_rdma_opts opts = { .size = sizeof(opts), .role = STRAIT_RDMA_OFFERS };
	struct strait_rdma_reach reach = { .size = sizeof(reach) };
	char text[STRAIT_RDMA_OFFER_TEXT];
	struct strait_rdma_session *session;
	struct strait_rdma_offer *offer;
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_region *region;
	uint8_t *bytes = malloc(BYTES);

	if (argc < 3 || !bytes) {
		fprintf(stderr, "usage: %s DEVICE SERVER [KEY]\n", argv[0]);
		return 2;
	}
	opts.address = argv[2];
	opts.key = argc > 3 ? argv[3] : NULL;
	opts.key_len = argc > 3 ? strlen(argv[3]) : 0;
	check(strait_context_open(NULL, &ctx), "cannot open a context");
	check(strait_device_find(ctx, argv[1], &dev), "no such device");
	/* A device with several kinds of memory has one that software RDMA devices can register. */
	if (strait_region_alloc_caps(dev, BYTES, STRAIT_REGION_PINNABLE, &region))
		check(strait_region_alloc(dev, BYTES, &region), "cannot allocate device memory");
	check(strait_rdma_connect(ctx, &opts, &session), "cannot connect");
	check(strait_rdma_offer(session, region, 0, BYTES, STRAIT_RDMA_PEER_READS | STRAIT_RDMA_PEER_WRITES,
				STRAIT_FOREVER, &offer),
	      "the RDMA device cannot register the memory");
	check(strait_rdma_offer_text(offer, text, &reach), "no text");

	ask(session, 'w', text);
	check(strait_rdma_offer_flush(offer), "cannot flush");
	check(strait_region_copy_out(region, 0, bytes, BYTES), "cannot read device memory");
	for (uint64_t i = 0; i < BYTES; i++) {
		if (bytes[i] != (uint8_t)(i * 7)) {
			fprintf(stderr, "byte %llu differs\n", (unsigned long long)i);
			return 1;
		}
	}
	ask(session, 'r', text);
	printf("%llu bytes into %s and back, registered: %s\n", (unsigned long long)BYTES, argv[1],
	       strait_rdma_kind_name(reach.kind));
	strait_rdma_offer_close(offer);
	strait_rdma_close(session);
	strait_region_close(region);
	strait_context_close(ctx);
	free(bytes);
	return 0;
}
