/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "lib/args.h"
#include "lib/cli.h"
#include "verbs/nvme/nvme.h"

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
	code = nvme_find_drive(&c, drive);
	if (!code)
		code = nvme_open_drive(&c);
	if (!code)
		code = run(&c, pos[0], more);
	nvme_close_drive(&c);
	return code;
}
