/* SPDX-License-Identifier: MIT */
/* The driver of a PCI device: change it, remember the previous one, give the device back to it. */
#include "pci/bind.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "os/dir.h"
#include "os/os.h"
#include "pci/backend.h"

#define CLASS_BRIDGE 0x06

const struct bind_roots bind_roots_default = { "/sys", "/proc", "/dev", "/run/strait/bind", os_write_text };

static const char *const drivers[] = { "strait", "vfio-pci" };

static bool is_ours(const char *driver)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(drivers); i++)
		if (!strcmp(driver, drivers[i]))
			return true;
	return false;
}

/* The last component of a symbolic link of the device, empty if it has none. */
static void link_name(const struct bind_roots *at, const char *name, const char *what, char *buf, size_t len)
{
	char path[BIND_PATH], link[BIND_PATH];

	buf[0] = '\0';
	str_format(path, sizeof(path), "%s/bus/pci/devices/%s/%s", at->sys, name, what);
	if (!os_read_link(path, link, sizeof(link)))
		str_copy(buf, len, strrchr(link, '/') ? strrchr(link, '/') + 1 : link);
}

static int find_device(const struct bind_roots *at, const char *pci, char name[PCI_NAME], char *why, size_t len)
{
	char path[BIND_PATH];

	if (pci_full_name(pci, name)) {
		str_format(why, len, "\"%s\" is not a PCI address such as 0000:01:00.0", pci);
		return -ENODEV;
	}
	str_format(path, sizeof(path), "%s/bus/pci/devices/%s", at->sys, name);
	if (os_access(path)) {
		str_format(why, len, "there is no PCI device %s: lspci -D lists those of this machine", name);
		return -ENODEV;
	}
	return 0;
}

/* The file of a device in the run directory: the name of its previous driver, "-" for none. */
static bool read_saved_driver(const struct bind_roots *at, const char *name, char *driver, size_t len)
{
	char path[BIND_PATH];

	driver[0] = '\0';
	str_format(path, sizeof(path), "%s/%s", at->run, name);
	if (os_read_line(path, driver, len))
		return false;
	if (!strcmp(driver, "-"))
		driver[0] = '\0';
	return true;
}

static int save_driver(const struct bind_roots *at, const char *name, const char *driver)
{
	char path[BIND_PATH], text[64];
	int rc = os_make_dirs(at->run);

	str_format(path, sizeof(path), "%s/%s", at->run, name);
	str_format(text, sizeof(text), "%s\n", driver[0] ? driver : "-");
	return rc ? rc : os_create_text(path, text);
}

static void remove_saved_driver(const struct bind_roots *at, const char *name)
{
	char path[BIND_PATH];

	str_format(path, sizeof(path), "%s/%s", at->run, name);
	os_remove(path);
}

static int write_sysfs(const struct bind_roots *at, const char *file, const char *text)
{
	char path[BIND_PATH];

	str_format(path, sizeof(path), "%s/bus/pci/%s", at->sys, file);
	return at->write(path, text);
}

/* Unbind from the current driver and probe for @to; an empty @to lets the kernel choose. */
static int change(const struct bind_roots *at, const char *name, const char *to)
{
	char file[BIND_PATH], now[64];
	int rc;

	str_format(file, sizeof(file), "devices/%s/driver_override", name);
	rc = write_sysfs(at, file, to[0] ? to : "\n");
	if (rc)
		return rc;
	link_name(at, name, "driver", now, sizeof(now));
	if (now[0]) {
		str_format(file, sizeof(file), "devices/%s/driver/unbind", name);
		rc = write_sysfs(at, file, name);
		if (rc)
			return rc;
	}
	return write_sysfs(at, "drivers_probe", name);
}

static uint32_t base_class(const struct bind_roots *at, const char *name)
{
	char path[BIND_PATH], text[32];

	str_format(path, sizeof(path), "%s/bus/pci/devices/%s/class", at->sys, name);
	return os_read_line(path, text, sizeof(text)) ? 0 : (uint32_t)(strtoul(text, NULL, 16) >> 16);
}

static int check_driver(const struct bind_roots *at, const char *driver, char *why, size_t len)
{
	char path[BIND_PATH];

	if (!is_ours(driver)) {
		str_format(why, len, "the driver \"%s\" gives no access from user space: use strait or vfio-pci",
			   driver);
		return -EINVAL;
	}
	str_format(path, sizeof(path), "%s/bus/pci/drivers/%s", at->sys, driver);
	if (os_access(path)) {
		str_format(why, len, "the driver %s is not loaded: modprobe %s", driver, driver);
		return -ENOENT;
	}
	return 0;
}

/* Binding failed: let the kernel choose the driver again, usually the previous one. */
static int go_back(const struct bind_roots *at, const char *name, const char *driver, const char *before, int rc,
		   char *why, size_t len)
{
	char now[64];

	change(at, name, "");
	link_name(at, name, "driver", now, sizeof(now));
	str_format(why, len, "%s did not bind to %s (%s): it is bound to %s%s; dmesg may say more", name, driver,
		   rc ? strerror(-rc) : "the driver refused it", now[0] ? now : "no driver",
		   !strcmp(now, before) ? ", as before" : "");
	if (!strcmp(now, before))
		remove_saved_driver(at, name);
	return rc == -EACCES || rc == -EPERM ? rc : -EIO;
}

int bind_at(const struct bind_roots *at, const char *pci, const char *driver, uint32_t flags, char *why, size_t len)
{
	char name[PCI_NAME], now[64], saved[64];
	int rc;

	if (len)
		why[0] = '\0';
	rc = find_device(at, pci, name, why, len);
	if (rc)
		return rc;
	link_name(at, name, "driver", now, sizeof(now));
	if (!strcmp(now, driver) && is_ours(driver))
		return 0;
	rc = check_driver(at, driver, why, len);
	if (rc)
		return rc;
	if (base_class(at, name) == CLASS_BRIDGE) {
		str_format(why, len, "%s is a bridge: the devices behind it would be lost", name);
		return -EINVAL;
	}
	if (!(flags & STRAIT_PCI_FORCE)) {
		rc = bind_check_use(at, name, why, len);
		if (rc)
			return rc;
	}
	if (!read_saved_driver(at, name, saved, sizeof(saved))) {
		rc = save_driver(at, name, now);
		if (rc) {
			str_format(why, len, "cannot write to %s: %s%s", at->run, strerror(-rc),
				   rc == -EACCES ? "; run as root" : "");
			return rc;
		}
	}
	rc = change(at, name, driver);
	link_name(at, name, "driver", saved, sizeof(saved));
	return !rc && !strcmp(saved, driver) ? 0 : go_back(at, name, driver, now, rc, why, len);
}

/* A process that has the device open would lose it; unbinding from vfio-pci would even wait for that process. */
static int check_open(const struct bind_roots *at, const char *name, const char *driver, char *why, size_t len)
{
	static const struct log_sink no_log;
	struct pci_device *dev;
	int rc;

	if (at != &bind_roots_default || !is_ours(driver))
		return 0;
	rc = pci_open(&no_log, name, NULL, why, len, &dev);
	if (!rc)
		pci_close(dev);
	if (len && rc != -EBUSY)
		why[0] = '\0';
	return rc == -EBUSY ? rc : 0;
}

int unbind_at(const struct bind_roots *at, const char *pci, uint32_t flags, char *why, size_t len)
{
	char name[PCI_NAME], now[64], before[64];
	bool saved;
	int rc;

	rc = find_device(at, pci, name, why, len);
	if (rc)
		return rc;
	link_name(at, name, "driver", now, sizeof(now));
	saved = read_saved_driver(at, name, before, sizeof(before));
	if (!saved && !is_ours(now)) {
		str_format(why, len, "%s is bound to %s, not to strait or vfio-pci", name, now[0] ? now : "no driver");
		return -EINVAL;
	}
	rc = flags & STRAIT_PCI_FORCE ? 0 : check_open(at, name, now, why, len);
	if (rc)
		return rc;
	rc = change(at, name, "");
	if (rc) {
		str_format(why, len, "cannot unbind %s: %s%s", name, strerror(-rc),
			   rc == -EACCES ? "; run as root" : "");
		return rc;
	}
	link_name(at, name, "driver", now, sizeof(now));
	if (saved && strcmp(now, before) != 0 && before[0]) {
		str_format(
			why, len,
			"the previous driver %s did not bind to %s: modprobe %s; echo %s > /sys/bus/pci/drivers_probe",
			before, name, before, name);
		return -EIO;
	}
	remove_saved_driver(at, name);
	return 0;
}

static void find_node(const struct bind_roots *at, struct strait_pci_info *info)
{
	char path[sizeof(info->node)];

	if (!strcmp(info->driver, "strait"))
		str_format(path, sizeof(path), "%s/strait-pci/%s", at->dev, info->pci);
	else if (!strcmp(info->driver, "vfio-pci") && info->iommu_group >= 0)
		str_format(path, sizeof(path), "%s/vfio/%d", at->dev, info->iommu_group);
	else
		return;
	if (!os_access(path))
		str_copy(info->node, sizeof(info->node), path);
}

int bind_info_at(const struct bind_roots *at, const char *pci, struct strait_pci_info *info)
{
	struct strait_pci_info known = { .size = sizeof(known), .iommu_group = -1 };
	char group[32];
	int rc;

	rc = find_device(at, pci, known.pci, NULL, 0);
	if (rc)
		return rc;
	link_name(at, known.pci, "driver", known.driver, sizeof(known.driver));
	known.saved = read_saved_driver(at, known.pci, known.previous, sizeof(known.previous));
	link_name(at, known.pci, "iommu_group", group, sizeof(group));
	if (group[0])
		known.iommu_group = atoi(group);
	find_node(at, &known);
	return struct_out(info, &known, sizeof(known), STRAIT_PCI_INFO_SIZE_V1);
}

STRAIT_API int strait_pci_bind(const char *pci, const char *driver, uint32_t flags, char *why, size_t why_len)
{
	if (flags & ~STRAIT_PCI_FORCE)
		return -EINVAL;
	return bind_at(&bind_roots_default, pci, driver, flags, why, why ? why_len : 0);
}

STRAIT_API int strait_pci_unbind(const char *pci, uint32_t flags, char *why, size_t why_len)
{
	if (flags & ~STRAIT_PCI_FORCE)
		return -EINVAL;
	return unbind_at(&bind_roots_default, pci, flags, why, why ? why_len : 0);
}

STRAIT_API int strait_pci_info(const char *pci, struct strait_pci_info *info)
{
	return bind_info_at(&bind_roots_default, pci, info);
}
