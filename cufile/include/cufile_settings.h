/* SPDX-License-Identifier: MIT */
#ifndef CUFILE_SETTINGS_H
#define CUFILE_SETTINGS_H

/*
 * The settings of cuFile: where each stands in cufile.json, which environment variable and which parameter of the API
 * it is, and whether it has an effect here. libcufile and `strait info --cufile` use the same table. Not installed.
 */

#include <stdbool.h>
#include <stddef.h>

#define SETTINGS_FILE "/etc/cufile.json"
#define SETTINGS_FILE_ENV "CUFILE_ENV_PATH_JSON"
#define SETTING_NO_PARAM (-1)

enum setting_kind {
	SETTING_NULL,
	SETTING_BOOL,
	SETTING_NUMBER,
	SETTING_STRING,
	SETTING_ARRAY, /* of numbers; in a file, an array without elements */
};

enum setting_effect {
	SETTING_IN_FORCE, /* does what it says */
	SETTING_REPORTED, /* stored and returned by cuFileGetParameter*(), without further effect */
	SETTING_IGNORED,  /* known to cuFile, without meaning here */
	SETTING_UNKNOWN,
};

/* One setting of cuFile. */
struct setting {
	const char *path;	/* in cufile.json, NULL if there is none; a '*' at the end matches the rest */
	enum setting_kind kind; /* of its parameter */
	int param;		/* CUFile{SizeT,Bool,String,Array}ConfigParameter_t, by kind, or SETTING_NO_PARAM */
	const char *env;	/* the environment variable, NULL if there is none */
	enum setting_effect effect;
};

/* The rows of the table in order; NULL after the last one. */
const struct setting *setting_at(size_t i);
/* NULL if cuFile has none such. A parameter with several paths is found by the one it is reported under. */
const struct setting *setting_by_path(const char *path);
const struct setting *setting_by_param(enum setting_kind kind, int param);
enum setting_effect setting_effect(const char *path);
/* The effect of an environment variable "CUFILE_...". */
enum setting_effect setting_env_effect(const char *name);

/* A value in a file. Elements of arrays have their index, other values -1. */
struct setting_value {
	const char *path; /* "properties.allow_compat_mode" */
	int index;
	enum setting_kind kind;
	double number; /* 0 or 1 of a bool */
	const char *text;
};

typedef void setting_fn(void *arg, const struct setting_value *v);

/* The text of a file, for free(), or NULL with errno set. */
char *settings_file_load(const char *path);
/*
 * Calls @fn for each value of JSON with comments.
 *
 * Return: 0, or the number of the line where the text is not JSON; @fn has been called for the values before it.
 */
int settings_file_parse(const char *text, setting_fn *fn, void *arg);

#endif
