/* SPDX-License-Identifier: MIT */
#include "verbs/bind/owner.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cli.h"

void owner_text(const char *node, char *buf, size_t len)
{
	struct passwd *user;
	struct group *group;
	struct stat st;
	char name[64], more[64] = "";

	if (!node[0] || stat(node, &st)) {
		snprintf(buf, len, "-");
		return;
	}
	user = getpwuid(st.st_uid);
	if (!user)
		snprintf(name, sizeof(name), "%u", (unsigned int)st.st_uid);
	else
		snprintf(name, sizeof(name), "%s", user->pw_name);
	group = getgrgid(st.st_gid);
	if (st.st_mode & S_IWGRP && group)
		snprintf(more, sizeof(more), ":%s", group->gr_name);
	else if (st.st_mode & S_IWGRP)
		snprintf(more, sizeof(more), ":%u", (unsigned int)st.st_gid);
	snprintf(buf, len, "%s%s", name, more);
}

/* @text as a user or group ID, if it is a number. */
static int id_number(const char *text, unsigned int *id)
{
	char *end;
	unsigned long n;

	if (!*text || strspn(text, "0123456789") != strlen(text))
		return -EINVAL;
	errno = 0;
	n = strtoul(text, &end, 10);
	if (errno || n >= UINT32_MAX)
		return -EINVAL;
	*id = (unsigned int)n;
	return 0;
}

static int parse(char *text, uid_t *uid, gid_t *gid)
{
	char *group = strchr(text, ':');
	struct passwd *pw;
	struct group *gr;

	*uid = (uid_t)-1;
	*gid = (gid_t)-1;
	if (group)
		*group++ = '\0';
	if (!text[0] && (!group || !group[0]))
		return fail(CLI_USAGE, "give --owner USER, USER:GROUP or :GROUP",
			    "--owner names neither a user nor a group");
	if (text[0] && id_number(text, uid)) {
		pw = getpwnam(text);
		if (!pw)
			return fail(CLI_USAGE, NULL, "there is no user %s", text);
		*uid = pw->pw_uid;
	}
	if (group && group[0] && id_number(group, gid)) {
		gr = getgrnam(group);
		if (!gr)
			return fail(CLI_USAGE, NULL, "there is no group %s", group);
		*gid = gr->gr_gid;
	}
	return CLI_OK;
}

int owner_set(const char *node, const char *text)
{
	char copy[128];
	uid_t uid;
	gid_t gid;
	int code;

	snprintf(copy, sizeof(copy), "%s", text);
	code = parse(copy, &uid, &gid);
	if (code)
		return code;
	/* The mode first: at no time may more users open the node than before or after. */
	if (chmod(node, 0600) || chown(node, uid, gid) || (gid != (gid_t)-1 && chmod(node, 0660)))
		return fail(CLI_FAILED, errno == EPERM ? "run as root" : NULL, "cannot set the owner of %s to %s: %s",
			    node, text, strerror(errno));
	return CLI_OK;
}
