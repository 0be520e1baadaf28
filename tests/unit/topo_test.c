/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <strait/topo.h>

#include "harness/harness.h"
#include "os/dir.h"
#include "topo/topo.h"

/*
 * A machine of two sockets. Below the root port 16:01.0 a switch (17:00.0) with two GPUs and a drive;
 * below the root port 16:02.0 another drive; on the second socket a NIC, a GPU of class 12 and, behind
 * a VMD controller, a drive in a domain of its own.
 */
#define SWITCH "pci0000:16/0000:16:01.0/0000:17:00.0"
#define GPU0 "0000:19:00.0"
#define GPU1 "0000:1a:00.0"
#define NVME0 "0000:1b:00.0"
#define NVME1 "0000:1c:00.0"
#define NIC "0000:98:00.0"
#define GPU2 "0000:99:00.0"
#define NVME2 "10000:01:00.0"

static const struct fake {
	const char *path;
	const char *class;
	const char *vendor;
	const char *numa;
	const char *driver;
	int group;
} machine[] = {
	{ "pci0000:16/0000:16:01.0", "0x060400", "0x8086", "0", "pcieport", 1 },
	{ "pci0000:16/0000:16:02.0", "0x060400", "0x8086", "0", "pcieport", 2 },
	{ SWITCH, "0x060400", "0x1000", "0", "pcieport", 3 },
	{ SWITCH "/0000:18:00.0", "0x060400", "0x1000", "0", "pcieport", 4 },
	{ SWITCH "/0000:18:01.0", "0x060400", "0x1000", "0", "pcieport", 5 },
	{ SWITCH "/0000:18:02.0", "0x060400", "0x1000", "0", "pcieport", 6 },
	{ SWITCH "/0000:18:00.0/" GPU0, "0x030200", "0x10de", "0", "nvidia", 7 },
	{ SWITCH "/0000:18:01.0/" GPU1, "0x030200", "0x10de", "0", "nvidia", 8 },
	{ SWITCH "/0000:18:02.0/" NVME0, "0x010802", "0x144d", "0", "nvme", 9 },
	{ "pci0000:16/0000:16:02.0/" NVME1, "0x010802", "0x144d", "0", "nvme", 10 },
	{ "pci0000:97/0000:97:01.0", "0x060400", "0x8086", "1", "pcieport", 11 },
	{ "pci0000:97/0000:97:01.0/" NIC, "0x020700", "0x15b3", "1", "mlx5_core", 12 },
	{ "pci0000:97/0000:97:02.0", "0x060400", "0x8086", "1", "", 13 },
	{ "pci0000:97/0000:97:02.0/" GPU2, "0x120000", "0x1002", "1", "", -1 },
	{ "pci0000:97/0000:97:05.5", "0x010400", "0x8086", "1", "vmd", 14 },
	{ "pci0000:97/0000:97:05.5/pci10000:00/10000:00:02.0", "0x060400", "0x8086", "-1", "pcieport", -1 },
	{ "pci0000:97/0000:97:05.5/pci10000:00/10000:00:02.0/" NVME2, "0x010802", "0x8086", "-1", "nvme", -1 },
	{ "pci0000:97/0000:97:1f.0", "0x030000", "0x1a03", "1", "ast", 15 },
};

static const char *root;

static void __attribute__((format(printf, 1, 2))) make_dir(const char *fmt, ...)
{
	char path[1024];
	va_list ap;
	int n = snprintf(path, sizeof(path), "%s/", root);

	va_start(ap, fmt);
	vsnprintf(path + n, sizeof(path) - (size_t)n, fmt, ap);
	va_end(ap);
	for (char *s = path + n;; s++) {
		char c = *s;

		if (c && c != '/')
			continue;
		*s = '\0';
		if (mkdir(path, 0755) < 0)
			ASSERT_EQ(errno, EEXIST);
		*s = c;
		if (!c)
			return;
	}
}

static void write_bytes(const char *dir, const char *name, const void *bytes, size_t len)
{
	char path[1024];
	int fd;

	snprintf(path, sizeof(path), "%s/%s/%s", root, dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	ASSERT_GE(fd, 0);
	ASSERT_EQ(write(fd, bytes, len), (ssize_t)len);
	close(fd);
}

static void write_line(const char *dir, const char *name, const char *text)
{
	char line[256];

	snprintf(line, sizeof(line), "%s\n", text);
	write_bytes(dir, name, line, strlen(line));
}

static void make_link(const char *target, const char *dir, const char *name)
{
	char path[1024];

	snprintf(path, sizeof(path), "%s/%s/%s", root, dir, name);
	ASSERT_EQ(symlink(target, path), 0);
}

static void make_device(const struct fake *f)
{
	const char *name = strrchr(f->path, '/') + 1;
	char dir[512], text[512];

	snprintf(dir, sizeof(dir), "devices/%s", f->path);
	make_dir("%s", dir);
	write_line(dir, "class", f->class);
	write_line(dir, "vendor", f->vendor);
	write_line(dir, "device", "0x1234");
	write_line(dir, "numa_node", f->numa);
	write_line(dir, "current_link_speed", "16.0 GT/s PCIe");
	write_line(dir, "current_link_width", "16");
	write_bytes(dir, "resource",
		    "0x00000000d0000000 0x00000000d0ffffff 0x0000000000040200\n"
		    "0x0000002000000000 0x0000003fffffffff 0x000000000014220c\n"
		    "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
		    "0x0000000000003000 0x000000000000307f 0x0000000000040101\n",
		    4 * 57);
	if (f->driver[0]) {
		snprintf(text, sizeof(text), "../../bus/pci/drivers/%s", f->driver);
		make_link(text, dir, "driver");
	}
	if (f->group >= 0) {
		make_dir("kernel/iommu_groups/%d", f->group);
		snprintf(text, sizeof(text), "kernel/iommu_groups/%d", f->group);
		write_line(text, "type", "DMA-FQ");
		snprintf(text, sizeof(text), "%s/kernel/iommu_groups/%d", root, f->group);
		make_link(text, dir, "iommu_group");
	}
	snprintf(text, sizeof(text), "../../../devices/%s", f->path);
	make_link(text, "bus/pci/devices", name);
}

/* Config space of a port with one other extended capability before ACS. */
static void make_acs(const char *path, uint8_t ctrl, size_t len)
{
	uint8_t config[4096] = { 0 };
	char dir[512];

	memcpy(config + 0x100, (uint8_t[]){ 0x01, 0x00, 0x01, 0x15 }, 4); /* AER, next at 0x150 */
	memcpy(config + 0x150, (uint8_t[]){ 0x0d, 0x00, 0x01, 0x00, 0x5f, 0x00, ctrl, 0x00 }, 8);
	snprintf(dir, sizeof(dir), "devices/%s", path);
	write_bytes(dir, "config", config, len);
}

static struct strait_topo *open_machine(void)
{
	struct strait_topo *topo;

	root = test_dir();
	make_dir("bus/pci/devices");
	make_dir("block");
	make_dir("class/iommu/dmar0");
	make_dir("devices/system/node/node0");
	make_dir("devices/system/node/node1");
	make_dir("devices/system/node/power");
	/* Children first: the order of the tree must not come from the order of creation. */
	for (size_t i = sizeof(machine) / sizeof(machine[0]); i--;)
		make_device(&machine[i]);
	make_acs(SWITCH "/0000:18:00.0", 0x1d, 4096);
	make_acs(SWITCH "/0000:18:01.0", 0x11, 4096);
	make_acs(SWITCH "/0000:18:02.0", 0x1d, 64);
	make_link("../devices/" SWITCH "/0000:18:02.0/" NVME0 "/nvme/nvme0/nvme0n1", "block", "nvme0n1");
	make_link("../devices/virtual/nvme-subsystem/nvme-subsys3/nvme3n1", "block", "nvme3n1");
	make_link("../devices/virtual/block/loop0", "block", "loop0");
	make_dir("devices/pci0000:16/0000:16:02.0/" NVME1 "/nvme/nvme1/hwmon2");
	make_dir("devices/pci0000:16/0000:16:02.0/" NVME1 "/nvme/nvme1/nvme3c1n1");
	ASSERT_OK(topo_open_at(root, &topo));
	return topo;
}

static struct strait_topo_node find(struct strait_topo *topo, const char *pci)
{
	struct strait_topo_node node = { .size = sizeof(node) };

	for (unsigned int i = 0; !strait_topo_node(topo, i, &node); i++)
		if (!strcmp(node.pci, pci))
			return node;
	FAIL("%s is not in the tree", pci);
}

TEST(lists_parents_before_children)
{
	struct strait_topo *topo = open_machine();
	struct strait_topo_node node = { .size = sizeof(node) };
	char seen[64][16];
	unsigned int n;

	for (n = 0; !strait_topo_node(topo, n, &node); n++) {
		bool found = !node.parent[0];

		for (unsigned int i = 0; i < n; i++)
			found |= !strcmp(seen[i], node.parent);
		ASSERT_TRUE(found);
		strcpy(seen[n], node.pci);
	}
	ASSERT_EQ(n, sizeof(machine) / sizeof(machine[0]));
	ASSERT_EQ(strait_topo_node(topo, n, &node), -ENOENT);
	strait_topo_close(topo);
}

TEST(knows_each_kind)
{
	struct strait_topo *topo = open_machine();

	ASSERT_EQ(find(topo, GPU0).kind, STRAIT_TOPO_GPU);
	ASSERT_EQ(find(topo, GPU2).kind, STRAIT_TOPO_GPU);
	ASSERT_EQ(find(topo, NVME0).kind, STRAIT_TOPO_NVME);
	ASSERT_EQ(find(topo, NIC).kind, STRAIT_TOPO_NIC);
	ASSERT_EQ(find(topo, "0000:97:05.5").kind, STRAIT_TOPO_STORAGE);
	ASSERT_EQ(find(topo, "0000:18:00.0").kind, STRAIT_TOPO_BRIDGE);
	ASSERT_EQ(find(topo, "0000:97:1f.0").kind, STRAIT_TOPO_OTHER); /* the display of a BMC */
	strait_topo_close(topo);
}

TEST(reads_what_a_device_says)
{
	struct strait_topo *topo = open_machine();
	struct strait_topo_node gpu = find(topo, GPU0), lone = find(topo, GPU2);

	ASSERT_STREQ(gpu.parent, "0000:18:00.0");
	ASSERT_STREQ(gpu.driver, "nvidia");
	ASSERT_EQ(gpu.vendor, 0x10de);
	ASSERT_EQ(gpu.device, 0x1234);
	ASSERT_EQ(gpu.class_code, 0x030200);
	ASSERT_EQ(gpu.numa_node, 0);
	ASSERT_EQ(gpu.iommu_group, 7);
	ASSERT_STREQ(gpu.iommu_type, "DMA-FQ");
	ASSERT_EQ(gpu.link_gts, 16);
	ASSERT_EQ(gpu.link_width, 16);
	ASSERT_EQ(gpu.bar_bytes, 128ull << 30);

	ASSERT_STREQ(lone.driver, "");
	ASSERT_EQ(lone.iommu_group, -1);
	ASSERT_STREQ(lone.iommu_type, "");
	ASSERT_STREQ(find(topo, "0000:16:01.0").parent, "");
	strait_topo_close(topo);
}

TEST(finds_the_disk_of_a_drive)
{
	struct strait_topo *topo = open_machine();

	ASSERT_STREQ(find(topo, NVME0).block, "nvme0n1");
	ASSERT_STREQ(find(topo, NVME1).block, "nvme3n1"); /* multipath: the controller has a path only */
	ASSERT_STREQ(find(topo, NVME2).block, "");
	ASSERT_STREQ(find(topo, GPU0).block, "");
	strait_topo_close(topo);
}

TEST(tells_where_peer_traffic_is_redirected)
{
	struct strait_topo *topo = open_machine();

	ASSERT_EQ(find(topo, GPU0).acs_redirect, 1);
	ASSERT_EQ(find(topo, GPU1).acs_redirect, 0);
	ASSERT_EQ(find(topo, NVME0).acs_redirect, -1);		/* 64 bytes: not allowed to see more */
	ASSERT_EQ(find(topo, NVME1).acs_redirect, -1);		/* no config at all */
	ASSERT_EQ(find(topo, "0000:16:01.0").acs_redirect, -1); /* no port above */
	strait_topo_close(topo);
}

TEST(a_capability_list_that_loops_ends)
{
	uint8_t config[4096] = { 0 };

	memcpy(config + 0x100, (uint8_t[]){ 0x01, 0x00, 0x01, 0x15 }, 4);
	memcpy(config + 0x150, (uint8_t[]){ 0x02, 0x00, 0x01, 0x10 }, 4); /* back to 0x100 */
	ASSERT_EQ(topo_acs_redirect(config, sizeof(config)), 0);
	memcpy(config + 0x150, (uint8_t[]){ 0x02, 0x00, 0xc1, 0xff }, 4); /* 0xffc: its header fits, ACS would not */
	memcpy(config + 0xffc, (uint8_t[]){ 0x0d, 0x00, 0x01, 0x00 }, 4);
	ASSERT_EQ(topo_acs_redirect(config, sizeof(config)), 0);
	memset(config, 0xff, sizeof(config)); /* a device that fell off the bus */
	ASSERT_EQ(topo_acs_redirect(config, sizeof(config)), 0);
	ASSERT_EQ(topo_acs_redirect(config, 256), 0);
	ASSERT_EQ(topo_acs_redirect(config, 0), -1);
}

static const struct pair {
	const char *name;
	const char *a, *b;
	int link;
	unsigned int hops;
} pairs[] = {
	{ "same", GPU0, GPU0, STRAIT_LINK_SAME, 0 },
	{ "gpus_below_a_switch", GPU0, GPU1, STRAIT_LINK_SWITCH, 4 },
	{ "gpu_and_drive_below_a_switch", NVME0, GPU1, STRAIT_LINK_SWITCH, 4 },
	{ "bridge_and_device", "0000:18:00.0", GPU0, STRAIT_LINK_SWITCH, 1 },
	{ "one_host_bridge", GPU0, NVME1, STRAIT_LINK_ROOT, 6 },
	{ "one_host_bridge_no_switch", NIC, GPU2, STRAIT_LINK_ROOT, 4 },
	{ "two_sockets", GPU0, GPU2, STRAIT_LINK_SYSTEM, 7 },
	{ "unknown_socket", GPU2, NVME2, STRAIT_LINK_SYSTEM, 5 },
	{ "no_such_device", GPU0, "0000:ff:00.0", -ENODEV, 99 },
};

TEST_VARIANTS(link_of_two_devices, struct pair, pairs)
{
	struct strait_topo *topo = open_machine();
	unsigned int hops = 99;

	ASSERT_EQ(strait_topo_link(topo, v->a, v->b, &hops), v->link);
	ASSERT_EQ(hops, v->hops);
	ASSERT_EQ(strait_topo_link(topo, v->b, v->a, NULL), v->link);
	strait_topo_close(topo);
}

TEST(one_numa_node_is_near)
{
	struct strait_topo *topo = open_machine();

	topo->numa_nodes = 1;
	ASSERT_EQ(strait_topo_link(topo, GPU2, NVME2, NULL), STRAIT_LINK_NODE);
	strait_topo_close(topo);
}

TEST(works_without_pci)
{
	struct strait_topo_node node = { .size = sizeof(node) };
	struct strait_topo *topo;
	char iommu[32];

	ASSERT_OK(topo_open_at(test_path("nothing"), &topo));
	ASSERT_EQ(strait_topo_node(topo, 0, &node), -ENOENT);
	ASSERT_EQ(strait_topo_link(topo, GPU0, GPU0, NULL), -ENODEV);
	strait_topo_close(topo);
	strait_topo_close(NULL);
	ASSERT_EQ(topo_numa_nodes(test_path("nothing")), 1);
	topo_iommu_name(test_path("nothing"), iommu, sizeof(iommu));
	ASSERT_STREQ(iommu, "");
}

TEST(names_the_iommu_and_counts_numa_nodes)
{
	struct strait_topo *topo = open_machine();
	char iommu[32];

	topo_iommu_name(root, iommu, sizeof(iommu));
	ASSERT_STREQ(iommu, "intel");
	ASSERT_EQ(topo_numa_nodes(root), 2);
	strait_topo_close(topo);
}

TEST(older_and_newer_callers)
{
	struct {
		struct strait_topo_node node;
		uint64_t later;
	} newer = { .node.size = sizeof(newer), .later = 1 };
	struct strait_topo_node older = { .size = 8 };
	struct strait_topo *topo = open_machine();

	ASSERT_OK(strait_topo_node(topo, 0, &newer.node));
	ASSERT_EQ(newer.later, 0);
	ASSERT_EQ(newer.node.size, sizeof(newer));
	ASSERT_EQ(strait_topo_node(topo, 0, &older), -EINVAL);
	strait_topo_close(topo);
}

TEST(addresses)
{
	static const char *const good[] = { "0000:17:00.0", "10000:e1:1f.7", "abcd:EF:00.0" };
	static const char *const bad[] = { "", "17:00.0", "0000:17:00", "0000:17:00.0x", "pci0000:17", "0000-17:00.0" };

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		ASSERT_TRUE(topo_is_address(good[i], strlen(good[i])));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ASSERT_FALSE(topo_is_address(bad[i], strlen(bad[i])));
}

TEST(this_machine)
{
	struct strait_topo_kernel kernel = { .size = sizeof(kernel) };
	struct strait_topo_node node = { .size = sizeof(node) };
	struct strait_topo *topo;

	ASSERT_OK(strait_topo_kernel(&kernel));
	ASSERT_TRUE(kernel.release[0]);
	ASSERT_GE(kernel.cpus, 1);
	ASSERT_GE(kernel.numa_nodes, 1);
	ASSERT_LE(kernel.io_uring, 0);
	ASSERT_LE(kernel.cachestat, 0);
	ASSERT_LE(kernel.strait_module, 0);
	kernel.size = 8;
	ASSERT_EQ(strait_topo_kernel(&kernel), -EINVAL);
	ASSERT_OK(strait_topo_open(&topo));
	for (unsigned int i = 0; !strait_topo_node(topo, i, &node); i++)
		ASSERT_EQ(strait_topo_link(topo, node.pci, node.pci, NULL), STRAIT_LINK_SAME);
	strait_topo_close(topo);
}

TEST(a_word_is_found_across_pieces)
{
	char line[100];
	FILE *f;

	root = test_dir();
	memset(line, 'x', sizeof(line) - 1);
	line[sizeof(line) - 1] = '\0';
	f = fopen(test_path("words"), "w");
	for (int i = 0; i < 2000; i++)
		fprintf(f, "%s t one_word_%d [m]\n", line, i);
	fputs("last_word", f);
	fclose(f);
	for (int i = 0; i < 2000; i += 7) {
		snprintf(line, sizeof(line), "one_word_%d", i);
		ASSERT_EQ(os_file_has_word(test_path("words"), line), 1);
	}
	ASSERT_EQ(os_file_has_word(test_path("words"), "one_word_"), 0);
	ASSERT_EQ(os_file_has_word(test_path("words"), "ne_word_1"), 0);
	ASSERT_EQ(os_file_has_word(test_path("words"), "last_word"), 1);
	ASSERT_EQ(os_file_has_word(test_path("no"), "last_word"), -ENOENT);
}
