/* SPDX-License-Identifier: MIT */
/* DMA engines of PCIe cards: list them, and transfer from one device memory through a card into another. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strait/bounce.h>
#include <strait/dma.h>
#include <strait/strait.h>

#include "lib/args.h"
#include "lib/cli.h"
#include "lib/hist.h"
#include "lib/json.h"
#include "lib/pattern.h"
#include "lib/size.h"
#include "lib/table.h"
#include "lib/target.h"

struct dma_cmd {
	const char *src, *dst, *backend, *engine;
	uint64_t size, seed;
	double seconds;
	bool interrupts, unrevocable;
	char name[16];
	struct strait_context *ctx;
	struct strait_dma *dma;
	struct strait_dma_info info;
	struct strait_region *from, *to;
};

/* The engine of a card, NULL if it has none that is known. */
static const char *engine_of(const struct strait_topo_node *node)
{
	if (node->vendor == 0x1234 && node->device == 0x11e8)
		return "edu";
	if ((node->vendor == 0x10de && node->device == 0x0001) || node->vendor == 0x10ee)
		return "xdma";
	return NULL;
}

static bool is_bound(const struct strait_topo_node *node)
{
	return !strcmp(node->driver, "strait") || !strcmp(node->driver, "vfio-pci");
}

static int open_topo(struct strait_topo **topo)
{
	int err = strait_topo_open(topo);

	return err ? fail(CLI_FAILED, "check that /sys is mounted", "cannot list PCI devices: %s", error_text(err)) :
		     CLI_OK;
}

static int dma_list(void)
{
	struct strait_topo_node node = { .size = sizeof(node) };
	struct strait_topo *topo;
	struct table t = { 0 };
	unsigned int n = 0;
	struct json j;
	int code = open_topo(&topo);

	if (code)
		return code;
	if (cli.json) {
		json_begin(&j, stdout);
		json_array(&j, "cards");
	} else {
		table_begin(&t, "card", "id", "engine", "driver", "IOMMU", "user space", NULL);
	}
	for (unsigned int i = 0; !strait_topo_node(topo, i, &node); i++) {
		if (!engine_of(&node))
			continue;
		n++;
		if (cli.json) {
			json_object(&j, NULL);
			json_string(&j, "pci", node.pci);
			json_string(&j, "engine", engine_of(&node));
			json_string(&j, "driver", node.driver);
			json_bool(&j, "user_space", is_bound(&node));
			json_close(&j);
			continue;
		}
		table_cell(&t, "%s", node.pci);
		table_cell(&t, "%04x:%04x", node.vendor, node.device);
		table_cell(&t, "%s", engine_of(&node));
		table_cell(&t, "%s", *node.driver ? node.driver : "-");
		table_cell(&t, "%s", *node.iommu_type ? node.iommu_type : "-");
		table_cell(&t, "%s", is_bound(&node) ? "yes" : "no (strait bind)");
	}
	strait_topo_close(topo);
	if (cli.json) {
		json_close(&j);
		json_finish(&j);
		return CLI_OK;
	}
	if (n)
		table_print(&t, stdout, 0);
	else
		puts("this machine has no card with a known DMA engine");
	table_free(&t);
	return CLI_OK;
}

/* Set the address of the card: @name, or the first one bound for user space. */
static int find_card(struct dma_cmd *c, const char *name)
{
	struct strait_topo_node node = { .size = sizeof(node) };
	char any[16] = "", hint[64];
	struct strait_topo *topo;
	int code;

	if (name) {
		snprintf(c->name, sizeof(c->name), "%s", name);
		return CLI_OK;
	}
	code = open_topo(&topo);
	if (code)
		return code;
	for (unsigned int i = 0; !c->name[0] && !strait_topo_node(topo, i, &node); i++) {
		if (engine_of(&node) && is_bound(&node))
			memcpy(c->name, node.pci, sizeof(c->name));
		else if (engine_of(&node))
			memcpy(any, node.pci, sizeof(any));
	}
	strait_topo_close(topo);
	if (c->name[0])
		return CLI_OK;
	snprintf(hint, sizeof(hint), "bind it first: strait bind %s", any);
	return fail(CLI_NO_ROUTE, *any ? hint : "see: strait info --all",
		    "no card with a known DMA engine is bound for user space");
}

static int alloc(struct dma_cmd *c, const char *name, struct strait_region **ret)
{
	struct strait_device *dev;
	int err = name ? strait_device_find(c->ctx, name, &dev) : strait_device_at(c->ctx, 0, &dev);

	if (!err)
		err = strait_region_alloc(dev, c->size, ret);
	return err ? fail(CLI_NO_ROUTE, "see: strait info", "cannot allocate memory on %s: %s",
			  name ? name : "a device", error_text(err)) :
		     CLI_OK;
}

static int open_card(struct dma_cmd *c)
{
	struct strait_dma_opts o = { .size = sizeof(o), .backend = c->backend, .engine = c->engine };
	char hint[96];
	int err, code = context_open(false, &c->ctx);

	if (!code)
		code = alloc(c, c->src, &c->from);
	if (!code)
		code = alloc(c, c->dst, &c->to);
	if (code)
		return code;
	o.flags = (c->interrupts ? STRAIT_DMA_INTERRUPTS : 0) | (c->unrevocable ? STRAIT_DMA_UNREVOCABLE : 0);
	err = strait_dma_open(c->ctx, c->name, &o, &c->dma);
	snprintf(hint, sizeof(hint), "bind it first: strait bind %s; see: strait dma list", c->name);
	if (err)
		return fail(err == -EOPNOTSUPP || err == -ENODEV ? CLI_NO_ROUTE : CLI_FAILED, hint,
			    "cannot open %s: %s", c->name, error_text(err));
	c->info.size = sizeof(c->info);
	strait_dma_info(c->dma, &c->info);
	return CLI_OK;
}

static int transfer(struct dma_cmd *c)
{
	uint64_t done;
	int err = strait_dma_bounce(c->dma, c->from, 0, c->to, 0, c->size, STRAIT_FOREVER, &done);

	if (err)
		return fail(err == -EOPNOTSUPP ? CLI_NO_ROUTE : CLI_FAILED, NULL,
			    "%s: the transfer failed after %" PRIu64 " bytes: %s", c->name, done, error_text(err));
	return CLI_OK;
}

static void report(const struct dma_cmd *c, uint64_t rounds, uint64_t ns, const struct hist *h)
{
	char size[SIZE_TEXT], rate[SIZE_TEXT];
	struct json j;

	if (cli.json) {
		json_begin(&j, stdout);
		json_string(&j, "pci", c->info.name);
		json_string(&j, "engine", c->info.engine);
		json_string(&j, "backend", c->info.backend);
		json_string(&j, "src", c->src ? c->src : "");
		json_string(&j, "dst", c->dst ? c->dst : "");
		json_uint(&j, "bytes", c->size * rounds);
		json_number(&j, "seconds", (double)ns / 1e9);
		json_number(&j, "gb_per_s", rate_gbs(c->size * rounds, ns));
		if (h)
			json_number(&j, "p50_us", (double)hist_percentile(h, 50) / 1e3);
		json_finish(&j);
		return;
	}
	printf("%s from %s through %s (%s, %s of memory) to %s%s\n", size_format(c->size, size),
	       c->src ? c->src : "the device", c->info.name, c->info.engine, size_short(c->info.card_bytes, rate),
	       c->dst ? c->dst : "the device", h ? "" : ": compared, no mismatch");
	printf("  %s\n", rate_format(c->size * rounds, ns, rate));
	if (h)
		printf("  %" PRIu64 " transfers, latency p50 %.1f us, p99 %.1f us\n", rounds,
		       (double)hist_percentile(h, 50) / 1e3, (double)hist_percentile(h, 99) / 1e3);
}

static int h2c2h(struct dma_cmd *c)
{
	const struct pattern p = { PATTERN_RANDOM, c->seed };
	uint64_t start, ns, where;
	int code, err = pattern_to_region(&p, 0, c->from, 0, c->size);

	if (!err)
		err = strait_region_fill(c->to, 0, 0xa5, c->size);
	if (err)
		return fail(CLI_FAILED, NULL, "cannot fill device memory: %s", error_text(err));
	start = now_ns();
	code = transfer(c);
	ns = now_ns() - start;
	if (code)
		return code;
	err = strait_region_compare(c->from, 0, c->to, 0, c->size, &where);
	/* No device can compare memory of two devices: compare copies in host memory. */
	if (err == -EXDEV || err == -EOPNOTSUPP) {
		uint8_t *a = xcalloc(1, c->size), *b = xcalloc(1, c->size);

		err = strait_region_copy_out(c->from, 0, a, c->size);
		if (!err)
			err = strait_region_copy_out(c->to, 0, b, c->size);
		for (where = 0; !err && where < c->size && a[where] == b[where];)
			where++;
		free(a);
		free(b);
	}
	if (err)
		return fail(CLI_FAILED, NULL, "cannot compare device memory: %s", error_text(err));
	if (where < c->size)
		return fail(CLI_MISMATCH,
			    "check the IOMMU mode and ACS of the PCIe switches between card and devices: strait info",
			    "%s: mismatch: byte %" PRIu64 " arrived changed", c->name, where);
	report(c, 1, ns, NULL);
	return CLI_OK;
}

static int bench(struct dma_cmd *c)
{
	struct hist *h = xcalloc(1, sizeof(*h));
	uint64_t start = now_ns(), end = start + (uint64_t)(c->seconds * 1e9), rounds = 0, now = start;
	int code = CLI_OK;

	while (!code && now < end) {
		uint64_t t = now;

		code = transfer(c);
		now = now_ns();
		hist_add(h, now - t);
		rounds++;
	}
	if (!code)
		report(c, rounds, now - start, h);
	free(h);
	return code;
}

int cmd_dma(int argc, char **argv)
{
	struct dma_cmd c = { .size = 64 * KIB, .seed = 1, .seconds = 3 };
	const struct opt opts[] = {
		{ "src", "D", OPT_TEXT, &c.src, "device whose memory is the source; default: the best one" },
		{ "dst", "D", OPT_TEXT, &c.dst, "device whose memory is the destination; default: the best one" },
		{ "size", "SIZE", OPT_SIZE, &c.size, "bytes per transfer; default 64K" },
		{ "seed", "N", OPT_NUMBER, &c.seed, "h2c2h: seed of the pattern; default 1" },
		{ "seconds", "S", OPT_SECONDS, &c.seconds, "bench: duration; default 3" },
		{ "engine", "E", OPT_TEXT, &c.engine, "xdma or edu; default: by the PCI IDs of the card" },
		{ "interrupts", NULL, OPT_FLAG, &c.interrupts, "wait for interrupts instead of polling" },
		{ "backend", "B", OPT_TEXT, &c.backend, "strait or vfio; default: the driver it is bound to" },
		{ "unrevocable", NULL, OPT_FLAG, &c.unrevocable,
		  "with vfio: allow device memory although it cannot be revoked" },
		{ "json", NULL, OPT_FLAG, &cli.json, "print the report as JSON" },
	};
	const char *pos[2] = { NULL, NULL };
	int code, n = args_parse(argc, argv, opts, ARRAY_SIZE(opts), 1, 2, pos);

	if (n < 0)
		return args_exit(n);
	if (strcmp(pos[0], "list") && strcmp(pos[0], "h2c2h") && strcmp(pos[0], "bench"))
		return fail(CLI_USAGE, "give list, h2c2h or bench", "unknown subcommand \"%s\"", pos[0]);
	if (!strcmp(pos[0], "list"))
		return dma_list();
	if (!c.size)
		return fail(CLI_USAGE, "use a larger --size", "--size is 0: there is nothing to transfer");
	code = find_card(&c, pos[1]);
	if (!code)
		code = open_card(&c);
	if (!code)
		code = !strcmp(pos[0], "bench") ? bench(&c) : h2c2h(&c);
	strait_dma_close(c.dma);
	strait_region_close(c.from);
	strait_region_close(c.to);
	strait_context_close(c.ctx);
	return code;
}
