/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_LOG_H
#define STRAIT_LOG_H

#include <strait/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum strait_log_level {
	STRAIT_LOG_ERROR = 1,
	STRAIT_LOG_WARN = 2,
	STRAIT_LOG_INFO = 3,
	STRAIT_LOG_DEBUG = 4,
};

/*
 * Receives one line of text without a newline. May be called on any thread, including those of the library, and must
 * not call the library.
 */
typedef void strait_log_fn(void *arg, enum strait_log_level level, const char *text);

/**
 * strait_log_level_name() - Get the name of a log level
 * @level: the level
 *
 * Return: "error", "warn", "info" or "debug"; "unknown" for anything else.
 */
STRAIT_API const char *strait_log_level_name(enum strait_log_level level);

#ifdef __cplusplus
}
#endif

#endif
