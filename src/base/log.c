/* SPDX-License-Identifier: MIT */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void log_line(const struct log_sink *sink, enum strait_log_level level, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	if (!sink->fn || level > sink->level)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	sink->fn(sink->arg, level, text);
}

STRAIT_API const char *strait_log_level_name(enum strait_log_level level)
{
	switch (level) {
	case STRAIT_LOG_ERROR:
		return "error";
	case STRAIT_LOG_WARN:
		return "warn";
	case STRAIT_LOG_INFO:
		return "info";
	case STRAIT_LOG_DEBUG:
		return "debug";
	}
	return "unknown";
}
