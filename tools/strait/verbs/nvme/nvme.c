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

/* A PCI address has a colon, the name of a log page has none. */
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
		{ "blocks", "N", OPT_NUMBER, &c.blocks, "read, verify: number of blocks; default 8" },
		{ "offset", "K", OPT_NUMBER, &c.offset, "first block; default 0" },
		{ "namespace", "N", OPT_COUNT, &c.nsid, "namespace of the drive; default: the first" },
		{ "device", "D", OPT_TEXT, &c.opts.device, "device whose memory is used; default: the best one" },
		{ "route", "R", OPT_TEXT, &c.opts.route, "routes allowed, comma-separated: p2p, staged, host" },
		{ "ascii", NULL, OPT_FLAG, &c.ascii, "read: print the bytes as text" },
		{ "output", "F", OPT_TEXT, &c.output, "read: write the bytes to a file" },
		{ "from", "F", OPT_TEXT, &c.from, "write: the file to write; the last block is padded with zeros" },
		{ "force", NULL, OPT_FLAG, &c.force, "verify, bench --write: allow overwriting the drive" },
		{ "seed", "N", OPT_NUMBER, &c.seed, "verify: seed of the pattern; default 1" },
		{ "block", "SIZE", OPT_SIZE, &c.block, "bench: bytes per command; default 4K" },
		{ "depth", "N", OPT_COUNT, &c.depth, "bench: commands in flight; default 32" },
		{ "seconds", "S", OPT_SECONDS, &c.seconds, "bench: duration; default 3" },
		{ "write", NULL, OPT_FLAG, &c.write, "bench: write instead of read" },
		{ "sequential", NULL, OPT_FLAG, &c.sequential, "bench: sequential offsets instead of random ones" },
		{ "interrupts", NULL, OPT_FLAG, &c.interrupts, "wait for interrupts instead of polling" },
		{ "queues", "D", OPT_TEXT, &c.queues, "put the queues into the memory of this device" },
		{ "backend", "B", OPT_TEXT, &c.backend, "strait or vfio; default: the driver it is bound to" },
		{ "unrevocable", NULL, OPT_FLAG, &c.unrevocable,
		  "with vfio: allow device memory although it cannot be revoked" },
		{ "no-sgl", NULL, OPT_FLAG, &c.no_sgl, "use PRP lists only" },
		{ "no-shadow", NULL, OPT_FLAG, &c.no_shadow, "do not use shadow doorbells" },
		{ "json", NULL, OPT_FLAG, &cli.json, "print the report as JSON" },
	};
	const char *pos[3], *drive = NULL, *more = NULL;
	int code, n = args_parse(argc, argv, opts, ARRAY_SIZE(opts), 1, 3, pos);
	bool is_known = false;

	if (n < 0)
		return args_exit(n);
	for (unsigned int i = 0; i < ARRAY_SIZE(known); i++)
		is_known |= !strcmp(pos[0], known[i]);
	if (!is_known)
		return fail(CLI_USAGE, "give list, identify, read, write, verify, bench or log",
			    "unknown subcommand \"%s\"", pos[0]);
	if (!strcmp(pos[0], "list"))
		return n > 1 ? fail(CLI_USAGE, "see: strait help nvme", "unexpected argument \"%s\"", pos[1]) :
			       nvme_cmd_list();
	sort_arguments(pos, n, &drive, &more);
	if (more && strcmp(pos[0], "log"))
		return fail(CLI_USAGE, "see: strait nvme list", "\"%s\" is not a PCI address such as 0000:01:00.0",
			    more);
	code = nvme_find_drive(&c, drive);
	if (!code)
		code = nvme_open_drive(&c);
	if (!code)
		code = run(&c, pos[0], more);
	nvme_close_drive(&c);
	return code;
}
