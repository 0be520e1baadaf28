/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include <strait/types.h>

#include "lib/json.h"
#include "verbs/info/info.h"

static void put_devices(const struct info *in, struct json *j)
{
	json_array(j, "devices");
	for (unsigned int i = 0; i < in->devices; i++) {
		const struct strait_device_info *d = &in->device[i];

		json_object(j, NULL);
		json_string(j, "name", d->name);
		json_string(j, "provider", d->provider);
		json_string(j, "model", d->model);
		json_string(j, "pci", d->pci);
		json_int(j, "numa_node", d->numa_node);
		json_uint(j, "page_size", d->page_size);
		json_uint(j, "mem_total", d->mem_total);
		json_uint(j, "mem_free", d->mem_free);
		json_array(j, "can");
		for (unsigned int bit = 0; info_cap(bit); bit++)
			if (d->caps & 1u << bit)
				json_string(j, NULL, info_cap(bit));
		json_close(j);
		json_close(j);
	}
	json_close(j);
	json_array(j, "providers");
	for (unsigned int i = 0; i < in->providers; i++) {
		json_object(j, NULL);
		json_string(j, "name", in->provider[i].info.name);
		json_uint(j, "devices", in->provider[i].info.devices);
		json_int(j, "status", in->provider[i].info.status);
		json_string(j, "why", in->provider[i].why);
		json_close(j);
	}
	json_close(j);
}

static void put_storage(const struct info *in, struct json *j)
{
	json_array(j, "drives");
	for (unsigned int i = 0; i < in->drives; i++) {
		json_object(j, NULL);
		json_string(j, "name", in->drive[i].name);
		json_string(j, "kind", in->drive[i].kind);
		json_uint(j, "bytes", in->drive[i].bytes);
		json_string(j, "pci", in->drive[i].pci);
		json_string(j, "driver", in->drive[i].driver);
		json_string(j, "model", in->drive[i].model);
		json_close(j);
	}
	json_close(j);
	json_array(j, "filesystems");
	for (unsigned int i = 0; i < in->filesystems; i++) {
		const struct info_fs *fs = &in->fs[i];

		json_object(j, NULL);
		json_string(j, "mount", fs->mount);
		json_string(j, "type", fs->type);
		json_string(j, "source", fs->source);
		if (fs->bytes) {
			json_uint(j, "bytes", fs->bytes);
			json_uint(j, "free", fs->free);
		}
		if (fs->direct < 0)
			json_null(j, "direct");
		else
			json_bool(j, "direct", fs->direct);
		json_string(j, "direct_why", fs->direct_why);
		json_close(j);
	}
	json_close(j);
}

static void put_link(const struct info *in, const struct strait_topo_node *a, const struct strait_topo_node *b,
		     struct json *j)
{
	unsigned int hops = 0;
	int link = strait_topo_link(in->topo, a->pci, b->pci, &hops);

	if (link < 0)
		return;
	json_object(j, NULL);
	json_string(j, "from", a->pci);
	json_string(j, "to", b->pci);
	json_string(j, "link", info_link(link));
	json_uint(j, "hops", hops);
	json_close(j);
}

static void put_pci(const struct info *in, struct json *j)
{
	json_array(j, "pci");
	for (unsigned int i = 0; i < in->nodes; i++) {
		const struct strait_topo_node *n = &in->node[i];
		char text[24];

		json_object(j, NULL);
		json_string(j, "pci", n->pci);
		json_string(j, "parent", n->parent);
		json_string(j, "kind", info_kind(n->kind));
		snprintf(text, sizeof(text), "%04x:%04x", n->vendor, n->device);
		json_string(j, "id", text);
		snprintf(text, sizeof(text), "%06x", n->class_code);
		json_string(j, "class", text);
		json_string(j, "driver", n->driver);
		json_string(j, "block", n->block);
		json_int(j, "numa_node", n->numa_node);
		json_int(j, "iommu_group", n->iommu_group);
		json_string(j, "iommu_type", n->iommu_type);
		json_int(j, "acs_redirect", n->acs_redirect);
		json_uint(j, "link_gts", n->link_gts);
		json_uint(j, "link_width", n->link_width);
		json_uint(j, "bar_bytes", n->bar_bytes);
		json_close(j);
	}
	json_close(j);
	json_array(j, "distances");
	for (unsigned int i = 0; i < in->nodes; i++)
		for (unsigned int k = 0; in->node[i].kind == STRAIT_TOPO_GPU && k < in->nodes; k++)
			if (i != k && in->node[k].kind >= STRAIT_TOPO_GPU && in->node[k].kind <= STRAIT_TOPO_NIC)
				put_link(in, &in->node[i], &in->node[k], j);
	json_close(j);
}

static void put_kernel(const struct info *in, struct json *j)
{
	const struct strait_topo_kernel *k = &in->kernel;

	json_object(j, "kernel");
	json_string(j, "release", k->release);
	json_uint(j, "cpus", k->cpus);
	json_uint(j, "numa_nodes", k->numa_nodes);
	json_string(j, "iommu", k->iommu);
	json_int(j, "io_uring", k->io_uring);
	json_int(j, "cachestat", k->cachestat);
	json_int(j, "userfaultfd", k->userfaultfd);
	json_int(j, "udmabuf", k->udmabuf);
	json_int(j, "p2pdma", k->p2pdma);
	json_int(j, "strait_module", k->strait_module);
	json_string(j, "module_version", k->module_version);
	json_string(j, "module_features", k->module_features);
	if (k->memlock == UINT64_MAX)
		json_null(j, "memlock");
	else
		json_uint(j, "memlock", k->memlock);
	json_close(j);
}

static void put_lines(const struct info_lines *l, const char *name, struct json *j)
{
	json_array(j, name);
	for (unsigned int i = 0; i < l->n; i++)
		json_string(j, NULL, l->line[i]);
	json_close(j);
}

void info_print_json(const struct info *in)
{
	struct json j;

	json_begin(&j, stdout);
	json_string(&j, "version", strait_version());
	put_devices(in, &j);
	put_storage(in, &j);
	put_pci(in, &j);
	put_kernel(in, &j);
	info_put_peers(in, &j);
	put_lines(&in->can, "can", &j);
	put_lines(&in->more, "more", &j);
	json_finish(&j);
}
