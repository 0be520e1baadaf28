/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_KNOBS_H
#define STRAIT_KNOBS_H

/* What libcufile and `strait info --cufile` both know about the settings of cuFile; not installed. */

#include <stddef.h>

#define KNOBS_FILE "/etc/cufile.json"
#define KNOBS_FILE_ENV "CUFILE_ENV_PATH_JSON"

enum knob_kind { KNOB_NULL, KNOB_BOOL, KNOB_NUMBER, KNOB_STRING, KNOB_EMPTY };

/* A value of the file that is no object. Elements of arrays have their index, else it is -1. */
struct knob {
	const char *path; /* "properties.allow_compat_mode" */
	int index;
	enum knob_kind kind;
	double number; /* of a bool too */
	const char *text;
};

enum knob_effect {
	KNOB_IN_FORCE, /* does what it says */
	KNOB_KEPT,     /* is told to programs that ask, and changes nothing */
	KNOB_IGNORED,  /* known to cuFile, without meaning here */
	KNOB_UNKNOWN,
};

typedef void knob_fn(void *arg, const struct knob *k);

/* The file as text, or NULL with errno set. */
char *knobs_load(const char *path);
/* JSON with comments. 0, or the number of the line that is wrong; what stands before it has been told. */
int knobs_read(const char *text, knob_fn *fn, void *arg);
enum knob_effect knob_effect(const char *path);
/* The same for a variable of the environment, "CUFILE_...". */
enum knob_effect knob_env_effect(const char *name);

#endif
