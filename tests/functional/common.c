/* SPDX-License-Identifier: MIT */
#include "common.h"

#include <dirent.h>
#include <linux/loop.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <time.h>

const char *built_library(const char *name)
{
	static char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 64);

	ASSERT_GT(n, 0);
	path[n] = 0;
	/* The program is build/tests/x, the library build/y. */
	*strrchr(path, '/') = 0;
	snprintf(strrchr(path, '/'), 64, "/%s", name);
	return path;
}

void *open_library(const char *name)
{
	void *lib = dlopen(built_library(name), RTLD_NOW | RTLD_LOCAL);

	if (!lib)
		FAIL("%s", dlerror());
	return lib;
}

static inline uint64_t pattern_word(uint64_t index, uint64_t seed)
{
	uint64_t z = (index + 1) * 0x9e3779b97f4a7c15u + seed;

	z = (z ^ (z >> 29)) * 0xbf58476d1ce4e5b9u;
	return z ^ (z >> 32);
}

/* Not looked at by the instrumentation for threads, which would take most of the time of many a test. */
__attribute__((no_sanitize("thread"))) static void pattern_words(uint64_t *words, size_t n, uint64_t index,
								 uint64_t seed)
{
	for (size_t i = 0; i < n; i++)
		words[i] = pattern_word(index + i, seed);
}

void pattern(void *buf, uint64_t off, size_t len, uint64_t seed)
{
	unsigned char *p = buf;
	uint64_t words[512];

	if (!(off % 8) && !((uintptr_t)buf % 8)) {
		size_t whole = len / 8 * 8;

		pattern_words(buf, whole / 8, off / 8, seed);
		p += whole;
		off += whole;
		len -= whole;
	}
	while (len) {
		size_t skip = off % 8, n = min_u64(sizeof(words) - skip, len);

		pattern_words(words, (skip + n + 7) / 8, off / 8, seed);
		memcpy(p, (unsigned char *)words + skip, n);
		p += n;
		off += n;
		len -= n;
	}
}

void *pattern_new(uint64_t off, size_t len, uint64_t seed)
{
	void *buf = malloc(len ? len : 1);

	ASSERT_TRUE(buf);
	pattern(buf, off, len, seed);
	return buf;
}

/* What the test writes and reads itself is past the instrumentation again, which sees no system calls by number. */
void write_at(const char *path, const void *buf, size_t len, uint64_t off)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	ASSERT_GE(fd, 0);
	while (len) {
		ssize_t n = syscall(SYS_pwrite64, fd, buf, len, off);

		ASSERT_GT(n, 0);
		buf = (const char *)buf + n;
		len -= (size_t)n;
		off += (uint64_t)n;
	}
	close(fd);
}

void read_at(const char *path, void *buf, size_t len, uint64_t off)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	ASSERT_GE(fd, 0);
	while (len) {
		ssize_t n = syscall(SYS_pread64, fd, buf, len, off);

		ASSERT_GT(n, 0);
		buf = (char *)buf + n;
		len -= (size_t)n;
		off += (uint64_t)n;
	}
	close(fd);
}

const char *make_file(const char *name, uint64_t len, uint64_t seed)
{
	const char *path = test_path(name);
	size_t piece = min_u64(len, MIB(4));
	char *buf = malloc(piece ? piece : 1);

	ASSERT_TRUE(buf);
	unlink(path);
	write_at(path, "", 0, 0);
	for (uint64_t at = 0; at < len; at += piece) {
		size_t n = min_u64(len - at, piece);

		pattern(buf, at, n, seed);
		write_at(path, buf, n, at);
	}
	free(buf);
	return path;
}

uint64_t file_length(const char *path)
{
	struct stat st;

	ASSERT_EQ(stat(path, &st), 0);
	return (uint64_t)st.st_size;
}

/* Compared in pieces of so much: memory that is new each time is what costs most, and more so under instrumentation. */
#define PIECE MIB(1)

__attribute__((no_sanitize("thread"))) static bool same_words(const uint64_t *a, const uint64_t *b, size_t n)
{
	size_t i = 0;

	while (i < n && a[i] == b[i])
		i++;
	return i == n;
}

static bool same(const void *a, const void *b, size_t len)
{
	if (((uintptr_t)a | (uintptr_t)b | len) % 8)
		return !memcmp(a, b, len);
	return same_words(a, b, len / 8);
}

static void expect_piece(const void *have, const void *want, size_t at, size_t len)
{
	if (!same(have, want, len)) {
		fprintf(stderr, "in the piece that begins at %zu:\n", at);
		ASSERT_MEMEQ(have, want, len);
	}
}

void file_expect(const char *path, uint64_t off, const void *want, size_t len)
{
	char *buf = malloc(min_u64(max_u64(len, 1), PIECE));

	ASSERT_TRUE(buf);
	for (size_t at = 0, n; at < len; at += n) {
		n = min_u64(len - at, PIECE);
		read_at(path, buf, n, off + at);
		expect_piece(buf, (const char *)want + at, at, n);
	}
	free(buf);
}

uint64_t cached(const char *path, uint64_t off, uint64_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t bytes = 0;

	ASSERT_GE(fd, 0);
	ASSERT_OK(os_cached_bytes(fd, off, len, &bytes));
	close(fd);
	return bytes;
}

bool evict(const char *path, uint64_t off, uint64_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t left = 1;

	ASSERT_GE(fd, 0);
	/* Pages that belong to the range in part are left in by the kernel. */
	if (len)
		len = align_up(off + len, 4096) - align_down(off, 4096);
	else
		len = align_up(max_u64(file_length(path), off + 1), 4096) - align_down(off, 4096);
	off = align_down(off, 4096);
	/* Pages that are just being written back, or mapped by somebody, stay: ask again. */
	for (int i = 0; left && i < 4; i++) {
		fdatasync(fd);
		posix_fadvise(fd, (off_t)off, (off_t)len, POSIX_FADV_DONTNEED);
		ASSERT_OK(os_cached_bytes(fd, off, len, &left));
		if (left)
			sleep_ms(2);
	}
	close(fd);
	return !left;
}

void warm(const char *path)
{
	uint64_t len = file_length(path);
	void *buf = malloc(PIECE);

	ASSERT_TRUE(buf);
	for (uint64_t at = 0; at < len; at += PIECE)
		read_at(path, buf, min_u64(len - at, PIECE), at);
	free(buf);
}

struct strait_context *context_new(const struct strait_context_opts *opts)
{
	struct strait_context *ctx;

	ASSERT_OK(strait_context_open(opts, &ctx));
	return ctx;
}

struct strait_context *context_for(const struct mode *m)
{
	struct strait_context_opts opts = { .size = sizeof(opts), .flags = m->context };

	return context_new(&opts);
}

static const char *other_device(void)
{
	const char *name = getenv("STRAIT_TEST_DEVICE");

	return name && *name ? name : NULL;
}

const char *device_under_test(void)
{
	return other_device() ? other_device() : "emu:0";
}

void emulated_only(void)
{
	if (other_device())
		FAIL("tells the emulated device what to do, but this is %s: the test needs TEST_WHERE()",
		     other_device());
}

bool where_emulated(__attribute__((unused)) const void *v)
{
	return !other_device();
}

bool where_host_once(const void *v)
{
	const struct mode *m = v;

	return !other_device() || strcmp(m->device, "host") != 0;
}

bool on_cuda(void)
{
	return !strncmp(device_under_test(), "cuda", 4);
}

bool where_not_cuda(__attribute__((unused)) const void *v)
{
	return !on_cuda();
}

struct strait_device *device_named(struct strait_context *ctx, const char *name)
{
	struct strait_device *dev;

	if (other_device() && (!strcmp(name, "emu") || !strcmp(name, "emu:0")))
		name = other_device();
	else if (!strncmp(name, "emu:", 4))
		emulated_only();
	ASSERT_OK(strait_device_find(ctx, name, &dev));
	return dev;
}

struct strait_region *region_new(struct strait_device *dev, size_t len)
{
	struct strait_region *r;

	ASSERT_OK(strait_region_alloc(dev, len, &r));
	return r;
}

struct strait_endpoint *file_new(struct strait_context *ctx, const char *path, int oflags, uint32_t flags)
{
	struct strait_endpoint *ep;

	ASSERT_OK(strait_file_open(ctx, path, oflags, 0600, flags, &ep));
	return ep;
}

struct strait_queue *queue_new(struct strait_context *ctx, uint32_t entries)
{
	struct strait_queue_opts opts = { .size = sizeof(opts), .entries = entries };
	struct strait_queue *q;

	ASSERT_OK(strait_queue_open(ctx, entries ? &opts : NULL, &q));
	return q;
}

struct strait_file_info file_info(struct strait_endpoint *ep)
{
	struct strait_file_info info = { .size = sizeof(info) };

	ASSERT_OK(strait_file_info(ep, &info));
	return info;
}

struct strait_stats stats_of(struct strait_context *ctx)
{
	struct strait_stats s = { .size = sizeof(s) };

	ASSERT_OK(strait_stats_get(ctx, &s));
	return s;
}

void region_put_bytes(struct strait_region *r, uint64_t off, const void *buf, size_t len)
{
	ASSERT_OK(strait_region_copy_in(r, off, buf, len));
}

void region_expect(struct strait_region *r, uint64_t off, const void *want, size_t len)
{
	char *buf = malloc(min_u64(max_u64(len, 1), PIECE));

	ASSERT_TRUE(buf);
	for (size_t at = 0, n; at < len; at += n) {
		n = min_u64(len - at, PIECE);
		ASSERT_OK(strait_region_copy_out(r, off + at, buf, n));
		expect_piece(buf, (const char *)want + at, at, n);
	}
	free(buf);
}

__attribute__((no_sanitize("thread"))) static size_t first_other(const unsigned char *buf, uint8_t value, size_t n)
{
	size_t i = 0;

	while (i < n && buf[i] == value)
		i++;
	return i;
}

void region_expect_byte(struct strait_region *r, uint64_t off, uint8_t value, size_t len)
{
	unsigned char *buf = malloc(min_u64(max_u64(len, 1), PIECE));
	size_t i;

	ASSERT_TRUE(buf);
	for (size_t at = 0, n; at < len; at += n) {
		n = min_u64(len - at, PIECE);
		ASSERT_OK(strait_region_copy_out(r, off + at, buf, n));
		i = first_other(buf, value, n);
		if (i < n)
			FAIL("byte %zu of the region is 0x%02x, not 0x%02x", (size_t)off + at + i, buf[i], value);
	}
	free(buf);
}

struct strait_result move(uint32_t op, uint32_t routes, struct strait_endpoint *ep, uint64_t ep_off,
			  struct strait_region *r, uint64_t off, uint64_t len)
{
	struct strait_transfer t = { .op = op,
				     .routes = routes,
				     .endpoint = ep,
				     .region = r,
				     .endpoint_offset = ep_off,
				     .region_offset = off,
				     .length = len,
				     .user_data = 42 };
	struct strait_result res;
	int rc = strait_transfer_run(&t, STRAIT_FOREVER, &res);

	ASSERT_EQ(rc, res.status);
	ASSERT_EQ(res.user_data, 42);
	ASSERT_LE(res.bytes, len);
	return res;
}

static unsigned int count_entries(const char *path)
{
	DIR *dir = opendir(path);
	unsigned int n = 0;
	struct dirent *e;

	ASSERT_TRUE(dir);
	while ((e = readdir(dir)))
		n += e->d_name[0] != '.';
	closedir(dir);
	return n;
}

/* A thread that was joined stays in /proc for a moment longer: what is counted is what stays. */
unsigned int threads_now(void)
{
	unsigned int n = count_entries("/proc/self/task"), again;

	for (int quiet = 0; quiet < 5 && n > 1; quiet++) {
		sleep_ms(1);
		again = count_entries("/proc/self/task");
		if (again < n)
			quiet = 0;
		n = again;
	}
	return n;
}

unsigned int descriptors_now(void)
{
	return count_entries("/proc/self/fd") - 1; /* the directory's own */
}

uint64_t status_bytes(const char *key)
{
	FILE *f = fopen("/proc/self/status", "re");
	unsigned long long kib = 0;
	size_t n = strlen(key);
	char line[256];
	bool found = false;

	ASSERT_TRUE(f);
	while (!found && fgets(line, sizeof(line), f))
		if (!strncmp(line, key, n) && line[n] == ':')
			found = sscanf(line + n + 1, "%llu", &kib) == 1;
	fclose(f);
	ASSERT_TRUE(found);
	return KIB(kib);
}

void thread_start(pthread_t *t, void *(*fn)(void *), void *arg)
{
	ASSERT_EQ(pthread_create(t, NULL, fn, arg), 0);
}

void thread_join(pthread_t t)
{
	ASSERT_EQ(pthread_join(t, NULL), 0);
}

void sleep_ms(unsigned int ms)
{
	struct timespec ts = { ms / 1000, (long)(ms % 1000) * 1000000 };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

pid_t child_start(void (*fn)(void *arg), void *arg)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid) {
		fn(arg);
		/* The parent's exit handlers are the parent's. */
		fflush(NULL);
		_exit(0);
	}
	return pid;
}

int child_wait(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		ASSERT_EQ(errno, EINTR);
	return status;
}

void in_child(void (*fn)(void *arg), void *arg)
{
	int status = child_wait(child_start(fn, arg));

	if (WIFSIGNALED(status))
		FAIL("the child died of signal %d", WTERMSIG(status));
	ASSERT_EQ(WEXITSTATUS(status), 0);
}

static struct {
	enum os_call call;
	unsigned int nth, more;
	int64_t ret;
	atomic_uint calls;
} plan;

static bool planned(enum os_call call, int64_t *ret)
{
	unsigned int n;

	if (call != plan.call)
		return false;
	n = atomic_fetch_add_explicit(&plan.calls, 1, memory_order_relaxed) + 1;
	if (n < plan.nth || n - plan.nth > plan.more)
		return false;
	*ret = plan.ret;
	return true;
}

void inject(enum os_call call, unsigned int nth, unsigned int more, int64_t ret)
{
	plan.call = call;
	plan.nth = nth;
	plan.more = more;
	plan.ret = ret;
	atomic_store(&plan.calls, 0);
	os_inject = planned;
}

void inject_off(void)
{
	os_inject = NULL;
}

unsigned int inject_calls(void)
{
	return atomic_load(&plan.calls);
}

void private_mounts(void)
{
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		SKIP("a mount namespace of one's own is not allowed: %s", strerror(errno));
}

void loop_device(const char *image, uint64_t bytes, uint32_t sector, char *path, size_t len)
{
	struct loop_config config = { .block_size = sector,
				      .info = { .lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO } };
	int control, file, dev = -1;

	control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	if (control < 0)
		SKIP("/dev/loop-control: %s", strerror(errno));
	file = open(image, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ASSERT_GE(file, 0);
	if (file_length(image) < bytes)
		ASSERT_EQ(ftruncate(file, (off_t)bytes), 0);
	config.fd = (uint32_t)file;
	/* Another process may be faster than we are with a device that was free. */
	for (int i = 0; i < 100 && dev < 0; i++) {
		int n = ioctl(control, LOOP_CTL_GET_FREE);

		if (n < 0)
			SKIP("no free loop device: %s", strerror(errno));
		snprintf(path, len, "/dev/loop%d", n);
		dev = open(path, O_RDWR | O_CLOEXEC);
		if (dev < 0 && errno == ENOENT)
			SKIP("%s is not there", path);
		if (dev >= 0 && ioctl(dev, LOOP_CONFIGURE, &config)) {
			close(dev);
			dev = -1;
			sleep_ms(10);
		}
	}
	ASSERT_GE(dev, 0);
	close(file);
	close(control);
	/* @dev stays open: the device is cleared with its last descriptor, or mount. */
}

static void make_fs(const char *fs, const char *image)
{
	const char *options = !strcmp(fs, "ext4") ? "-q -F -O ^has_journal -E lazy_itable_init=0" : "-q -f";
	char cmd[4600];

	snprintf(cmd, sizeof(cmd),
		 "PATH=$PATH:/sbin:/usr/sbin; command -v mkfs.%s >/dev/null || exit 99; mkfs.%s %s '%s'", fs, fs,
		 options, image);
	switch (WEXITSTATUS(system(cmd))) {
	case 0:
		return;
	case 99:
		SKIP("mkfs.%s is not installed", fs);
	default:
		FAIL("mkfs.%s failed", fs);
	}
}

const char *mount_new(const char *fs, uint64_t bytes)
{
	const char *folder = test_path("mnt");
	char source[64] = "none", options[4 * 300 + 64] = "";

	private_mounts();
	mkdir(folder, 0755);
	if (!strcmp(fs, "tmpfs")) {
		snprintf(options, sizeof(options), "size=%llu", (unsigned long long)bytes);
	} else if (!strcmp(fs, "overlay")) {
		snprintf(options, sizeof(options), "lowerdir=%s,upperdir=%s,workdir=%s", test_path("lower"),
			 test_path("upper"), test_path("work"));
		mkdir(test_path("lower"), 0755);
		mkdir(test_path("upper"), 0755);
		mkdir(test_path("work"), 0755);
		folder = test_path("mnt");
	} else {
		const char *image = test_path("image");
		int fd = open(image, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

		ASSERT_GE(fd, 0);
		ASSERT_EQ(ftruncate(fd, (off_t)bytes), 0);
		close(fd);
		make_fs(fs, image);
		loop_device(image, bytes, 512, source, sizeof(source));
	}
	if (mount(source, folder, fs, 0, options)) {
		if (errno == EPERM || errno == ENODEV)
			SKIP("%s cannot be mounted: %s", fs, strerror(errno));
		FAIL("mount of %s: %s", fs, strerror(errno));
	}
	return folder;
}
