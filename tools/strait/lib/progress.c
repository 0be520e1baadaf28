/* SPDX-License-Identifier: MIT */
#include "lib/progress.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "lib/cli.h"
#include "lib/size.h"

volatile sig_atomic_t progress_active;

static struct {
	const char *what;
	uint64_t total;
	uint64_t start_ns;
	uint64_t drawn_ns;
} bar;

bool progress_wanted(void)
{
	static int wanted = -1;

	if (wanted < 0)
		wanted = isatty(STDERR_FILENO);
	return wanted;
}

void progress_start(const char *what, uint64_t total)
{
	bar.what = what;
	bar.total = total;
	bar.start_ns = now_ns();
	bar.drawn_ns = 0;
}

static int screen_width(void)
{
	struct winsize size;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 || !size.ws_col)
		return 80;
	return size.ws_col;
}

static void draw(uint64_t done, uint64_t now)
{
	char done_text[SIZE_TEXT], total_text[SIZE_TEXT], rate[SIZE_TEXT], eta[48] = "", tail[160], fill[64];
	uint64_t ns = now - bar.start_ns;
	double part = bar.total ? (double)done / (double)bar.total : 1;
	int width, full;

	/* The time left is estimated after the first 200 ms. */
	if (done && done < bar.total && ns > 200000000u) {
		uint64_t left = (uint64_t)((double)ns * (1 / part - 1) / 1e9 + 0.5);

		snprintf(eta, sizeof(eta), "  %" PRIu64 ":%02" PRIu64 " left", left / 60, left % 60);
	}
	snprintf(tail, sizeof(tail), " %3d %%  %s of %s  %s%s", (int)(part * 100), size_format(done, done_text),
		 size_format(bar.total, total_text), rate_format(done, ns, rate), eta);
	width = screen_width() - (int)strlen(bar.what) - (int)strlen(tail) - 5;
	if (width > (int)sizeof(fill) - 1)
		width = sizeof(fill) - 1;
	if (width < 0)
		width = 0;
	full = (int)(part * width);
	memset(fill, '.', (size_t)width);
	memset(fill, '#', (size_t)full);
	fill[width] = '\0';
	fprintf(stderr, "\r%s  [%s]%s\033[K", bar.what, fill, tail);
	fflush(stderr);
	progress_active = 1;
}

void progress_set(uint64_t done)
{
	uint64_t now;

	if (!progress_wanted())
		return;
	now = now_ns();
	if (progress_active && now - bar.drawn_ns < 100000000u)
		return;
	bar.drawn_ns = now;
	draw(done, now);
}

void progress_text(const char *fmt, ...)
{
	va_list ap;

	if (!progress_wanted())
		return;
	fputc('\r', stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputs("\033[K", stderr);
	fflush(stderr);
	progress_active = 1;
}

void progress_clear(void)
{
	if (!progress_active)
		return;
	fputs("\r\033[K", stderr);
	fflush(stderr);
	progress_active = 0;
}

void progress_end(void)
{
	progress_clear();
}
