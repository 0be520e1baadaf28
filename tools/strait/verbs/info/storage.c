/* SPDX-License-Identifier: MIT */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <strait/endpoint.h>

#include "lib/cli.h"
#include "verbs/info/info.h"

static bool has_prefix(const char *s, const char *prefix)
{
	return !strncmp(s, prefix, strlen(prefix));
}

static void read_line(const char *path, char *buf, size_t len)
{
	FILE *f = fopen(path, "re");

	buf[0] = '\0';
	if (!f)
		return;
	if (!fgets(buf, (int)len, f))
		buf[0] = '\0';
	fclose(f);
	for (size_t n = strlen(buf); n && (buf[n - 1] == '\n' || buf[n - 1] == ' ');)
		buf[--n] = '\0';
}

static struct info_drive *add_drive(struct info *in, const char *name)
{
	struct info_drive *d;

	in->drive = xrealloc(in->drive, (in->drives + 1) * sizeof(*in->drive));
	d = &in->drive[in->drives++];
	memset(d, 0, sizeof(*d));
	snprintf(d->name, sizeof(d->name), "%.31s", name);
	return d;
}

static const struct strait_topo_node *node_of(const struct info *in, const char *block)
{
	for (unsigned int i = 0; i < in->nodes; i++)
		if (in->node[i].block[0] && !strcmp(in->node[i].block, block))
			return &in->node[i];
	return NULL;
}

static void read_disk(struct info *in, const char *name)
{
	static const struct {
		const char *prefix, *kind;
	} kinds[] = { { "nvme", "nvme" }, { "vd", "virtio" },	{ "sd", "scsi" },    { "sr", "optical" },
		      { "xvd", "xen" },	  { "mmc", "mmc" },	{ "dm-", "mapped" }, { "md", "raid" },
		      { "pmem", "pmem" }, { "nbd", "network" }, { "rbd", "network" } };
	const struct strait_topo_node *node;
	struct info_drive *d;
	char path[PATH_MAX], text[64];
	uint64_t sectors;

	if (has_prefix(name, "loop") || has_prefix(name, "ram") || has_prefix(name, "zram"))
		return;
	snprintf(path, sizeof(path), "/sys/block/%s/size", name);
	read_line(path, text, sizeof(text));
	sectors = strtoull(text, NULL, 10);
	if (!sectors)
		return;
	d = add_drive(in, name);
	d->bytes = sectors * 512;
	snprintf(d->kind, sizeof(d->kind), "other");
	for (unsigned int i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (has_prefix(name, kinds[i].prefix)) {
			snprintf(d->kind, sizeof(d->kind), "%s", kinds[i].kind);
			break;
		}
	}
	snprintf(path, sizeof(path), "/sys/block/%s/device/model", name);
	read_line(path, d->model, sizeof(d->model));
	node = node_of(in, name);
	if (node) {
		snprintf(d->pci, sizeof(d->pci), "%s", node->pci);
		snprintf(d->driver, sizeof(d->driver), "%s", node->driver);
	}
}

void info_read_drives(struct info *in)
{
	struct dirent **names;
	int n = scandir("/sys/block", &names, NULL, alphasort);

	for (int i = 0; i < n; i++) {
		if (names[i]->d_name[0] != '.')
			read_disk(in, names[i]->d_name);
		free(names[i]);
	}
	if (n >= 0)
		free(names);
	/* NVMe controllers without a block device: bound to another driver, or to none. */
	for (unsigned int i = 0; i < in->nodes; i++) {
		const struct strait_topo_node *node = &in->node[i];
		struct info_drive *d;

		if (node->kind != STRAIT_TOPO_NVME || node->block[0])
			continue;
		d = add_drive(in, "");
		snprintf(d->kind, sizeof(d->kind), "nvme");
		snprintf(d->pci, sizeof(d->pci), "%s", node->pci);
		snprintf(d->driver, sizeof(d->driver), "%s", node->driver);
	}
}

/* Direct I/O by type of file system, where it is not or cannot be probed. */
static const struct known {
	const char *type;
	int direct;
	const char *why;
	bool network;
} known[] = {
	{ "ext2", 1, "", false },
	{ "ext3", 1, "", false },
	{ "ext4", 1, "", false },
	{ "xfs", 1, "", false },
	{ "btrfs", 1, "", false },
	{ "f2fs", 1, "", false },
	{ "bcachefs", 1, "", false },
	{ "zfs", -1, "OpenZFS 2.3 and newer", false },
	{ "vfat", 1, "", false },
	{ "exfat", 1, "", false },
	{ "tmpfs", 0, "its files are in the page cache", false },
	{ "ramfs", 0, "its files are in the page cache", false },
	{ "hugetlbfs", 0, "its files are memory", false },
	{ "overlay", -1, "depends on the file system below", false },
	{ "squashfs", 0, "its files are compressed", false },
	{ "erofs", -1, "only files that are not compressed", false },
	{ "iso9660", 0, "not supported by its driver", false },
	{ "9p", -1, "depends on its server", true },
	{ "virtiofs", -1, "depends on its server", true },
	{ "nfs", 1, "", true },
	{ "nfs4", 1, "", true },
	{ "cifs", -1, "depends on its mount options", true },
	{ "smb3", -1, "depends on its mount options", true },
	{ "ceph", 1, "", true },
	{ "lustre", 1, "", true },
	{ "gpfs", 1, "", true },
	{ "beegfs", 1, "", true },
	{ "wekafs", 1, "", true },
	{ "fuse.", -1, "depends on its server", true },
	{ "fuseblk", -1, "depends on its server", true },
};

static const struct known *find_known(const char *type)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(known); i++) {
		size_t len = strlen(known[i].type);

		if (!strcmp(known[i].type, type) || (known[i].type[len - 1] == '.' && has_prefix(type, known[i].type)))
			return &known[i];
	}
	return NULL;
}

/* Probe with an unnamed file, which disappears when it is closed. */
static void ask_direct(struct info *in, struct info_fs *fs)
{
	struct strait_file_info info = { .size = sizeof(info) };
	struct strait_endpoint *ep;
	int fd = open(fs->mount, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0)
		return;
	if (!strait_file_import(in->ctx, fd, 0, &ep)) {
		if (!strait_file_info(ep, &info)) {
			fs->direct = !!(info.caps & STRAIT_FILE_CAN_DIRECT);
			snprintf(fs->direct_why, sizeof(fs->direct_why), "%s", strait_reason_text(info.direct_reason));
		}
		strait_endpoint_close(ep);
	}
	close(fd);
}

/* Mounts of the system itself, which hold no data. */
static bool is_system(const char *mount)
{
	static const char *const dirs[] = { "/proc", "/sys", "/dev", "/run" };

	if (!strcmp(mount, "/dev/shm"))
		return false;
	for (unsigned int i = 0; i < ARRAY_SIZE(dirs); i++)
		if (has_prefix(mount, dirs[i]) && (!mount[strlen(dirs[i])] || mount[strlen(dirs[i])] == '/'))
			return true;
	return false;
}

static void read_mount(struct info *in, const struct mntent *m, dev_t *seen)
{
	const struct known *k = find_known(m->mnt_type);
	bool network = k && k->network;
	struct statvfs vfs;
	struct info_fs *fs;
	struct stat st = { 0 };

	if (!k || is_system(m->mnt_dir))
		return;
	if (!strcmp(m->mnt_type, "tmpfs") && hasmntopt(m, "ro"))
		return; /* a placeholder of a container */
	if (!network) {
		if (stat(m->mnt_dir, &st) < 0 || !S_ISDIR(st.st_mode))
			return;
		/* A file system mounted several times is listed once. */
		for (unsigned int i = 0; i < in->filesystems; i++)
			if (seen[i] == st.st_dev && !in->fs[i].network)
				return;
	}
	in->fs = xrealloc(in->fs, (in->filesystems + 1) * sizeof(*in->fs));
	seen[in->filesystems] = st.st_dev;
	fs = &in->fs[in->filesystems++];
	*fs = (struct info_fs){ .network = network, .direct = k->direct };
	fs->mount = xstrdup(m->mnt_dir);
	fs->source = xstrdup(m->mnt_fsname);
	snprintf(fs->type, sizeof(fs->type), "%s", m->mnt_type);
	snprintf(fs->direct_why, sizeof(fs->direct_why), "%s", k->why);
	if (network)
		return;
	if (!statvfs(m->mnt_dir, &vfs)) {
		fs->bytes = (uint64_t)vfs.f_blocks * vfs.f_frsize;
		fs->free = (uint64_t)vfs.f_bavail * vfs.f_frsize;
	}
	ask_direct(in, fs);
}

void info_read_filesystems(struct info *in)
{
	enum { MOST = 256 };
	FILE *f = setmntent("/proc/self/mounts", "re");
	dev_t seen[MOST];
	struct mntent *m;

	if (!f)
		return;
	while (in->filesystems < MOST && (m = getmntent(f)))
		read_mount(in, m, seen);
	endmntent(f);
}
