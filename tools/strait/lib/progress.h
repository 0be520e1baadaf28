/* SPDX-License-Identifier: MIT */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

/* A progress bar on stderr, with rate and time left. Nothing is printed unless stderr is a terminal. */

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

extern volatile sig_atomic_t progress_active; /* a line is on the screen */

bool progress_wanted(void);
void progress_start(const char *what, uint64_t total);
void progress_set(uint64_t done);
/* A line that says what is being done, where the total is not known. */
void progress_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void progress_end(void);
void progress_clear(void); /* make room for a message; the next progress_set() draws it again */

#endif
