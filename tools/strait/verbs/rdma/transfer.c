/* SPDX-License-Identifier: MIT */
/* Pull and push: a file of the server, through device memory of this machine, a part at a time. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/cli.h"
#include "lib/json.h"
#include "lib/pattern.h"
#include "lib/progress.h"
#include "lib/size.h"
#include "verbs/rdma/rdma.h"

struct totals {
	uint64_t bytes, direct, staged, registrations, ns;
	uint32_t kind, reconnects, crc;
	char reason[256];
};

static int open_client(struct rdma_cmd *c, struct strait_rdma_client **client)
{
	struct strait_rdma_opts o;
	int err, code = rdma_session_opts(c, &o);

	if (code)
		return code;
	err = strait_rdma_client_open(c->target.ctx, &o, client);
	return err ? rdma_failed(c->address, err) : CLI_OK;
}

static int transfer_error(const char *path, int err, const struct strait_rdma_result *res, uint64_t done)
{
	const char *hint = NULL;

	if (err == -EROFS)
		hint = "start the server with --write";
	else if (err == -ENOMEM)
		hint = "raise the limit of locked memory of this user: ulimit -l";
	else if (err == -EXDEV)
		hint = "name a file below the served directory";
	else if (err == -ECONNRESET || err == -ETIMEDOUT || err == -EIO)
		hint = "see that the server runs and the network is up; --retries N connects again";
	if (res->status)
		return fail(CLI_FAILED, hint, "%s: failed after %" PRIu64 " bytes: %s (%s)", path, done + res->bytes,
			    error_text(err), strait_rdma_status_name(res->status));
	return fail(CLI_FAILED, hint, "%s: failed after %" PRIu64 " bytes: %s", path, done + res->bytes,
		    err == -ENODATA		   ? "the file ends there" :
		    err == -ENOMEM && *res->reason ? res->reason :
						     error_text(err));
}

/* One part, in the direction of the command. */
static int move_part(struct rdma_cmd *c, struct strait_rdma_client *client, const char *path, bool push, uint64_t at,
		     uint64_t len, struct totals *t)
{
	struct strait_rdma_file f = { .size = sizeof(f),
				      .path = path,
				      .file_offset = c->offset + at,
				      .region = c->region,
				      .length = len,
				      .timeout_ns = (uint64_t)(c->timeout * 1e9),
				      .retries = c->retries };
	struct strait_rdma_result res = { .size = sizeof(res) };
	uint64_t start = now_ns();
	int err = push ? strait_rdma_push(client, &f, &res) : strait_rdma_pull(client, &f, &res);

	t->ns += now_ns() - start;
	t->bytes += res.bytes;
	t->direct += res.bytes_direct;
	t->staged += res.bytes_staged;
	t->registrations += res.registrations;
	t->reconnects += res.reconnects;
	t->kind = res.kind;
	snprintf(t->reason, sizeof(t->reason), "%s", res.reason);
	return err ? transfer_error(path, err, &res, at) : CLI_OK;
}

static void report(const struct rdma_cmd *c, const char *path, bool push, const struct totals *t)
{
	char size[SIZE_TEXT], rate[SIZE_TEXT];
	struct json j;

	if (cli.json) {
		json_begin(&j, stdout);
		json_string(&j, "server", c->address);
		json_string(&j, "file", path);
		json_string(&j, "device", c->target.info.name);
		json_string(&j, "direction", push ? "push" : "pull");
		json_uint(&j, "bytes", t->bytes);
		json_uint(&j, "bytes_direct", t->direct);
		json_uint(&j, "bytes_staged", t->staged);
		json_uint(&j, "registrations", t->registrations);
		json_uint(&j, "reconnects", t->reconnects);
		json_string(&j, "registered", strait_rdma_kind_name(t->kind));
		json_string(&j, "reason", t->reason);
		json_number(&j, "seconds", (double)t->ns / 1e9);
		json_number(&j, "gb_per_s", rate_gbs(t->bytes, t->ns));
		json_uint(&j, "crc32c", t->crc);
		json_finish(&j);
		return;
	}
	printf("%s %s %s:%s, %s: %s, CRC-32C %08x\n", size_format(t->bytes, size), push ? "to" : "from", c->address,
	       path, c->target.info.name, rate_format(t->bytes, t->ns, rate), t->crc);
	printf("  registered: %s%s%s%s\n", strait_rdma_kind_name(t->kind), *t->reason ? " (" : "", t->reason,
	       *t->reason ? ")" : "");
	if (t->reconnects)
		printf("  connected again %u times\n", t->reconnects);
}

static int save_part(struct rdma_cmd *c, struct strait_endpoint *out, uint64_t at, uint64_t len)
{
	ssize_t n = strait_write(out, at, c->region, 0, len);

	if (n == (ssize_t)len)
		return CLI_OK;
	return fail(CLI_FAILED, NULL, "cannot write %s: %s", c->save, n < 0 ? error_text((int)n) : "no space");
}

static int pull_parts(struct rdma_cmd *c, struct strait_rdma_client *client, const char *path, uint64_t len)
{
	struct strait_endpoint *out = NULL;
	struct totals t = { 0 };
	int err = 0, code = CLI_OK;

	if (c->save)
		err = strait_file_open(c->target.ctx, c->save, O_WRONLY | O_CREAT | O_TRUNC, 0666, 0, &out);
	if (err)
		return fail(CLI_FAILED, NULL, "cannot create %s: %s", c->save, error_text(err));
	progress_start(path, len);
	for (uint64_t at = 0; !code && at < len;) {
		uint64_t n = min_u64(c->region_len, len - at);

		code = move_part(c, client, path, false, at, n, &t);
		if (!code && strait_region_crc32c(c->region, 0, n, &t.crc))
			code = fail(CLI_FAILED, NULL, "cannot read device memory");
		if (!code && out)
			code = save_part(c, out, at, n);
		at += n;
		progress_set(at);
	}
	progress_end();
	strait_endpoint_close(out);
	if (!code)
		report(c, path, false, &t);
	return code;
}

int rdma_pull(struct rdma_cmd *c, const char *path)
{
	struct strait_rdma_client *client = NULL;
	uint64_t len, bytes;
	/* The context is the device's: the region's size follows from the file's. */
	int err, code = target_open(&c->opts, &c->target);

	if (!code)
		code = open_client(c, &client);
	if (code)
		return code;
	err = strait_rdma_client_length(client, path, &len);
	if (err) {
		code = transfer_error(path, err, &(struct strait_rdma_result){ 0 }, 0);
		goto close_client;
	}
	bytes = c->size ? c->size : len > c->offset ? len - c->offset : 0;
	if (!bytes) {
		code = fail(CLI_FAILED, NULL, "%s has no bytes at offset %" PRIu64, path, c->offset);
		goto close_client;
	}
	code = rdma_alloc(c, bytes);
	if (!code)
		code = pull_parts(c, client, path, bytes);
close_client:
	strait_rdma_client_close(client);
	return code;
}

/* Fill the region with the part at @at of the pattern, or of the file to push. */
static int load_part(struct rdma_cmd *c, struct strait_endpoint *in, uint64_t at, uint64_t len)
{
	const struct pattern p = { PATTERN_RANDOM, c->seed };
	ssize_t n;
	int err;

	if (!in) {
		err = pattern_to_region(&p, at, c->region, 0, len);
		return err ? fail(CLI_FAILED, NULL, "cannot fill device memory: %s", error_text(err)) : CLI_OK;
	}
	n = strait_read(in, at, c->region, 0, len);
	if (n == (ssize_t)len)
		return CLI_OK;
	return fail(CLI_FAILED, NULL, "cannot read %s: %s", c->from, n < 0 ? error_text((int)n) : "it became shorter");
}

int rdma_push(struct rdma_cmd *c, const char *path)
{
	struct strait_file_info info = { .size = sizeof(info) };
	struct strait_rdma_client *client = NULL;
	struct strait_endpoint *in = NULL;
	struct totals t = { 0 };
	uint64_t len = c->size;
	int err, code;

	if (!c->from == !c->size)
		return fail(CLI_USAGE, "give one of them", "push needs --from F or --size SIZE");
	code = target_open(&c->opts, &c->target);
	if (code)
		return code;
	if (c->from) {
		err = strait_file_open(c->target.ctx, c->from, O_RDONLY, 0, 0, &in);
		if (!err)
			err = strait_file_info(in, &info);
		if (err)
			return file_failed(c->from, err);
		len = info.length;
	}
	code = len ? rdma_alloc(c, len) : fail(CLI_FAILED, NULL, "%s is empty", c->from);
	if (!code)
		code = open_client(c, &client);
	progress_start(path, len);
	for (uint64_t at = 0; !code && at < len;) {
		uint64_t n = min_u64(c->region_len, len - at);

		code = load_part(c, in, at, n);
		if (!code && strait_region_crc32c(c->region, 0, n, &t.crc))
			code = fail(CLI_FAILED, NULL, "cannot read device memory");
		if (!code)
			code = move_part(c, client, path, true, at, n, &t);
		at += n;
		progress_set(at);
	}
	progress_end();
	if (!code)
		report(c, path, true, &t);
	strait_rdma_client_close(client);
	strait_endpoint_close(in);
	return code;
}
