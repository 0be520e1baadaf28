/* SPDX-License-Identifier: MIT */
/*
 * libblkid, loaded when a drive is about to be taken: it knows far more formats than a list of our own can. Names and
 * values are those of blkid/blkid.h, declared here so that neither building nor running the library needs it.
 */
#include <errno.h>

#include "base/util.h"
#include "os/os.h"
#include "pci/signature.h"

#define LIBRARY "libblkid.so.1"

enum {
	SUBLKS_TYPE = 1 << 5,
	SUBLKS_USAGE = 1 << 7,
	SUBLKS_BADCSUM = 1 << 10, /* a superblock with a bad checksum is data all the same */
	PARTS_FORCE_GPT = 1 << 1, /* also without the protective MBR */
	PARTS_MAGIC = 1 << 3,
};

struct blkid {
	void *(*new_probe)(void);
	void (*free_probe)(void *probe);
	int (*set_device)(void *probe, int fd, int64_t offset, int64_t size);
	int (*enable_superblocks)(void *probe, int enable);
	int (*superblocks_flags)(void *probe, int flags);
	int (*enable_partitions)(void *probe, int enable);
	int (*partitions_flags)(void *probe, int flags);
	int (*do_probe)(void *probe); /* 0: found something; 1: nothing; negative: failed */
	int (*lookup)(void *probe, const char *name, const char **value, size_t *len);
};

static const struct {
	const char *name;
	size_t at;
} functions[] = {
	{ "blkid_new_probe", offsetof(struct blkid, new_probe) },
	{ "blkid_free_probe", offsetof(struct blkid, free_probe) },
	{ "blkid_probe_set_device", offsetof(struct blkid, set_device) },
	{ "blkid_probe_enable_superblocks", offsetof(struct blkid, enable_superblocks) },
	{ "blkid_probe_set_superblocks_flags", offsetof(struct blkid, superblocks_flags) },
	{ "blkid_probe_enable_partitions", offsetof(struct blkid, enable_partitions) },
	{ "blkid_probe_set_partitions_flags", offsetof(struct blkid, partitions_flags) },
	{ "blkid_do_probe", offsetof(struct blkid, do_probe) },
	{ "blkid_probe_lookup_value", offsetof(struct blkid, lookup) },
};

static int load(void *lib, struct blkid *b)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(functions); i++) {
		void *fn = os_dl_sym(lib, functions[i].name);

		if (!fn)
			return -ENOENT;
		memcpy((char *)b + functions[i].at, &fn, sizeof(fn));
	}
	return 0;
}

static const char *value_of(const struct blkid *b, void *probe, const char *name)
{
	const char *value;

	return b->lookup(probe, name, &value, NULL) ? NULL : value;
}

/* "file system ext4": what kind of thing the probe found, and the name that blkid(8) has for it. */
static void describe(const struct blkid *b, void *probe, char *what, size_t len)
{
	static const struct {
		const char *usage, *text;
	} kinds[] = {
		{ "filesystem", "file system " },
		{ "raid", "array or volume member " },
		{ "crypto", "encryption " },
	};
	const char *type = value_of(b, probe, "TYPE"), *usage = value_of(b, probe, "USAGE"), *kind = "";

	if (!type) {
		type = value_of(b, probe, "PTTYPE");
		kind = "partition table ";
	}
	for (unsigned int i = 0; usage && i < ARRAY_SIZE(kinds); i++)
		if (!strcmp(usage, kinds[i].usage))
			kind = kinds[i].text;
	str_format(what, len, "%s%s", kind, type ? type : "of a format without a name");
}

static int probe_drive(const struct blkid *b, int fd, char *what, size_t len)
{
	void *probe = b->new_probe();
	int rc;

	if (!probe)
		return -ENOMEM;
	errno = 0;
	rc = b->set_device(probe, fd, 0, 0);
	if (!rc)
		rc = b->enable_superblocks(probe, 1);
	if (!rc)
		rc = b->superblocks_flags(probe, SUBLKS_TYPE | SUBLKS_USAGE | SUBLKS_BADCSUM);
	if (!rc)
		rc = b->enable_partitions(probe, 1);
	if (!rc)
		rc = b->partitions_flags(probe, PARTS_FORCE_GPT | PARTS_MAGIC);
	if (!rc)
		rc = b->do_probe(probe);
	else
		rc = -1;
	if (!rc)
		describe(b, probe, what, len);
	b->free_probe(probe);
	if (rc < 0)
		return errno ? -errno : -EIO;
	return rc ? 0 : 1;
}

int blkid_signature(int fd, char *what, size_t len)
{
	char why[128];
	void *lib = os_dl_open(LIBRARY, why, sizeof(why));
	struct blkid b;
	int rc;

	if (!lib)
		return -ENOENT;
	rc = load(lib, &b);
	if (!rc) {
		rc = probe_drive(&b, fd, what, len);
		if (rc == -ENOENT)
			rc = -EIO;
	}
	os_dl_close(lib);
	return rc;
}
