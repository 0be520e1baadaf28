/* SPDX-License-Identifier: MIT */
/*
 * The side with the data of NVIDIA's gpu_direct_rdma_access: waits for a client that offers device memory, and writes
 * into it, or reads from it, by RDMA.
 *
 *	example-rdma_gpu_server [ADDRESS [KEY]]
 *
 * Each request of the client is an operation, 'w' or 'r', followed by an offer as text. The answer is "done", sent after
 * the bytes. KEY is the key that both sides have; without one only clients on this machine are accepted.
 */
#include <inttypes.h>
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

/* Serve one client until it leaves. */
static void serve(struct strait_rdma_session *s, struct strait_region *data)
{
	struct strait_rdma_info info = { .size = sizeof(info) };
	char message[STRAIT_RDMA_MESSAGE_MAX + 1];

	for (;;) {
		struct strait_rdma_request request = { .region = data, .offer = message + 1, .length = BYTES };
		ssize_t n = strait_rdma_recv(s, message, sizeof(message) - 1, 60 * SECOND);
		uint64_t ticket;
		int rc;

		if (n < 1)
			break;
		message[n] = '\0';
		request.op = message[0] == 'w' ? STRAIT_WRITE : STRAIT_READ;
		/* A wrong offer, or one for fewer bytes, is refused here: nothing of it is trusted. */
		rc = strait_rdma_post(s, &request, SECOND, &ticket);
		/* For a write the order of the connection is enough: the answer arrives after the bytes. */
		if (!rc && request.op == STRAIT_READ)
			rc = strait_rdma_wait(s, ticket, 30 * SECOND);
		if (rc)
			fprintf(stderr, "request refused: %s\n", strerror(-rc));
		if (strait_rdma_send(s, rc ? "refused" : "done", rc ? 7 : 4, SECOND))
			break;
	}
	strait_rdma_info(s, &info);
	printf("%s: %" PRIu64 " bytes written, %" PRIu64 " read\n", info.peer, info.bytes_written, info.bytes_read);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct strait_rdma_opts opts = { .size = sizeof(opts), .role = STRAIT_RDMA_INITIATES };
	struct strait_rdma_listener *listener;
	struct strait_rdma_session *session;
	struct strait_context *ctx;
	struct strait_device *host;
	struct strait_region *data;
	uint8_t *bytes;
	void *map;

	opts.address = argc > 1 ? argv[1] : NULL;
	opts.key = argc > 2 ? argv[2] : NULL;
	opts.key_len = argc > 2 ? strlen(argv[2]) : 0;
	check(strait_context_open(NULL, &ctx), "cannot open a context");
	check(strait_device_find(ctx, "host", &host), "no host memory");
	check(strait_region_alloc(host, BYTES, &data), "cannot allocate memory");
	check(strait_region_map(data, &map), "cannot map memory");
	bytes = map;
	for (uint64_t i = 0; i < BYTES; i++)
		bytes[i] = (uint8_t)(i * 7);
	check(strait_rdma_listen(ctx, &opts, &listener), "cannot listen");
	printf("listening\n");
	fflush(stdout);
	for (;;) {
		check(strait_rdma_accept(listener, STRAIT_FOREVER, &session), "cannot accept");
		if (!strait_rdma_authenticate(session))
			serve(session, data);
		strait_rdma_close(session);
	}
}
