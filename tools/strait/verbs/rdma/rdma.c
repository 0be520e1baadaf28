/* SPDX-License-Identifier: MIT */
#include "verbs/rdma/rdma.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/args.h"
#include "lib/cli.h"

static int read_key(struct rdma_cmd *c)
{
	const char *text = getenv("STRAIT_RDMA_KEY");
	struct stat st;
	FILE *f;

	if (!c->key_file) {
		c->key_len = text ? strlen(text) : 0;
		if (c->key_len > sizeof(c->key))
			return fail(CLI_USAGE, NULL, "the key in STRAIT_RDMA_KEY is longer than %zu bytes",
				    sizeof(c->key));
		if (text)
			memcpy(c->key, text, c->key_len);
		return CLI_OK;
	}
	f = fopen(c->key_file, "r");
	if (!f)
		return fail(CLI_FAILED, NULL, "cannot read the key %s: %s", c->key_file, strerror(errno));
	if (fstat(fileno(f), &st) || st.st_mode & 077) {
		fclose(f);
		return fail(CLI_FAILED, "chmod 600 it, and make a new key if other users could read it",
			    "other users may read the key %s", c->key_file);
	}
	c->key_len = fread(c->key, 1, sizeof(c->key), f);
	if (getc(f) != EOF) {
		fclose(f);
		return fail(CLI_FAILED, NULL, "the key %s is longer than %zu bytes", c->key_file, sizeof(c->key));
	}
	fclose(f);
	while (c->key_len && (c->key[c->key_len - 1] == '\n' || c->key[c->key_len - 1] == '\r'))
		c->key_len--;
	return CLI_OK;
}

int rdma_session_opts(struct rdma_cmd *c, struct strait_rdma_opts *o)
{
	int code = read_key(c);

	if (code)
		return code;
	if ((c->key_file || c->key_len) && c->key_len < STRAIT_RDMA_KEY_MIN)
		return fail(CLI_USAGE, "make one: head -c 24 /dev/urandom | base64 >KEY; chmod 600 KEY",
			    "a key has at least %d bytes", STRAIT_RDMA_KEY_MIN);
	if (c->queue_pairs > STRAIT_RDMA_QUEUE_PAIRS_MAX)
		return fail(CLI_USAGE, NULL, "--queue-pairs is at most %d", STRAIT_RDMA_QUEUE_PAIRS_MAX);
	if (c->port > 65535)
		return fail(CLI_USAGE, NULL, "a port is at most 65535");
	*o = (struct strait_rdma_opts){ .size = sizeof(*o), .address = c->address, .port = (uint32_t)c->port };
	o->key = c->key_len ? c->key : NULL;
	o->key_len = c->key_len;
	o->flags = c->poll ? STRAIT_RDMA_POLL : 0;
	o->ack_timeout = c->ack_timeout;
	o->queue_pairs = c->queue_pairs;
	return CLI_OK;
}

int rdma_failed(const char *what, int err)
{
	char why[512];

	if (strait_rdma_missing_reason(why, sizeof(why)) == 0)
		return fail(CLI_NO_ROUTE, why, "%s: RDMA is not available", what);
	switch (-err) {
	case EACCES:
		return fail(
			CLI_FAILED,
			"give both sides the same key: --key FILE; without one only this machine's own addresses work",
			"%s: not authenticated", what);
	case ECONNREFUSED:
		return fail(CLI_FAILED, "start one there: strait rdma serve DIR",
			    "%s: no server accepts the connection", what);
	case EHOSTUNREACH:
	case EADDRNOTAVAIL:
	case ENODEV:
		return fail(CLI_NO_ROUTE,
			    "name an address of a network with an RDMA device, not 127.0.0.1: strait rdma list",
			    "%s: no RDMA device reaches it", what);
	}
	return fail(CLI_FAILED, NULL, "%s: %s", what, error_text(err));
}

int rdma_alloc(struct rdma_cmd *c, uint64_t bytes)
{
	int err;

	c->region_len = min_u64(bytes, c->region_bytes);
	err = strait_region_alloc_caps(c->target.dev, c->region_len, STRAIT_REGION_PINNABLE, &c->region);
	if (!err)
		return CLI_OK;
	/* A GPU whose memory is registered as a dma-buf, or not at all. */
	return target_alloc(&c->target, c->region_len, &c->region, &c->region_len);
}

int cmd_rdma(int argc, char **argv)
{
	struct rdma_cmd c = {
		.region_bytes = 48 * MIB, .timeout = 30, .seed = 1, .block = 65536, .depth = 16, .seconds = 3
	};
	const struct opt opts[] = {
		{ "device", "D", OPT_TEXT, &c.opts.device,
		  "pull, push: device whose memory is used; default: the best one" },
		{ "size", "SIZE", OPT_SIZE, &c.size, "pull: bytes; default: to the end. push: bytes of a pattern" },
		{ "offset", "BYTES", OPT_SIZE, &c.offset, "pull, push: first byte in the server's file; default 0" },
		{ "region", "SIZE", OPT_SIZE, &c.region_bytes,
		  "pull, push: device memory to use at a time; default 48M" },
		{ "save", "F", OPT_TEXT, &c.save, "pull: write the bytes from device memory to this file" },
		{ "from", "F", OPT_TEXT, &c.from, "push: the file to load into device memory and push" },
		{ "seed", "N", OPT_NUMBER, &c.seed, "push --size: seed of the pattern; default 1" },
		{ "retries", "N", OPT_COUNT, &c.retries,
		  "pull, push: connect again so many times after a lost connection" },
		{ "timeout", "S", OPT_SECONDS, &c.timeout, "pull, push: longest time without progress; default 30" },
		{ "key", "F", OPT_TEXT, &c.key_file,
		  "file with the key that both sides have, mode 0600; or the variable STRAIT_RDMA_KEY" },
		{ "port", "N", OPT_NUMBER, &c.port, "port of the server; default 18516" },
		{ "listen", "A", OPT_TEXT, &c.address, "serve: address to listen on; default: all" },
		{ "write", NULL, OPT_FLAG, &c.write,
		  "serve: clients may create and overwrite files in DIR. bench: write, not read" },
		{ "export", "NAME=WHAT", OPT_LIST, &c.exports,
		  "serve: a drive, a file or device memory as @NAME; may be given several times" },
		{ "block", "SIZE", OPT_SIZE, &c.block, "bench: bytes of a request; default 64K" },
		{ "depth", "N", OPT_COUNT, &c.depth, "bench: requests in flight; default 16" },
		{ "pieces", "N", OPT_COUNT, &c.pieces,
		  "bench: parts of the memory that a request reads to or writes from, 1 to 256; default 1" },
		{ "seconds", "S", OPT_SECONDS, &c.seconds, "bench: duration; default 3" },
		{ "sessions", "N", OPT_COUNT, &c.sessions, "serve: most clients at a time; default 64" },
		{ "poll", NULL, OPT_FLAG, &c.poll, "poll for completions instead of sleeping" },
		{ "queue-pairs", "N", OPT_COUNT, &c.queue_pairs,
		  "most queue pairs of a session, 1 to 8, the smaller number of both sides; default 1" },
		{ "ack-timeout", "N", OPT_COUNT, &c.ack_timeout,
		  "longest time for an acknowledgement, 4.096 us * 2^N; default 18, one second" },
		{ "json", NULL, OPT_FLAG, &cli.json, "print the report as JSON" },
	};
	const char *pos[3];
	int code, n = args_parse(argc, argv, opts, ARRAY_SIZE(opts), 1, 3, pos);

	if (n < 0)
		return args_exit(n);
	if (!strcmp(pos[0], "list") && n == 1)
		return rdma_list();
	if (!strcmp(pos[0], "serve") && (n == 2 || (n == 1 && c.exports.n)))
		return rdma_serve(&c, n == 2 ? pos[1] : NULL);
	if (!strcmp(pos[0], "bench") && n < 3) {
		code = rdma_bench(&c, n > 1 ? pos[1] : NULL);
		goto close_target;
	}
	if ((strcmp(pos[0], "pull") && strcmp(pos[0], "push")) || n != 3)
		return fail(
			CLI_USAGE, "see: strait help rdma",
			"give list, serve DIR, serve --export NAME=WHAT, pull ADDRESS FILE, push ADDRESS FILE or bench [ADDRESS]");
	c.address = pos[1];
	code = !strcmp(pos[0], "pull") ? rdma_pull(&c, pos[2]) : rdma_push(&c, pos[2]);
close_target:
	strait_region_close(c.region);
	target_close(&c.target);
	return code;
}
