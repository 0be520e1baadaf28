/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "lib/cli.h"
#include "verbs/rdma/rdma.h"

/* Serves until a signal ends it; its clients see that the connection is closed. */
int rdma_serve(struct rdma_cmd *c, const char *dir)
{
	struct strait_rdma_opts session;
	struct strait_rdma_server_opts o = { .size = sizeof(o), .session = &session, .root = dir };
	struct strait_rdma_server_info info = { .size = sizeof(info) };
	struct strait_rdma_server *server;
	struct strait_context *ctx;
	sigset_t ends;
	int err, sig, code = rdma_session_opts(c, &session);

	if (!code)
		code = context_open(false, &ctx);
	if (code)
		return code;
	o.flags = c->write ? STRAIT_RDMA_SERVE_WRITE : 0;
	o.sessions = c->sessions;
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
		printf("serving %s%s on port %u%s\n", dir, c->write ? ", writable," : " read-only",
		       session.port ? session.port : STRAIT_RDMA_PORT,
		       session.key_len ? "" : ", without a key: to this machine's own addresses only");
		fflush(stdout);
		sigwait(&ends, &sig);
		strait_rdma_server_info(server, &info);
		strait_rdma_server_close(server);
		note("%" PRIu64 " sessions, %" PRIu64 " refused, %" PRIu64 " bytes sent, %" PRIu64 " bytes received",
		     info.accepted, info.refused, info.bytes_out, info.bytes_in);
	}
	strait_context_close(ctx);
	return code;
}
