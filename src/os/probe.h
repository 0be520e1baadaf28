/* SPDX-License-Identifier: MIT */
#ifndef OS_PROBE_H
#define OS_PROBE_H

/* What the kernel lets this process use. */

#include <stddef.h>
#include <stdint.h>

/* 0 if this process may use it, or the negative errno of the kernel. */
int os_probe_uring(void);
int os_probe_cachestat(void);
int os_probe_userfaultfd(void);
int os_probe_device(const char *path);

int os_kernel_release(char *buf, size_t len);
uint64_t os_memlock_limit(void); /* UINT64_MAX for no limit */

#endif
