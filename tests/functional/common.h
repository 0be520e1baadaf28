/* SPDX-License-Identifier: MIT */
#ifndef FUNCTIONAL_COMMON_H
#define FUNCTIONAL_COMMON_H

/* Helpers for tests of the whole library. They end the test on failure. */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <strait/emu.h>
#include <strait/strait.h>

#include "base/util.h"
#include "device/emu/emu.h"
#include "harness/harness.h"
#include "os/os.h"

#define ROUTE(r) STRAIT_ROUTE_MASK(STRAIT_ROUTE_##r)

/* A configuration that the same test is run over. */
struct mode {
	const char *name;
	const char *device;
	uint32_t routes;
	uint32_t file;	  /* STRAIT_FILE_* */
	uint32_t context; /* STRAIT_CONTEXT_* */
};

/* clang-format off */
#define READ_MODES                                                                                                     \
	{ "emu-any", "emu:0", 0, 0, 0 },                                                                               \
	{ "emu-staged", "emu:0", ROUTE(STAGED), 0, 0 },                                                                \
	{ "emu-pagecache", "emu:0", ROUTE(PAGECACHE), 0, 0 },                                                          \
	{ "emu-direct", "emu:0", 0, STRAIT_FILE_DIRECT, 0 },                                                           \
	{ "emu-direct-threads", "emu:0", 0, STRAIT_FILE_DIRECT, STRAIT_CONTEXT_NO_URING },                             \
	{ "emu-buffered", "emu:0", ROUTE(STAGED), STRAIT_FILE_BUFFERED, 0 },                                           \
	{ "emu-immutable", "emu:0", 0, STRAIT_FILE_IMMUTABLE, 0 },                                                     \
	{ "host", "host", 0, 0, 0 },                                                                                   \
	{ "host-direct", "host", ROUTE(HOST), STRAIT_FILE_DIRECT, 0 },                                                 \
	{ "host-buffered", "host", 0, STRAIT_FILE_BUFFERED, 0 }

#define WRITE_MODES                                                                                                    \
	{ "emu", "emu:0", 0, 0, 0 },                                                                                   \
	{ "emu-direct", "emu:0", ROUTE(STAGED), STRAIT_FILE_DIRECT, 0 },                                               \
	{ "emu-direct-threads", "emu:0", 0, STRAIT_FILE_DIRECT, STRAIT_CONTEXT_NO_URING },                             \
	{ "host", "host", 0, 0, 0 },                                                                                   \
	{ "host-direct", "host", ROUTE(HOST), STRAIT_FILE_DIRECT, 0 }
/* clang-format on */

/* The bytes [off, off + len) of an endless sequence that depends on @seed only. */
void pattern(void *buf, uint64_t off, size_t len, uint64_t seed);
void *pattern_new(uint64_t off, size_t len, uint64_t seed);

/* A shared library of this build: its path, opened, and a pointer to a function of it. */
const char *built_library(const char *name);
void *open_library(const char *name);
#define LOAD(lib, name) __typeof__(name) *name##_p = (__typeof__(name) *)dlsym(lib, #name)

/* A file in the test's directory that holds the pattern. Returns its path, as test_path() does. */
const char *make_file(const char *name, uint64_t len, uint64_t seed);
void write_at(const char *path, const void *buf, size_t len, uint64_t off);
void read_at(const char *path, void *buf, size_t len, uint64_t off);
uint64_t file_length(const char *path);
void file_expect(const char *path, uint64_t off, const void *want, size_t len);
/* Evict [off, off + len) from the page cache; len 0: to the end. False where that does not work. */
bool evict(const char *path, uint64_t off, uint64_t len);
void warm(const char *path);
uint64_t cached(const char *path, uint64_t off, uint64_t len);

struct strait_context *context_new(const struct strait_context_opts *opts);
struct strait_context *context_for(const struct mode *m);
/*
 * With STRAIT_TEST_DEVICE in the environment, "emu:0" means that device. A test that uses the emulated device's own
 * interface fails then: restrict it by where_emulated().
 */
const char *device_under_test(void);
void emulated_only(void);
/*
 * For TEST_WHERE(): only on the emulated device; not with a GPU's driver; and of variants that are a struct mode, those
 * on host memory only beside the emulated device.
 */
bool where_emulated(const void *v);
bool where_not_cuda(const void *v);
bool where_host_once(const void *v);
/* The test runs on a GPU's driver, whose processes, threads and files are not under control of the test. */
bool on_cuda(void);
#define strait_emu_set_model(...) (emulated_only(), strait_emu_set_model(__VA_ARGS__))
#define strait_emu_malloc(...) (emulated_only(), strait_emu_malloc(__VA_ARGS__))
#define strait_emu_remove(...) (emulated_only(), strait_emu_remove(__VA_ARGS__))
#define emu_inject_copy_error(...) (emulated_only(), emu_inject_copy_error(__VA_ARGS__))
struct strait_device *device_named(struct strait_context *ctx, const char *name);
struct strait_region *region_new(struct strait_device *dev, size_t len);
struct strait_endpoint *file_new(struct strait_context *ctx, const char *path, int oflags, uint32_t flags);
/* @entries: 0 for the default. */
struct strait_queue *queue_new(struct strait_context *ctx, uint32_t entries);
struct strait_file_info file_info(struct strait_endpoint *ep);
struct strait_stats stats_of(struct strait_context *ctx);

void region_put_bytes(struct strait_region *r, uint64_t off, const void *buf, size_t len);
void region_expect(struct strait_region *r, uint64_t off, const void *want, size_t len);
void region_expect_byte(struct strait_region *r, uint64_t off, uint8_t value, size_t len);

/* Runs one transfer and waits for it; the status is in the result. */
struct strait_result move(uint32_t op, uint32_t routes, struct strait_endpoint *ep, uint64_t ep_off,
			  struct strait_region *r, uint64_t off, uint64_t len);

/* The number of threads of this process. */
unsigned int threads_now(void);
/* A value of /proc/self/status in bytes: "VmRSS", "VmLck". */
uint64_t status_bytes(const char *key);
unsigned int descriptors_now(void);

void thread_start(pthread_t *t, void *(*fn)(void *), void *arg);
void thread_join(pthread_t t);
void sleep_ms(unsigned int ms);

/* Runs @fn in a child process, which must exit with status 0. */
void in_child(void (*fn)(void *arg), void *arg);
/* Starts a child process; child_wait() returns its wait status. */
pid_t child_start(void (*fn)(void *arg), void *arg);
int child_wait(pid_t pid);

/* Makes the @nth call from now (1 is the next) and @more after it return @ret; see os_inject. */
void inject(enum os_call call, unsigned int nth, unsigned int more, int64_t ret);
void inject_off(void);
/* The number of calls since inject(). */
unsigned int inject_calls(void);

/* Moves the process to a mount namespace of its own, or skips the test where that is not allowed. */
void private_mounts(void);
/*
 * A loop device with sectors of @sector bytes on an image file of @bytes, removed with the process, or skips the test.
 */
void loop_device(const char *image, uint64_t bytes, uint32_t sector, char *path, size_t len);
/* Creates and mounts a file system "ext4", "xfs", "tmpfs" or "overlay" of about @bytes. Returns the folder. */
const char *mount_new(const char *fs, uint64_t bytes);

#endif
