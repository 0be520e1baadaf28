/* SPDX-License-Identifier: MIT */
#ifndef LAB_VGPU_H
#define LAB_VGPU_H

/* The lab's GPU for tests that call its driver. All functions end the test on failure. */

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"
#include "harness/harness.h"
#include "uapi/strait_vgpu.h"

#define PAGE KIB(64)
#define PLAIN STRAIT_VGPU_MEM_PLAIN
#define PINNABLE STRAIT_VGPU_MEM_PINNABLE

/* An allocation and its mapping, at an address that nvidia_p2p accepts. */
struct gpu_mem {
	int fd;
	uint32_t handle;
	uint64_t len, id, bar, offset;
	unsigned char *p;
};

/* Skips the test where there is none. */
int gpu_open(void);
struct strait_vgpu_info gpu_info(int fd);
struct strait_vgpu_counters gpu_counters(int fd);
/* Returns 0 or -errno. */
int gpu_call(int fd, unsigned long cmd, void *arg);
int gpu_try_alloc(int fd, uint32_t kind, uint64_t len, struct gpu_mem *m);
struct gpu_mem gpu_alloc(int fd, uint32_t kind, uint64_t len);
void gpu_map(struct gpu_mem *m);
void gpu_unmap(struct gpu_mem *m);
int gpu_free(const struct gpu_mem *m);
/* Maps it at a multiple of 64 KiB. Returns MAP_FAILED and sets errno on failure. */
void *gpu_mmap(int fd, size_t len, int prot, int flags, uint64_t offset);
int gpu_query(int fd, const void *p, struct strait_vgpu_query *q);
int gpu_dmabuf(const struct gpu_mem *m, uint64_t off, uint64_t len);
/* All free bytes; waits until nothing drains any more. */
uint64_t gpu_free_bytes(int fd, uint32_t kind);
/* Waits until everything is free again. */
void gpu_expect_free(int fd, const uint64_t want[STRAIT_VGPU_MEM_KINDS]);
void gpu_all_free(int fd, uint64_t free[STRAIT_VGPU_MEM_KINDS]);

void fill(void *p, size_t len, uint64_t seed);
bool filled(const void *p, size_t len, uint64_t seed);
bool all_zero(const void *p, size_t len);
/* How many bytes from @off, at most @most, are contiguous in the BAR, and where. For mapped memory. */
uint64_t gpu_run(const struct gpu_mem *m, uint64_t off, uint64_t most, uint64_t *bar);
/* The number of contiguous pieces. */
unsigned int gpu_runs(const struct gpu_mem *m);
/* Sets a parameter of the driver until the program ends. */
void gpu_set(const char *parameter, unsigned int value);
/* The memory as the machine's host reads it. */
void expect_outside(const struct gpu_mem *m, uint64_t off, size_t len);

/* Race windows: NAME of the driver's (docs/vgpu.md), MODULE:NAME of another module's (kernel/window.h). */
void window_open(const char *name, unsigned int ms);
void window_close(const char *name);
unsigned int window_met(const char *name);
unsigned int window_entered(const char *name);
/* The number of threads in it now. */
unsigned int window_inside(const char *name);
/* Waits until there is one. */
void window_await(const char *name);
/* Makes the nth fallible call (kernel/test/inject.c) of a module for this process fail, counted from 1; 0: none. */
void inject_nth(const char *module, unsigned int n);
/* Has a failure set by inject_nth() not been reached? */
bool inject_left(const char *module);
/* The same for the driver. */
void fail_nth(unsigned int n);
bool fail_left(void);

void sleep_ms(unsigned int ms);
uint64_t now_ms(void);
/* A module of the tree. */
void load_module(const char *name);
int write_text(const char *path, const char *text);
int read_text(const char *path, char *text, size_t len);
/* Has the kernel logged that since the last mark? */
void log_mark(void);
bool log_has(const char *text);
/* Starts a function in a child process; its return value is the exit status. */
pid_t start(int (*fn)(void *arg), void *arg);
int wait_for(pid_t pid);
/* The device's folder in sysfs. */
void gpu_sysfs(char *path, size_t len);

#endif
