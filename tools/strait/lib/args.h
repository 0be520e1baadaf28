/* SPDX-License-Identifier: MIT */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

/* The arguments of a verb. Options may stand anywhere; "--" ends them. */

#include <stdbool.h>
#include <stdint.h>

enum opt_kind {
	OPT_FLAG,    /* bool */
	OPT_TEXT,    /* const char * */
	OPT_SIZE,    /* uint64_t, as size_parse() */
	OPT_COUNT,   /* uint32_t, at least 1 */
	OPT_NUMBER,  /* uint64_t, decimal or 0x */
	OPT_SECONDS, /* double, not negative */
	OPT_LIST,    /* struct opt_list: may be given several times */
};

#define OPT_LIST_MAX 64u

struct opt_list {
	const char *item[OPT_LIST_MAX];
	unsigned int n;
};

struct opt {
	const char *name;
	const char *value; /* the name of its value in the help, NULL for a flag */
	enum opt_kind kind;
	void *to;
	const char *help;
};

enum { ARGS_HELP = -1, ARGS_BAD = -2 };

/*
 * Set the options found and store the positional arguments in @pos. Every verb has --help and --verbose.
 *
 * Return: the number of positional arguments, @min to @max; ARGS_HELP after the help was printed; ARGS_BAD after an
 * error was printed.
 */
int args_parse(int argc, char **argv, const struct opt *opts, unsigned int n_opts, int min, int max, const char **pos);

/* The exit code for a negative value of args_parse(). */
int args_exit(int parsed);

#endif
