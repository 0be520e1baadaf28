/* SPDX-License-Identifier: MIT */
#ifndef CLI_H
#define CLI_H

/* What all verbs share: exit codes, messages, allocation, the clock, signals. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Documented in strait(1): scripts depend on them. */
enum cli_exit {
	CLI_OK = 0,
	CLI_FAILED = 1,
	CLI_USAGE = 2,
	CLI_MISMATCH = 3, /* data read back differs from the data written */
	CLI_NO_ROUTE = 4, /* no such device, or a required route is not possible */
};

struct verb {
	const char *name;
	const char *args; /* as shown in the usage line */
	int (*run)(int argc, char **argv);
	const char *help;    /* one line */
	const char *details; /* printed below the options by --help; may be NULL */
};

extern const struct verb verbs[];
const struct verb *verb_find(const char *name);

int cmd_info(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_load(int argc, char **argv);
int cmd_save(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_bind(int argc, char **argv);
int cmd_unbind(int argc, char **argv);
int cmd_lab(int argc, char **argv);
int cmd_nvme(int argc, char **argv);
int cmd_dma(int argc, char **argv);
int cmd_rdma(int argc, char **argv);
int cmd_help(int argc, char **argv);

/* State of this run of the command. */
extern struct cli {
	const char *verb;
	bool json;    /* --json: failures are reported as JSON too */
	bool verbose; /* --verbose: the library's log lines are printed */
} cli;

/*
 * Print an error on stderr and, if @hint is not NULL, what to do about it; with --json also an object on stdout.
 * Returns @code, for the verb to return.
 */
int fail(int code, const char *hint, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Print a note on stderr: something to know that is not a failure. */
void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The text of a negative errno. */
const char *error_text(int err);

/* Never return NULL: without memory the program ends. */
void *xcalloc(size_t n, size_t size);
void *xrealloc(void *ptr, size_t size);
char *xstrdup(const char *s);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

uint64_t now_ns(void);

/*
 * SIGINT, SIGTERM and SIGHUP end the program as by default, after the line of a progress bar has been ended. No verb
 * needs to clean up on disk: unfinished files have no name.
 */
void signals_setup(void);
void signals_hold(bool hold); /* block them while a file is renamed */

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define KIB 1024ull
#define MIB (1024ull * 1024)
#define GIB (1024ull * 1024 * 1024)

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

#endif
