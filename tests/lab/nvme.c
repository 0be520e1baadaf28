/* SPDX-License-Identifier: MIT */
#include "nvme.h"

#include <glob.h>

static void show(void *arg, enum strait_log_level level, const char *text)
{
	printf("# %s\n", text);
}

/* The serial number is read through the kernel's driver, which has the drive now. */
void drive_find(const char *serial, char name[PCI_NAME])
{
	char text[64];
	glob_t g;

	name[0] = '\0';
	ASSERT_EQ(glob("/sys/bus/pci/devices/*/nvme/nvme*/serial", 0, NULL, &g), 0);
	for (size_t i = 0; i < g.gl_pathc && !name[0]; i++) {
		ASSERT_OK(read_text(g.gl_pathv[i], text, sizeof(text)));
		text[strcspn(text, " \n")] = '\0';
		if (!strcmp(text, serial))
			snprintf(name, PCI_NAME, "%.12s", g.gl_pathv[i] + strlen("/sys/bus/pci/devices/"));
	}
	globfree(&g);
	if (!name[0])
		SKIP("there is no drive %s", serial);
}

/* Its namespace 1, also with multipath: "nvme3c3n1" is a path of nvme3n1. */
static bool find_block(const char *name, char *path, size_t len)
{
	char pattern[128];
	unsigned int n;
	bool found = false;
	glob_t g;

	snprintf(pattern, sizeof(pattern), "/sys/bus/pci/devices/%s/nvme/nvme*/nvme*n1", name);
	if (glob(pattern, 0, NULL, &g))
		return false;
	if (sscanf(strrchr(g.gl_pathv[0], '/'), "/nvme%u", &n) == 1) {
		snprintf(path, len, "/dev/nvme%un1", n);
		found = !access(path, F_OK);
	}
	globfree(&g);
	return found;
}

void drive_to_kernel(const char *name, char *path, size_t len)
{
	pci_bind(name, "nvme");
	pci_bind(name, NULL);
	for (int i = 0; i < 500 && !find_block(name, path, len); i++)
		sleep_ms(10);
	ASSERT_TRUE(find_block(name, path, len));
}

static void bind_to(const char *backend, const char *name)
{
	if (!strncmp(backend, "vfio", 4)) {
		if (system("modprobe -a vfio_iommu_type1 vfio_pci 2>/dev/null; test -d /sys/bus/pci/drivers/vfio-pci"))
			SKIP("this kernel has no VFIO");
	} else {
		close(ko_open());
	}
	pci_bind(name, !strncmp(backend, "vfio", 4) ? "vfio-pci" : "strait");
}

void drive_bind(const char *backend, char name[PCI_NAME])
{
	pci_find(DRIVE_ID, name);
	bind_to(backend, name);
}

void drive_give_back(void)
{
	char name[PCI_NAME], path[32];

	pci_find(DRIVE_ID, name);
	drive_to_kernel(name, path, sizeof(path));
	ASSERT_STREQ(path, "/dev/nvme0n1");
}

void drive_open(struct drive *d, const struct nvme_setup *w, uint64_t timeout_ns)
{
	drive_open_flags(d, w, timeout_ns, 0);
}

void drive_open_flags(struct drive *d, const struct nvme_setup *w, uint64_t timeout_ns, uint32_t flags)
{
	char name[PCI_NAME];

	pci_find(DRIVE_ID, name);
	drive_open_named(d, name, w, timeout_ns, flags);
}

void drive_open_named(struct drive *d, const char *name, const struct nvme_setup *w, uint64_t timeout_ns,
		      uint32_t flags)
{
	struct strait_context_opts co = { .size = sizeof(co), .log = show, .log_level = STRAIT_LOG_WARN };
	struct strait_nvme_opts o = { .size = sizeof(o), .backend = w->backend, .entries = 128, .queues = 2 };
	const char *no = getenv("LAB_NO_TRANSLATION");
	struct strait_device *gpu;

	if (no && *no)
		SKIP("%s", no);
	memset(d, 0, sizeof(*d));
	snprintf(d->name, sizeof(d->name), "%s", name);
	bind_to(w->backend, d->name);
	ASSERT_OK(strait_context_open(&co, &d->ctx));
	if (strait_device_find(d->ctx, w->device, &d->dev) || strait_device_find(d->ctx, "vgpu:0", &gpu))
		SKIP("there is no device %s", w->device);
	if (w->inside) {
		ASSERT_OK(strait_region_alloc(gpu, MIB(1), &d->queues));
		o.queue_region = d->queues;
		o.queue_offset = KIB(64);
	}
	o.timeout_ns = timeout_ns;
	o.flags = flags | (w->interrupts ? STRAIT_NVME_INTERRUPTS : 0) |
		  (strcmp(w->backend, "strait") ? STRAIT_NVME_UNREVOCABLE : 0);
	ASSERT_OK(strait_nvme_open(d->ctx, d->name, &o, &d->nvme));
	ASSERT_OK(strait_nvme_endpoint(d->nvme, 1, 0, &d->ep));
}

void drive_close(struct drive *d)
{
	strait_endpoint_close(d->ep);
	strait_nvme_close(d->nvme);
	strait_region_close(d->queues);
	strait_context_close(d->ctx);
}

struct strait_region *drive_region(struct drive *d, size_t len)
{
	struct strait_region *r;

	ASSERT_OK(strait_region_alloc(d->dev, len, &r));
	return r;
}

unsigned char *drive_cpu(struct strait_region *r)
{
	void *cpu;

	ASSERT_OK(strait_region_map(r, &cpu));
	return cpu;
}

/* As in zlib: the host computes it faster than any other checksum. */
static uint32_t crc32_of(uint32_t crc, const unsigned char *p, size_t len)
{
	static uint32_t table[256];

	for (uint32_t i = 0; !table[255] && i < 256; i++) {
		uint32_t c = i;

		for (int k = 0; k < 8; k++)
			c = c & 1 ? c >> 1 ^ 0xedb88320u : c >> 1;
		table[i] = c;
	}
	for (crc = ~crc; len; len--)
		crc = crc >> 8 ^ table[(crc ^ *p++) & 0xff];
	return ~crc;
}

void drive_expect(uint64_t off, uint64_t len, uint64_t seed)
{
	static unsigned char buf[MIB(1)];
	char cmd[128], text[64] = "", want[16];
	uint32_t crc = 0;
	FILE *f;

	if (access("/lab/bin/host", X_OK))
		SKIP("no host to read the drive's image: this is not the lab");
	for (uint64_t at = 0; at < len;) {
		size_t n = min_u64(sizeof(buf), len - at);

		file_pattern(buf, off + at, n, seed);
		crc = crc32_of(crc, buf, n);
		at += n;
	}
	snprintf(want, sizeof(want), "%08x", crc);
	snprintf(cmd, sizeof(cmd), "/lab/bin/host drive %llu %llu crc32", (unsigned long long)off,
		 (unsigned long long)len);
	f = popen(cmd, "r");
	ASSERT_TRUE(f && fgets(text, sizeof(text), f));
	ASSERT_EQ(pclose(f), 0);
	text[strcspn(text, "\r\n ")] = '\0';
	ASSERT_STREQ(text, want);
}
