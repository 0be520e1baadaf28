/* SPDX-License-Identifier: MIT */
#include "harness/harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXIT_FAILED 1
#define EXIT_SKIPPED 77
#define OUTPUT_SHOWN (64 << 10) /* bytes of a failing test's output, its last ones */
#define STRAGGLER_MS 500	/* how long after a test its processes may take to end */

struct test {
	char name[160];
	test_fn *fn;
	const void *arg;
	unsigned int seconds;
};

static struct test *tests;
static size_t n_tests;

/* Conditions of TEST_WHERE. */
static struct where {
	const char *name;
	test_cond *cond;
} * wheres;
static size_t n_wheres;
static test_missing *missing;

/* Written by the child, read by its parent. */
struct shared {
	bool done; /* the test's function returned */
	char skip[512];
};

static struct shared *shared;

static char root[PATH_MAX]; /* where the directories of the tests are made */
static char dir[PATH_MAX + 32];
static sigset_t waited;

void test_register(const char *name, const char *variant, test_fn *fn, const void *arg, unsigned int seconds)
{
	struct test *t;

	tests = realloc(tests, (n_tests + 1) * sizeof(*tests));
	if (!tests)
		abort();
	t = &tests[n_tests++];
	snprintf(t->name, sizeof(t->name), "%s%s%s", name, variant ? "/" : "", variant ? variant : "");
	t->fn = fn;
	t->arg = arg;
	t->seconds = seconds;
}

void test_where(const char *name, test_cond *cond)
{
	wheres = realloc(wheres, (n_wheres + 1) * sizeof(*wheres));
	if (!wheres)
		abort();
	wheres[n_wheres++] = (struct where){ name, cond };
}

void test_program_needs(test_missing *fn)
{
	missing = fn;
}

#define PRNG_STEP 0x9e3779b97f4a7c15u

static inline uint64_t prng_mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

uint64_t prng_next(uint64_t *state)
{
	return prng_mix(*state += PRNG_STEP);
}

uint64_t prng_below(uint64_t *state, uint64_t n)
{
	return prng_next(state) % n;
}

/* Not instrumented for ThreadSanitizer, for speed: the buffer belongs to the caller. */
__attribute__((no_sanitize("thread"))) static void prng_words(uint64_t *words, size_t n, uint64_t *state)
{
	for (size_t i = 0; i < n; i++)
		words[i] = prng_mix(*state += PRNG_STEP);
}

void prng_fill(void *buf, size_t len, uint64_t seed)
{
	uint64_t words[512];
	unsigned char *p = buf;

	for (size_t n; len; p += n, len -= n) {
		n = len < sizeof(words) ? len : sizeof(words);
		prng_words(words, (n + 7) / 8, &seed);
		memcpy(p, words, n);
	}
}

unsigned int test_slow(void)
{
	const char *env = getenv("HARNESS_SLOW");
	int n = env ? atoi(env) : 1;

	return n > 1 ? (unsigned int)n : 1;
}

void test_fail(const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fprintf(stderr, "%s:%d: ", file, line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	fflush(stderr);
	/* Other threads may still run: no exit handlers, no search for leaks. */
	_exit(EXIT_FAILED);
}

void test_skip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(shared->skip, sizeof(shared->skip), fmt, ap);
	va_end(ap);
	_exit(EXIT_SKIPPED);
}

const char *test_dir(void)
{
	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		test_fail(__FILE__, __LINE__, "mkdir(%s): %s", dir, strerror(errno));
	return dir;
}

const char *test_path(const char *name)
{
	static _Thread_local char paths[4][PATH_MAX + 256];
	static _Thread_local unsigned int next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", test_dir(), name);
	return path;
}

/* On a disk rather than tmpfs, so that direct I/O is tested. */
static int make_root(void)
{
	const char *places[] = { getenv("TMPDIR"), "/var/tmp", "/tmp" };

	for (size_t i = 0; i < 3; i++) {
		if (!places[i] || !*places[i])
			continue;
		snprintf(root, sizeof(root), "%s/strait-test.XXXXXX", places[i]);
		if (mkdtemp(root))
			return 0;
	}
	return -errno;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)ftw;
	if (type == FTW_D || type == FTW_DNR)
		chmod(path, 0700);
	remove(path);
	return 0;
}

static void remove_tree(const char *path)
{
	/* FTW_MOUNT: what a test left mounted is not emptied. */
	nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* SIGKILL to every child of this process: processes that a test left behind, in any process group. */
static void kill_orphans(void)
{
	DIR *proc = opendir("/proc");
	struct dirent *e;

	while (proc && (e = readdir(proc))) {
		char path[300], line[512], *paren;
		int pid = atoi(e->d_name), ppid;
		FILE *f;

		if (pid <= 0)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/stat", pid);
		f = fopen(path, "re");
		if (!f)
			continue;
		if (fgets(line, sizeof(line), f) && (paren = strrchr(line, ')')) &&
		    sscanf(paren + 1, " %*c %d", &ppid) == 1 && ppid == getpid())
			kill(pid, SIGKILL);
		fclose(f);
	}
	if (proc)
		closedir(proc);
}

/*
 * After the test's own process is gone: its orphans are this process's children. They have
 * STRAGGLER_MS to end. True if one had to be killed.
 */
static bool reap_orphans(pid_t group)
{
	int64_t grace = now_ms() + STRAGGLER_MS * (int64_t)test_slow();
	int64_t end = grace + 10000;
	bool left = false;

	for (;;) {
		pid_t pid = waitpid(-1, NULL, WNOHANG);
		struct timespec tick = { 0, 2000000 };

		if (pid < 0)
			return left;
		if (pid > 0)
			continue;
		if (now_ms() > grace) {
			left = true;
			kill(-group, SIGKILL);
			kill_orphans();
			if (now_ms() > end)
				return left;
		}
		nanosleep(&tick, NULL);
	}
}

static void child_main(const struct test *t, int output)
{
	sigset_t none;

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(output, STDOUT_FILENO);
	dup2(output, STDERR_FILENO);
	close(output);
	output = open("/dev/null", O_RDONLY);
	if (output > 0) {
		dup2(output, STDIN_FILENO);
		close(output);
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	t->fn(t->arg);
	shared->done = true;
	/* Exit handlers run: sanitizers look for leaks in one of them. */
	exit(0);
}

static void show_output(int fd)
{
	off_t size = lseek(fd, 0, SEEK_END), at = 0;
	bool fresh = true;
	char buf[4096];
	ssize_t n;

	if (size > OUTPUT_SHOWN) {
		at = size - OUTPUT_SHOWN;
		printf("# (%lld bytes of output before this are not shown)\n", (long long)at);
	}
	while ((n = pread(fd, buf, sizeof(buf), at)) > 0) {
		for (ssize_t i = 0; i < n; i++) {
			if (fresh)
				fputs("# ", stdout);
			fresh = buf[i] == '\n';
			putchar(buf[i]);
		}
		at += n;
	}
	if (!fresh)
		putchar('\n');
}

/* End the program for a signal: kill the tests and remove their directories. */
static void interrupted(pid_t child, int sig)
{
	kill(-child, SIGKILL);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	reap_orphans(child);
	remove_tree(root);
	printf("Bail out! %s\n", strsignal(sig));
	fflush(stdout);
	_exit(128 + sig);
}

/* Wait for @child until its deadline: true when it ended by itself. */
static bool wait_child(pid_t child, int64_t deadline, int *status)
{
	for (;;) {
		int64_t left = deadline - now_ms();
		struct timespec ts;
		int sig;

		if (waitpid(child, status, WNOHANG) == child)
			return true;
		if (left <= 0) {
			kill(-child, SIGKILL);
			kill(child, SIGKILL);
			while (waitpid(child, status, 0) < 0 && errno == EINTR)
				;
			return false;
		}
		ts.tv_sec = left / 1000;
		ts.tv_nsec = (left % 1000) * 1000000;
		sig = sigtimedwait(&waited, NULL, &ts);
		if (sig > 0 && sig != SIGCHLD)
			interrupted(child, sig);
	}
}

/* True unless the test failed. */
static bool run_test(const struct test *t, size_t number)
{
	unsigned int seconds = t->seconds * test_slow();
	bool in_time, left, good;
	int output, status = 0;
	char why[160] = "";
	pid_t child;

	memset(shared, 0, sizeof(*shared));
	snprintf(dir, sizeof(dir), "%s/%zu", root, number);
	output = memfd_create("output", MFD_CLOEXEC);
	fflush(stdout);
	fflush(stderr);
	child = output < 0 ? -1 : fork();
	if (child < 0) {
		printf("not ok %zu - %s\n# cannot start: %s\n", number, t->name, strerror(errno));
		return false;
	}
	if (!child)
		child_main(t, output);
	setpgid(child, child);

	in_time = wait_child(child, now_ms() + (int64_t)seconds * 1000, &status);
	left = reap_orphans(child);

	if (!in_time)
		snprintf(why, sizeof(why), "killed after %u s", seconds);
	else if (WIFSIGNALED(status))
		snprintf(why, sizeof(why), "died of signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status) == 0 && !shared->done)
		snprintf(why, sizeof(why), "exited before its end");
	else if (WEXITSTATUS(status) == 0 && left)
		snprintf(why, sizeof(why), "left a process behind");
	else if (WEXITSTATUS(status) != 0 && shared->done)
		snprintf(why, sizeof(why), "exit status %d after its end, where leaks are looked for",
			 WEXITSTATUS(status));
	else if (WEXITSTATUS(status) == EXIT_SKIPPED && shared->skip[0])
		why[0] = '\0';
	else if (WEXITSTATUS(status) != 0)
		snprintf(why, sizeof(why), "exit status %d", WEXITSTATUS(status));

	good = !why[0];
	printf("%sok %zu - %s", good ? "" : "not ", number, t->name);
	if (good && shared->skip[0])
		printf(" # SKIP %s", shared->skip);
	putchar('\n');
	if (!good) {
		show_output(output);
		printf("# %s\n", why);
	}
	fflush(stdout);
	close(output);
	remove_tree(dir);
	return good;
}

static bool matches(const char *pattern, const char *name)
{
	size_t n = strlen(pattern);

	return !fnmatch(pattern, name, 0) || (!strncmp(pattern, name, n) && name[n] == '/');
}

/* Is the test, or variant, not left out by TEST_WHERE? */
static bool exists(const struct test *t)
{
	for (size_t i = 0; i < n_wheres; i++) {
		size_t n = strlen(wheres[i].name);

		if (!strncmp(wheres[i].name, t->name, n) && (!t->name[n] || t->name[n] == '/') &&
		    !wheres[i].cond(t->arg))
			return false;
	}
	return true;
}

/* Keep the tests that one of the patterns names; all of them without patterns. */
static void select_tests(char **patterns, int n)
{
	size_t reg_window = 0;

	for (size_t i = 0; i < n_tests; i++) {
		bool keep = n == 0;

		for (int j = 0; j < n && !keep; j++)
			keep = matches(patterns[j], tests[i].name);
		keep = keep && exists(&tests[i]);
		if (keep)
			tests[reg_window++] = tests[i];
	}
	n_tests = reg_window;
}

/* In a child, because the check may open a driver that cannot be used after fork(). */
static const char *program_misses(void)
{
	int status;
	pid_t child;

	if (!missing || !n_tests)
		return NULL;
	child = fork();
	if (child < 0)
		return NULL;
	if (!child) {
		missing(shared->skip, sizeof(shared->skip));
		_exit(0);
	}
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	/* If the child died, the tests run and show why. */
	return WIFEXITED(status) && !WEXITSTATUS(status) && shared->skip[0] ? shared->skip : NULL;
}

int main(int argc, char **argv)
{
	bool list = argc > 1 && !strcmp(argv[1], "--list");
	size_t failed = 0;

	if (argc > 1 && argv[1][0] == '-' && !list) {
		fprintf(stderr, "usage: %s [--list] [PATTERN...]\n", argv[0]);
		return 2;
	}
	select_tests(argv + 1 + list, argc - 1 - list);
	if (list) {
		for (size_t i = 0; i < n_tests; i++)
			puts(tests[i].name);
		return 0;
	}

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED || make_root() < 0) {
		printf("1..%zu\nBail out! %s\n", n_tests, strerror(errno));
		return 1;
	}
	if (program_misses()) {
		printf("1..0 # SKIP %s\n", shared->skip);
		remove_tree(root);
		return 0;
	}
	/* Orphans of tests become children of this process, which kills them. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	sigemptyset(&waited);
	sigaddset(&waited, SIGCHLD);
	sigaddset(&waited, SIGINT);
	sigaddset(&waited, SIGTERM);
	sigaddset(&waited, SIGHUP);
	sigprocmask(SIG_BLOCK, &waited, NULL);
	/* When the reader of the output is gone, the run ends after the current test. */
	signal(SIGPIPE, SIG_IGN);

	printf("1..%zu\n", n_tests);
	fflush(stdout);
	for (size_t i = 0; i < n_tests && !ferror(stdout); i++)
		failed += !run_test(&tests[i], i + 1);
	remove_tree(root);
	free(tests);
	free(wheres);
	return failed || ferror(stdout) ? 1 : 0;
}
