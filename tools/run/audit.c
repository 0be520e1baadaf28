/* SPDX-License-Identifier: MIT */
/*
 * libstrait-run.so: seen by the dynamic linker through LD_AUDIT, it puts Strait's libcufile in the place of any
 * other, however a program asks for one: by linking, by its name, or by the path of a file. STRAIT_CUFILE_LIBRARY
 * names the library.
 *
 * The linker gives it a name space of its own, in which there would be a second C library: it uses none.
 */
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENV "STRAIT_CUFILE_LIBRARY="
#define EXPORT __attribute__((visibility("default")))

static const char *library;

/* What @text goes on with after @prefix, or NULL. */
static const char *after(const char *text, const char *prefix)
{
	while (*prefix)
		if (*text++ != *prefix++)
			return NULL;
	return text;
}

/* The C library hands the environment to constructors. */
__attribute__((constructor)) static void begin(int argc, char **argv, char **env)
{
	for (; env && *env; env++) {
		const char *value = after(*env, ENV);

		if (value && *value == '/')
			library = value;
	}
}

/* "libcufile.so", "libcufile.so.0", and as wheels rename it, "libcufile-0a1b2c3d.so.1.15"; no "libcufile_rdma.so". */
static bool is_cufile(const char *path)
{
	const char *name = path;

	for (; *path; path++)
		if (*path == '/')
			name = path + 1;
	name = after(name, "libcufile");
	if (!name)
		return false;
	if (*name == '-')
		while (*name && *name != '.')
			name++;
	name = after(name, ".so");
	return name && (!*name || *name == '.');
}

EXPORT unsigned int la_version(unsigned int version);
EXPORT unsigned int la_version(unsigned int version)
{
	return version < LAV_CURRENT ? version : LAV_CURRENT;
}

EXPORT char *la_objsearch(const char *name, uintptr_t *cookie, unsigned int flag);
EXPORT char *la_objsearch(const char *name, uintptr_t *cookie, unsigned int flag)
{
	return (char *)(uintptr_t)(library && flag == LA_SER_ORIG && is_cufile(name) ? library : name);
}
