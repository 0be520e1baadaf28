/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "module/module.h"
#include "os/dir.h"
#include "os/os.h"
#include "os/probe.h"
#include "topo/topo.h"

void topo_iommu_name(const char *sysfs_root, char *buf, size_t len)
{
	static const struct {
		const char *prefix;
		const char *name;
	} known[] = {
		{ "dmar", "intel" },	    { "ivhd", "amd" },		{ "smmu3", "arm-smmu-v3" },
		{ "smmu", "arm-smmu" },	    { "arm-smmu", "arm-smmu" }, { "virtio", "virtio-iommu" },
		{ "riscv", "riscv-iommu" },
	};
	struct os_names names;
	char dir[TOPO_PATH];

	buf[0] = '\0';
	str_format(dir, sizeof(dir), "%s/class/iommu", sysfs_root);
	if (os_names_read(dir, &names) < 0)
		return;
	if (names.n) {
		str_copy(buf, len, names.name[0]);
		for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
			if (!strncmp(names.name[0], known[i].prefix, strlen(known[i].prefix))) {
				str_copy(buf, len, known[i].name);
				break;
			}
		}
	}
	os_names_free(&names);
}

unsigned int topo_numa_nodes(const char *sysfs_root)
{
	struct os_names names;
	unsigned int n = 0;
	char dir[TOPO_PATH];

	str_format(dir, sizeof(dir), "%s/devices/system/node", sysfs_root);
	if (os_names_read(dir, &names) < 0)
		return 1;
	for (unsigned int i = 0; i < names.n; i++) {
		const char *name = names.name[i];

		n += !strncmp(name, "node", 4) && name[4] && !name[4 + strspn(name + 4, "0123456789")];
	}
	os_names_free(&names);
	return n ? n : 1;
}

/* Found in the kernel's build configuration, or in its list of symbols. */
static int has_p2pdma(const char *release)
{
	static const char *const dirs[][2] = { { "/boot/config-", "" }, { "/lib/modules/", "/config" } };
	char file[TOPO_PATH];
	int found;

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		str_format(file, sizeof(file), "%s%s%s", dirs[i][0], release, dirs[i][1]);
		found = os_file_has_word(file, "CONFIG_PCI_P2PDMA=y");
		if (found >= 0)
			return found;
	}
	found = os_file_has_word("/proc/kallsyms", "pci_p2pdma_add_resource");
	if (found > 0)
		return 1;
	/* A list without any symbol is hidden, not a sign of a kernel without P2PDMA. */
	if (!found && os_file_has_word("/proc/kallsyms", "schedule") > 0)
		return 0;
	return -1;
}

/* 0, or why the module cannot be used. */
static int ask_module(struct strait_topo_kernel *k)
{
	struct strait_ioc_info info;
	int fd = module_open(), rc;

	if (fd < 0)
		return fd;
	rc = module_info(fd, &info);
	os_close(fd);
	str_copy(k->module_version, sizeof(k->module_version), info.version);
	module_feature_names(info.features, k->module_features, sizeof(k->module_features));
	return rc;
}

STRAIT_API int strait_topo_kernel(struct strait_topo_kernel *kernel)
{
	struct strait_topo_kernel k = { .size = sizeof(k) };

	if (os_kernel_release(k.release, sizeof(k.release)) < 0)
		k.release[0] = '\0';
	topo_iommu_name("/sys", k.iommu, sizeof(k.iommu));
	k.io_uring = os_probe_uring();
	k.cachestat = os_probe_cachestat();
	k.userfaultfd = os_probe_userfaultfd();
	k.udmabuf = os_probe_device("/dev/udmabuf");
	k.p2pdma = has_p2pdma(k.release);
	k.strait_module = ask_module(&k);
	k.memlock = os_memlock_limit();
	k.cpus = os_cpus();
	k.numa_nodes = topo_numa_nodes("/sys");
	return struct_out(kernel, &k, sizeof(k), STRAIT_TOPO_KERNEL_SIZE_V1);
}
