/* SPDX-License-Identifier: MIT */
#include "verbs/info/cufile.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strait/strait.h>

#define STRAIT_CUFILE_NO_CUDA_H
#include <cufile.h>

#include "lib/cli.h"
#include "lib/install_path.h"

const char *info_cufile_effect(enum setting_effect e)
{
	static const char *const names[] = { "in force", "accepted, no effect", "ignored", "unknown, ignored" };

	return names[e];
}

static void add_setting(struct info_cufile *c, const char *name, const char *value, enum setting_effect effect,
			bool env)
{
	c->setting = xrealloc(c->setting, (c->settings + 1) * sizeof(*c->setting));
	c->setting[c->settings++] = (struct cufile_setting){ xstrdup(name), xstrdup(value), effect, env };
}

static void on_setting(void *arg, const struct setting_value *k)
{
	struct info_cufile *c = arg;
	char value[128] = "[]", *both;

	if (k->kind == SETTING_STRING)
		snprintf(value, sizeof(value), "\"%s\"", k->text);
	else if (k->kind == SETTING_BOOL)
		snprintf(value, sizeof(value), "%s", k->number != 0 ? "true" : "false");
	else if (k->kind == SETTING_NUMBER)
		snprintf(value, sizeof(value), "%.15g", k->number);
	else if (k->kind == SETTING_NULL)
		snprintf(value, sizeof(value), "null");
	if (k->index <= 0) {
		add_setting(c, k->path, value, setting_effect(k->path), false);
		return;
	}
	/* The next element of the array read last. */
	both = xasprintf("%s, %s", c->setting[c->settings - 1].value, value);
	free(c->setting[c->settings - 1].value);
	c->setting[c->settings - 1].value = both;
}

static void read_settings(struct info_cufile *c)
{
	const char *named = getenv(SETTINGS_FILE_ENV);
	extern char **environ;
	char *text;
	int line;

	snprintf(c->file, sizeof(c->file), "%s", named && *named ? named : SETTINGS_FILE);
	text = settings_file_load(c->file);
	if (!text) {
		snprintf(c->file_state, sizeof(c->file_state), "%s: defaults apply", strerror(errno));
	} else {
		line = settings_file_parse(text, on_setting, c);
		snprintf(c->file_state, sizeof(c->file_state),
			 line ? "syntax error in line %d: the settings before it apply" : "read", line);
	}
	free(text);
	for (char **e = environ; *e; e++) {
		char *name = xstrdup(*e), *value = strchr(name, '=');

		if (value && (!strncmp(name, "CUFILE_", 7) || !strncmp(name, "STRAIT_CUFILE_", 14))) {
			*value++ = '\0';
			add_setting(c, name, value,
				    !strncmp(name, "STRAIT_", 7) ? SETTING_IN_FORCE : setting_env_effect(name), true);
		}
		free(name);
	}
}

static struct cufile_param *add_param(struct info_cufile *c, const char *name)
{
	struct cufile_param *p;

	c->param = xrealloc(c->param, (c->params + 1) * sizeof(*c->param));
	p = &c->param[c->params++];
	*p = (struct cufile_param){ .name = name };
	return p;
}

/* Ask the library for its parameters, after it has read the file and the environment. */
static void read_library(struct info_cufile *c)
{
	__typeof__(cuFileGetVersion) *version;
	__typeof__(cuFileGetParameterSizeT) *get_size;
	__typeof__(cuFileGetParameterBool) *get_bool;
	__typeof__(cuFileGetParameterMinMaxValue) *get_range;
	const struct setting *s;
	size_t size, min, max;
	bool flag;
	void *lib;

	c->library = install_path_find("libcufile.so.0");
	lib = c->library ? dlopen(c->library, RTLD_NOW | RTLD_LOCAL) : NULL;
	if (!lib) {
		snprintf(c->why, sizeof(c->why), "%s",
			 c->library ? dlerror() : "libcufile.so.0 is not installed with this command");
		return;
	}
	version = (__typeof__(version))dlsym(lib, "cuFileGetVersion");
	get_size = (__typeof__(get_size))dlsym(lib, "cuFileGetParameterSizeT");
	get_bool = (__typeof__(get_bool))dlsym(lib, "cuFileGetParameterBool");
	get_range = (__typeof__(get_range))dlsym(lib, "cuFileGetParameterMinMaxValue");
	if (!version || !get_size || !get_bool || !get_range || version(&c->version).err) {
		snprintf(c->why, sizeof(c->why), "it lacks some of the calls of cuFile");
		return;
	}
	for (int i = 0; (s = setting_by_param(SETTING_NUMBER, i)); i++) {
		struct cufile_param *p = add_param(c, s->path);

		if (!get_size((CUFileSizeTConfigParameter_t)i, &size).err)
			snprintf(p->value, sizeof(p->value), "%zu", size);
		if (!get_range((CUFileSizeTConfigParameter_t)i, &min, &max).err)
			snprintf(p->range, sizeof(p->range), "%zu to %zu", min, max);
	}
	for (int i = 0; (s = setting_by_param(SETTING_BOOL, i)); i++) {
		struct cufile_param *p = add_param(c, s->path);

		if (!get_bool((CUFileBoolConfigParameter_t)i, &flag).err)
			snprintf(p->value, sizeof(p->value), "%s", flag ? "true" : "false");
	}
}

/* A file that always exists, to query the routes with. */
static struct strait_endpoint *some_file(struct strait_context *ctx)
{
	struct strait_endpoint *ep;

	return strait_file_open(ctx, "/proc/self/exe", O_RDONLY, 0, 0, &ep) ? NULL : ep;
}

static void read_devices(const struct info *in, struct info_cufile *c)
{
	struct strait_endpoint *ep = some_file(in->ctx);

	c->device = xcalloc(in->devices ? in->devices : 1, sizeof(*c->device));
	for (unsigned int i = 0; i < in->devices; i++) {
		struct cufile_device *d = &c->device[c->devices];
		struct strait_device *dev;

		d->info = &in->device[i];
		d->read.size = sizeof(d->read);
		if (!ep || strait_device_find(in->ctx, d->info->name, &dev) ||
		    strait_route_query_device(ep, dev, STRAIT_READ, &d->read))
			continue;
		for (unsigned int n = 0; d->info->pci[0] && n < in->nodes; n++)
			if (!strcmp(in->node[n].pci, d->info->pci))
				d->bar_bytes = in->node[n].bar_bytes;
		c->devices++;
	}
	strait_endpoint_close(ep);
}

int info_cufile(const struct info *in)
{
	struct info_cufile c = { 0 };

	read_settings(&c);
	read_library(&c);
	read_devices(in, &c);
	if (cli.json)
		info_cufile_print_json(in, &c);
	else
		info_cufile_print(in, &c);
	for (unsigned int i = 0; i < c.settings; i++) {
		free(c.setting[i].name);
		free(c.setting[i].value);
	}
	free(c.setting);
	free(c.param);
	free(c.device);
	free(c.library);
	return c.why[0] ? CLI_FAILED : CLI_OK;
}
