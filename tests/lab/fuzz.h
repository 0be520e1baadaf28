/* SPDX-License-Identifier: MIT */
#ifndef LAB_FUZZ_H
#define LAB_FUZZ_H

/*
 * Random calls by two threads on one file that is replaced now and then: the common part of the fuzzers of the modules.
 * Each call is valid except for one argument, or random.
 */

#include <stdatomic.h>
#include <stdint.h>

#define FUZZ_HANDLES 16

/* One thread. */
struct fuzz {
	int fd;
	uint64_t seed, calls, good;
	void *own; /* the test's */
};

uint64_t below(struct fuzz *f, uint64_t n);
/* A number that is often handled wrongly. */
uint64_t odd(struct fuzz *f);
/* One of FUZZ_HANDLES handles that a call returned, which may be released by now; or a random number. */
uint32_t some(struct fuzz *f, _Atomic uint32_t *handles);
void keep(struct fuzz *f, _Atomic uint32_t *handles, uint32_t handle);

/* In a union with the arguments of every call: as large as any of them, its size first. */
union fuzz_arg {
	uint32_t size;
	uint32_t halves[64];
	uint64_t words[32];
};

/*
 * Calls /dev/strait. @arg is valid for *@cmd and has @used significant bytes: it or the number is changed in some way,
 * and the call made. *@cmd is what was called. Returns 0 or a negative errno.
 */
int fuzz_call(struct fuzz *f, unsigned long *cmd, union fuzz_arg *arg, unsigned int used);

/* Two threads of @run, both on @fd, for @calls together; seeds are *@seed and the next. Returns how many succeeded. */
uint64_t fuzz_pair(int fd, void *(*run)(void *fuzz), uint64_t calls, uint64_t *seed, void *own[2]);

uint64_t fuzz_env(const char *name, uint64_t value);

#endif
