/* SPDX-License-Identifier: MIT */
#ifndef CUFILE_SETTINGS_H
#define CUFILE_SETTINGS_H

/* What libcufile and `strait info --cufile` both know about the settings of cuFile; not installed. */

#include <stddef.h>

#define SETTINGS_FILE "/etc/cufile.json"
#define SETTINGS_FILE_ENV "CUFILE_ENV_PATH_JSON"

enum setting_kind { SETTING_NULL, SETTING_BOOL, SETTING_NUMBER, SETTING_STRING, SETTING_EMPTY };

/* A value of the file that is no object. Elements of arrays have their index, else it is -1. */
struct setting_value {
	const char *path; /* "properties.allow_compat_mode" */
	int index;
	enum setting_kind kind;
	double number; /* of a bool too */
	const char *text;
};

enum setting_effect {
	SETTING_IN_FORCE, /* does what it says */
	SETTING_REPORTED, /* is told to programs that ask, and changes nothing */
	SETTING_IGNORED,  /* known to cuFile, without meaning here */
	SETTING_UNKNOWN,
};

typedef void setting_fn(void *arg, const struct setting_value *k);

/* The file as text, or NULL with errno set. */
char *settings_file_load(const char *path);
/* JSON with comments. 0, or the number of the line that is wrong; what stands before it has been told. */
int settings_file_parse(const char *text, setting_fn *fn, void *arg);
enum setting_effect setting_effect(const char *path);
/* The same for a variable of the environment, "CUFILE_...". */
enum setting_effect setting_env_effect(const char *name);

#endif
