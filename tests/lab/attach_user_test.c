/* SPDX-License-Identifier: MIT */
/* A device that the administrator has given to an ordinary user. */
#include "nvme.h"
#include "raw.h"

#include <grp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define NOBODY 65534
#define LEN KIB(256)
#define SEED 41

static const struct log_sink no_log;

static void node_path(const char *name, char path[64])
{
	snprintf(path, 64, "/dev/strait-pci/%s", name);
}

/* For the rest of this process. Pinned memory counts against a limit, which an administrator raises for such users. */
static void become_nobody(void)
{
	struct rlimit limit = { MIB(64), MIB(64) };

	ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	ASSERT_EQ(setgroups(0, NULL), 0);
	ASSERT_EQ(syscall(SYS_setresgid, NOBODY, NOBODY, NOBODY), 0);
	ASSERT_EQ(syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY), 0);
}

static int use_drive(void *arg)
{
	static const struct nvme_setup setup = { .backend = "strait", .device = "host" };
	const char *name = arg;
	struct strait_context_opts co = { .size = sizeof(co) };
	struct strait_nvme_opts o = { .size = sizeof(o), .entries = 64, .queues = 1, .backend = setup.backend };
	struct strait_context *ctx;
	struct strait_device *host;
	struct strait_nvme *nvme;
	struct strait_endpoint *ep;
	struct strait_region *r;
	struct strait_transfer t = { .length = LEN };
	struct strait_result res;
	unsigned char *cpu;

	become_nobody();
	ASSERT_OK(strait_context_open(&co, &ctx));
	ASSERT_OK(strait_device_find(ctx, "host", &host));
	ASSERT_OK(strait_nvme_open(ctx, name, &o, &nvme));
	ASSERT_OK(strait_nvme_endpoint(nvme, 1, 0, &ep));
	ASSERT_OK(strait_region_alloc(host, LEN, &r));
	cpu = drive_cpu(r);
	file_pattern(cpu, 0, LEN, SEED);
	t.op = STRAIT_WRITE;
	t.endpoint = ep;
	t.region = r;
	ASSERT_OK(strait_transfer_run(&t, STRAIT_FOREVER, &res));
	ASSERT_EQ(res.bytes, LEN);
	strait_region_close(r);
	strait_endpoint_close(ep);
	strait_nvme_close(nvme);
	strait_context_close(ctx);
	return 0;
}

/* The library's message says what to do. */
static int try_open(void *arg)
{
	struct pci_device *dev;
	const char *name = arg;
	char why[512], command[128];

	become_nobody();
	ASSERT_EQ(raw_node(name), -EACCES);
	ASSERT_EQ(pci_open(&no_log, name, NULL, why, sizeof(why), &dev), -EACCES);
	snprintf(command, sizeof(command), "strait bind %s --owner USER", name);
	printf("# %s\n", why);
	ASSERT_TRUE(strstr(why, command));
	return 0;
}

/* One node gives access neither to /dev/strait nor to another device. */
static int only_that_one(void *arg)
{
	char edu[PCI_NAME];

	become_nobody();
	pci_find(EDU_ID, edu);
	ASSERT_EQ(raw_node(edu), -EACCES);
	ASSERT_LT(open("/dev/strait", O_RDWR | O_CLOEXEC), 0);
	return 0;
}

TEST_TIMEOUT(an_ordinary_user_drives_it, 240)
{
	char name[PCI_NAME], edu[PCI_NAME], path[64], command[128];
	struct stat st;

	if (getenv("LAB_NO_TRANSLATION") && *getenv("LAB_NO_TRANSLATION"))
		SKIP("%s", getenv("LAB_NO_TRANSLATION"));
	drive_bind("strait", name);
	pci_find(EDU_ID, edu);
	pci_bind(edu, "strait");
	node_path(name, path);
	ASSERT_EQ(stat(path, &st), 0);
	ASSERT_EQ(st.st_mode & 07777, 0600);
	ASSERT_EQ(st.st_uid, 0);
	ASSERT_EQ(wait_for(start(try_open, name)), 0);
	snprintf(command, sizeof(command), "strait bind %s --owner %d", name, NOBODY);
	ASSERT_EQ(system(command), 0);
	ASSERT_EQ(stat(path, &st), 0);
	ASSERT_EQ(st.st_uid, NOBODY);
	ASSERT_EQ(st.st_mode & 07777, 0600);
	ASSERT_EQ(wait_for(start(only_that_one, name)), 0);
	ASSERT_EQ(wait_for(start(use_drive, name)), 0);
	ko_expect_counter("attached", 0);
	drive_expect(0, LEN, SEED);
	/* A device that is bound again belongs to root. */
	pci_bind(name, NULL);
	ASSERT_NE(stat(path, &st), 0);
	drive_bind("strait", name);
	ASSERT_EQ(stat(path, &st), 0);
	ASSERT_EQ(st.st_uid, 0);
	drive_give_back();
}

/* An open file outlives the node, and holds no reference on the device. */
TEST(unbound_while_the_node_is_open)
{
	struct strait_ioc_attach attach;
	char name[PCI_NAME];
	int fd;

	close(ko_open());
	pci_find(EDU_ID, name);
	pci_bind(name, "strait");
	fd = (int)ASSERT_OK(raw_node(name));
	pci_bind(name, NULL);
	ASSERT_EQ(raw_attach(fd, &attach), -ENODEV);
	ASSERT_EQ(raw_node(name), -ENOENT);
	pci_bind(name, "strait");
	ASSERT_EQ(raw_attach(fd, &attach), -ENODEV);
	close(fd);
	fd = (int)ASSERT_OK(raw_node(name));
	if (!getenv("LAB_NO_TRANSLATION") || !*getenv("LAB_NO_TRANSLATION"))
		ASSERT_OK(raw_attach(fd, &attach));
	close(fd);
	ko_expect_counter("attached", 0);
}
