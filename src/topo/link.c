/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "base/util.h"
#include "topo/topo.h"

/* Depth below the host bridge: 2 for "pci0000:16/0000:16:01.0/0000:17:00.0". */
static unsigned int depth(const char *path)
{
	unsigned int n = 0;

	for (; *path; path++)
		n += *path == '/';
	return n;
}

/* Number of leading components that two paths share, including the host bridge. */
static unsigned int shared(const char *a, const char *b)
{
	unsigned int n = 0;

	for (;;) {
		size_t la = strcspn(a, "/"), lb = strcspn(b, "/");

		if (la != lb || strncmp(a, b, la))
			return n;
		n++;
		a += la;
		b += lb;
		if (!*a || !*b)
			return n;
		a++;
		b++;
	}
}

STRAIT_API int strait_topo_link(struct strait_topo *topo, const char *a, const char *b, unsigned int *hops)
{
	struct topo_dev *da = topo_find(topo, a), *db = topo_find(topo, b);
	unsigned int common, n;
	int link;

	if (!da || !db)
		return -ENODEV;
	common = shared(da->path, db->path);
	if (!common) {
		/* Up to one root, across, and down from the other. */
		n = depth(da->path) + depth(db->path) + 1;
		if (topo->numa_nodes <= 1 || da->node.numa_node == db->node.numa_node)
			link = STRAIT_LINK_NODE;
		else
			link = STRAIT_LINK_SYSTEM;
	} else {
		n = depth(da->path) + depth(db->path) - 2 * (common - 1);
		if (da == db)
			link = STRAIT_LINK_SAME;
		else
			link = common > 1 ? STRAIT_LINK_SWITCH : STRAIT_LINK_ROOT;
	}
	if (hops)
		*hops = n;
	return link;
}
