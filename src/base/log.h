/* SPDX-License-Identifier: MIT */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <strait/log.h>

/* Receiver of log lines. A zeroed sink drops them. */
struct log_sink {
	strait_log_fn *fn;
	void *arg;
	enum strait_log_level level;
};

void log_line(const struct log_sink *sink, enum strait_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#define log_error(sink, ...) log_line(sink, STRAIT_LOG_ERROR, __VA_ARGS__)
#define log_warn(sink, ...) log_line(sink, STRAIT_LOG_WARN, __VA_ARGS__)
#define log_info(sink, ...) log_line(sink, STRAIT_LOG_INFO, __VA_ARGS__)
#define log_debug(sink, ...) log_line(sink, STRAIT_LOG_DEBUG, __VA_ARGS__)

#endif
