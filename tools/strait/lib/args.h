/* SPDX-License-Identifier: MIT */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

/* What a verb was called with. Options may stand anywhere; "--" ends them. */

#include <stdbool.h>
#include <stdint.h>

enum opt_kind {
	OPT_FLAG,    /* bool */
	OPT_TEXT,    /* const char * */
	OPT_SIZE,    /* uint64_t, as size_parse() */
	OPT_COUNT,   /* uint32_t, at least 1 */
	OPT_NUMBER,  /* uint64_t, decimal or 0x */
	OPT_SECONDS, /* double, not negative */
};

struct opt {
	const char *name;
	const char *value; /* what the help calls its value, NULL for a flag */
	enum opt_kind kind;
	void *to;
	const char *help;
};

enum { ARGS_HELP = -1, ARGS_BAD = -2 };

/*
 * Sets the options found and gathers the rest in @pos. --help and --verbose are known to every verb.
 *
 * Return: how many positional arguments there are, @min to @max; ARGS_HELP after the help was shown:
 * end with CLI_OK; ARGS_BAD after saying what was wrong: end with CLI_USAGE.
 */
int args_parse(int argc, char **argv, const struct opt *opts, unsigned int n_opts, int min, int max, const char **pos);

/* The exit code for a negative value of args_parse(). */
int args_exit(int parsed);

#endif
