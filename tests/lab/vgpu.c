/* SPDX-License-Identifier: MIT */
#include "vgpu.h"

#include <sys/klog.h>

#include <time.h>

#include "base/crc32c.h"

int gpu_open(void)
{
	int fd = open("/dev/strait_vgpu0", O_RDWR | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT)
		SKIP("there is no /dev/strait_vgpu0");
	ASSERT_GE(fd, 0);
	return fd;
}

int gpu_call(int fd, unsigned long cmd, void *arg)
{
	return ioctl(fd, cmd, arg) ? -errno : 0;
}

struct strait_vgpu_info gpu_info(int fd)
{
	struct strait_vgpu_info info = { .size = sizeof(info) };

	ASSERT_OK(gpu_call(fd, STRAIT_VGPU_INFO, &info));
	return info;
}

struct strait_vgpu_counters gpu_counters(int fd)
{
	struct strait_vgpu_counters c = { .size = sizeof(c) };

	ASSERT_OK(gpu_call(fd, STRAIT_VGPU_COUNTERS, &c));
	return c;
}

int gpu_try_alloc(int fd, uint32_t kind, uint64_t len, struct gpu_mem *m)
{
	struct strait_vgpu_alloc a = { .size = sizeof(a), .kind = kind, .length = len };
	int rc = gpu_call(fd, STRAIT_VGPU_ALLOC, &a);

	if (!rc)
		*m = (struct gpu_mem){ .fd = fd,
				       .handle = a.handle,
				       .len = len,
				       .id = a.identity,
				       .bar = a.bar_offset,
				       .offset = a.mmap_offset };
	return rc;
}

struct gpu_mem gpu_alloc(int fd, uint32_t kind, uint64_t len)
{
	struct gpu_mem m;

	if (kind == PINNABLE && !(gpu_info(fd).caps & STRAIT_VGPU_CAP_PINNABLE))
		SKIP("the device has no pinnable memory");
	ASSERT_OK(gpu_try_alloc(fd, kind, len, &m));
	gpu_map(&m);
	return m;
}

void *gpu_mmap(int fd, size_t len, int prot, int flags, uint64_t offset)
{
	char *room = mmap(NULL, len + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *at;
	void *p;

	ASSERT_TRUE(room != MAP_FAILED);
	at = room + (align_up((uintptr_t)room, PAGE) - (uintptr_t)room);
	p = mmap(at, len, prot, flags | MAP_FIXED, fd, (off_t)offset);
	if (p == MAP_FAILED) {
		int err = errno;

		munmap(room, len + PAGE);
		errno = err;
	}
	return p;
}

void gpu_map(struct gpu_mem *m)
{
	m->p = gpu_mmap(m->fd, m->len, PROT_READ | PROT_WRITE, MAP_SHARED, m->offset);
	ASSERT_TRUE(m->p != MAP_FAILED);
}

void gpu_unmap(struct gpu_mem *m)
{
	ASSERT_EQ(munmap(m->p, m->len), 0);
	m->p = NULL;
}

int gpu_free(const struct gpu_mem *m)
{
	struct strait_vgpu_free f = { .size = sizeof(f), .handle = m->handle };

	return gpu_call(m->fd, STRAIT_VGPU_FREE, &f);
}

int gpu_query(int fd, const void *p, struct strait_vgpu_query *q)
{
	*q = (struct strait_vgpu_query){ .size = sizeof(*q), .address = (uintptr_t)p };
	return gpu_call(fd, STRAIT_VGPU_QUERY, q);
}

int gpu_dmabuf(const struct gpu_mem *m, uint64_t off, uint64_t len)
{
	struct strait_vgpu_dmabuf d = {
		.size = sizeof(d), .handle = m->handle, .fd_flags = O_CLOEXEC | O_RDWR, .offset = off, .length = len
	};
	int rc = gpu_call(m->fd, STRAIT_VGPU_DMABUF, &d);

	return rc ? rc : d.fd;
}

uint64_t gpu_free_bytes(int fd, uint32_t kind)
{
	for (int i = 0; i < 500 && gpu_counters(fd).draining_bytes; i++)
		sleep_ms(10);
	return gpu_info(fd).mem_free[kind];
}

void gpu_all_free(int fd, uint64_t free[STRAIT_VGPU_MEM_KINDS])
{
	for (uint32_t kind = 0; kind < STRAIT_VGPU_MEM_KINDS; kind++)
		free[kind] = gpu_free_bytes(fd, kind);
}

void gpu_expect_free(int fd, const uint64_t want[STRAIT_VGPU_MEM_KINDS])
{
	/* A process that was waited for may still be closing its files. */
	for (int i = 0; i < 300; i++) {
		if (gpu_free_bytes(fd, PLAIN) == want[PLAIN] && gpu_free_bytes(fd, PINNABLE) == want[PINNABLE])
			return;
		sleep_ms(10);
	}
	ASSERT_EQ(gpu_free_bytes(fd, PLAIN), want[PLAIN]);
	ASSERT_EQ(gpu_free_bytes(fd, PINNABLE), want[PINNABLE]);
}

static uint64_t word(uint64_t seed, uint64_t at)
{
	uint64_t z = (at + 1) * 0x9e3779b97f4a7c15u + seed;

	z = (z ^ (z >> 29)) * 0xbf58476d1ce4e5b9u;
	return z ^ (z >> 32);
}

void fill(void *p, size_t len, uint64_t seed)
{
	for (size_t i = 0; i < len / 8; i++)
		((volatile uint64_t *)p)[i] = word(seed, i);
}

bool filled(const void *p, size_t len, uint64_t seed)
{
	for (size_t i = 0; i < len / 8; i++)
		if (((const volatile uint64_t *)p)[i] != word(seed, i))
			return false;
	return true;
}

bool all_zero(const void *p, size_t len)
{
	for (size_t i = 0; i < len / 8; i++)
		if (((const volatile uint64_t *)p)[i])
			return false;
	return true;
}

/* Checks one contiguous run. */
static void expect_run(const void *p, uint64_t bar, size_t len)
{
	char cmd[128], line[64] = "", want[16];
	FILE *f;

	snprintf(cmd, sizeof(cmd), "/lab/bin/host bar %llu %zu crc32c", (unsigned long long)bar, len);
	f = popen(cmd, "r");
	ASSERT_TRUE(f);
	ASSERT_TRUE(fgets(line, sizeof(line), f));
	ASSERT_EQ(pclose(f), 0);
	line[strcspn(line, "\n")] = '\0';
	snprintf(want, sizeof(want), "%08x", crc32c_update(0, p, len));
	ASSERT_STREQ(line, want);
}

uint64_t gpu_run(const struct gpu_mem *m, uint64_t off, uint64_t most, uint64_t *bar)
{
	struct strait_vgpu_query q;

	ASSERT_OK(gpu_query(m->fd, m->p + off, &q));
	*bar = q.bar_offset;
	return min_u64(q.bar_length, most);
}

void expect_outside(const struct gpu_mem *m, uint64_t off, size_t len)
{
	uint64_t n, bar;

	if (access("/lab/bin/host", X_OK))
		return;
	for (; len; off += n, len -= n) {
		n = gpu_run(m, off, len, &bar);
		expect_run(m->p + off, bar, n);
	}
}

unsigned int gpu_runs(const struct gpu_mem *m)
{
	unsigned int runs = 0;
	uint64_t bar;

	for (uint64_t off = 0; off < m->len; off += gpu_run(m, off, m->len - off, &bar))
		runs++;
	return runs;
}

void gpu_set(const char *parameter, unsigned int value)
{
	char path[128], text[16];

	snprintf(path, sizeof(path), "/sys/module/strait_vgpu/parameters/%s", parameter);
	snprintf(text, sizeof(text), "%u", value);
	ASSERT_OK(write_text(path, text));
}

int write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), rc = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		rc = -errno;
	close(fd);
	return rc;
}

int read_text(const char *path, char *text, size_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, text, len - 1);
	close(fd);
	if (n < 0)
		return -EIO;
	text[n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	return 0;
}

static void window_path(const char *name, const char *what, char *path, size_t len)
{
	const char *colon = strchr(name, ':');
	int module = colon ? (int)(colon - name) : 0;

	snprintf(path, len, "/sys/kernel/debug/%.*s/window/%s/%s", module ? module : (int)strlen("strait_vgpu"),
		 module ? name : "strait_vgpu", colon ? colon + 1 : name, what);
}

static void window_set(const char *name, const char *what, unsigned int value)
{
	char path[128], text[16];

	window_path(name, what, path, sizeof(path));
	snprintf(text, sizeof(text), "%u", value);
	ASSERT_OK(write_text(path, text));
}

static unsigned int window_get(const char *name, const char *what)
{
	char path[128], text[32];

	window_path(name, what, path, sizeof(path));
	ASSERT_OK(read_text(path, text, sizeof(text)));
	return (unsigned int)strtoul(text, NULL, 10);
}

void window_open(const char *name, unsigned int ms)
{
	window_set(name, "entered", 0);
	window_set(name, "met", 0);
	window_set(name, "ms", ms * test_slow());
}

void window_close(const char *name)
{
	window_set(name, "ms", 0);
}

unsigned int window_met(const char *name)
{
	return window_get(name, "met");
}

unsigned int window_inside(const char *name)
{
	return window_get(name, "inside");
}

void window_await(const char *name)
{
	for (int i = 0; i < 20000 && !window_inside(name); i++)
		sleep_ms(1);
	ASSERT_TRUE(window_inside(name));
}

unsigned int window_entered(const char *name)
{
	return window_get(name, "entered");
}

#define INJECT "/sys/kernel/debug/strait_inject/"

void inject_nth(const char *module, unsigned int n)
{
	char path[96], text[16];

	snprintf(path, sizeof(path), INJECT "%s", module);
	snprintf(text, sizeof(text), "%u", n);
	if (access(path, F_OK))
		load_module("strait_inject_test");
	ASSERT_OK(write_text(path, text));
}

bool inject_left(const char *module)
{
	char path[96], text[32];

	snprintf(path, sizeof(path), INJECT "%s", module);
	ASSERT_OK(read_text(path, text, sizeof(text)));
	return atoi(text) > 0;
}

void fail_nth(unsigned int n)
{
	inject_nth("strait_vgpu", n);
}

bool fail_left(void)
{
	return inject_left("strait_vgpu");
}

void sleep_ms(unsigned int ms)
{
	struct timespec ts = { ms / 1000, (long)(ms % 1000) * 1000000 };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

#define MARK "strait: a test begins"

void log_mark(void)
{
	ASSERT_OK(write_text("/dev/kmsg", MARK));
}

bool log_has(const char *text)
{
	int len = klogctl(10 /* SYSLOG_ACTION_SIZE_BUFFER */, NULL, 0);
	char *log, *at, *next;
	bool found;

	ASSERT_GT(len, 0);
	log = calloc(1, (size_t)len + 1);
	ASSERT_TRUE(log);
	ASSERT_GE(klogctl(3 /* SYSLOG_ACTION_READ_ALL */, log, len), 0);
	for (at = log; (next = strstr(at, MARK)); at = next + 1)
		;
	found = strstr(at, text);
	free(log);
	return found;
}

void load_module(const char *name)
{
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "modprobe %s", name);
	if (system(cmd))
		FAIL("the module %s does not load", name);
}

pid_t start(int (*fn)(void *arg), void *arg)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid)
		_exit(fn(arg));
	return pid;
}

int wait_for(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		ASSERT_EQ(errno, EINTR);
	return status;
}

void gpu_sysfs(char *path, size_t len)
{
	int fd = gpu_open();

	snprintf(path, len, "/sys/bus/pci/devices/%s", gpu_info(fd).pci);
	close(fd);
}
