/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include <strait/strait.h>

#include "lib/args.h"
#include "lib/cli.h"
#include "lib/fabric.h"
#include "lib/json.h"
#include "lib/size.h"
#include "lib/target.h"
#include "verbs/rdma/rdma.h"

struct explain {
	const char *path;
	const char *device;
	bool write;
	struct strait_context *ctx;
	struct strait_endpoint *ep;
	struct strait_file_info file;
	struct strait_device *dev;
	struct strait_device_info info;
	struct strait_route_report report;
	struct fabric fabric; /* of the drive, if the file is on one */
	char why[512];	      /* why there is no such device */
};

static int open_file(struct explain *e)
{
	int err = strait_file_open(e->ctx, e->path, e->write ? O_RDWR : O_RDONLY, 0, 0, &e->ep);

	/* A file that may be written but not read is explained too. */
	if (err == -EACCES && e->write)
		err = strait_file_open(e->ctx, e->path, O_WRONLY, 0, 0, &e->ep);
	e->file.size = sizeof(e->file);
	if (!err)
		err = strait_file_info(e->ep, &e->file);
	if (err == -ENOENT && e->write)
		return fail(CLI_FAILED, "create it first, for example with truncate -s SIZE", "%s does not exist",
			    e->path);
	return err ? file_failed(e->path, err) : CLI_OK;
}

static int ask(struct explain *e)
{
	int err = strait_device_find(e->ctx, e->device, &e->dev);

	if (err) {
		if (strait_device_missing_reason(e->ctx, e->device, e->why, sizeof(e->why)) == -EEXIST)
			snprintf(e->why, sizeof(e->why), "%s", error_text(err));
		return CLI_NO_ROUTE;
	}
	e->info.size = sizeof(e->info);
	err = strait_device_info(e->dev, &e->info);
	if (err)
		return fail(CLI_NO_ROUTE, "see: strait info", "cannot query %s: %s", e->device, error_text(err));
	e->report.size = sizeof(e->report);
	err = strait_route_query_device(e->ep, e->dev, e->write ? STRAIT_WRITE : STRAIT_READ, &e->report);
	if (err)
		return fail(CLI_FAILED, NULL, "cannot query the routes of %s: %s", e->path, error_text(err));
	return e->report.route < 0 ? CLI_NO_ROUTE : CLI_OK;
}

static void print_file(const struct explain *e)
{
	char size[SIZE_TEXT];

	printf("  file       %s on %s, ", size_format(e->file.length, size), e->file.fs);
	if (e->file.caps & STRAIT_FILE_CAN_DIRECT)
		printf("direct I/O in multiples of %u bytes\n", e->file.dio_align);
	else
		printf("no direct I/O: %s\n", strait_reason_text(e->file.direct_reason));
	if (e->fabric.transport[0])
		printf("  storage    %s, %s over %s, %s%s%s: its bytes come through host memory\n", e->fabric.disk,
		       e->fabric.kind, e->fabric.transport, e->fabric.address, e->fabric.nic[0] ? ", by " : "",
		       e->fabric.nic);
}

static void print_cached(const struct explain *e)
{
	char size[SIZE_TEXT];
	double share = e->file.length ? 100.0 * (double)e->report.cached_bytes / (double)e->file.length : 0;

	printf("  cached     %s, %.1f %%\n", size_format(e->report.cached_bytes, size), share > 100 ? 100 : share);
}

static void print_verdict(const char *word, int route, const struct strait_route_verdict *v)
{
	const char *fix = strait_route_verdict_fix(v);
	char why[256];

	strait_route_verdict_text(v, why, sizeof(why));
	printf("  %-9s  %s%s%s\n", strait_route_name(route), word, why[0] ? ": " : "", why);
	if (!v->usable)
		printf("             %s%s\n", fix[0] ? "to enable it: " : "cannot be enabled here", fix);
}

/* How each RDMA device of this machine would register the device's memory: in text, or in the report @j. */
static void print_rdma(const struct explain *e, struct json *j)
{
	struct strait_rdma_nic nic = { .size = sizeof(nic) };
	unsigned int i;

	for (i = 0; !strait_rdma_nic(i, &nic); i++) {
		struct strait_rdma_reach reach = { .size = sizeof(reach) };
		int err = nic.active ? rdma_try_device(nic.name, e->dev, &reach) : -ENETDOWN;
		const char *kind = err ? "no" : strait_rdma_kind_name(reach.kind);
		const char *why = err ? error_text(err) : reach.reason;

		if (!j) {
			printf("  rdma       %s: %s%s%s\n", nic.name, kind, *why ? ": " : "", why);
			continue;
		}
		if (!i)
			json_array(j, "rdma");
		json_object(j, NULL);
		json_string(j, "nic", nic.name);
		json_string(j, "kind", kind);
		json_string(j, "why", why);
		json_close(j);
	}
	if (j && i)
		json_close(j);
}

static void print_text(const struct explain *e)
{
	const struct strait_route_report *r = &e->report;

	if (e->why[0]) {
		printf("%s %s %s\n", e->path, e->write ? "<-" : "->", e->device);
		print_file(e);
		printf("  device     not available: %s\n", e->why);
		return;
	}
	printf("%s %s %s (%s)\n", e->path, e->write ? "<-" : "->", e->info.name, e->info.model);
	print_file(e);
	if (!e->write)
		print_cached(e);
	printf("  route      %s", strait_route_name(r->route));
	for (int i = 0; i < STRAIT_ROUTE_COUNT; i++)
		if (i != r->route && r->mask & STRAIT_ROUTE_MASK(i))
			printf(", %s for a part", strait_route_name(i));
	putchar('\n');
	if (r->plan) {
		char plan[256];

		strait_route_plan_text(r->plan, plan, sizeof(plan));
		printf("  plan       %s\n", plan);
	}
	print_rdma(e, NULL);
	putchar('\n');
	for (int i = 0; i < STRAIT_ROUTE_COUNT; i++) {
		const struct strait_route_verdict *v = &r->verdict[i];

		if (r->mask & STRAIT_ROUTE_MASK(i) || i == r->route)
			print_verdict("taken", i, v);
		else if (v->usable)
			print_verdict("possible", i, v);
		else if (r->route < 0 || i < r->route)
			print_verdict("no", i, v);
	}
}

static void print_json(const struct explain *e, int code)
{
	const struct strait_route_report *r = &e->report;
	struct json j;
	char plan[256];

	json_begin(&j, stdout);
	json_string(&j, "path", e->path);
	json_string(&j, "device", e->device);
	json_string(&j, "op", e->write ? "write" : "read");
	json_object(&j, "file");
	json_string(&j, "fs", e->file.fs);
	json_uint(&j, "bytes", e->file.length);
	json_bool(&j, "direct", e->file.caps & STRAIT_FILE_CAN_DIRECT);
	if (e->file.caps & STRAIT_FILE_CAN_DIRECT)
		json_uint(&j, "dio_align", e->file.dio_align);
	else
		json_string(&j, "direct_why", strait_reason_text(e->file.direct_reason));
	if (!e->why[0])
		json_uint(&j, "cached_bytes", r->cached_bytes);
	if (e->fabric.transport[0]) {
		json_string(&j, "kind", e->fabric.kind);
		json_string(&j, "disk", e->fabric.disk);
		json_string(&j, "transport", e->fabric.transport);
		json_string(&j, "address", e->fabric.address);
		json_string(&j, "nic", e->fabric.nic);
	}
	json_close(&j);
	json_bool(&j, "device_present", !e->why[0]);
	if (e->why[0]) {
		json_null(&j, "route");
		json_string(&j, "error", e->why);
		json_int(&j, "exit", code);
		json_finish(&j);
		return;
	}
	if (r->route < 0)
		json_null(&j, "route");
	else
		json_string(&j, "route", strait_route_name(r->route));
	strait_route_plan_text(r->plan, plan, sizeof(plan));
	json_string(&j, "plan", plan);
	json_array(&j, "routes");
	for (int i = 0; i < STRAIT_ROUTE_COUNT; i++) {
		char why[256];

		strait_route_verdict_text(&r->verdict[i], why, sizeof(why));
		json_object(&j, NULL);
		json_string(&j, "name", strait_route_name(i));
		json_bool(&j, "usable", r->verdict[i].usable);
		json_bool(&j, "taken", r->mask & STRAIT_ROUTE_MASK(i) || i == r->route);
		json_int(&j, "code", r->verdict[i].code);
		json_uint(&j, "reason", r->verdict[i].reason);
		json_string(&j, "why", why);
		json_string(&j, "fix", strait_route_verdict_fix(&r->verdict[i]));
		json_close(&j);
	}
	json_close(&j);
	print_rdma(e, &j);
	json_int(&j, "exit", code);
	json_finish(&j);
}

int cmd_explain(int argc, char **argv)
{
	struct explain e = { 0 };
	const struct opt opts[] = {
		{ "write", NULL, OPT_FLAG, &e.write, "explain a write, from the device to the file" },
		{ "json", NULL, OPT_FLAG, &cli.json, "print the report as JSON" },
	};
	const char *pos[2];
	int code, n = args_parse(argc, argv, opts, ARRAY_SIZE(opts), 2, 2, pos);

	if (n < 0)
		return args_exit(n);
	e.path = pos[0];
	e.device = pos[1];
	code = context_open(false, &e.ctx);
	if (code)
		return code;
	code = open_file(&e);
	if (code)
		goto out;
	if (fabric_find(e.path, &e.fabric))
		e.fabric.transport[0] = '\0';
	code = ask(&e);
	if (code && !e.why[0] && e.report.route >= 0)
		goto out; /* the query failed, and the error has been printed */
	if (cli.json)
		print_json(&e, code);
	else
		print_text(&e);
	if (e.why[0]) {
		cli.json = false; /* the report has it already */
		fail(code, "see: strait info", "no device %s", e.device);
	}
out:
	strait_endpoint_close(e.ep);
	strait_context_close(e.ctx);
	return code;
}
