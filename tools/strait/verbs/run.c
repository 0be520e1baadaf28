/* SPDX-License-Identifier: MIT */
/*
 * Starts a program with Strait's libcufile in the place of any other, and tells afterwards what went through
 * it. The processes count in a file that all of them map: cufile/include/run_stats.h.
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
	bool preload;	     /* by LD_PRELOAD alone */
	bool quiet;
	bool kvikio_mode, kvikio_settings; /* set in the environment for KvikIO */
	char file[PATH_MAX];		   /* of struct run_stats */
	struct run_stats *stats;
};

extern char **environ;

/* Puts @value before what the list in the environment has already. */
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
		return fail(CLI_FAILED, hint, "cannot find Strait's " LIBRARY ": --library names it");
	/* The loader takes lists with colons and blanks in them. */
	if (strpbrk(r->library, ": \t\n"))
		return fail(CLI_FAILED, hint, "%s: the loader takes no path with a colon or a blank", r->library);
	return CLI_OK;
}

static int set_environment(struct run *r)
{
	char *audit = r->preload ? NULL : install_path_find(AUDIT);
	int code = find_library(r);

	if (!code && !r->preload && (!audit || strpbrk(audit, ": \t\n"))) {
		note(AUDIT " is not beside strait: a libcufile that is opened by its path is not replaced");
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

/* Without it the program runs all the same; only nothing can be told about it. */
static void map_run_stats(struct run *r)
{
	static const char *const folders[] = { "/dev/shm", "/tmp", "/var/tmp" };
	int fd = -1;

	for (size_t i = 0; i < ARRAY_SIZE(folders) && fd < 0; i++) {
		snprintf(r->file, sizeof(r->file), "%s/strait-run.XXXXXX", folders[i]);
		fd = mkostemp(r->file, O_CLOEXEC);
	}
	if (fd < 0) {
		note("no summary: cannot make a file to count in: %s", strerror(errno));
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

/* The sums over all processes, in the form of one. */
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
	fprintf(stderr, "strait run: for KvikIO, set%s%s%s\n", r->kvikio_mode ? " KVIKIO_COMPAT_MODE=OFF" : "",
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
		fputs("strait run: no process opened cuFile\n", stderr);
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

static void watched(sigset_t *set)
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

/* What is sent to this process is meant for the program; what a terminal sends, the program gets by itself. */
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

/* End as the program ended. */
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

	watched(&set);
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
		  "the libcufile.so.0 to use instead of the one that came along" },
		{ "preload", NULL, OPT_FLAG, &r.preload,
		  "by LD_PRELOAD instead of LD_AUDIT: not for libraries opened by their path" },
		{ "quiet", NULL, OPT_FLAG, &r.quiet, "no summary" },
		{ "json", NULL, OPT_FLAG, &cli.json, "the summary as JSON, on stderr" },
	};
	const char *none[1];
	int at = 1, code, n;

	/* Ours end where the program's begin: at "--", or at the first word that is no option. */
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
		return fail(CLI_USAGE, "see: strait help run", "which program? strait run -- PROGRAM ...");
	code = set_environment(&r);
	if (code)
		return code;
	set_for_kvikio(&r);
	map_run_stats(&r);
	code = run_program(&r, argv + at);
	if (r.stats)
		unlink(r.file);
	free((char *)(uintptr_t)r.library);
	return code;
}
