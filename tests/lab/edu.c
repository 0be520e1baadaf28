/* SPDX-License-Identifier: MIT */
#include "edu.h"

#include "os/dir.h"
#include "os/os.h"

#define DEVICES "/sys/bus/pci/devices"
#define REG_SRC 0x80
#define REG_DST 0x88
#define REG_COUNT 0x90
#define REG_CMD 0x98
#define CMD_RUN 1u
#define CMD_FROM_EDU 2u
#define CMD_IRQ 4u
#define BUFFER 0x40000u

char edu_why[512];
static const struct log_sink no_log;

static uint32_t number_in(const char *name, const char *file)
{
	char path[128], text[32];

	snprintf(path, sizeof(path), DEVICES "/%s/%s", name, file);
	return read_text(path, text, sizeof(text)) ? 0 : (uint32_t)strtoul(text, NULL, 0);
}

void pci_find(uint32_t id, char name[PCI_NAME])
{
	struct os_names names;

	ASSERT_OK(os_names_read(DEVICES, &names));
	name[0] = '\0';
	for (unsigned int i = 0; i < names.n && !name[0]; i++)
		if (number_in(names.name[i], "vendor") == (id & 0xffff) &&
		    number_in(names.name[i], "device") == id >> 16)
			str_copy(name, PCI_NAME, names.name[i]);
	os_names_free(&names);
	if (!name[0])
		SKIP("there is no PCI device %04x:%04x", id & 0xffff, id >> 16);
}

const char *pci_driver(const char *name)
{
	static char link[256];
	char path[128];

	snprintf(path, sizeof(path), DEVICES "/%s/driver", name);
	if (os_read_link(path, link, sizeof(link)))
		return "";
	return strrchr(link, '/') + 1;
}

void pci_bind(const char *name, const char *driver)
{
	char path[128];

	if (driver && !strcmp(pci_driver(name), driver))
		return;
	snprintf(path, sizeof(path), DEVICES "/%s/driver_override", name);
	ASSERT_OK(write_text(path, driver ? driver : "\n"));
	if (pci_driver(name)[0]) {
		snprintf(path, sizeof(path), DEVICES "/%s/driver/unbind", name);
		ASSERT_OK(write_text(path, name));
	}
	ASSERT_OK(write_text("/sys/bus/pci/drivers_probe", name));
	if (driver)
		ASSERT_STREQ(pci_driver(name), driver);
}

static pid_t program;

__attribute__((constructor)) static void remember(void)
{
	program = getpid();
}

/* After the last test, however it ended: devices go back to the drivers that other programs expect. */
__attribute__((destructor)) static void give_back(void)
{
	static const char *const drivers[] = { "strait", "vfio-pci" };
	struct os_names names;
	char path[128];

	for (unsigned int i = 0; getpid() == program && i < ARRAY_SIZE(drivers); i++) {
		snprintf(path, sizeof(path), "/sys/bus/pci/drivers/%s", drivers[i]);
		if (os_names_read(path, &names))
			continue;
		for (unsigned int k = 0; k < names.n; k++) {
			if (!strchr(names.name[k], ':'))
				continue;
			snprintf(path, sizeof(path), DEVICES "/%s/driver_override", names.name[k]);
			write_text(path, "\n");
			snprintf(path, sizeof(path), DEVICES "/%s/driver/unbind", names.name[k]);
			write_text(path, names.name[k]);
			write_text("/sys/bus/pci/drivers_probe", names.name[k]);
		}
		os_names_free(&names);
	}
}

int edu_try_open(const char *backend, struct pci_device **ret)
{
	char name[PCI_NAME];

	pci_find(EDU_ID, name);
	return pci_open(&no_log, name, backend, edu_why, sizeof(edu_why), ret);
}

struct pci_device *edu_open(const char *backend)
{
	struct pci_device *dev;
	char name[PCI_NAME];
	int rc;

	pci_find(EDU_ID, name);
	if (!strncmp(backend, "vfio", 4)) {
		if (system("modprobe -a vfio_iommu_type1 vfio_pci 2>/dev/null; test -d /sys/bus/pci/drivers/vfio-pci"))
			SKIP("this kernel has no VFIO");
	} else {
		close(ko_open());
	}
	pci_bind(name, !strncmp(backend, "vfio", 4) ? "vfio-pci" : "strait");
	rc = edu_try_open(backend, &dev);
	if (rc)
		FAIL("%s: %s", strerror(-rc), edu_why);
	ASSERT_OK(dev->ops->bus_master(dev, true));
	return dev;
}

bool edu_busy(struct pci_device *dev)
{
	return pci_read64(dev, 0, REG_CMD) & CMD_RUN;
}

void edu_wait(struct pci_device *dev)
{
	for (int i = 0; i < 5000; i++) {
		if (!edu_busy(dev))
			return;
		sleep_ms(1);
	}
	FAIL("the engine does not end");
}

void edu_start(struct pci_device *dev, uint64_t bus, uint64_t at, uint32_t len, bool from_edu, bool irq)
{
	edu_wait(dev);
	pci_write64(dev, 0, REG_SRC, from_edu ? BUFFER + at : bus);
	pci_write64(dev, 0, REG_DST, from_edu ? bus : BUFFER + at);
	pci_write64(dev, 0, REG_COUNT, len);
	pci_write64(dev, 0, REG_CMD, CMD_RUN | (from_edu ? CMD_FROM_EDU : 0) | (irq ? CMD_IRQ : 0));
}

void edu_load(struct pci_device *dev, uint64_t bus, uint32_t len)
{
	edu_start(dev, bus, 0, len, false, false);
	edu_wait(dev);
}

void edu_store(struct pci_device *dev, uint64_t bus, uint32_t len)
{
	edu_start(dev, bus, 0, len, true, false);
	edu_wait(dev);
}
