/* SPDX-License-Identifier: MIT */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <strait/strait.h>

#include "lib/args.h"
#include "lib/cli.h"
#include "lib/target.h"
#include "verbs/info/info.h"

void info_add(struct info_lines *l, const char *fmt, ...)
{
	va_list ap;
	char *text;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = xstrdup(fmt);
	va_end(ap);
	l->line = xrealloc(l->line, (l->n + 1) * sizeof(*l->line));
	l->line[l->n++] = text;
}

const char *info_cap(unsigned int bit)
{
	static const char *const names[] = { "host",	"cpu-map", "dma-buf", "register", "pagecache",
					     "streams", "notice",  "mmio",    "emulated" };

	return bit < ARRAY_SIZE(names) ? names[bit] : NULL;
}

const char *info_kind(uint32_t kind)
{
	static const char *const names[] = { "other", "bridge", "GPU", "NVMe", "NIC", "storage", "other" };

	return kind < ARRAY_SIZE(names) ? names[kind] : "other";
}

const char *info_link(int link)
{
	static const char *const names[] = { "same", "switch", "root", "node", "system" };

	return link >= 0 && link < (int)ARRAY_SIZE(names) ? names[link] : "?";
}

const char *info_vendor(uint16_t vendor)
{
	static const struct {
		uint16_t id;
		const char *name;
	} known[] = {
		{ 0x1000, "Broadcom" }, { 0x1002, "AMD" },	 { 0x1014, "IBM" },    { 0x1022, "AMD" },
		{ 0x106b, "Apple" },	{ 0x10b5, "PLX" },	 { 0x10de, "NVIDIA" }, { 0x10ec, "Realtek" },
		{ 0x1179, "Toshiba" },	{ 0x11f8, "Microchip" }, { 0x1344, "Micron" }, { 0x1414, "Microsoft" },
		{ 0x144d, "Samsung" },	{ 0x14e4, "Broadcom" },	 { 0x15ad, "VMware" }, { 0x15b3, "Mellanox" },
		{ 0x15b7, "SanDisk" },	{ 0x1a03, "ASPEED" },	 { 0x1ae0, "Google" }, { 0x1af4, "virtio" },
		{ 0x1b36, "QEMU" },	{ 0x1c5c, "SK hynix" },	 { 0x1d0f, "Amazon" }, { 0x1dd8, "Pensando" },
		{ 0x1e0f, "KIOXIA" },	{ 0x8086, "Intel" },	 { 0xc0a9, "Micron" },
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(known); i++)
		if (known[i].id == vendor)
			return known[i].name;
	return "";
}

static void read_devices(struct info *in)
{
	int n = strait_device_count(in->ctx);

	in->device = xcalloc(n > 0 ? (size_t)n : 1, sizeof(*in->device));
	for (int i = 0; i < n; i++) {
		struct strait_device_info *d = &in->device[in->devices];
		struct strait_device *dev;

		d->size = sizeof(*d);
		if (!strait_device_at(in->ctx, (unsigned int)i, &dev) && !strait_device_info(dev, d))
			in->devices++;
	}
	for (;; in->providers++) {
		struct info_provider p = { .info.size = sizeof(p.info) };

		if (strait_provider_info(in->ctx, in->providers, &p.info))
			break;
		if (!p.info.devices)
			strait_device_missing_reason(in->ctx, p.info.name, p.why, sizeof(p.why));
		in->provider = xrealloc(in->provider, (in->providers + 1) * sizeof(p));
		in->provider[in->providers] = p;
	}
}

static void read_nodes(struct info *in)
{
	for (;; in->nodes++) {
		struct strait_topo_node node = { .size = sizeof(node) };

		if (strait_topo_node(in->topo, in->nodes, &node))
			break;
		in->node = xrealloc(in->node, (in->nodes + 1) * sizeof(node));
		in->node[in->nodes] = node;
	}
}

static int collect(struct info *in)
{
	int err, code = context_open(false, &in->ctx);

	if (code)
		return code;
	err = strait_topo_open(&in->topo);
	in->kernel.size = sizeof(in->kernel);
	if (!err)
		err = strait_topo_kernel(&in->kernel);
	if (err)
		return fail(CLI_FAILED, NULL, "cannot read the PCI topology and kernel features: %s", error_text(err));
	read_devices(in);
	read_nodes(in);
	info_read_drives(in);
	info_read_filesystems(in);
	info_read_peers(in);
	info_make_advice(in);
	return CLI_OK;
}

static void free_lines(struct info_lines *l)
{
	for (unsigned int i = 0; i < l->n; i++)
		free(l->line[i]);
	free(l->line);
}

static void release(struct info *in)
{
	for (unsigned int i = 0; i < in->filesystems; i++) {
		free(in->fs[i].mount);
		free(in->fs[i].source);
	}
	free(in->fs);
	free(in->drive);
	free(in->peer);
	free(in->node);
	free(in->provider);
	free(in->device);
	free_lines(&in->can);
	free_lines(&in->more);
	strait_topo_close(in->topo);
	strait_context_close(in->ctx);
}

int cmd_info(int argc, char **argv)
{
	struct info in = { 0 };
	bool all = false, cufile = false;
	const struct opt opts[] = {
		{ "all", NULL, OPT_FLAG, &all, "list every PCI device, not only GPUs, drives and NICs" },
		{ "cufile", NULL, OPT_FLAG, &cufile, "show what cuFile programs get on this machine" },
		{ "json", NULL, OPT_FLAG, &cli.json, "print the report as JSON" },
	};
	int code, n = args_parse(argc, argv, opts, ARRAY_SIZE(opts), 0, 0, NULL);

	if (n < 0)
		return args_exit(n);
	code = collect(&in);
	if (!code && cufile)
		code = info_cufile(&in);
	else if (!code && cli.json)
		info_print_json(&in);
	else if (!code)
		info_print(&in, all);
	release(&in);
	return code;
}
