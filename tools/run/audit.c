/* SPDX-License-Identifier: MIT */
/*
 * libstrait-run.so: an audit library of the dynamic linker (LD_AUDIT) that replaces any libcufile by the one in
 * STRAIT_CUFILE_LIBRARY, whether a program is linked with it, opens it by its name or by the path of a file.
 *
 * Audit libraries are loaded into a namespace of their own, with a second C library; this one uses no C library.
 */
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENV "STRAIT_CUFILE_LIBRARY="
#define EXPORT __attribute__((visibility("default")))

static const char *library;

/* The rest of @text after @prefix, or NULL if it does not start with that. */
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

/* "libcufile.so", "libcufile.so.0", "libcufile-0a1b2c3d.so.1.15" as in Python wheels; not "libcufile_rdma.so". */
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
