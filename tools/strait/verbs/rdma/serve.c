/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "lib/cli.h"
#include "verbs/rdma/rdma.h"

static void announce(const struct rdma_cmd *c, const char *dir, const struct exports *x,
		     const struct strait_rdma_opts *session)
{
	if (dir)
		printf("serving %s%s", dir, c->write ? ", writable," : " read-only");
	else
		printf("serving");
	for (uint32_t i = 0; i < x->n; i++)
		printf("%s @%s%s", i || dir ? "," : "", x->e[i].name,
		       x->e[i].flags & STRAIT_RDMA_EXPORT_WRITE ? " writable" : " read-only");
	printf(" on port %u%s\n", session->port ? session->port : STRAIT_RDMA_PORT,
	       session->key_len ? "" : ", without a key: to this machine's own addresses only");
	fflush(stdout);
}

/* Serves until a signal ends it; its clients see that the connection is closed. */
int rdma_serve(struct rdma_cmd *c, const char *dir)
{
	struct strait_rdma_opts session;
	struct strait_rdma_server_opts o = { .size = sizeof(o), .session = &session, .root = dir };
	struct strait_rdma_server_info info = { .size = sizeof(info) };
	struct strait_rdma_server *server;
	struct exports x = { .n = 0 };
	struct strait_context *ctx;
	sigset_t ends;
	int err, sig, code = rdma_session_opts(c, &session);

	if (!code)
		code = context_open(false, &ctx);
	if (code)
		return code;
	code = exports_open(ctx, &c->exports, &x);
	if (code)
		goto close_exports;
	o.flags = c->write ? STRAIT_RDMA_SERVE_WRITE : 0;
	o.sessions = c->sessions;
	o.exports = x.e;
	o.export_count = x.n;
	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGHUP);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	err = strait_rdma_serve(ctx, &o, &server);
	if (err == -ENOENT || err == -ENOTDIR) {
		code = fail(CLI_FAILED, "name a directory", "cannot serve %s: %s", dir, error_text(err));
	} else if (err) {
		code = rdma_failed(c->address ? c->address : "all addresses", err);
	} else {
		announce(c, dir, &x, &session);
		sigwait(&ends, &sig);
		strait_rdma_server_info(server, &info);
		strait_rdma_server_close(server);
		note("%" PRIu64 " sessions, %" PRIu64 " refused, %" PRIu64 " bytes sent, %" PRIu64 " bytes received",
		     info.accepted, info.refused, info.bytes_out, info.bytes_in);
	}
close_exports:
	exports_close(&x);
	strait_context_close(ctx);
	return code;
}
