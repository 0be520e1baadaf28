/* SPDX-License-Identifier: MIT */
#include "lib/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/json.h"
#include "lib/progress.h"

struct cli cli;

int fail(int code, const char *hint, const char *fmt, ...)
{
	struct json j;
	va_list ap;
	char *text;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = xstrdup(fmt);
	va_end(ap);

	progress_clear();
	fflush(stdout);
	fprintf(stderr, "strait%s%s: %s\n", cli.verb ? " " : "", cli.verb ? cli.verb : "", text);
	if (hint && *hint)
		fprintf(stderr, "  %s\n", hint);
	if (cli.json) {
		json_begin(&j, stdout);
		json_string(&j, "error", text);
		if (hint && *hint)
			json_string(&j, "hint", hint);
		json_int(&j, "exit", code);
		json_finish(&j);
	}
	free(text);
	return code;
}

void note(const char *fmt, ...)
{
	va_list ap;

	progress_clear();
	fflush(stdout);
	fputs("note: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

const char *error_text(int err)
{
	return strerror(err < 0 ? -err : err);
}

static void *must(void *ptr)
{
	if (!ptr) {
		fputs("strait: out of memory\n", stderr);
		exit(CLI_FAILED);
	}
	return ptr;
}

void *xcalloc(size_t n, size_t size)
{
	return must(calloc(n ? n : 1, size));
}

void *xrealloc(void *ptr, size_t size)
{
	return must(realloc(ptr, size));
}

char *xstrdup(const char *s)
{
	return must(strdup(s));
}

char *xasprintf(const char *fmt, ...)
{
	va_list ap;
	char *text;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	return must(text);
}

uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static const int ending_signals[] = { SIGINT, SIGTERM, SIGHUP };

static void on_signal(int sig)
{
	if (progress_active) {
		ssize_t n = write(STDERR_FILENO, "\n", 1);

		(void)n;
	}
	/* SA_RESETHAND has restored the default action: raised again, the signal ends the process. */
	raise(sig);
}

void signals_setup(void)
{
	struct sigaction act = { .sa_handler = on_signal, .sa_flags = SA_RESETHAND }, old;

	for (size_t i = 0; i < ARRAY_SIZE(ending_signals); i++)
		/* A signal ignored at the start (nohup, background jobs) stays ignored. */
		if (!sigaction(ending_signals[i], NULL, &old) && old.sa_handler != SIG_IGN)
			sigaction(ending_signals[i], &act, NULL);
	/* A closed pipe is noticed when stdout is flushed at the end. */
	signal(SIGPIPE, SIG_IGN);
}

void signals_hold(bool hold)
{
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(ending_signals); i++)
		sigaddset(&set, ending_signals[i]);
	sigprocmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}
