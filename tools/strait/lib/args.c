/* SPDX-License-Identifier: MIT */
#include "lib/args.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cli.h"
#include "lib/size.h"

int args_exit(int parsed)
{
	return parsed == ARGS_HELP ? CLI_OK : CLI_USAGE;
}

static void show_help(const struct opt *opts, unsigned int n)
{
	const struct verb *verb = verb_find(cli.verb);
	bool sizes = false;

	printf("usage: strait %s %s\n\n%s\n\n", verb->name, verb->args, verb->help);
	for (unsigned int i = 0; i < n; i++) {
		char left[64];

		snprintf(left, sizeof(left), "--%s%s%s", opts[i].name, opts[i].value ? " " : "",
			 opts[i].value ? opts[i].value : "");
		printf("  %-22s %s\n", left, opts[i].help);
		sizes |= opts[i].value && !strncmp(opts[i].value, "SIZE", 4);
	}
	printf("  %-22s %s\n  %-22s %s\n", "--verbose", "print the library's log on stderr", "--help",
	       "print this help");
	if (verb->details)
		printf("\n%s\n", verb->details);
	putchar('\n');
	if (sizes)
		puts("SIZE is a number of bytes, with K, M, G or T (powers of 1024) or KB, MB, GB, TB (powers of 1000).");
	puts("The manual is strait(1).");
}

static int __attribute__((format(printf, 1, 2))) bad(const char *fmt, ...)
{
	char hint[64], text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(hint, sizeof(hint), "see: strait help %s", cli.verb);
	fail(CLI_USAGE, hint, "%s", text);
	return ARGS_BAD;
}

static int set_value(const struct opt *o, const char *value)
{
	struct opt_list *list;
	char *end = NULL;
	uint64_t number;

	errno = 0;
	switch (o->kind) {
	case OPT_FLAG:
		*(bool *)o->to = true;
		return 0;
	case OPT_TEXT:
		*(const char **)o->to = value;
		return 0;
	case OPT_SIZE:
		if (size_parse(value, o->to))
			return bad("--%s: \"%s\" is not a size such as 4096, 64K or 1.5G", o->name, value);
		return 0;
	case OPT_COUNT:
		number = strtoull(value, &end, 10);
		if (errno || end == value || *end || *value == '-' || !number || number > 65536)
			return bad("--%s: \"%s\" is not a number from 1 to 65536", o->name, value);
		*(uint32_t *)o->to = (uint32_t)number;
		return 0;
	case OPT_NUMBER:
		number = strtoull(value, &end, 0);
		if (errno || end == value || *end || *value == '-')
			return bad("--%s: \"%s\" is not a number", o->name, value);
		*(uint64_t *)o->to = number;
		return 0;
	case OPT_SECONDS:
		*(double *)o->to = strtod(value, &end);
		if (errno || end == value || *end || !(*(double *)o->to >= 0) || *(double *)o->to > 1e6)
			return bad("--%s: \"%s\" is not a number of seconds from 0 to 1000000", o->name, value);
		return 0;
	case OPT_LIST:
		list = o->to;
		if (list->n == OPT_LIST_MAX)
			return bad("--%s can be given %u times", o->name, OPT_LIST_MAX);
		list->item[list->n++] = value;
		return 0;
	}
	return 0;
}

static const struct opt *find_option(const struct opt *opts, unsigned int n, const char *name, size_t len)
{
	for (unsigned int i = 0; i < n; i++)
		if (strlen(opts[i].name) == len && !strncmp(opts[i].name, name, len))
			return &opts[i];
	return NULL;
}

int args_parse(int argc, char **argv, const struct opt *opts, unsigned int n_opts, int min, int max, const char **pos)
{
	bool options = true;
	int n = 0;

	for (int i = 1; i < argc; i++) {
		const char *arg = argv[i], *name, *value;
		const struct opt *o;

		if (!options || arg[0] != '-' || !arg[1]) {
			if (n >= max)
				return bad("unexpected argument \"%s\"", arg);
			pos[n++] = arg;
			continue;
		}
		if (!strcmp(arg, "--")) {
			options = false;
			continue;
		}
		if (!strcmp(arg, "--help") || !strcmp(arg, "-h")) {
			show_help(opts, n_opts);
			return ARGS_HELP;
		}
		if (!strcmp(arg, "--verbose") || !strcmp(arg, "-v")) {
			cli.verbose = true;
			continue;
		}
		name = arg[1] == '-' ? arg + 2 : arg;
		value = strchr(name, '=');
		o = find_option(opts, n_opts, name, value ? (size_t)(value - name) : strlen(name));
		if (!o)
			return bad("unknown option \"%s\"", arg);
		if (value) {
			value++;
			if (!o->value)
				return bad("--%s takes no value", o->name);
		} else if (o->value) {
			value = i + 1 < argc ? argv[++i] : NULL;
			if (!value)
				return bad("--%s needs a value: %s", o->name, o->value);
		}
		if (set_value(o, value))
			return ARGS_BAD;
	}
	if (n < min)
		return bad("too few arguments: strait %s %s", cli.verb, verb_find(cli.verb)->args);
	return n;
}
