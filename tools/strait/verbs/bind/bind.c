/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <strait/pci.h>
#include <strait/strait.h>

#include "lib/args.h"
#include "lib/cli.h"
#include "lib/json.h"
#include "lib/table.h"
#include "verbs/bind/owner.h"

/* --force takes the address a second time: one mistyped digit must not cost the data of another drive. */
static int force_flags(const char *pci, const char *force, uint32_t *flags)
{
	struct strait_pci_info a = { .size = sizeof(a) }, b = { .size = sizeof(b) };

	*flags = 0;
	if (!force)
		return CLI_OK;
	if (strait_pci_info(pci, &a) || strait_pci_info(force, &b) || strcmp(a.pci, b.pci) != 0)
		return fail(CLI_USAGE, "give the same address twice: strait bind BDF --force BDF",
			    "--force names %s, which is not the device %s", force, pci);
	*flags = STRAIT_PCI_FORCE;
	return CLI_OK;
}

static bool worth_showing(const struct strait_pci_info *info)
{
	return info->saved || !strcmp(info->driver, "strait") || !strcmp(info->driver, "vfio-pci");
}

static void print_row(struct table *t, const struct strait_topo_node *node, const struct strait_pci_info *info)
{
	char owner[128];

	table_cell(t, "%s", info->pci);
	table_cell(t, "%04x:%04x", node->vendor, node->device);
	table_cell(t, "%s", info->driver[0] ? info->driver : "none");
	table_cell(t, "%s", !info->saved ? "unknown" : info->previous[0] ? info->previous : "none");
	if (info->iommu_group < 0)
		table_cell(t, "none");
	else
		table_cell(t, "%d %s", info->iommu_group, node->iommu_type);
	owner_text(info->node, owner, sizeof(owner));
	table_cell(t, "%s", owner);
}

static void json_row(struct json *j, const struct strait_topo_node *node, const struct strait_pci_info *info)
{
	char owner[128];

	owner_text(info->node, owner, sizeof(owner));
	json_object(j, NULL);
	json_string(j, "pci", info->pci);
	json_uint(j, "vendor", node->vendor);
	json_uint(j, "device", node->device);
	json_string(j, "driver", info->driver);
	json_bool(j, "saved", info->saved);
	json_string(j, "previous", info->previous);
	json_int(j, "iommu_group", info->iommu_group);
	json_string(j, "iommu_type", node->iommu_type);
	json_string(j, "node", info->node);
	json_string(j, "owner", owner);
	json_close(j);
}

static int status(void)
{
	struct strait_pci_info info = { .size = sizeof(info) };
	struct strait_topo_node node = { .size = sizeof(node) };
	struct strait_topo *topo;
	struct table t;
	struct json j;
	unsigned int n = 0;
	int err = strait_topo_open(&topo);

	if (err)
		return fail(CLI_FAILED, NULL, "cannot read the PCI devices in /sys: %s", error_text(err));
	table_begin(&t, "device", "id", "driver", "previous driver", "IOMMU group", "owner", NULL);
	if (cli.json) {
		json_begin(&j, stdout);
		json_array(&j, "devices");
	}
	for (unsigned int i = 0; !strait_topo_node(topo, i, &node); i++) {
		if (strait_pci_info(node.pci, &info) || !worth_showing(&info))
			continue;
		n++;
		if (cli.json)
			json_row(&j, &node, &info);
		else
			print_row(&t, &node, &info);
	}
	if (cli.json) {
		json_close(&j);
		json_finish(&j);
	} else if (n) {
		table_print(&t, stdout, 0);
	} else {
		puts("no device is bound to strait or vfio-pci");
	}
	table_free(&t);
	strait_topo_close(topo);
	return CLI_OK;
}

static const char *hint(int err, const char *pci, const char *verb, char *buf, size_t len)
{
	if (err != -EBUSY && err != -ENOTEMPTY)
		return err == -EACCES || err == -EPERM ? "run as root" : NULL;
	snprintf(buf, len, "%s: strait %s %s --force %s",
		 err == -EBUSY ? "to take it although it is in use" : "if its contents are not needed", verb, pci, pci);
	return buf;
}

/* strait.ko attaches no device whose addresses are untranslated: say so now, not when it is first opened. */
static void warn_iommu(const struct strait_pci_info *info)
{
	struct strait_topo_node node = { .size = sizeof(node) };
	struct strait_topo *topo;

	if (strcmp(info->driver, "strait") != 0 || strait_topo_open(&topo))
		return;
	for (unsigned int i = 0; !strait_topo_node(topo, i, &node); i++) {
		if (strcmp(node.pci, info->pci) != 0)
			continue;
		if (info->iommu_group < 0)
			note("%s is behind no active IOMMU: strait.ko will refuse to attach it; boot with intel_iommu=on "
			     "or amd_iommu=on",
			     info->pci);
		else if (!strcmp(node.iommu_type, "identity"))
			note("IOMMU group %d of %s does not translate (type identity): strait.ko will refuse to attach it; "
			     "change the type: echo %s > /sys/bus/pci/drivers/strait/unbind; echo DMA-FQ > /sys/kernel/iommu_groups/%d/type; "
			     "echo %s > /sys/bus/pci/drivers/strait/bind",
			     info->iommu_group, info->pci, info->pci, info->iommu_group, info->pci);
	}
	strait_topo_close(topo);
}

static void report(const char *pci)
{
	struct strait_pci_info info = { .size = sizeof(info) };
	struct json j;

	if (strait_pci_info(pci, &info))
		return;
	warn_iommu(&info);
	if (!cli.json) {
		printf("%s is bound to %s\n", info.pci, info.driver[0] ? info.driver : "no driver");
		return;
	}
	json_begin(&j, stdout);
	json_string(&j, "pci", info.pci);
	json_string(&j, "driver", info.driver);
	json_string(&j, "previous", info.previous);
	json_finish(&j);
}

static int set_owner(const char *pci, const char *owner)
{
	struct strait_pci_info info = { .size = sizeof(info) };

	if (strait_pci_info(pci, &info) || !info.node[0])
		return fail(CLI_FAILED, NULL, "%s has no device node whose owner could be set", pci);
	return owner_set(info.node, owner);
}

int cmd_bind(int argc, char **argv)
{
	const char *driver = "strait", *force = NULL, *owner = NULL, *pos[1] = { NULL };
	char why[512] = "", text[128];
	bool show = false;
	const struct opt opts[] = {
		{ "driver", "NAME", OPT_TEXT, &driver, "the driver to bind it to: strait (default) or vfio-pci" },
		{ "force", "BDF", OPT_TEXT, &force,
		  "the address again: take the device although it is in use or not empty" },
		{ "owner", "USER[:GROUP]", OPT_TEXT, &owner, "user and group that may open the device, beside root" },
		{ "status", NULL, OPT_FLAG, &show, "list the devices bound to strait or vfio-pci" },
		{ "json", NULL, OPT_FLAG, &cli.json, "print the report as JSON" },
	};
	int code, err, n = args_parse(argc, argv, opts, ARRAY_SIZE(opts), 0, 1, pos);
	uint32_t flags;

	if (n < 0)
		return args_exit(n);
	if (show && !n)
		return status();
	if (show || !n)
		return fail(CLI_USAGE, "see: strait help bind", "%s",
			    show ? "--status takes no device" : "no device is given");
	code = force_flags(pos[0], force, &flags);
	if (code)
		return code;
	err = strait_pci_bind(pos[0], driver, flags, why, sizeof(why));
	if (err)
		return fail(err == -EINVAL ? CLI_USAGE : CLI_FAILED, hint(err, pos[0], "bind", text, sizeof(text)),
			    "%s", why[0] ? why : error_text(err));
	if (why[0])
		note("%s", why);
	if (owner) {
		code = set_owner(pos[0], owner);
		if (code)
			return code;
	}
	report(pos[0]);
	return CLI_OK;
}

int cmd_unbind(int argc, char **argv)
{
	const char *force = NULL, *pos[1] = { NULL };
	char why[512] = "", text[128];
	const struct opt opts[] = {
		{ "force", "BDF", OPT_TEXT, &force,
		  "the address again: unbind the device although a process has it open" },
		{ "json", NULL, OPT_FLAG, &cli.json, "print the report as JSON" },
	};
	int code, err, n = args_parse(argc, argv, opts, ARRAY_SIZE(opts), 1, 1, pos);
	uint32_t flags;

	if (n < 0)
		return args_exit(n);
	code = force_flags(pos[0], force, &flags);
	if (code)
		return code;
	err = strait_pci_unbind(pos[0], flags, why, sizeof(why));
	if (err)
		return fail(err == -EINVAL ? CLI_USAGE : CLI_FAILED, hint(err, pos[0], "unbind", text, sizeof(text)),
			    "%s", why[0] ? why : error_text(err));
	report(pos[0]);
	return CLI_OK;
}
