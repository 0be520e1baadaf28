/* SPDX-License-Identifier: MIT */
/* NVMe drives driven from here: which there are, what they are, what they report. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strait/nvme.h>
#include <strait/strait.h>

#include "lib/args.h"
#include "lib/cli.h"
#include "lib/json.h"
#include "lib/size.h"
#include "lib/table.h"
#include "verbs/nvme/nvme.h"

static bool is_ours(const struct strait_topo_node *node)
{
	return !strcmp(node->driver, "strait") || !strcmp(node->driver, "vfio-pci");
}

/* Calls @fn for each NVMe controller of the machine until it returns true. */
static int each_drive(bool (*fn)(const struct strait_topo_node *node, void *arg), void *arg)
{
	struct strait_topo_node node = { .size = sizeof(node) };
	struct strait_topo *topo;
	int err = strait_topo_open(&topo);

	if (err)
		return fail(CLI_FAILED, "is /sys mounted?", "cannot look for PCI devices: %s", error_text(err));
	for (unsigned int i = 0; !strait_topo_node(topo, i, &node); i++)
		if (node.kind == STRAIT_TOPO_NVME && fn(&node, arg))
			break;
	strait_topo_close(topo);
	return CLI_OK;
}

struct found {
	char ours[16], any[16];
	unsigned int n_ours, n_any;
};

static bool note_drive(const struct strait_topo_node *node, void *arg)
{
	struct found *f = arg;

	if (is_ours(node) && !f->n_ours++)
		snprintf(f->ours, sizeof(f->ours), "%s", node->pci);
	if (!f->n_any++)
		snprintf(f->any, sizeof(f->any), "%s", node->pci);
	return false;
}

/* The drive that was named, or the only one that can be meant. */
static int find_drive(struct nvme_cmd *c, const char *name)
{
	struct found f = { 0 };
	char hint[64];
	int code;

	if (name) {
		snprintf(c->name, sizeof(c->name), "%s", name);
		return CLI_OK;
	}
	code = each_drive(note_drive, &f);
	if (code)
		return code;
	if (f.n_ours > 1)
		return fail(CLI_USAGE, "see: strait nvme list", "%u drives are bound: name one", f.n_ours);
	if (!f.n_ours && f.n_any) {
		snprintf(hint, sizeof(hint), "strait bind %s", f.any);
		return fail(CLI_NO_ROUTE, hint, "no drive is bound to be driven from user space");
	}
	if (!f.n_ours)
		return fail(CLI_NO_ROUTE, "see: strait info --all", "this machine has no NVMe drive");
	memcpy(c->name, f.ours, sizeof(c->name));
	return CLI_OK;
}

struct listing {
	struct table table;
	struct json json;
	unsigned int n;
};

static bool list_drive(const struct strait_topo_node *node, void *arg)
{
	struct listing *l = arg;

	l->n++;
	if (cli.json) {
		json_object(&l->json, NULL);
		json_string(&l->json, "pci", node->pci);
		json_string(&l->json, "driver", node->driver);
		json_string(&l->json, "block", node->block);
		json_int(&l->json, "iommu_group", node->iommu_group);
		json_string(&l->json, "iommu_type", node->iommu_type);
		json_int(&l->json, "numa_node", node->numa_node);
		json_bool(&l->json, "user_space", is_ours(node));
		json_close(&l->json);
		return false;
	}
	table_cell(&l->table, "%s", node->pci);
	table_cell(&l->table, "%04x:%04x", node->vendor, node->device);
	table_cell(&l->table, "%s", *node->driver ? node->driver : "-");
	table_cell(&l->table, "%s", *node->block ? node->block : "-");
	table_cell(&l->table, "%s", *node->iommu_type ? node->iommu_type : "-");
	table_cell(&l->table, "%s", is_ours(node) ? "yes" : "no: strait bind");
	return false;
}

static int nvme_cmd_list(void)
{
	struct listing l = { 0 };
	int code;

	if (cli.json) {
		json_begin(&l.json, stdout);
		json_array(&l.json, "drives");
	} else {
		table_begin(&l.table, "drive", "id", "driver", "block", "IOMMU", "user space", NULL);
	}
	code = each_drive(list_drive, &l);
	if (cli.json) {
		json_close(&l.json);
		json_finish(&l.json);
		return code;
	}
	if (!code && !l.n)
		puts("no NVMe drive");
	else if (!code)
		table_print(&l.table, stdout, 0);
	table_free(&l.table);
	return code;
}

static int open_failed(const struct nvme_cmd *c, int err)
{
	char hint[80];

	snprintf(hint, sizeof(hint), "strait bind %s; see: strait nvme list", c->name);
	return fail(err == -EOPNOTSUPP || err == -ENODEV ? CLI_NO_ROUTE : CLI_FAILED, hint, "cannot open %s: %s",
		    c->name, error_text(err));
}

/* Memory of a device that the queues are to be in. */
static int alloc_queues(struct nvme_cmd *c)
{
	struct strait_device *dev;
	int err;

	if (!c->queues)
		return CLI_OK;
	err = strait_device_find(c->target.ctx, c->queues, &dev);
	if (!err)
		err = strait_region_alloc(dev, 4 * MIB, &c->queue_region);
	return err ? fail(CLI_NO_ROUTE, "see: strait info", "no memory for queues on %s: %s", c->queues,
			  error_text(err)) :
		     CLI_OK;
}

static int open_drive(struct nvme_cmd *c)
{
	struct strait_nvme_opts o = { .size = sizeof(o), .backend = c->backend };
	int err, code = target_open(&c->opts, &c->target);

	if (!code)
		code = alloc_queues(c);
	if (code)
		return code;
	o.flags = (c->interrupts ? STRAIT_NVME_INTERRUPTS : 0) | (c->unrevocable ? STRAIT_NVME_UNREVOCABLE : 0) |
		  (c->no_sgl ? STRAIT_NVME_NO_SGL : 0) | (c->no_shadow ? STRAIT_NVME_NO_SHADOW : 0);
	o.queue_region = c->queue_region;
	o.queues = c->queue_region ? 2 : 0;
	err = strait_nvme_open(c->target.ctx, c->name, &o, &c->nvme);
	if (err)
		return open_failed(c, err);
	c->info.size = sizeof(c->info);
	err = strait_nvme_info(c->nvme, &c->info);
	return err ? open_failed(c, err) : CLI_OK;
}

static void close_drive(struct nvme_cmd *c)
{
	strait_endpoint_close(c->ep);
	strait_nvme_close(c->nvme);
	strait_region_close(c->queue_region);
	target_close(&c->target);
}

int nvme_open_endpoint(struct nvme_cmd *c, uint32_t flags)
{
	int err;

	c->ns.size = sizeof(c->ns);
	for (unsigned int i = 0;; i++) {
		err = strait_nvme_namespace(c->nvme, i, &c->ns);
		if (err)
			return fail(CLI_FAILED, "see: strait nvme identify", "%s has no namespace %u", c->name,
				    c->nsid);
		if (!c->nsid || c->ns.nsid == c->nsid)
			break;
	}
	c->nsid = c->ns.nsid;
	if (c->ns.usable)
		return fail(CLI_FAILED, strait_reason_fix(c->ns.reason), "namespace %u cannot be used: %s", c->nsid,
			    strait_reason_text(c->ns.reason));
	err = strait_nvme_endpoint(c->nvme, c->nsid, flags, &c->ep);
	return err ? fail(CLI_FAILED, NULL, "cannot open namespace %u: %s", c->nsid, error_text(err)) : CLI_OK;
}

static const struct {
	uint32_t bit;
	const char *name;
} has_names[] = {
	{ STRAIT_NVME_HAS_SGL, "SGLs" },
	{ STRAIT_NVME_HAS_SHADOW, "shadow doorbells" },
	{ STRAIT_NVME_HAS_CACHE, "volatile write cache" },
	{ STRAIT_NVME_HAS_ZEROES, "write zeroes" },
	{ STRAIT_NVME_HAS_DEALLOCATE, "deallocate" },
	{ STRAIT_NVME_HAS_INTERRUPTS, "interrupts" },
	{ STRAIT_NVME_REVOKES, "memory can be taken away from it" },
};

static void identify_json(struct nvme_cmd *c)
{
	const struct strait_nvme_info *i = &c->info;
	struct json j;

	json_begin(&j, stdout);
	json_string(&j, "pci", i->name);
	json_string(&j, "backend", i->backend);
	json_uint(&j, "vendor", i->vendor);
	json_uint(&j, "device", i->device);
	json_string(&j, "model", i->model);
	json_string(&j, "serial", i->serial);
	json_string(&j, "firmware", i->firmware);
	json_uint(&j, "version", i->version);
	json_uint(&j, "controller_id", i->controller_id);
	json_uint(&j, "page_size", i->page_size);
	json_uint(&j, "max_transfer", i->max_transfer);
	json_uint(&j, "max_entries", i->max_entries);
	json_uint(&j, "max_queues", i->max_queues);
	json_array(&j, "has");
	for (unsigned int k = 0; k < ARRAY_SIZE(has_names); k++)
		if (i->has & has_names[k].bit)
			json_string(&j, NULL, has_names[k].name);
	json_close(&j);
	json_array(&j, "namespaces");
	c->ns.size = sizeof(c->ns);
	for (unsigned int k = 0; !strait_nvme_namespace(c->nvme, k, &c->ns); k++) {
		json_object(&j, NULL);
		json_uint(&j, "nsid", c->ns.nsid);
		json_uint(&j, "blocks", c->ns.blocks);
		json_uint(&j, "lba_bytes", c->ns.lba_bytes);
		json_uint(&j, "metadata_bytes", c->ns.metadata_bytes);
		json_uint(&j, "capacity", c->ns.capacity);
		json_uint(&j, "utilization", c->ns.utilization);
		json_bool(&j, "usable", !c->ns.usable);
		json_string(&j, "why", strait_reason_text(c->ns.reason));
		json_close(&j);
	}
	json_close(&j);
	json_finish(&j);
}

static int nvme_cmd_identify(struct nvme_cmd *c)
{
	const struct strait_nvme_info *i = &c->info;
	char text[SIZE_TEXT];
	const char *comma = "";

	if (cli.json) {
		identify_json(c);
		return CLI_OK;
	}
	printf("%s (%04x:%04x) by %s\n", i->name, i->vendor, i->device, i->backend);
	printf("  model         %s\n  serial        %s\n  firmware      %s\n", i->model, i->serial, i->firmware);
	printf("  NVMe          %u.%u.%u, controller %u\n", i->version >> 16, i->version >> 8 & 0xff, i->version & 0xff,
	       i->controller_id);
	printf("  page          %s\n", size_format(i->page_size, text));
	printf("  one command   %s at most\n", size_format(i->max_transfer, text));
	printf("  queue pairs   %u of %u entries\n", i->max_queues, i->max_entries);
	printf("  has           ");
	for (unsigned int k = 0; k < ARRAY_SIZE(has_names); k++) {
		if (!(i->has & has_names[k].bit))
			continue;
		printf("%s%s", comma, has_names[k].name);
		comma = ", ";
	}
	printf("%s\n", *comma ? "" : "nothing of note");
	c->ns.size = sizeof(c->ns);
	for (unsigned int k = 0; !strait_nvme_namespace(c->nvme, k, &c->ns); k++)
		printf("  namespace %-3u %" PRIu64 " blocks of %u bytes, %s%s%s\n", c->ns.nsid, c->ns.blocks,
		       c->ns.lba_bytes, size_format(c->ns.blocks * c->ns.lba_bytes, text), c->ns.usable ? "; " : "",
		       strait_reason_text(c->ns.reason));
	return CLI_OK;
}

static uint64_t little(const uint8_t *p, unsigned int bytes)
{
	uint64_t v = 0;

	for (unsigned int i = bytes < 8 ? bytes : 8; i--;)
		v = v << 8 | p[i];
	return v;
}

static const struct health {
	const char *name, *json;
	unsigned int at, bytes;
} health[] = {
	{ "critical warning", "critical_warning", 0, 1 },
	{ "temperature, kelvin", "temperature_k", 1, 2 },
	{ "spare, percent", "spare", 3, 1 },
	{ "used, percent", "used", 5, 1 },
	{ "data read, 512000 B", "data_read", 32, 16 },
	{ "data written, 512000 B", "data_written", 48, 16 },
	{ "reads", "reads", 64, 16 },
	{ "writes", "writes", 80, 16 },
	{ "power cycles", "power_cycles", 112, 16 },
	{ "hours on", "hours", 128, 16 },
	{ "unsafe shutdowns", "unsafe_shutdowns", 144, 16 },
	{ "media errors", "media_errors", 160, 16 },
	{ "error log entries", "error_entries", 176, 16 },
};

static void dump(const uint8_t *p, size_t len)
{
	for (size_t at = 0; at < len; at += 16) {
		printf("%06zx ", at);
		for (size_t i = at; i < at + 16 && i < len; i++)
			printf(" %02x", p[i]);
		putchar('\n');
	}
}

/* "health", or the number of a page. */
static int nvme_cmd_log(struct nvme_cmd *c, const char *which)
{
	uint8_t page[512];
	char *end = NULL;
	uint64_t number = !strcmp(which, "health") ? 2 : !strcmp(which, "error") ? 1 : strtoull(which, &end, 0);
	struct json j;
	int err;

	if ((end && (*end || end == which)) || number > 0xff)
		return fail(CLI_USAGE, "health, error, or a number up to 255", "there is no log page \"%s\"", which);
	err = strait_nvme_log(c->nvme, 0xffffffff, (uint32_t)number, 0, page, sizeof(page));
	if (err)
		return fail(CLI_FAILED, NULL, "%s does not give log page %s: %s", c->name, which, error_text(err));
	if (cli.json)
		json_begin(&j, stdout);
	if (cli.json && number != 2) {
		json_uint(&j, "page", number);
		json_array(&j, "bytes");
		for (size_t i = 0; i < sizeof(page); i++)
			json_uint(&j, NULL, page[i]);
		json_close(&j);
	} else if (number != 2) {
		dump(page, sizeof(page));
	}
	for (unsigned int i = 0; number == 2 && i < ARRAY_SIZE(health); i++) {
		uint64_t v = little(page + health[i].at, health[i].bytes);

		if (cli.json)
			json_uint(&j, health[i].json, v);
		else
			printf("%-24s %" PRIu64 "\n", health[i].name, v);
	}
	if (cli.json)
		json_finish(&j);
	return CLI_OK;
}

static int run(struct nvme_cmd *c, const char *what, const char *more)
{
	if (!strcmp(what, "identify"))
		return nvme_cmd_identify(c);
	if (!strcmp(what, "log"))
		return nvme_cmd_log(c, more ? more : "health");
	if (!strcmp(what, "read"))
		return nvme_cmd_read(c);
	if (!strcmp(what, "write"))
		return nvme_cmd_write(c);
	if (!strcmp(what, "verify"))
		return nvme_cmd_verify(c);
	return nvme_cmd_bench(c);
}

/* A PCI address has a colon, a log page none. */
static void sort_arguments(const char **pos, int n, const char **drive, const char **more)
{
	for (int i = 1; i < n; i++) {
		if (strchr(pos[i], ':'))
			*drive = pos[i];
		else
			*more = pos[i];
	}
}

int cmd_nvme(int argc, char **argv)
{
	static const char *const known[] = { "list", "identify", "read", "write", "verify", "bench", "log" };
	struct nvme_cmd c = { .blocks = 8, .depth = 32, .seconds = 3, .block = 4096, .seed = 1 };
	const struct opt opts[] = {
		{ "blocks", "N", OPT_NUMBER, &c.blocks, "read, write, verify: how many blocks; 8 by default" },
		{ "offset", "K", OPT_NUMBER, &c.offset, "the first block; 0 by default" },
		{ "namespace", "N", OPT_COUNT, &c.nsid, "of the drive; the first by default" },
		{ "device", "D", OPT_TEXT, &c.opts.device, "whose memory the drive reaches; the best one by default" },
		{ "route", "R", OPT_TEXT, &c.opts.route, "require a route: p2p, staged, host" },
		{ "ascii", NULL, OPT_FLAG, &c.ascii, "read: show the bytes as text" },
		{ "output", "F", OPT_TEXT, &c.output, "read: put the bytes into a file" },
		{ "from", "F", OPT_TEXT, &c.from, "write: the file to write; zeros are added to the last block" },
		{ "force", NULL, OPT_FLAG, &c.force, "verify, bench --write: overwrite what is on the drive" },
		{ "seed", "N", OPT_NUMBER, &c.seed, "verify: makes another pattern" },
		{ "block", "SIZE", OPT_SIZE, &c.block, "bench: bytes of one command; 4K by default" },
		{ "depth", "N", OPT_COUNT, &c.depth, "bench: commands under way; 32 by default" },
		{ "seconds", "S", OPT_SECONDS, &c.seconds, "bench: how long; 3 by default" },
		{ "write", NULL, OPT_FLAG, &c.write, "bench: write instead of read" },
		{ "sequential", NULL, OPT_FLAG, &c.sequential, "bench: one after the other instead of anywhere" },
		{ "interrupts", NULL, OPT_FLAG, &c.interrupts, "sleep until the drive interrupts instead of polling" },
		{ "queues", "D", OPT_TEXT, &c.queues, "put the queues into memory of a device" },
		{ "backend", "B", OPT_TEXT, &c.backend, "strait or vfio; the one it is bound to by default" },
		{ "unrevocable", NULL, OPT_FLAG, &c.unrevocable,
		  "with vfio: device memory, though it cannot be taken away from the drive" },
		{ "no-sgl", NULL, OPT_FLAG, &c.no_sgl, "PRP lists only" },
		{ "no-shadow", NULL, OPT_FLAG, &c.no_shadow, "no shadow doorbells" },
		{ "json", NULL, OPT_FLAG, &cli.json, "report as JSON" },
	};
	const char *pos[3], *drive = NULL, *more = NULL;
	int code, n = args_parse(argc, argv, opts, ARRAY_SIZE(opts), 1, 3, pos);
	bool is_known = false;

	if (n < 0)
		return args_exit(n);
	for (unsigned int i = 0; i < ARRAY_SIZE(known); i++)
		is_known |= !strcmp(pos[0], known[i]);
	if (!is_known)
		return fail(CLI_USAGE, "list, identify, read, write, verify, bench or log", "\"%s\" is nothing to do",
			    pos[0]);
	if (!strcmp(pos[0], "list"))
		return n > 1 ? fail(CLI_USAGE, "strait nvme list", "\"%s\" is too much", pos[1]) : nvme_cmd_list();
	sort_arguments(pos, n, &drive, &more);
	if (more && strcmp(pos[0], "log"))
		return fail(CLI_USAGE, "as in 0000:01:00.0; see: strait nvme list", "\"%s\" is no PCI address", more);
	code = find_drive(&c, drive);
	if (!code)
		code = open_drive(&c);
	if (!code)
		code = run(&c, pos[0], more);
	close_drive(&c);
	return code;
}
