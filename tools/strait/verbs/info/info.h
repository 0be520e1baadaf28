/* SPDX-License-Identifier: MIT */
#ifndef CLI_INFO_H
#define CLI_INFO_H

/* `strait info`: everything known about this machine, collected first and printed afterwards. */

#include <stdbool.h>
#include <stdint.h>

#include <strait/device.h>
#include <strait/topo.h>
#include <strait/types.h>

struct info_drive {
	char name[32]; /* of the block device; empty if the driver creates none */
	char model[64];
	char kind[16]; /* "nvme", "virtio", "scsi", ... */
	char pci[16];  /* empty if it is not below a PCI device */
	char driver[32];
	uint64_t bytes;
};

struct info_fs {
	char *mount;
	char *source;
	char type[32];
	uint64_t bytes, free; /* 0 if unknown */
	bool network;	      /* never queried: a dead server would block the command */
	int direct;	      /* 1 yes, 0 no, -1 not known */
	char direct_why[160]; /* why not, or on what it depends */
};

struct info_provider {
	struct strait_provider_info info;
	char why[256]; /* why it has no devices */
};

/* What asks peer memory clients for memory. */
enum info_peer_core {
	INFO_PEER_NONE,	  /* nothing, and no client is loaded */
	INFO_PEER_UNUSED, /* nothing, though a client is loaded */
	INFO_PEER_STRAIT, /* strait_peer */
	INFO_PEER_VENDOR, /* a vendor's ib_core */
};

struct info_peer {
	char name[64], version[16];
	char kind[16];	       /* "classic", "extended", "persistent"; empty if not known */
	unsigned int contexts; /* ranges mapped now, of strait_peer */
	uint64_t invalidated;
};

struct info_lines {
	char **line;
	unsigned int n;
};

struct info {
	struct strait_context *ctx;
	struct strait_topo *topo;
	struct strait_topo_kernel kernel;
	struct strait_device_info *device;
	unsigned int devices;
	struct info_provider *provider;
	unsigned int providers;
	struct strait_topo_node *node;
	unsigned int nodes;
	struct info_drive *drive;
	unsigned int drives;
	struct info_fs *fs;
	unsigned int filesystems;
	enum info_peer_core peer_core;
	struct info_peer *peer;
	unsigned int peers;
	struct info_lines can;	/* what Strait can do here */
	struct info_lines more; /* what is missing, and how to get it */
};

void info_read_drives(struct info *in);
void info_read_filesystems(struct info *in);
void info_read_peers(struct info *in);
void info_make_advice(struct info *in);

void info_add(struct info_lines *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

void info_print(const struct info *in, bool all);
void info_print_pci(const struct info *in, bool all);
void info_print_peers(const struct info *in);
void info_print_json(const struct info *in);
struct json;
void info_put_peers(const struct info *in, struct json *j);
/* What this kernel does with peer memory clients, and what it does not; empty if there are none. */
const char *info_peer_core(const struct info *in);

/* `strait info --cufile`. Returns an exit code. */
int info_cufile(const struct info *in);

/* The name of a PCI vendor, empty if it is not known. */
const char *info_vendor(uint16_t vendor);
/* The name of a PCI device in tables: "cuda:0", "nvme0n1", or its address. */
const char *info_label(const struct info *in, const struct strait_topo_node *node);
const char *info_kind(uint32_t kind);
const char *info_link(int link);

/* The name of capability bit @bit of STRAIT_DEVICE_*; NULL past the last. */
const char *info_cap(unsigned int bit);

#endif
