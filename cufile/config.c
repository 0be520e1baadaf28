/* SPDX-License-Identifier: MIT */
/* Parameters from cufile.json and the environment. */
#include "params.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include <cufile_settings.h>

/* Settings without effect. The log is set up after the file was read, so they are collected and logged then. */
struct ignored {
	char names[2048];
};

static void ignored_add(struct ignored *ig, const char *name)
{
	size_t len = strlen(ig->names);

	if (len + strlen(name) + 2 < sizeof(ig->names))
		sprintf(ig->names + len, " %s", name);
}

/* False if the value is not of the kind that its parameter has. */
static bool apply_value(const struct setting *s, const struct setting_value *v)
{
	if (s->kind == SETTING_NUMBER && v->kind == SETTING_NUMBER)
		cf_param_configure_size((CUFileSizeTConfigParameter_t)s->param,
					v->number < 0 ? SIZE_MAX : (size_t)v->number);
	else if (s->kind == SETTING_BOOL && v->kind == SETTING_BOOL)
		cf_param_configure_bool((CUFileBoolConfigParameter_t)s->param, v->number != 0);
	else if (s->kind == SETTING_STRING && v->kind == SETTING_STRING)
		cf_param_configure_string((CUFileStringConfigParameter_t)s->param, v->text);
	else if (s->kind == SETTING_ARRAY && v->kind == SETTING_NUMBER && v->index >= 0)
		cf_param_configure_slab(s->param == CUFILE_PARAM_POSIX_POOL_SLAB_COUNT, (unsigned int)v->index,
					v->number < 0 ? 0 : (size_t)v->number);
	else
		return false;
	return true;
}

static void apply_file_value(void *arg, const struct setting_value *v)
{
	const struct setting *s = setting_by_path(v->path);
	bool applied = s && s->param != SETTING_NO_PARAM && apply_value(s, v);

	/* An array is named once, an empty one not at all. */
	if ((!applied || s->effect != SETTING_IN_FORCE) && v->index <= 0 && v->kind != SETTING_ARRAY)
		ignored_add(arg, v->path);
}

static bool is_true(const char *text)
{
	return !strcasecmp(text, "true") || !strcasecmp(text, "on") || !strcasecmp(text, "yes") || !strcmp(text, "1");
}

static void apply_environment(void)
{
	const struct setting *s;

	for (size_t i = 0; (s = setting_at(i)); i++) {
		const char *text = s->env && s->param != SETTING_NO_PARAM ? getenv(s->env) : NULL;
		struct setting_value v = { .path = s->path, .index = -1, .kind = s->kind, .text = text };

		if (!text || !text[0])
			continue;
		v.number = s->kind == SETTING_NUMBER ? strtod(text, NULL) : is_true(text);
		apply_value(s, &v);
	}
}

extern char **environ;

static void ignored_add_environment(struct ignored *ig)
{
	for (char **e = environ; e && *e; e++) {
		const char *end = strchr(*e, '=');
		char name[64];

		if (strncmp(*e, "CUFILE_", 7) || !end || (size_t)(end - *e) >= sizeof(name))
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)(end - *e), *e);
		if (setting_env_effect(name) != SETTING_IN_FORCE)
			ignored_add(ig, name);
	}
}

/* A program that opens the driver many times gets one warning for as long as the names are the same. */
static void log_ignored(const struct ignored *ig, const char *path)
{
	static struct ignored logged;

	if (!ig->names[0] || !strcmp(ig->names, logged.names))
		return;
	cf_log(CF_WARN, "%s and the environment: these settings have no effect:%s", path, ig->names);
	if (cf_log_enabled(CF_WARN))
		logged = *ig;
}

/* Some programs name a file that does not exist, so a missing or broken file is only logged. */
void cf_config_read(void)
{
	const char *named = getenv(SETTINGS_FILE_ENV), *path = named && named[0] ? named : SETTINGS_FILE;
	struct ignored ig = { .names = "" };
	char *text = settings_file_load(path);
	int err = errno, line = text ? settings_file_parse(text, apply_file_value, &ig) : 0;

	apply_environment();
	ignored_add_environment(&ig);
	cf_params_apply_log();
	if (!text && path == named)
		cf_log(CF_WARN, "%s: %s; using the defaults", path, strerror(err));
	if (line)
		cf_log(CF_WARN, "%s:%d: is not JSON; using the settings before this line", path, line);
	log_ignored(&ig, path);
	free(text);
}
