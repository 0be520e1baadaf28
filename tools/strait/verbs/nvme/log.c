/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strait/nvme.h>

#include "lib/cli.h"
#include "lib/json.h"
#include "verbs/nvme/nvme.h"

static uint64_t le_value(const uint8_t *p, unsigned int bytes)
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
	{ "temperature (K)", "temperature_k", 1, 2 },
	{ "available spare (%)", "spare", 3, 1 },
	{ "percentage used (%)", "used", 5, 1 },
	{ "data read (512000 B)", "data_read", 32, 16 },
	{ "data written (512000 B)", "data_written", 48, 16 },
	{ "read commands", "reads", 64, 16 },
	{ "write commands", "writes", 80, 16 },
	{ "power cycles", "power_cycles", 112, 16 },
	{ "power-on hours", "hours", 128, 16 },
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

int nvme_cmd_log(struct nvme_cmd *c, const char *which)
{
	uint8_t page[512];
	char *end = NULL;
	uint64_t number = !strcmp(which, "health") ? 2 : !strcmp(which, "error") ? 1 : strtoull(which, &end, 0);
	struct json j;
	int err;

	if ((end && (*end || end == which)) || number > 0xff)
		return fail(CLI_USAGE, "give health, error, or a number from 0 to 255", "unknown log page \"%s\"",
			    which);
	err = strait_nvme_log(c->nvme, 0xffffffff, (uint32_t)number, 0, page, sizeof(page));
	if (err)
		return fail(CLI_FAILED, NULL, "%s: cannot read log page %s: %s", c->name, which, error_text(err));
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
		uint64_t v = le_value(page + health[i].at, health[i].bytes);

		if (cli.json)
			json_uint(&j, health[i].json, v);
		else
			printf("%-24s %" PRIu64 "\n", health[i].name, v);
	}
	if (cli.json)
		json_finish(&j);
	return CLI_OK;
}
