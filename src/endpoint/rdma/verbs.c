/* SPDX-License-Identifier: MIT */
#include "endpoint/rdma/verbs.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#include "base/util.h"
#include "os/os.h"

struct verbs_api verbs;

OS_FORK_LOCK(load_lock, NULL)

static int find_all_calls(void *const lib[2], char *why, size_t len)
{
	static const struct {
		const char *name;
		size_t at;
		unsigned int library;
		bool optional;
	} calls[] = {
#define VERBS_CALL(library, name, optional) { #name, offsetof(struct verbs_api, name), library, optional },
		VERBS_CALLS(VERBS_CALL)
#undef VERBS_CALL
	};

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		void *fn = os_dl_sym(lib[calls[i].library], calls[i].name);

		if (!fn && !calls[i].optional) {
			str_format(why, len, "the RDMA libraries have no %s: install newer ones", calls[i].name);
			return -EOPNOTSUPP;
		}
		memcpy((char *)&verbs + calls[i].at, &fn, sizeof(fn));
	}
	return 0;
}

static int load_locked(char *why, size_t len)
{
	static bool loaded;
	void *lib[2];
	int rc;

	if (loaded)
		return 0;
	lib[0] = os_dl_open("libibverbs.so.1", why, len);
	if (!lib[0])
		return -EOPNOTSUPP;
	lib[1] = os_dl_open("librdmacm.so.1", why, len);
	rc = lib[1] ? find_all_calls(lib, why, len) : -EOPNOTSUPP;
	loaded = !rc;
	if (rc) {
		os_dl_close(lib[1]);
		os_dl_close(lib[0]);
	}
	return rc;
}

int verbs_load(char *why, size_t len)
{
	int rc;

	pthread_mutex_lock(&load_lock);
	rc = load_locked(why, len);
	pthread_mutex_unlock(&load_lock);
	return rc;
}
