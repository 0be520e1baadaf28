/* SPDX-License-Identifier: MIT */
#include "lib/install_path.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cli.h"

char *install_path_find(const char *name)
{
	static const char *const folders[] = { "", "../" STRAIT_LIBDIR "/strait/" };
	char self[PATH_MAX], *path;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n <= 0)
		return NULL;
	self[n] = 0;
	*strrchr(self, '/') = 0;
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		char *real;

		path = xasprintf("%s/%s%s", self, folders[i], name);
		real = realpath(path, NULL);
		free(path);
		if (real)
			return real;
	}
	return NULL;
}
