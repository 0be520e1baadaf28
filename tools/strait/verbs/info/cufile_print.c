/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "lib/cli.h"
#include "lib/json.h"
#include "lib/size.h"
#include "lib/table.h"
#include "verbs/info/cufile.h"

static void print_settings(const struct info_cufile *c)
{
	struct table t;

	printf("\nSettings\n  %s: %s\n", c->file, c->file_state);
	if (!c->settings)
		return;
	table_begin(&t, "SETTING", "VALUE", "EFFECT", NULL);
	for (unsigned int i = 0; i < c->settings; i++) {
		table_cell(&t, "%s", c->setting[i].name);
		table_cell(&t, "%s", c->setting[i].value);
		table_cell(&t, "%s", info_cufile_effect(c->setting[i].effect));
	}
	table_print(&t, stdout, 2);
	table_free(&t);
}

static void print_params(const struct info_cufile *c)
{
	struct table t;

	if (!c->params)
		return;
	puts("\nParameters");
	table_begin(&t, "PARAMETER", "VALUE", "RANGE", "EFFECT", NULL);
	for (unsigned int i = 0; i < c->params; i++) {
		table_cell(&t, "%s", c->param[i].name);
		table_cell(&t, "%s", c->param[i].value);
		table_cell(&t, "%s", c->param[i].range);
		table_cell(&t, "%s", info_cufile_effect(setting_effect(c->param[i].name)));
	}
	table_print(&t, stdout, 2);
	table_free(&t);
}

static const char *usable(const struct cufile_device *d, int route)
{
	return d->read.verdict[route].usable ? "yes" : "no";
}

static void print_devices(const struct info_cufile *c)
{
	char bar[SIZE_TEXT];
	struct table t;

	puts("\nDevices");
	table_begin(&t, "NAME", "MODEL", ">BAR", "P2P", "PAGECACHE", "STAGED", "STREAMS", NULL);
	for (unsigned int i = 0; i < c->devices; i++) {
		const struct cufile_device *d = &c->device[i];

		if (d->info->caps & STRAIT_DEVICE_HOST)
			continue;
		table_cell(&t, "%s", d->info->name);
		table_cell(&t, "%s", d->info->model);
		table_cell(&t, "%s", d->bar_bytes ? size_format(d->bar_bytes, bar) : "-");
		table_cell(&t, "%s", usable(d, STRAIT_ROUTE_P2P));
		table_cell(&t, "%s", usable(d, STRAIT_ROUTE_PAGECACHE));
		table_cell(&t, "%s", usable(d, STRAIT_ROUTE_STAGED));
		table_cell(&t, "%s", d->info->caps & STRAIT_DEVICE_STREAMS ? "yes" : "no");
	}
	table_print(&t, stdout, 2);
	table_free(&t);
	for (unsigned int i = 0; i < c->devices; i++) {
		const struct strait_route_verdict *v = &c->device[i].read.verdict[STRAIT_ROUTE_P2P];

		const char *fix = strait_route_verdict_fix(v);
		char why[256];

		if (v->usable || c->device[i].info->caps & STRAIT_DEVICE_HOST)
			continue;
		strait_route_verdict_text(v, why, sizeof(why));
		printf("  %s, p2p: %s%s%s\n", c->device[i].info->name, why, fix[0] ? "; " : "", fix);
	}
}

static const char *how_text(const struct info_fs *fs)
{
	return fs->direct > 0 ? "pagecache where cached; otherwise staged, direct I/O" : "staged, buffered I/O";
}

static void print_filesystems(const struct info *in)
{
	static const char *const answers[] = { "unknown", "no", "yes" };
	struct table t;

	puts("\nFile systems (cuFile handles can be registered for files on all of them)");
	table_begin(&t, "MOUNTED ON", "TYPE", "DIRECT I/O", "HOW", NULL);
	for (unsigned int i = 0; i < in->filesystems; i++) {
		const struct info_fs *fs = &in->fs[i];

		table_cell(&t, "%s", fs->mount);
		table_cell(&t, "%s", fs->type);
		table_cell(&t, "%s", answers[fs->direct + 1]);
		table_cell(&t, "%s", how_text(fs));
	}
	table_print(&t, stdout, 2);
	table_free(&t);
}

void info_cufile_print(const struct info *in, const struct info_cufile *c)
{
	printf("cuFile on Strait %s\n", strait_version());
	printf("  %-14s %s\n", "library", c->library ? c->library : "-");
	if (c->why[0])
		printf("  %-14s %s\n", "NOT USABLE", c->why);
	else
		printf("  %-14s cuFile %d.%d (STRAIT_CUFILE_VERSION sets another version)\n", "reports",
		       c->version / 1000, c->version % 1000 / 10);
	printf("  %-14s not needed\n  %-14s not needed\n", "nvidia-fs", "udev");
	printf("  %-14s %s\n", "strait.ko", in->kernel.strait_module ? error_text(in->kernel.strait_module) : "yes");
	printf("  %-14s %s\n", "P2PDMA", in->kernel.p2pdma > 0 ? "yes" : in->kernel.p2pdma ? "unknown" : "no");
	printf("  %-14s %s\n", "IOMMU", in->kernel.iommu[0] ? in->kernel.iommu : "none active");
	printf("  %-14s not supported: no user-space file systems, no libcufile_rdma.so\n", "RDMA");
	print_devices(c);
	print_filesystems(in);
	print_settings(c);
	print_params(c);
}

static void put_devices(const struct info_cufile *c, struct json *j)
{
	json_array(j, "devices");
	for (unsigned int i = 0; i < c->devices; i++) {
		const struct cufile_device *d = &c->device[i];

		json_object(j, NULL);
		json_string(j, "name", d->info->name);
		json_string(j, "model", d->info->model);
		json_uint(j, "bar_bytes", d->bar_bytes);
		json_bool(j, "streams", d->info->caps & STRAIT_DEVICE_STREAMS);
		json_array(j, "routes");
		for (int r = 0; r < STRAIT_ROUTE_COUNT; r++) {
			const struct strait_route_verdict *v = &d->read.verdict[r];
			char why[256];

			strait_route_verdict_text(v, why, sizeof(why));
			json_object(j, NULL);
			json_string(j, "name", strait_route_name(r));
			json_bool(j, "usable", v->usable);
			json_uint(j, "reason", v->reason);
			json_string(j, "why", why);
			json_string(j, "fix", strait_route_verdict_fix(v));
			json_close(j);
		}
		json_close(j);
		json_close(j);
	}
	json_close(j);
}

static void put_settings(const struct info_cufile *c, struct json *j)
{
	json_object(j, "file");
	json_string(j, "path", c->file);
	json_string(j, "state", c->file_state);
	json_close(j);
	json_array(j, "settings");
	for (unsigned int i = 0; i < c->settings; i++) {
		json_object(j, NULL);
		json_string(j, "name", c->setting[i].name);
		json_string(j, "value", c->setting[i].value);
		json_string(j, "from", c->setting[i].env ? "environment" : "file");
		json_string(j, "effect", info_cufile_effect(c->setting[i].effect));
		json_close(j);
	}
	json_close(j);
	json_array(j, "parameters");
	for (unsigned int i = 0; i < c->params; i++) {
		json_object(j, NULL);
		json_string(j, "name", c->param[i].name);
		json_string(j, "value", c->param[i].value);
		json_string(j, "range", c->param[i].range);
		json_string(j, "effect", info_cufile_effect(setting_effect(c->param[i].name)));
		json_close(j);
	}
	json_close(j);
}

void info_cufile_print_json(const struct info *in, const struct info_cufile *c)
{
	struct json j;

	json_begin(&j, stdout);
	json_string(&j, "strait", strait_version());
	json_string(&j, "library", c->library ? c->library : "");
	json_string(&j, "unusable", c->why);
	json_int(&j, "version", c->version);
	json_bool(&j, "strait_module", !in->kernel.strait_module);
	json_bool(&j, "p2pdma", in->kernel.p2pdma > 0);
	json_string(&j, "iommu", in->kernel.iommu);
	put_devices(c, &j);
	json_array(&j, "filesystems");
	for (unsigned int i = 0; i < in->filesystems; i++) {
		json_object(&j, NULL);
		json_string(&j, "mount", in->fs[i].mount);
		json_string(&j, "type", in->fs[i].type);
		json_int(&j, "direct", in->fs[i].direct);
		json_string(&j, "how", how_text(&in->fs[i]));
		json_close(&j);
	}
	json_close(&j);
	put_settings(c, &j);
	json_finish(&j);
}
