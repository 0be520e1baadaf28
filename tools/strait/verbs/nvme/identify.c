/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>

#include <strait/nvme.h>
#include <strait/reason.h>

#include "lib/cli.h"
#include "lib/json.h"
#include "lib/size.h"
#include "verbs/nvme/nvme.h"

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
	{ STRAIT_NVME_REVOKES, "DMA mappings can be revoked" },
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

int nvme_cmd_identify(struct nvme_cmd *c)
{
	const struct strait_nvme_info *i = &c->info;
	char text[SIZE_TEXT];
	const char *comma = "";

	if (cli.json) {
		identify_json(c);
		return CLI_OK;
	}
	printf("%s (%04x:%04x) through %s\n", i->name, i->vendor, i->device, i->backend);
	printf("  model         %s\n  serial        %s\n  firmware      %s\n", i->model, i->serial, i->firmware);
	printf("  NVMe          %u.%u.%u, controller %u\n", i->version >> 16, i->version >> 8 & 0xff, i->version & 0xff,
	       i->controller_id);
	printf("  page          %s\n", size_format(i->page_size, text));
	printf("  max transfer  %s per command\n", size_format(i->max_transfer, text));
	printf("  queue pairs   %u of %u entries\n", i->max_queues, i->max_entries);
	printf("  features      ");
	for (unsigned int k = 0; k < ARRAY_SIZE(has_names); k++) {
		if (!(i->has & has_names[k].bit))
			continue;
		printf("%s%s", comma, has_names[k].name);
		comma = ", ";
	}
	printf("%s\n", *comma ? "" : "none of these features");
	c->ns.size = sizeof(c->ns);
	for (unsigned int k = 0; !strait_nvme_namespace(c->nvme, k, &c->ns); k++)
		printf("  namespace %-3u %" PRIu64 " blocks of %u bytes, %s%s%s\n", c->ns.nsid, c->ns.blocks,
		       c->ns.lba_bytes, size_format(c->ns.blocks * c->ns.lba_bytes, text), c->ns.usable ? "; " : "",
		       strait_reason_text(c->ns.reason));
	return CLI_OK;
}
