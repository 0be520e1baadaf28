/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/args.h"
#include "lib/cli.h"

/*
 * The lab is a program of its own, in Python, that starts emulators and reads their output. This verb checks the
 * arguments, finds the lab and executes it.
 */

struct lab {
	const char *topology, *iommu, *kernel, *module;
	uint32_t guests;
	bool long_ones, tap;
};

/* In a source tree beside the build directory; where installed, below the prefix. */
static const char *const paths[] = { "../lab/run", "../share/strait/lab/run" };

static char *beside(const char *exe, const char *path)
{
	return xasprintf("%.*s/%s", (int)(strrchr(exe, '/') - exe), exe, path);
}

static char *find_runner(const char *exe)
{
	const char *folder = getenv("STRAIT_LAB");

	if (folder)
		return xasprintf("%s/run", folder);
	for (unsigned int i = 0; i < ARRAY_SIZE(paths); i++) {
		char *path = beside(exe, paths[i]);

		if (!access(path, X_OK))
			return path;
		free(path);
	}
	return NULL;
}

static bool one_of(const char *word, const char *const *list)
{
	for (; *list; list++)
		if (!strcmp(word, *list))
			return true;
	return false;
}

static int check(const struct lab *l, const char *what, int n)
{
	static const char *const topologies[] = { "root-ports", "switch", "flat", NULL };
	static const char *const iommus[] = { "strict", "lazy", "pt", "off", NULL };
	static const char *const kernels[] = { "stock", "debug", "6.12", "6.1", NULL };

	if (strcmp(what, "run") != 0 && strcmp(what, "shell") != 0)
		return fail(CLI_USAGE, "see: strait help lab", "\"%s\" is neither run nor shell", what);
	if (!strcmp(what, "shell") && (n > 1 || cli.json || l->tap))
		return fail(CLI_USAGE, "see: strait help lab", "shell takes no pattern, --json or --tap");
	if (!one_of(l->topology, topologies))
		return fail(CLI_USAGE, "give root-ports, switch or flat", "unknown topology \"%s\"", l->topology);
	if (!one_of(l->iommu, iommus))
		return fail(CLI_USAGE, "give strict, lazy, pt or off", "unknown IOMMU mode \"%s\"", l->iommu);
	if (!one_of(l->kernel, kernels))
		return fail(CLI_USAGE, "give stock, debug, 6.12 or 6.1", "unknown kernel \"%s\"", l->kernel);
	if (l->guests > 8)
		return fail(CLI_USAGE, "give 1 to 8", "--guests %u is too many", l->guests);
	return CLI_OK;
}

int cmd_lab(int argc, char **argv)
{
	struct lab l = { .topology = "root-ports", .iommu = "strict", .kernel = "stock" };
	const struct opt opts[] = {
		{ "topology", "NAME", OPT_TEXT, &l.topology, "root-ports (default), switch or flat" },
		{ "iommu", "MODE", OPT_TEXT, &l.iommu, "strict (default), lazy, pt or off" },
		{ "kernel", "NAME", OPT_TEXT, &l.kernel, "stock (default), debug, 6.12 or 6.1" },
		{ "guests", "N", OPT_COUNT, &l.guests,
		  "1 to 8 guests in one network; default: as many as each test needs" },
		{ "module", "FILE", OPT_TEXT, &l.module, "another kernel module, loaded after Strait's" },
		{ "long", NULL, OPT_FLAG, &l.long_ones, "run the long tests too" },
		{ "tap", NULL, OPT_FLAG, &l.tap, "report as TAP" },
		{ "json", NULL, OPT_FLAG, &cli.json, "print the report as JSON" },
	};
	const char *pos[2] = { NULL }, *args[24];
	char exe[PATH_MAX], count[16], *runner;
	unsigned int n_args = 0;
	int code, n = args_parse(argc, argv, opts, ARRAY_SIZE(opts), 1, 2, pos);
	ssize_t len;

	if (n < 0)
		return args_exit(n);
	code = check(&l, pos[0], n);
	if (code)
		return code;
	len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	if (len < 0)
		return fail(CLI_FAILED, "check that /proc is mounted", "cannot read /proc/self/exe: %s",
			    error_text(errno));
	exe[len] = '\0';
	runner = find_runner(exe);
	if (!runner)
		return fail(CLI_FAILED, "run strait from a source tree, or set STRAIT_LAB to the lab folder of one",
			    "the lab is not installed with this program");

	args[n_args++] = runner;
	args[n_args++] = "--topology";
	args[n_args++] = l.topology;
	args[n_args++] = "--iommu";
	args[n_args++] = l.iommu;
	args[n_args++] = "--kernel";
	args[n_args++] = l.kernel;
	args[n_args++] = "--build";
	args[n_args++] = beside(exe, ".");
	if (l.guests) {
		snprintf(count, sizeof(count), "%u", l.guests);
		args[n_args++] = "--guests";
		args[n_args++] = count;
	}
	if (l.module) {
		args[n_args++] = "--module";
		args[n_args++] = l.module;
	}
	if (l.long_ones)
		args[n_args++] = "--long";
	if (l.tap)
		args[n_args++] = "--tap";
	if (cli.json)
		args[n_args++] = "--json";
	args[n_args++] = "--";
	args[n_args++] = pos[0];
	if (n > 1)
		args[n_args++] = pos[1];
	args[n_args] = NULL;
	execv(runner, (char *const *)args);
	return fail(CLI_FAILED, "the lab needs Python 3", "cannot run %s: %s", runner, error_text(errno));
}
