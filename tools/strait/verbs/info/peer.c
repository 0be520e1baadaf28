/* SPDX-License-Identifier: MIT */
/* Peer memory clients, and what the kernel does with them. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cli.h"
#include "lib/json.h"
#include "verbs/info/info.h"

#define OURS "/sys/module/strait_peer/parameters/clients"
#define VENDORS "/sys/kernel/mm/memory_peers"

static struct info_peer *add(struct info *in)
{
	in->peer = xrealloc(in->peer, (in->peers + 1) * sizeof(*in->peer));
	in->peer[in->peers] = (struct info_peer){ 0 };
	return &in->peer[in->peers++];
}

/* Clients of strait_peer: a line each. */
static void read_ours(struct info *in)
{
	FILE *f = fopen(OURS, "re");
	struct info_peer p;
	char line[256];

	if (!f)
		return;
	in->peer_core = INFO_PEER_STRAIT;
	while (fgets(line, sizeof(line), f)) {
		unsigned long long invalidated;

		p = (struct info_peer){ 0 };
		if (sscanf(line, "%63s %15s %15s %u %llu", p.name, p.version, p.kind, &p.contexts, &invalidated) != 5)
			continue;
		p.invalidated = invalidated;
		*add(in) = p;
	}
	fclose(f);
}

/* Clients of a vendor's ib_core: a folder each. */
static void read_vendors(struct info *in)
{
	DIR *d = opendir(VENDORS);
	struct dirent *e;

	if (!d)
		return;
	in->peer_core = INFO_PEER_VENDOR;
	while ((e = readdir(d)))
		if (e->d_name[0] != '.')
			snprintf(add(in)->name, sizeof(in->peer->name), "%.63s", e->d_name);
	closedir(d);
}

static bool client_is_loaded(void)
{
	return !access("/sys/module/nvidia_peermem", F_OK) || !access("/sys/module/nv_peer_mem", F_OK);
}

void info_read_peers(struct info *in)
{
	read_vendors(in);
	if (in->peer_core == INFO_PEER_NONE)
		read_ours(in);
	if (in->peer_core == INFO_PEER_NONE && client_is_loaded())
		in->peer_core = INFO_PEER_UNUSED;
}

const char *info_peer_core(const struct info *in)
{
	static const char *const text[] = {
		[INFO_PEER_NONE] = "",
		[INFO_PEER_UNUSED] =
			"a client is loaded, and this kernel's ib_core asks none: ibv_reg_mr() of its memory fails",
		[INFO_PEER_STRAIT] =
			"this kernel's ib_core asks none of them: ibv_reg_mr() of their memory fails, and RDMA "
			"drivers import it as a dma-buf; strait_peer maps it for devices that Strait drives",
		[INFO_PEER_VENDOR] = "this kernel's ib_core, a vendor's, asks them: ibv_reg_mr() takes their memory",
	};

	return text[in->peer_core];
}

static const char *kind_text(const char *kind)
{
	if (!strcmp(kind, "persistent"))
		return "memory stays until it is unmapped";
	return *kind ? "memory is revoked when it is freed" : "";
}

void info_print_peers(const struct info *in)
{
	if (in->peer_core == INFO_PEER_NONE)
		return;
	puts("\nPeer memory clients");
	printf("  %s\n", info_peer_core(in));
	for (unsigned int i = 0; i < in->peers; i++) {
		const struct info_peer *p = &in->peer[i];

		printf("  %-12s %s %s", p->name, p->version, p->kind);
		if (*p->kind)
			printf(": %s; %u mapped now, %llu revoked", kind_text(p->kind), p->contexts,
			       (unsigned long long)p->invalidated);
		putchar('\n');
	}
	if (!in->peers && in->peer_core != INFO_PEER_UNUSED)
		puts("  none is registered");
}

void info_put_peers(const struct info *in, struct json *j)
{
	json_object(j, "peer_memory");
	json_string(j, "core", info_peer_core(in));
	json_array(j, "clients");
	for (unsigned int i = 0; i < in->peers; i++) {
		const struct info_peer *p = &in->peer[i];

		json_object(j, NULL);
		json_string(j, "name", p->name);
		json_string(j, "version", p->version);
		json_string(j, "kind", p->kind);
		json_uint(j, "contexts", p->contexts);
		json_uint(j, "invalidated", p->invalidated);
		json_close(j);
	}
	json_close(j);
	json_close(j);
}
