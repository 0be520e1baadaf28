/* SPDX-License-Identifier: MIT */
/* Which files a server opens for its clients, and what it says where RDMA is missing. Needs no RDMA device. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "endpoint/rdma/nic.h"
#include "harness/harness.h"
#include "os/dir.h"
#include "os/probe.h"
#include "service/rdma_serve.h"

static void make_file(const char *name)
{
	int fd = (int)ASSERT_OK(open(test_path(name), O_CREAT | O_WRONLY, 0600));

	ASSERT_EQ(write(fd, name, 4), 4);
	close(fd);
}

static int open_root(void)
{
	make_file("secret");
	ASSERT_EQ(mkdir(test_path("root"), 0700), 0);
	ASSERT_EQ(mkdir(test_path("root/sub"), 0700), 0);
	make_file("root/file");
	make_file("root/sub/deep");
	ASSERT_EQ(symlink("../secret", test_path("root/out")), 0);
	ASSERT_EQ(symlink("sub/deep", test_path("root/in")), 0);
	ASSERT_EQ(symlink("/etc", test_path("root/abs")), 0);
	ASSERT_EQ(symlink("..", test_path("root/sub/up")), 0);
	ASSERT_EQ(mkfifo(test_path("root/fifo"), 0600), 0);
	return (int)ASSERT_OK(open(test_path("root"), O_PATH | O_DIRECTORY));
}

TEST(only_files_below_the_root_are_opened)
{
	static const struct {
		const char *path;
		int err;
	} refused[] = {
		{ "../secret", -EXDEV },  { "sub/../../secret", -EXDEV }, { "/etc/passwd", -EXDEV }, { "out", -EXDEV },
		{ "abs/passwd", -EXDEV }, { "sub/up/../secret", -EXDEV }, { "missing", -ENOENT },    { "sub", -EISDIR },
		{ "fifo", -EPERM },	  { "file/x", -ENOTDIR },	  { "", -ENOENT },
	};
	static const char *const allowed[] = { "file", "sub/deep", "in", "sub/../file", "./file", "sub/up/file" };
	int root = open_root();

	if (export_open(root, "file", false) == -ENOSYS)
		SKIP("this kernel has no openat2()");
	for (unsigned int i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		printf("%s\n", refused[i].path);
		ASSERT_EQ(export_open(root, refused[i].path, false), refused[i].err);
	}
	for (unsigned int i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++) {
		printf("%s\n", allowed[i]);
		close((int)ASSERT_OK(export_open(root, allowed[i], false)));
	}
	/* Neither does writing create anything outside. */
	ASSERT_EQ(export_open(root, "../new", true), -EXDEV);
	ASSERT_LT(access(test_path("new"), F_OK), 0);
	close((int)ASSERT_OK(export_open(root, "sub/new", true)));
	ASSERT_EQ(access(test_path("root/sub/new"), F_OK), 0);
}

TEST(every_status_has_its_name)
{
	ASSERT_STREQ(wc_status_name(0), "IBV_WC_SUCCESS");
	ASSERT_STREQ(wc_status_name(5), "IBV_WC_WR_FLUSH_ERR");
	ASSERT_STREQ(wc_status_name(10), "IBV_WC_REM_ACCESS_ERR");
	ASSERT_STREQ(wc_status_name(12), "IBV_WC_RETRY_EXC_ERR");
	ASSERT_STREQ(wc_status_name(23), "IBV_WC_TM_RNDV_INCOMPLETE");
	ASSERT_STREQ(wc_status_name(24), "unknown");
	ASSERT_STREQ(wc_status_name(-1), "unknown");
}

static void put(const char *path, const char *text)
{
	char dir[512];

	snprintf(dir, sizeof(dir), "%s", test_path(path));
	*strrchr(dir, '/') = '\0';
	ASSERT_EQ(os_make_dirs(dir), 0);
	ASSERT_EQ(os_create_text(test_path(path), text), 0);
}

TEST(what_is_missing_is_said_with_its_remedy)
{
	struct strait_rdma_nic nic;
	char text[512], name[64], builtin[128];

	ASSERT_EQ(nic_missing_reason(test_dir(), test_path("modules"), text, sizeof(text)), 0);
	ASSERT_TRUE(strstr(text, "no software one") != NULL);
	put("class/net/lo/operstate", "unknown");
	put("class/net/ens5/operstate", "up");
	ASSERT_OK(os_kernel_release(name, sizeof(name)));
	snprintf(builtin, sizeof(builtin), "modules/%s/modules.builtin", name);
	put(builtin, "kernel/drivers/infiniband/sw/siw/siw.ko\nkernel/lib/crc32c.ko\n");
	ASSERT_EQ(nic_missing_reason(test_dir(), test_path("modules"), text, sizeof(text)), 0);
	ASSERT_TRUE(strstr(text, "rdma link add siw0 type siw netdev ens5") != NULL);
	put("module/rdma_rxe/refcnt", "0");
	ASSERT_EQ(nic_missing_reason(test_dir(), test_path("modules"), text, sizeof(text)), 0);
	ASSERT_TRUE(strstr(text, "rdma link add rxe0 type rxe netdev ens5") != NULL);
	ASSERT_EQ(nic_at(test_dir(), 0, &nic), -ENOENT);
	put("class/infiniband/mlx5_0/ports/1/state", "1: DOWN");
	put("class/infiniband/mlx5_0/device/numa_node", "1");
	ASSERT_EQ(nic_missing_reason(test_dir(), test_path("modules"), text, sizeof(text)), 0);
	snprintf(name, sizeof(name), "%s", "mlx5_0 has no active port");
	ASSERT_TRUE(strstr(text, name) != NULL);
	put("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
	put("class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "ens5f0");
	ASSERT_EQ(nic_missing_reason(test_dir(), test_path("modules"), text, sizeof(text)), -EEXIST);
	ASSERT_EQ(nic_at(test_dir(), 0, &nic), 0);
	ASSERT_STREQ(nic.name, "mlx5_0");
	ASSERT_STREQ(nic.netdev, "ens5f0");
	ASSERT_EQ(nic.numa_node, 1);
	ASSERT_EQ(nic.active, 1);
	ASSERT_EQ(nic_at(test_dir(), 1, &nic), -ENOENT);
}
