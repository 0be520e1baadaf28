/* SPDX-License-Identifier: MIT */
/*
 * Runs a program with Strait's libcufile in place of any other, and prints afterwards what was transferred through it. The
 * processes count in a file that all of them map: cufile/include/run_stats.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <run_stats.h>
#include <strait/route.h>

#include "lib/args.h"
#include "lib/cli.h"
#include "lib/install_path.h"
#include "lib/json.h"
#include "lib/size.h"

#define AUDIT "libstrait-run.so"
#define LIBRARY "libcufile.so.0"
#define SETTINGS "cufile.json"

enum { EXIT_CANNOT_START = 126, EXIT_NOT_FOUND = 127 };

struct run {
	const char *library; /* libcufile.so.0 */
	bool preload;	     /* use LD_PRELOAD instead of LD_AUDIT */
	bool quiet;
	bool no_python;			   /* leave Python programs as they are */
	bool kvikio_mode, kvikio_settings; /* environment variables set for KvikIO */
	char file[PATH_MAX];		   /* of struct run_stats */
	struct run_stats *stats;
};

extern char **environ;

/* Prepend @value to a colon-separated list in the environment. */
static void env_prepend(const char *name, const char *value)
{
	const char *old = getenv(name);
	char *list = old && *old ? xasprintf("%s:%s", value, old) : xstrdup(value);

	setenv(name, list, 1);
	free(list);
}

static int find_library(struct run *r)
{
	const char *hint = "see: strait help run";

	r->library = r->library ? realpath(r->library, NULL) : install_path_find(LIBRARY);
	if (!r->library)
		return fail(CLI_FAILED, hint, "cannot find Strait's " LIBRARY ": give its path with --library");
	/* LD_PRELOAD and LD_AUDIT are lists separated by colons and blanks. */
	if (strpbrk(r->library, ": \t\n"))
		return fail(CLI_FAILED, hint, "%s: the dynamic linker accepts no path with a colon or blank",
			    r->library);
	return CLI_OK;
}

static int set_environment(struct run *r)
{
	char *audit = r->preload ? NULL : install_path_find(AUDIT);
	int code = find_library(r);

	if (!code && !r->preload && (!audit || strpbrk(audit, ": \t\n"))) {
		note(AUDIT
		     " is not installed beside strait: a libcufile that the program opens by its path is not replaced");
		r->preload = true;
	}
	if (!code && r->preload) {
		env_prepend("LD_PRELOAD", r->library);
	} else if (!code) {
		setenv("STRAIT_CUFILE_LIBRARY", r->library, 1);
		env_prepend("LD_AUDIT", audit);
	}
	free(audit);
	return code;
}

/*
 * KvikIO looks for udev before it calls cuFile, and for a settings file before it calls the stream functions; this
 * library needs neither. What the user has set stands.
 */
static void set_for_kvikio(struct run *r)
{
	char *settings = access("/etc/" SETTINGS, R_OK) ? install_path_find(SETTINGS) : NULL;

	r->kvikio_mode = access("/run/udev", R_OK) && !getenv("KVIKIO_COMPAT_MODE");
	if (r->kvikio_mode)
		setenv("KVIKIO_COMPAT_MODE", "OFF", 1);
	r->kvikio_settings = settings && !getenv("CUFILE_ENV_PATH_JSON");
	if (r->kvikio_settings)
		setenv("CUFILE_ENV_PATH_JSON", settings, 1);
	free(settings);
}

/*
 * Python programs import strait.patch through a sitecustomize module, which replaces functions of safetensors when that is
 * imported. What the user has set stands.
 */
static void set_for_python(const struct run *r)
{
	/* In a wheel, installed with a prefix, as a package of Debian, and in the build tree. */
	static const char *const places[] = { "../../_site/sitecustomize.py",
					      "../share/strait/python/strait/_site/sitecustomize.py",
					      "../lib/python3/dist-packages/strait/_site/sitecustomize.py",
					      "../python/strait/_site/sitecustomize.py" };
	char *found = NULL;

	if (r->no_python || getenv("STRAIT_PATCH"))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(places) && !found; i++)
		found = install_path_find(places[i]);
	if (!found)
		return;
	*strrchr(found, '/') = 0;
	if (!strchr(found, ':')) {
		setenv("STRAIT_PATCH", r->quiet ? "1" : "summary", 1);
		env_prepend("PYTHONPATH", found);
	}
	free(found);
}

/* Without this file the program runs all the same, without a summary. */
static void map_run_stats(struct run *r)
{
	static const char *const folders[] = { "/dev/shm", "/tmp", "/var/tmp" };
	int fd = -1;

	for (size_t i = 0; i < ARRAY_SIZE(folders) && fd < 0; i++) {
		snprintf(r->file, sizeof(r->file), "%s/strait-run.XXXXXX", folders[i]);
		fd = mkostemp(r->file, O_CLOEXEC);
	}
	if (fd < 0) {
		note("no summary: cannot create a file in /dev/shm, /tmp or /var/tmp: %s", strerror(errno));
		return;
	}
	if (!ftruncate(fd, RUN_STATS_BYTES))
		r->stats = mmap(NULL, RUN_STATS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (!r->stats || r->stats == MAP_FAILED) {
		r->stats = NULL;
		unlink(r->file);
		return;
	}
	r->stats->magic = RUN_STATS_MAGIC;
	setenv(RUN_STATS_ENV, r->file, 1);
}

/* Add up the counters of all processes. Returns the number of processes. */
static unsigned int add_up(const struct run_stats *t, struct run_stats_process *sum)
{
	unsigned int n = atomic_load(&t->used), places = n < RUN_STATS_SLOTS ? n : (unsigned int)RUN_STATS_SLOTS;

	memset(sum, 0, sizeof(*sum));
	for (unsigned int i = 0; i < places; i++) {
		const struct run_stats_process *p = &t->process[i];

		for (int op = 0; op < 2; op++) {
			sum->transfers[op] += p->transfers[op];
			for (int route = 0; route < RUN_STATS_ROUTES; route++)
				sum->bytes[op][route] += p->bytes[op][route];
		}
		sum->failed += p->failed;
	}
	return n;
}

static void print_bytes(const _Atomic uint64_t *bytes, const char *what)
{
	char text[SIZE_TEXT];
	uint64_t all = 0;
	bool some = false;

	for (int i = 0; i < RUN_STATS_ROUTES; i++)
		all += bytes[i];
	fprintf(stderr, "%s %s", size_format(all, text), what);
	for (int i = 0; i < RUN_STATS_ROUTES; i++)
		if (bytes[i]) {
			fprintf(stderr, "%s%s %s", some ? ", " : " (", strait_route_name(i),
				size_format(bytes[i], text));
			some = true;
		}
	fputs(some ? "), " : ", ", stderr);
}

static void print_kvikio(const struct run *r)
{
	if (!r->kvikio_mode && !r->kvikio_settings)
		return;
	fprintf(stderr, "strait run: set for KvikIO:%s%s%s\n", r->kvikio_mode ? " KVIKIO_COMPAT_MODE=OFF" : "",
		r->kvikio_settings ? " CUFILE_ENV_PATH_JSON=" : "",
		r->kvikio_settings ? getenv("CUFILE_ENV_PATH_JSON") : "");
}

static void print_json(const struct run *r, const struct run_stats_process *s, unsigned int n, int status)
{
	static const char *const names[] = { "read", "written" };
	struct json j;

	json_begin(&j, stderr);
	json_uint(&j, "processes", n);
	for (int op = 0; op < 2; op++) {
		json_object(&j, names[op]);
		json_uint(&j, "transfers", s->transfers[op]);
		json_object(&j, "bytes");
		for (int i = 0; i < RUN_STATS_ROUTES; i++)
			json_uint(&j, strait_route_name(i), s->bytes[op][i]);
		json_close(&j);
		json_close(&j);
	}
	json_uint(&j, "failed", s->failed);
	json_object(&j, "environment");
	if (r->kvikio_mode)
		json_string(&j, "KVIKIO_COMPAT_MODE", "OFF");
	if (r->kvikio_settings)
		json_string(&j, "CUFILE_ENV_PATH_JSON", getenv("CUFILE_ENV_PATH_JSON"));
	json_close(&j);
	if (WIFSIGNALED(status))
		json_int(&j, "signal", WTERMSIG(status));
	else
		json_int(&j, "exit", WEXITSTATUS(status));
	json_finish(&j);
}

static void print_summary(const struct run *r, int status)
{
	struct run_stats_process sum;
	unsigned int n;

	if (!r->stats || r->quiet)
		return;
	n = add_up(r->stats, &sum);
	if (cli.json) {
		print_json(r, &sum, n, status);
		return;
	}
	print_kvikio(r);
	if (!n) {
		fputs("strait run: no process used cuFile\n", stderr);
		return;
	}
	fputs("strait run: ", stderr);
	print_bytes(sum.bytes[0], "read");
	print_bytes(sum.bytes[1], "written");
	fprintf(stderr, "%llu transfers, %llu failed, %u process%s\n",
		(unsigned long long)(sum.transfers[0] + sum.transfers[1]), (unsigned long long)sum.failed, n,
		n == 1 ? "" : "es");
}

static const int passed_on[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH };

static void watched_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGCHLD);
	for (size_t i = 0; i < ARRAY_SIZE(passed_on); i++)
		sigaddset(set, passed_on[i]);
}

static int start(char **argv, const sigset_t *mask, pid_t *pid)
{
	posix_spawnattr_t attr;
	sigset_t defaults;
	int err;

	sigemptyset(&defaults);
	sigaddset(&defaults, SIGPIPE); /* this program ignores it */
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigmask(&attr, mask);
	posix_spawnattr_setsigdefault(&attr, &defaults);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	err = posix_spawnp(pid, argv[0], NULL, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
	return err;
}

/* Pass on signals sent to this process; those of the terminal reach the program directly. */
static int wait_for(pid_t pid, const sigset_t *set)
{
	siginfo_t info;
	int status;

	for (;;) {
		int sig = sigwaitinfo(set, &info);

		if (sig > 0 && sig != SIGCHLD && info.si_code != SI_KERNEL)
			kill(pid, sig);
		if (sig == SIGCHLD && waitpid(pid, &status, WNOHANG) == pid)
			return status;
	}
}

/* End with the exit status or the signal of the program. */
static int pass_status(int status)
{
	const struct rlimit no_core = { 0, 0 };
	sigset_t set;
	int sig;

	if (!WIFSIGNALED(status))
		return WEXITSTATUS(status);
	sig = WTERMSIG(status);
	setrlimit(RLIMIT_CORE, &no_core);
	signal(sig, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, sig);
	raise(sig);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	return 128 + sig;
}

static int run_program(struct run *r, char **argv)
{
	sigset_t set, old;
	int err, status;
	pid_t pid;

	watched_signals(&set);
	sigprocmask(SIG_BLOCK, &set, &old);
	err = start(argv, &old, &pid);
	if (err) {
		sigprocmask(SIG_SETMASK, &old, NULL);
		return fail(err == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_START, NULL, "%s: %s", argv[0], strerror(err));
	}
	status = wait_for(pid, &set);
	print_summary(r, status);
	if (r->stats)
		unlink(r->file);
	r->stats = NULL;
	return pass_status(status);
}

int cmd_run(int argc, char **argv)
{
	struct run r = { 0 };
	const struct opt opts[] = {
		{ "library", "PATH", OPT_TEXT, &r.library,
		  "libcufile.so.0 to use instead of the one installed with strait" },
		{ "preload", NULL, OPT_FLAG, &r.preload,
		  "use LD_PRELOAD instead of LD_AUDIT; a library opened by its path is then not replaced" },
		{ "no-python", NULL, OPT_FLAG, &r.no_python, "leave safetensors in Python programs as it is" },
		{ "quiet", NULL, OPT_FLAG, &r.quiet, "print no summary" },
		{ "json", NULL, OPT_FLAG, &cli.json, "print the summary as JSON, on stderr" },
	};
	const char *none[1];
	int at = 1, code, n;

	/* Our options end at "--", or at the first argument that is not an option. */
	while (at < argc && strcmp(argv[at], "--") && argv[at][0] == '-')
		at += !strcmp(argv[at], "--library") ? 2 : 1;
	if (at > argc)
		at = argc;
	n = args_parse(at, argv, opts, ARRAY_SIZE(opts), 0, 0, none);
	if (n < 0)
		return args_exit(n);
	if (at < argc && !strcmp(argv[at], "--"))
		at++;
	if (at >= argc)
		return fail(CLI_USAGE, "see: strait help run", "no program is given: strait run -- PROGRAM ...");
	code = set_environment(&r);
	if (code)
		return code;
	set_for_kvikio(&r);
	set_for_python(&r);
	map_run_stats(&r);
	code = run_program(&r, argv + at);
	if (r.stats)
		unlink(r.file);
	free((char *)(uintptr_t)r.library);
	return code;
}
