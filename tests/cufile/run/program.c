/* SPDX-License-Identifier: MIT */
/*
 * A program for tests of `strait run`: reads FILE through whatever libcufile it gets, prints the version and
 * the bytes it read, and exits as its arguments say.
 *
 *	program LIBRARY|- FILE [exit N | _exit N | kill | abort | fork | exec | spin]
 *
 * LIBRARY is opened with dlopen(); "-" is for the one it was linked with.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cufile.h>

static __typeof__(cuFileGetVersion) *get_version;
static __typeof__(cuFileHandleRegister) *handle_register;
static __typeof__(cuFileRead) *read_file;

static void load(const char *library)
{
#ifdef LINKED
	get_version = cuFileGetVersion;
	handle_register = cuFileHandleRegister;
	read_file = cuFileRead;
#endif
	if (strcmp(library, "-")) {
		void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);

		if (!lib) {
			fprintf(stderr, "%s\n", dlerror());
			exit(9);
		}
		get_version = (__typeof__(get_version))dlsym(lib, "cuFileGetVersion");
		handle_register = (__typeof__(handle_register))dlsym(lib, "cuFileHandleRegister");
		read_file = (__typeof__(read_file))dlsym(lib, "cuFileRead");
	}
}

static void use(const char *path)
{
	CUfileDescr_t d = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD, .handle.fd = open(path, O_RDONLY) };
	static char buf[100000];
	CUfileHandle_t fh;
	int version = 0;
	ssize_t n = -1;

	get_version(&version);
	if (!handle_register(&fh, &d).err)
		n = read_file(fh, buf, sizeof(buf), 0, 0);
	printf("version %d, %zd bytes\n", version, n);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	const char *how = argc > 3 ? argv[3] : "exit";
	int code = argc > 4 ? atoi(argv[4]) : 0;

	if (argc < 3)
		return 2;
	load(argv[1]);
	use(argv[2]);
	if (!strcmp(how, "_exit"))
		_exit(code);
	if (!strcmp(how, "kill"))
		kill(getpid(), SIGKILL);
	if (!strcmp(how, "abort"))
		abort();
	if (!strcmp(how, "exec")) {
		execl(argv[0], argv[0], argv[1], argv[2], (char *)NULL);
		return 9;
	}
	if (!strcmp(how, "spin"))
		for (;;)
			pause();
	if (!strcmp(how, "fork")) {
		pid_t pid = fork();

		if (!pid) {
			use(argv[2]);
			_exit(0);
		}
		waitpid(pid, NULL, 0);
	}
	return code;
}
