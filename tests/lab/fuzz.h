/* SPDX-License-Identifier: MIT */
#ifndef LAB_FUZZ_H
#define LAB_FUZZ_H

/*
 * Calls nobody would make, by two threads on one file that is replaced now and then: what fuzzers of the modules have
 * in common. Each call is right but for one thing, or noise altogether.
 */

#include <stdatomic.h>
#include <stdint.h>

#define FUZZ_KEPT 16

/* One thread. */
struct fuzz {
	int fd;
	uint64_t seed, calls, good;
	void *own; /* the test's */
};

uint64_t below(struct fuzz *f, uint64_t n);
/* A number somebody might trip over. */
uint64_t odd(struct fuzz *f);
/* One of FUZZ_KEPT handles that some call gave, which may be gone by now; or an odd number. */
uint32_t some(struct fuzz *f, _Atomic uint32_t *handles);
void keep(struct fuzz *f, _Atomic uint32_t *handles, uint32_t handle);

/* What every argument of a call is in a union with: as large as any of them, its size first. */
union fuzz_arg {
	uint32_t size;
	uint32_t halves[64];
	uint64_t words[32];
};

/*
 * A call of /dev/strait. @arg is right for *@cmd and has @used bytes of interest: it is changed in some way, or the
 * number is, and the call made. *@cmd is what was called. 0 or a negative errno.
 */
int fuzz_call(struct fuzz *f, unsigned long *cmd, union fuzz_arg *arg, unsigned int used);

/* Two threads of @run, both on @fd, for @calls together; seeds are *@seed and the next. How many were successful. */
uint64_t fuzz_pair(int fd, void *(*run)(void *fuzz), uint64_t calls, uint64_t *seed, void *own[2]);

uint64_t fuzz_env(const char *name, uint64_t value);

#endif
