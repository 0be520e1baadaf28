/* SPDX-License-Identifier: MIT */
#ifndef CUFILE_LOG_H
#define CUFILE_LOG_H

/* The log file of libcufile. */

#include <stdbool.h>

#include <strait/strait.h>

enum cf_level { CF_NOTICE, CF_ERROR, CF_WARN, CF_INFO, CF_DEBUG, CF_TRACE };

void cf_log(enum cf_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool cf_log_enabled(enum cf_level level);
void cf_log_setup(const char *level, const char *dir, const char *path);
void cf_log_forked(void);
void cf_log_strait(void *arg, enum strait_log_level level, const char *text);

#endif
