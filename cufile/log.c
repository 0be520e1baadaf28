/* SPDX-License-Identifier: MIT */
/* The log file. It is created when the first line is written. */
#include "core.h"

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_BYTES (32 << 20)

static const char *const level_names[] = { "NOTICE", "ERROR", "WARN", "INFO", "DEBUG", "TRACE" };
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int threshold = CF_ERROR;
static char log_path[PATH_MAX];
static int log_fd = -1;

static int level_parse(const char *name)
{
	for (int i = 0; i <= CF_TRACE; i++)
		if (name && !strcasecmp(name, level_names[i]))
			return i;
	return -1;
}

void cf_log_setup(const char *level, const char *dir, const char *path)
{
	char next[PATH_MAX];
	int n;

	if (path && path[0])
		n = snprintf(next, sizeof(next), "%s", path);
	else
		n = snprintf(next, sizeof(next), "%s%scufile.log", dir, dir[0] ? "/" : "");
	pthread_mutex_lock(&log_lock);
	if (n > 0 && (size_t)n < sizeof(next) && strcmp(next, log_path)) {
		if (log_fd >= 0)
			close(log_fd);
		log_fd = -1;
		memcpy(log_path, next, (size_t)n + 1);
	}
	pthread_mutex_unlock(&log_lock);
	n = level_parse(level);
	atomic_store(&threshold, n < 0 ? CF_ERROR : n);
}

void cf_log_forked(void)
{
	pthread_mutex_init(&log_lock, NULL);
}

bool cf_log_enabled(enum cf_level level)
{
	return (int)level <= atomic_load_explicit(&threshold, memory_order_relaxed);
}

void cf_log(enum cf_level level, const char *fmt, ...)
{
	int saved = errno;
	char line[1024];
	struct timespec now;
	struct tm tm;
	struct stat st;
	va_list ap;
	size_t n;

	if (!cf_log_enabled(level))
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &tm);
	n = strftime(line, sizeof(line), "%d-%m-%Y %H:%M:%S", &tm);
	n += (size_t)snprintf(line + n, sizeof(line) - n, ":%03ld [pid=%d] %s strait: ", now.tv_nsec / 1000000,
			      (int)getpid(), level_names[level]);
	va_start(ap, fmt);
	vsnprintf(line + n, sizeof(line) - n - 1, fmt, ap);
	va_end(ap);
	n = strlen(line);
	line[n++] = '\n';
	pthread_mutex_lock(&log_lock);
	if (log_fd < 0 && log_path[0])
		log_fd = open(log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
	/* A log that cannot be written, or is full, must not fail the I/O. */
	if (log_fd >= 0 && !fstat(log_fd, &st) && st.st_size < MAX_BYTES && write(log_fd, line, n) < 0) {
		close(log_fd);
		log_fd = -1;
	}
	pthread_mutex_unlock(&log_lock);
	errno = saved;
}

void cf_log_strait(void *arg, enum strait_log_level level, const char *text)
{
	static const enum cf_level of[] = { CF_ERROR, CF_ERROR, CF_WARN, CF_INFO, CF_DEBUG };

	cf_log(level <= STRAIT_LOG_DEBUG ? of[level] : CF_TRACE, "%s", text);
}
