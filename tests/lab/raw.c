/* SPDX-License-Identifier: MIT */
#include "raw.h"

#include "os/os.h"

static void raw_write(struct raw *e, uint32_t reg, uint64_t value)
{
	*(volatile uint64_t *)(e->bar + reg) = value;
}

bool raw_busy(struct raw *e)
{
	return *(volatile uint64_t *)(e->bar + 0x98) & 1;
}

void raw_wait(struct raw *e)
{
	for (int i = 0; i < 5000 && raw_busy(e); i++)
		sleep_ms(1);
	ASSERT_FALSE(raw_busy(e));
}

void raw_start(struct raw *e, uint64_t bus, uint32_t len, bool from_edu)
{
	raw_wait(e);
	raw_write(e, 0x80, from_edu ? 0x40000 : bus);
	raw_write(e, 0x88, from_edu ? bus : 0x40000);
	raw_write(e, 0x90, len);
	raw_write(e, 0x98, 1 | (from_edu ? 2 : 0));
}

int raw_control(int ko, uint32_t what, uint32_t value)
{
	struct strait_ioc_control req = { .size = sizeof(req), .what = what, .value = value };

	return ko_call(ko, STRAIT_IOC_CONTROL, &req);
}

int raw_node(const char *name)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/dev/strait-pci/%s", name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int raw_attach(int ko, struct strait_ioc_attach *req)
{
	*req = (struct strait_ioc_attach){ .size = sizeof(*req), .reason = 99 };
	return ko_call(ko, STRAIT_IOC_ATTACH, req);
}

int raw_map(int ko, uint32_t region, uint64_t off, uint64_t len, struct strait_ioc_map *map)
{
	*map = (struct strait_ioc_map){ .size = sizeof(*map),
					.flags = STRAIT_MAP_READ | STRAIT_MAP_WRITE,
					.region = region,
					.offset = off,
					.length = len };
	return ko_call(ko, STRAIT_IOC_MAP, map);
}

int raw_mapping(int ko, unsigned long cmd, uint32_t handle)
{
	struct strait_ioc_mapping req = { .size = sizeof(req), .handle = handle };

	return ko_call(ko, cmd, &req);
}

void raw_need_kind(int ko, uint32_t kind)
{
	static const uint64_t features[] = { [STRAIT_IMPORT_P2P] = STRAIT_FEATURE_IMPORT_P2P,
					     [STRAIT_IMPORT_USER] = STRAIT_FEATURE_IMPORT_USER,
					     [STRAIT_IMPORT_DMABUF] = STRAIT_FEATURE_IMPORT_DMABUF,
					     [STRAIT_IMPORT_NVP2P] = STRAIT_FEATURE_IMPORT_NVP2P,
					     [STRAIT_IMPORT_PEER] = STRAIT_FEATURE_IMPORT_PEER };

	if (!(ko_info(ko).features & features[kind]))
		SKIP("the module does not import memory of kind %u on this kernel", kind);
}

uint32_t raw_import(int ko, uint32_t kind, const struct gpu_mem *m)
{
	struct strait_ioc_import imp = { .size = sizeof(imp), .kind = kind, .fd = -1, .length = m->len };
	int rc;

	raw_need_kind(ko, kind);
	if (kind == STRAIT_IMPORT_DMABUF)
		imp.fd = (int)ASSERT_OK(gpu_dmabuf(m, 0, m->len));
	else
		imp.address = (uintptr_t)m->p;
	rc = ko_call(ko, STRAIT_IOC_IMPORT, &imp);
	if (imp.fd >= 0)
		close(imp.fd);
	ASSERT_OK(rc);
	ASSERT_TRUE(imp.can & STRAIT_CAN_DMA);
	return imp.handle;
}

struct raw raw_open(void)
{
	struct strait_ioc_attach attach;
	struct strait_ioc_map map;
	struct raw e;

	close(ko_open());
	pci_find(EDU_ID, e.name);
	pci_bind(e.name, "strait");
	e.ko = (int)ASSERT_OK(raw_node(e.name));
	ASSERT_OK(raw_attach(e.ko, &attach));
	ASSERT_STREQ(attach.pci, e.name);
	e.bar = mmap(NULL, attach.bar_length[0], PROT_READ | PROT_WRITE, MAP_SHARED, e.ko, STRAIT_MMAP_BAR(0));
	ASSERT_TRUE(e.bar != MAP_FAILED);
	e.host = mmap(NULL, KIB(4), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_TRUE(e.host != MAP_FAILED);
	ASSERT_OK(raw_map(e.ko, ko_import(e.ko, STRAIT_IMPORT_USER, e.host, KIB(4)), 0, KIB(4), &map));
	e.host_bus = map.bus;
	ASSERT_OK(raw_control(e.ko, STRAIT_CONTROL_BUS_MASTER, 1));
	return e;
}

void raw_close(struct raw *e)
{
	munmap((void *)e->bar, MIB(1));
	munmap(e->host, KIB(4));
	close(e->ko);
	ko_expect_counter("attached", 0);
}

void raw_load(struct raw *e, uint64_t seed)
{
	fill(e->host, EDU_MOST, seed);
	raw_start(e, e->host_bus, EDU_MOST, false);
	raw_wait(e);
}

bool raw_master(const char *name)
{
	char path[96];
	uint16_t command;
	int fd;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/config", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ASSERT_GE(fd, 0);
	ASSERT_EQ(pread(fd, &command, sizeof(command), 4), sizeof(command));
	close(fd);
	return command & 4;
}

uint64_t raw_faults(void)
{
	FILE *file = fopen("/proc/interrupts", "re");
	uint64_t total = 0;
	bool found = false;
	char line[1024];

	ASSERT_TRUE(file);
	while (fgets(line, sizeof(line), file)) {
		char *at = strchr(line, ':'), *end;

		if (!at || !strstr(line, "dmar"))
			continue;
		found = true;
		for (at++;; at = end) {
			uint64_t n = strtoull(at, &end, 10);

			if (end == at)
				break;
			total += n;
		}
	}
	fclose(file);
	ASSERT_TRUE(found);
	return total;
}

void raw_expect_fault(uint64_t before)
{
	for (uint64_t end = os_now_ns() + 5000000000 * test_slow(); raw_faults() <= before; sleep_ms(5))
		ASSERT_LT(os_now_ns(), end);
}
