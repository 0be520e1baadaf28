/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include <strait/types.h>

#include "lib/cli.h"

int cmd_help(int argc, char **argv)
{
	const struct verb *verb;

	if (argc > 1 && argv[1][0] != '-') {
		char *help[] = { argv[1], (char[]){ "--help" }, NULL };

		verb = verb_find(argv[1]);
		if (!verb)
			return fail(CLI_USAGE, "see: strait help", "unknown verb \"%s\"", argv[1]);
		if (verb->run != cmd_help) {
			cli.verb = verb->name;
			return verb->run(2, help);
		}
	}
	printf("Strait %s moves data straight between device memory and files, NVMe drives and PCIe cards.\n\n",
	       strait_version());
	for (verb = verbs; verb->name; verb++)
		printf("  strait %-8s %s\n", verb->name, verb->help);
	puts("\n  strait help VERB   the arguments and options of a verb\n  strait --version   the version\n\nThe manual is strait(1).");
	return CLI_OK;
}
