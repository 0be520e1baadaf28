/* SPDX-License-Identifier: MIT */
#include "common/cufile_library.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "libcufile.so.0"

/* Where CUDA installs it, for machines whose loader finds Strait's first. */
static const char *const installed[] = {
	"/usr/local/cuda/lib64/" NAME,
#if defined(__x86_64__)
	"/usr/lib/x86_64-linux-gnu/" NAME,
#elif defined(__aarch64__)
	"/usr/lib/aarch64-linux-gnu/" NAME,
#endif
	"/usr/lib64/" NAME,
};

/* dlsym() with a handle looks in the library and in what it depends on, not in the program. */
static bool is_strait(void *lib)
{
	return dlsym(lib, "strait_version") != NULL;
}

static void path_of(void *lib, char *path, size_t len)
{
	char resolved[PATH_MAX];
	struct link_map *map;

	if (!dlinfo(lib, RTLD_DI_LINKMAP, &map))
		snprintf(path, len, "%s", realpath(map->l_name, resolved) ? resolved : map->l_name);
}

/* NULL if it cannot be opened, or is Strait's. A library that was opened stays: it may have threads. */
static void *open_other(const char *name, char *path, size_t len)
{
	void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);

	if (!lib)
		return NULL;
	path_of(lib, path, len);
	return is_strait(lib) ? NULL : lib;
}

static void *open_in_library_path(char *path, size_t len)
{
	const char *dirs = getenv("LD_LIBRARY_PATH");
	char file[PATH_MAX];
	void *lib = NULL;

	while (dirs && *dirs && !lib) {
		size_t n = strcspn(dirs, ":;");

		if (n && (size_t)snprintf(file, sizeof(file), "%.*s/" NAME, (int)n, dirs) < sizeof(file))
			lib = open_other(file, path, len);
		dirs += n + (dirs[n] != 0);
	}
	return lib;
}

void *cufile_library_open(char *path, size_t path_len, char *why, size_t why_len)
{
	const char *named = getenv(CUFILE_LIBRARY_ENV), *name, *text;
	bool any = !named || !*named;
	void *lib;

	name = any ? NAME : named;
	snprintf(path, path_len, "%s", name);
	dlerror();
	lib = open_other(name, path, path_len);
	text = lib ? NULL : dlerror();
	/* Now: the next dlopen() frees the text. */
	if (text)
		snprintf(why, why_len, "%s: %s", name, text);
	if (!lib && any) {
		lib = open_in_library_path(path, path_len);
		for (size_t i = 0; !lib && i < sizeof(installed) / sizeof(installed[0]); i++)
			lib = open_other(installed[i], path, path_len);
	}
	if (!lib && !text)
		snprintf(why, why_len, "%s is Strait's own: set " CUFILE_LIBRARY_ENV " to the path of NVIDIA's", path);
	return lib;
}
