/* SPDX-License-Identifier: MIT */
/* Is a device in use? Its driver would let it be taken all the same. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "os/dir.h"
#include "os/os.h"
#include "pci/bind.h"
#include "pci/signature.h"
#include "topo/topo.h"

#define TEXT MIB(1) /* of /proc/self/mountinfo */

static char *read_all(const char *root, const char *name)
{
	char path[BIND_PATH], *text = malloc(TEXT);
	ssize_t n;

	str_format(path, sizeof(path), "%s/%s", root, name);
	n = text ? os_read_bytes(path, text, TEXT - 1) : -ENOMEM;
	if (n < 0) {
		free(text);
		return NULL;
	}
	text[n] = '\0';
	return text;
}

/* Is word number @field, from 0, of any line of @text @want? */
static bool has_field(const char *text, unsigned int field, const char *want)
{
	for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		const char *word = line;
		unsigned int k = 0;

		while (k < field && *word && *word != '\n') {
			word += strcspn(word, " \t\n");
			word += strspn(word, " \t");
			k++;
		}
		if (k == field && strcspn(word, " \t\n") == strlen(want) && !strncmp(word, want, strlen(want)))
			return true;
	}
	return false;
}

/* The source of a mount follows " - " and the type: optional fields before it make its position vary. */
static bool is_source(const char *text, const char *want)
{
	for (const char *at = strstr(text, " - "); at; at = strstr(at + 3, " - ")) {
		const char *word = at + 3 + strcspn(at + 3, " \n");

		word += strspn(word, " ");
		if (strcspn(word, " \n") == strlen(want) && !strncmp(word, want, strlen(want)))
			return true;
	}
	return false;
}

struct look {
	const struct bind_roots *at;
	const char *mounts, *swaps;
	char *why;
	size_t len;
};

/* Is a disk or partition in use? @dir is its folder in sysfs. */
static int check_block(const struct look *l, const char *dir, const char *name)
{
	char path[BIND_PATH], text[64];
	struct os_names holders;
	int fd, rc = 0;

	str_format(path, sizeof(path), "%s/dev", dir);
	if (!os_read_line(path, text, sizeof(text)) && l->mounts && has_field(l->mounts, 2, text))
		rc = -EBUSY;
	str_format(path, sizeof(path), "/dev/%s", name);
	if (!rc && l->mounts && is_source(l->mounts, path))
		rc = -EBUSY;
	if (rc) {
		str_format(l->why, l->len, "/dev/%s is mounted: umount /dev/%s", name, name);
		return rc;
	}
	if (l->swaps && has_field(l->swaps, 0, path)) {
		str_format(l->why, l->len, "/dev/%s is swap space in use: swapoff /dev/%s", name, name);
		return -EBUSY;
	}
	str_format(path, sizeof(path), "%s/holders", dir);
	if (!os_names_read(path, &holders)) {
		if (holders.n) {
			str_format(l->why, l->len, "/dev/%s is held by /dev/%s: stop that array or volume first", name,
				   holders.name[0]);
			rc = -EBUSY;
		}
		os_names_free(&holders);
	}
	if (rc)
		return rc;
	/* File systems, volume managers and ZFS open a block device exclusively. */
	str_format(path, sizeof(path), "%s/%s", l->at->dev, name);
	fd = os_open(path, O_RDONLY | O_EXCL | O_CLOEXEC, 0);
	if (fd >= 0)
		os_close(fd);
	if (fd == -EBUSY)
		str_format(
			l->why, l->len,
			"/dev/%s is opened exclusively by a file system or volume manager such as ZFS: stop that first",
			name);
	return fd == -EBUSY ? fd : 0;
}

static int check_partitions(const struct look *l, const char *dir, const char *disk, unsigned int *n)
{
	char sub[BIND_PATH], path[BIND_PATH + 16];
	struct os_names names;
	int rc = 0;

	if (os_names_read(dir, &names))
		return 0;
	for (unsigned int i = 0; i < names.n && !rc; i++) {
		if (strncmp(names.name[i], disk, strlen(disk)) != 0)
			continue;
		str_format(sub, sizeof(sub), "%s/%s", dir, names.name[i]);
		str_format(path, sizeof(path), "%s/partition", sub);
		if (os_access(path))
			continue;
		++*n;
		rc = check_block(l, sub, names.name[i]);
	}
	os_names_free(&names);
	return rc;
}

/* Refuse a disk with anything on it, and say how that is known. */
static int check_contents(const struct look *l, const char *disk)
{
	char path[BIND_PATH];
	struct drive_contents c;
	int rc;

	str_format(path, sizeof(path), "%s/%s", l->at->dev, disk);
	rc = drive_contents_read(path, &c);
	if (rc) {
		str_format(l->why, l->len, "/dev/%s cannot be read, so what is on it is not known: %s", disk,
			   strerror(-rc));
		return -EBUSY;
	}
	if (c.what[0]) {
		str_format(l->why, l->len, "/dev/%s is not empty: %s, found by %s", disk, c.what,
			   c.from_blkid ? "libblkid" :
			   c.no_blkid	? "the built-in list of signatures (libblkid.so.1 cannot be loaded)" :
					  "the built-in list of signatures");
		return -ENOTEMPTY;
	}
	if (c.no_blkid)
		str_format(l->why, l->len,
			   "libblkid.so.1 cannot be loaded: /dev/%s was compared with the built-in list of signatures "
			   "only, which does not know every format",
			   disk);
	return 0;
}

static int check_disk(const struct look *l, const char *disk)
{
	char dir[BIND_PATH];
	unsigned int partitions = 0;
	int rc;

	str_format(dir, sizeof(dir), "%s/block/%s", l->at->sys, disk);
	/* Partitions first: a disk is in use when one of its partitions is, and the message names the partition. */
	rc = check_partitions(l, dir, disk, &partitions);
	if (!rc)
		rc = check_block(l, dir, disk);
	if (rc)
		return rc;
	if (partitions) {
		str_format(l->why, l->len, "/dev/%s has partitions", disk);
		return -ENOTEMPTY;
	}
	return check_contents(l, disk);
}

/* Is a disk behind this device? Its link in /sys/block leads through it. */
static bool leads_through(const char *link, const char *name)
{
	for (const char *at = strstr(link, name); at; at = strstr(at + 1, name))
		if (at > link && at[-1] == '/' && at[strlen(name)] == '/')
			return true;
	return false;
}

static int check_disks(const struct look *l, const char *name)
{
	char path[BIND_PATH], link[BIND_PATH];
	struct os_names disks;
	int rc = 0;

	str_format(path, sizeof(path), "%s/block", l->at->sys);
	if (os_names_read(path, &disks))
		return 0;
	for (unsigned int i = 0; i < disks.n && !rc; i++) {
		str_format(path, sizeof(path), "%s/block/%s", l->at->sys, disks.name[i]);
		if (!os_read_link(path, link, sizeof(link)) && leads_through(link, name))
			rc = check_disk(l, disks.name[i]);
	}
	os_names_free(&disks);
	return rc;
}

/* With NVMe multipath the disk hangs on no device; the controller has paths, "nvme0c3n1" to "nvme0n1". */
static int check_paths(const struct look *l, const char *name)
{
	char dir[BIND_PATH], disk[64];
	struct os_names ctrl, paths;
	unsigned int subsys, path, ns;
	int end, rc = 0;

	str_format(dir, sizeof(dir), "%s/bus/pci/devices/%s/nvme", l->at->sys, name);
	if (os_names_read(dir, &ctrl))
		return 0;
	for (unsigned int i = 0; i < ctrl.n && !rc; i++) {
		str_format(dir, sizeof(dir), "%s/bus/pci/devices/%s/nvme/%s", l->at->sys, name, ctrl.name[i]);
		if (os_names_read(dir, &paths))
			continue;
		for (unsigned int k = 0; k < paths.n && !rc; k++) {
			end = 0;
			if (sscanf(paths.name[k], "nvme%uc%un%u%n", &subsys, &path, &ns, &end) != 3 ||
			    paths.name[k][end])
				continue;
			str_format(disk, sizeof(disk), "nvme%un%u", subsys, ns);
			rc = check_disk(l, disk);
		}
		os_names_free(&paths);
	}
	os_names_free(&ctrl);
	return rc;
}

static int check_network(const struct look *l, const char *name)
{
	char path[BIND_PATH], state[32];
	struct os_names cards;
	int rc = 0;

	str_format(path, sizeof(path), "%s/bus/pci/devices/%s/net", l->at->sys, name);
	if (os_names_read(path, &cards))
		return 0;
	for (unsigned int i = 0; i < cards.n && !rc; i++) {
		str_format(path, sizeof(path), "%s/bus/pci/devices/%s/net/%s/operstate", l->at->sys, name,
			   cards.name[i]);
		if (os_read_line(path, state, sizeof(state)) || strcmp(state, "up") != 0)
			continue;
		str_format(l->why, l->len, "the network interface %s is up: ip link set %s down", cards.name[i],
			   cards.name[i]);
		rc = -EBUSY;
	}
	os_names_free(&cards);
	return rc;
}

int bind_check_use(const struct bind_roots *at, const char *name, char *why, size_t len)
{
	char *mounts = read_all(at->proc, "self/mountinfo"), *swaps = read_all(at->proc, "swaps");
	const struct look l = { at, mounts, swaps, why, len };
	int rc;

	rc = check_disks(&l, name);
	if (!rc)
		rc = check_paths(&l, name);
	if (!rc)
		rc = check_network(&l, name);
	free(mounts);
	free(swaps);
	return rc;
}
