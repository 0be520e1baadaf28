/* SPDX-License-Identifier: MIT */
#include "lib/fabric.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <strait/rdma.h>

#define PATH PATH_MAX /* as realpath() needs it */

static int read_text(const char *dir, const char *name, char *text, size_t len)
{
	char path[PATH + 64];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "r");
	if (!f)
		return -errno;
	if (!fgets(text, (int)len, f))
		text[0] = '\0';
	fclose(f);
	text[strcspn(text, "\n")] = '\0';
	return 0;
}

/* The directory of the controller: that of the disk's device, or, with multipath, the first of its subsystem. */
static int find_controller(const char *device, char *dir)
{
	char transport[16];
	struct dirent *e;
	DIR *d;

	if (!read_text(device, "transport", transport, sizeof(transport))) {
		return snprintf(dir, PATH, "%s", device) < PATH ? 0 : -ENAMETOOLONG;
	}
	d = opendir(device);
	if (!d)
		return -errno;
	while ((e = readdir(d))) {
		int len = snprintf(dir, PATH, "%s/%s", device, e->d_name);

		if (len < PATH && !strncmp(e->d_name, "nvme", 4) &&
		    !read_text(dir, "transport", transport, sizeof(transport))) {
			closedir(d);
			return 0;
		}
	}
	closedir(d);
	return -ENODEV;
}

/* Is @a in the network of the interface? */
static int in_network(const struct ifaddrs *i, struct in_addr a)
{
	const struct sockaddr_in *own = (const void *)i->ifa_addr, *mask = (const void *)i->ifa_netmask;

	return own && mask && own->sin_family == AF_INET && !(i->ifa_flags & IFF_LOOPBACK) &&
	       (own->sin_addr.s_addr & mask->sin_addr.s_addr) == (a.s_addr & mask->sin_addr.s_addr);
}

static void find_nic(struct fabric *f)
{
	struct strait_rdma_nic nic = { .size = sizeof(nic) };
	const char *at = strstr(f->address, "addr="); /* the first one: of the target */
	char text[64] = "";
	struct ifaddrs *all;
	struct in_addr a;

	if (!at || sscanf(at + 5, "%63[^,]", text) != 1 || inet_pton(AF_INET, text, &a) != 1 || getifaddrs(&all))
		return;
	for (struct ifaddrs *i = all; i && !f->nic[0]; i = i->ifa_next)
		if (in_network(i, a))
			snprintf(f->nic, sizeof(f->nic), "%s", i->ifa_name);
	freeifaddrs(all);
	for (unsigned int i = 0; !strcmp(f->transport, "rdma") && !strait_rdma_nic(i, &nic); i++) {
		if (strcmp(nic.netdev, f->nic))
			continue;
		snprintf(f->nic, sizeof(f->nic), "%s on %s", nic.name, nic.netdev);
		break;
	}
}

/* The value of an option in a list with commas. */
static void option(const char *list, const char *name, char *value, size_t len)
{
	size_t n = strlen(name);

	for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (!strncmp(at, name, n) && at[n] == '=')
			snprintf(value, len, "%.*s", (int)strcspn(at + n + 1, ",\n"), at + n + 1);
}

/* A line of mountinfo: ID, parent, device, root, mount point, options, ... - type, source, options of the file system. */
static int read_nfs(const char *line, dev_t dev, struct fabric *f)
{
	unsigned int major_number, minor_number;
	char type[16], source[PATH], options[1024], version[8] = "", address[64] = "";
	const char *rest = strstr(line, " - ");

	if (sscanf(line, "%*d %*d %u:%u", &major_number, &minor_number) != 2 || !rest ||
	    makedev(major_number, minor_number) != dev ||
	    sscanf(rest, " - %15s %4095s %1023s", type, source, options) != 3 || strncmp(type, "nfs", 3))
		return -ENODEV;
	option(options, "vers", version, sizeof(version));
	option(options, "proto", f->transport, sizeof(f->transport));
	option(options, "addr", address, sizeof(address));
	snprintf(f->kind, sizeof(f->kind), "NFS %s", version);
	snprintf(f->disk, sizeof(f->disk), "%.63s", source);
	snprintf(f->address, sizeof(f->address), "addr=%s", address);
	find_nic(f);
	return 0;
}

static int find_nfs(dev_t dev, struct fabric *f)
{
	FILE *mounts = fopen("/proc/self/mountinfo", "r");
	char *line = NULL;
	size_t room = 0;
	int err = -ENODEV;

	if (!mounts)
		return -errno;
	while (err && getline(&line, &room, mounts) > 0)
		err = read_nfs(line, dev, f);
	free(line);
	fclose(mounts);
	return err;
}

int fabric_find(const char *path, struct fabric *f)
{
	char link[64], dir[PATH], device[PATH + 16], *disk;
	struct stat st;
	int err;

	memset(f, 0, sizeof(*f));
	if (stat(path, &st))
		return -errno;
	if (S_ISBLK(st.st_mode))
		st.st_dev = st.st_rdev;
	snprintf(link, sizeof(link), "/sys/dev/block/%u:%u", major(st.st_dev), minor(st.st_dev));
	if (!realpath(link, dir))
		return find_nfs(st.st_dev, f);
	/* A partition lies in the directory of its disk. */
	if (!read_text(dir, "partition", device, sizeof(device)))
		*strrchr(dir, '/') = '\0';
	disk = strrchr(dir, '/') + 1;
	snprintf(f->disk, sizeof(f->disk), "%.63s", disk);
	if (strncmp(disk, "nvme", 4))
		return 0;
	snprintf(device, sizeof(device), "%s/device", dir);
	err = find_controller(device, dir);
	if (err)
		return 0;
	read_text(dir, "transport", f->transport, sizeof(f->transport));
	if (!strcmp(f->transport, "pcie")) {
		f->transport[0] = '\0';
		return 0;
	}
	snprintf(f->kind, sizeof(f->kind), "NVMe");
	read_text(dir, "address", f->address, sizeof(f->address));
	find_nic(f);
	return 0;
}
