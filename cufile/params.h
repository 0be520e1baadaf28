/* SPDX-License-Identifier: MIT */
#ifndef CUFILE_PARAMS_H
#define CUFILE_PARAMS_H

/* The parameters of cuFile. */

#include "core.h"

/* The values in force. cf_params_check() replaces those out of range by their defaults. */
void cf_params_load(void);
void cf_params_load_once(void); /* if they were never loaded */
void cf_params_check(void);
/* Sets up the log as the parameters say. */
void cf_params_apply_log(void);
size_t cf_param_size(CUFileSizeTConfigParameter_t p);
bool cf_param_bool(CUFileBoolConfigParameter_t p);
/* Does the value differ from the default? */
bool cf_param_size_chosen(CUFileSizeTConfigParameter_t p);
/* While the driver is @open, until it is opened again; else as set by the program. */
void cf_param_override_size(CUFileSizeTConfigParameter_t p, size_t value, bool open);
void cf_param_override_bool(CUFileBoolConfigParameter_t p, bool value, bool open);
/* The largest GPU bounce buffer and the sum of all, in KiB. Return: have their slabs been set? */
bool cf_param_bounce_slabs(size_t *largest, size_t *sum);
/* Size of the staging pool in bytes, 0 for the default. */
uint64_t cf_param_pool_bytes(void);
/* Values of cufile.json and the environment: they do not replace what the program has set. */
void cf_param_configure_size(CUFileSizeTConfigParameter_t p, size_t value);
void cf_param_configure_bool(CUFileBoolConfigParameter_t p, bool value);
void cf_param_configure_string(CUFileStringConfigParameter_t p, const char *value);
void cf_param_configure_slab(bool count, unsigned int index, size_t value);

/* config.c: applies cufile.json, then the environment. */
void cf_config_read(void);

/* Called in the child after fork(). */
void cf_params_forked(void);

#endif
