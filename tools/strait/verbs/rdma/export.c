/* SPDX-License-Identifier: MIT */
/*
 * What "strait rdma serve --export NAME=WHAT[,OPTION...]" serves beside a directory:
 *
 *	NAME=/dev/nvme0n1, NAME=/data/file	a block device or a file, by the kernel
 *	NAME=nvme:0000:01:00.0[,ns=N]		a drive that is bound for user space
 *	NAME=cuda:0,size=SIZE			memory of a device, zeros at first
 *	NAME=cuda:0,from=FILE			memory of a device with the bytes of a file
 *
 * and with ",write" clients may overwrite it.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strait/nvme.h>

#include "lib/cli.h"
#include "lib/size.h"
#include "verbs/rdma/rdma.h"

#define HINT "see: strait help rdma"

struct spec {
	char text[1024]; /* what the others point into */
	char *what, *from;
	uint64_t size;
	uint32_t ns;
	bool write;
};

static int bad_spec(const char *text, const char *why)
{
	return fail(CLI_USAGE, HINT, "--export %s: %s", text, why);
}

static int parse_option(const char *text, char *option, struct spec *s)
{
	char *end;

	if (!strcmp(option, "write")) {
		s->write = true;
	} else if (!strncmp(option, "from=", 5) && option[5]) {
		s->from = option + 5;
	} else if (!strncmp(option, "size=", 5)) {
		if (size_parse(option + 5, &s->size) || !s->size)
			return bad_spec(text, "size= needs a size such as 4096, 64K or 1.5G");
	} else if (!strncmp(option, "ns=", 3) && isdigit((unsigned char)option[3])) {
		s->ns = (uint32_t)strtoul(option + 3, &end, 10);
		if (*end || !s->ns)
			return bad_spec(text, "ns= needs the number of a namespace");
	} else {
		return bad_spec(text, "options are write, size=SIZE, from=FILE and ns=N");
	}
	return CLI_OK;
}

/* NAME=WHAT,OPTION,...: a comma ends WHAT, also in a path. */
static int parse(const char *text, struct spec *s, char name[STRAIT_RDMA_EXPORT_NAME + 1])
{
	const char *eq = strchr(text, '=');
	size_t len = eq ? (size_t)(eq - text) : 0;
	char *option;
	int code = CLI_OK;

	*s = (struct spec){ .what = s->text };
	if (!len || len > STRAIT_RDMA_EXPORT_NAME || strlen(eq) > sizeof(s->text) || !eq[1])
		return bad_spec(text, "give NAME=WHAT, with a name of up to 63 letters");
	memcpy(name, text, len);
	name[len] = '\0';
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)name[i]) && !strchr("._-", name[i]))
			return bad_spec(text, "a name has letters, digits, '.', '_' and '-'");
	strcpy(s->text, eq + 1);
	option = strchr(s->text, ',');
	while (option && !code) {
		char *next;

		*option++ = '\0';
		next = strchr(option, ',');
		if (next)
			*next = '\0';
		code = parse_option(text, option, s);
		if (next)
			*next = ',';
		option = next;
	}
	return code;
}

/* A block device that is mounted is not written behind the file system's back: O_EXCL refuses it. */
static int open_path(struct strait_context *ctx, const struct spec *s, struct strait_rdma_export *e)
{
	int err = strait_file_open(ctx, s->what, s->write ? O_RDWR | O_EXCL : O_RDONLY, 0, 0, &e->endpoint);

	if (err == -EBUSY)
		return fail(CLI_FAILED, "unmount it, or serve it read-only", "%s is in use", s->what);
	return err ? file_failed(s->what, err) : CLI_OK;
}

static int open_drive(struct strait_context *ctx, const struct spec *s, struct strait_rdma_export *e,
		      struct strait_nvme **nvme)
{
	struct strait_nvme_namespace ns = { .size = sizeof(ns) };
	const char *pci = s->what + strlen("nvme:");
	int err = strait_nvme_open(ctx, pci, NULL, nvme);

	if (err)
		return fail(CLI_FAILED, "bind it first: strait bind; see: strait nvme list", "cannot open %s: %s", pci,
			    error_text(err));
	for (unsigned int i = 0; !strait_nvme_namespace(*nvme, i, &ns); i++) {
		if (s->ns && ns.nsid != s->ns)
			continue;
		err = strait_nvme_endpoint(*nvme, ns.nsid, s->write ? 0 : STRAIT_NVME_READ_ONLY, &e->endpoint);
		return err ? fail(CLI_FAILED, NULL, "cannot open namespace %u of %s: %s", ns.nsid, pci,
				  error_text(err)) :
			     CLI_OK;
	}
	return fail(CLI_FAILED, "see: strait nvme identify", "%s has no such namespace", pci);
}

static int load(const struct spec *s, struct strait_endpoint *in, struct strait_region *region, uint64_t len)
{
	for (uint64_t at = 0; at < len;) {
		uint64_t n = min_u64(len - at, 64 * MIB);
		ssize_t got = strait_read(in, at, region, at, n);

		if (got != (ssize_t)n)
			return fail(CLI_FAILED, NULL, "cannot read %s: %s", s->from,
				    got < 0 ? error_text((int)got) : "it became shorter");
		at += n;
	}
	return CLI_OK;
}

static int open_memory(struct strait_context *ctx, const char *text, const struct spec *s, struct strait_rdma_export *e)
{
	struct strait_file_info info = { .size = sizeof(info), .length = s->size };
	struct strait_endpoint *in = NULL;
	struct strait_device *dev;
	int err, code = CLI_OK;

	if (!s->from == !s->size)
		return bad_spec(text, "memory of a device needs size=SIZE or from=FILE");
	if (strait_device_find(ctx, s->what, &dev))
		return fail(CLI_NO_ROUTE, "see: strait info", "there is no device %s", s->what);
	err = s->from ? strait_file_open(ctx, s->from, O_RDONLY, 0, 0, &in) : 0;
	if (!err && in)
		err = strait_file_info(in, &info);
	if (err)
		return file_failed(s->from, err);
	if (!info.length)
		code = fail(CLI_FAILED, NULL, "%s is empty", s->from);
	if (!code) {
		err = strait_region_alloc_caps(dev, info.length, STRAIT_REGION_PINNABLE, &e->region);
		if (err)
			err = strait_region_alloc(dev, info.length, &e->region);
		/* Memory of a GPU may have bytes of another process. */
		if (!err && !in)
			err = strait_region_fill(e->region, 0, 0, info.length);
		if (err)
			code = fail(CLI_FAILED, NULL, "no memory on %s: %s", s->what, error_text(err));
	}
	if (!code && in)
		code = load(s, in, e->region, info.length);
	strait_endpoint_close(in);
	return code;
}

static int open_one(struct strait_context *ctx, const char *text, struct exports *x)
{
	struct strait_rdma_export *e = &x->e[x->n];
	struct spec s;
	bool path, drive;
	int code = parse(text, &s, x->name[x->n]);

	if (code)
		return code;
	for (uint32_t i = 0; i < x->n; i++)
		if (!strcmp(x->name[i], x->name[x->n]))
			return bad_spec(text, "another export has this name");
	path = *s.what == '/' || *s.what == '.';
	drive = !strncmp(s.what, "nvme:", 5);
	if ((path || drive) && (s.size || s.from))
		return bad_spec(text, "size= and from= are of memory");
	if (s.ns && !drive)
		return bad_spec(text, "ns= is of a drive");
	e->name = x->name[x->n];
	e->flags = s.write ? STRAIT_RDMA_EXPORT_WRITE : 0;
	x->n++;
	if (path)
		return open_path(ctx, &s, e);
	return drive ? open_drive(ctx, &s, e, &x->nvme[x->n - 1]) : open_memory(ctx, text, &s, e);
}

int exports_open(struct strait_context *ctx, const struct opt_list *list, struct exports *x)
{
	int code = CLI_OK;

	for (unsigned int i = 0; !code && i < list->n; i++)
		code = open_one(ctx, list->item[i], x);
	return code;
}

void exports_close(struct exports *x)
{
	for (uint32_t i = 0; i < x->n; i++) {
		strait_endpoint_close(x->e[i].endpoint);
		strait_region_close(x->e[i].region);
		strait_nvme_close(x->nvme[i]);
	}
}
