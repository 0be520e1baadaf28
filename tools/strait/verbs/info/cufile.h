/* SPDX-License-Identifier: MIT */
#ifndef CLI_INFO_CUFILE_H
#define CLI_INFO_CUFILE_H

/* `strait info --cufile`: what cuFile programs get on this machine, collected first and printed afterwards. */

#include <cufile_settings.h>
#include <strait/route.h>

#include "verbs/info/info.h"

struct cufile_setting {
	char *name; /* a key of cufile.json, or an environment variable */
	char *value;
	enum setting_effect effect;
	bool env;
};

struct cufile_param {
	const char *name;
	char value[64];
	char range[48]; /* empty if the library reports none */
};

/* A device and the routes to it. */
struct cufile_device {
	const struct strait_device_info *info;
	uint64_t bar_bytes; /* 0 if it is not known */
	struct strait_route_report read;
};

struct info_cufile {
	char *library; /* the libcufile.so.0 installed with this command; NULL if none is */
	char why[256]; /* why it cannot be used; empty if it can */
	int version;   /* the version it reports, 1150 for 1.15 */
	char file[512];
	char file_state[128]; /* "read", or what is wrong */
	struct cufile_setting *setting;
	unsigned int settings;
	struct cufile_param *param;
	unsigned int params;
	struct cufile_device *device;
	unsigned int devices;
};

void info_cufile_print(const struct info *in, const struct info_cufile *c);
void info_cufile_print_json(const struct info *in, const struct info_cufile *c);
const char *info_cufile_effect(enum setting_effect e);

#endif
