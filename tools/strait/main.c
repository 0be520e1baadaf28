/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strait/types.h>

#include "lib/cli.h"

const struct verb verbs[] = {
	{ "info", "[--all] [--cufile] [--json]", cmd_info, "What this machine has, and what Strait can do with it" },
	{ "explain", "PATH DEVICE [--write] [--json]", cmd_explain,
	  "Which route a file takes to a device, and why no better one" },
	{ "load", "FILE [--device D] [options]", cmd_load, "Load a file into device memory" },
	{ "save", "FILE --size S | --from FILE2 [options]", cmd_save, "Save device memory to a file" },
	{ "verify", "DIR|FILE [--size S] [--seed N] [options]", cmd_verify,
	  "Write a pattern from device memory, read it back in every way, compare" },
	{ "bench", "file PATH [options]", cmd_bench, "Measure throughput and latency of a file" },
	{ "run", "[options] [--] PROGRAM [ARGUMENT...]", cmd_run,
	  "Run a program with Strait's libcufile in the place of any other" },
	{ "nvme", "list | identify | read | write | verify | bench | log [DRIVE] [options]", cmd_nvme,
	  "Drive an NVMe drive from here, with device memory as its target" },
	{ "dma", "list | h2c2h | bench [CARD] [options]", cmd_dma,
	  "Move bytes through a card's DMA engine, from device memory into device memory" },
	{ "bind", "BDF [--driver D] [--force BDF] | --status [--json]", cmd_bind,
	  "Take a PCI device from its driver, to drive it from user space" },
	{ "unbind", "BDF [--force BDF]", cmd_unbind, "Give a PCI device back to the driver it had" },
	{ "lab", "run [PATTERN] | shell [options]", cmd_lab, "Run the suite, or a shell, in emulated machines" },
	{ "help", "[VERB]", cmd_help, "This list, or what one verb takes" },
	{ 0 },
};

const struct verb *verb_find(const char *name)
{
	for (const struct verb *v = verbs; v->name; v++)
		if (!strcmp(v->name, name))
			return v;
	return NULL;
}

/* What was printed has to have arrived, except where the reader has seen enough. */
static int finish(int code)
{
	int err = 0;

	if (fflush(stdout) || ferror(stdout))
		err = errno;
	if (err && err != EPIPE) {
		fprintf(stderr, "strait: cannot write the output: %s\n", strerror(err));
		return code ? code : CLI_FAILED;
	}
	return code;
}

int main(int argc, char **argv)
{
	const struct verb *verb;
	const char *name;

	signals_setup();
	if (argc < 2) {
		fputs("usage: strait VERB ...\n  see: strait help\n", stderr);
		return CLI_USAGE;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		printf("strait %s\n", strait_version());
		return finish(CLI_OK);
	}
	name = !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") ? "help" : argv[1];
	verb = verb_find(name);
	if (!verb)
		return fail(CLI_USAGE, "see: strait help", "there is no verb \"%s\"", name);
	cli.verb = verb->name;
	/* Known before the options are read, so that a failure to read them is reported as asked. */
	for (int i = 2; verb->run != cmd_run && i < argc && strcmp(argv[i], "--"); i++)
		cli.json |= !strcmp(argv[i], "--json");
	return finish(verb->run(argc - 1, argv + 1));
}
