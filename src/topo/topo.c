/* SPDX-License-Identifier: MIT */
#include "topo/topo.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "os/dir.h"
#include "os/os.h"

bool topo_is_address(const char *s, size_t len)
{
	/* The domain has four digits, or more behind a VMD controller. */
	static const char tail[] = ":xx:xx.x";
	size_t tail_len = sizeof(tail) - 1;

	if (len < 4 + tail_len || len >= sizeof(((struct strait_topo_node *)0)->pci))
		return false;
	for (size_t i = 0; i < len - tail_len; i++)
		if (!isxdigit((unsigned char)s[i]))
			return false;
	s += len - tail_len;
	for (size_t i = 0; i < tail_len; i++)
		if (tail[i] == 'x' ? !isxdigit((unsigned char)s[i]) : s[i] != tail[i])
			return false;
	return true;
}

static bool is_host_bridge(const char *s, size_t len)
{
	return len >= 10 && !strncmp(s, "pci", 3) && isxdigit((unsigned char)s[3]) && memchr(s, ':', len);
}

int topo_pci_path(const char *link, char *path, size_t len)
{
	const char *start = NULL, *end = NULL;

	for (const char *s = link; *s;) {
		size_t n = strcspn(s, "/");

		if (is_host_bridge(s, n)) {
			start = s;
			end = NULL;
		} else if (start && topo_is_address(s, n)) {
			end = s + n;
		} else if (end) {
			break;
		}
		s += n;
		s += *s == '/';
	}
	if (!end || (size_t)(end - start) >= len)
		return -ENODEV;
	memcpy(path, start, (size_t)(end - start));
	path[end - start] = '\0';
	return 0;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct topo_dev *)a)->path, ((const struct topo_dev *)b)->path);
}

static int add_device(struct strait_topo *topo, const char *root, const char *name)
{
	char file[TOPO_PATH], link[TOPO_PATH], path[TOPO_PATH];
	struct topo_dev *dev = &topo->dev[topo->n];

	str_format(file, sizeof(file), "%s/bus/pci/devices/%s", root, name);
	if (os_read_link(file, link, sizeof(link)) < 0 || topo_pci_path(link, path, sizeof(path)) < 0)
		return 0;
	dev->path = strdup(path);
	if (!dev->path)
		return -ENOMEM;
	topo_read_node(root, path, &dev->node);
	topo->n++;
	return 0;
}

int topo_open_at(const char *sysfs_root, struct strait_topo **ret)
{
	struct os_names names = { 0 };
	struct strait_topo *topo;
	char dir[TOPO_PATH];
	int err;

	topo = calloc(1, sizeof(*topo));
	if (!topo)
		return -ENOMEM;
	topo->numa_nodes = topo_numa_nodes(sysfs_root);
	str_format(dir, sizeof(dir), "%s/bus/pci/devices", sysfs_root);
	err = os_names_read(dir, &names);
	if (err == -ENOMEM)
		goto err_close;
	if (err || !names.n)
		goto out; /* no PCI bus, or no permission: an empty tree */

	topo->dev = calloc(names.n, sizeof(*topo->dev));
	if (!topo->dev) {
		err = -ENOMEM;
		goto err_close;
	}
	for (unsigned int i = 0; i < names.n; i++) {
		err = add_device(topo, sysfs_root, names.name[i]);
		if (err)
			goto err_close;
	}
	if (topo->n)
		qsort(topo->dev, topo->n, sizeof(*topo->dev), by_path);
	topo_read_blocks(sysfs_root, topo);
out:
	os_names_free(&names);
	*ret = topo;
	return 0;
err_close:
	os_names_free(&names);
	strait_topo_close(topo);
	return err;
}

STRAIT_API int strait_topo_open(struct strait_topo **ret)
{
	return topo_open_at("/sys", ret);
}

STRAIT_API void strait_topo_close(struct strait_topo *topo)
{
	if (!topo)
		return;
	for (unsigned int i = 0; i < topo->n; i++)
		free(topo->dev[i].path);
	free(topo->dev);
	free(topo);
}

STRAIT_API int strait_topo_node(struct strait_topo *topo, unsigned int index, struct strait_topo_node *node)
{
	if (index >= topo->n)
		return -ENOENT;
	return struct_out(node, &topo->dev[index].node, sizeof(*node), STRAIT_TOPO_NODE_SIZE_V1);
}

struct topo_dev *topo_find(struct strait_topo *topo, const char *pci)
{
	for (unsigned int i = 0; i < topo->n; i++)
		if (!strcasecmp(topo->dev[i].node.pci, pci))
			return &topo->dev[i];
	return NULL;
}
