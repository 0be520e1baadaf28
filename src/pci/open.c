/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "os/os.h"
#include "pci/backend.h"
#include "topo/topo.h"

#define SYSFS "/sys/bus/pci/devices"

int pci_full_name(const char *name, char full[PCI_NAME])
{
	if (!topo_is_address(name, strlen(name)))
		str_format(full, PCI_NAME, "0000:%s", name);
	else
		str_copy(full, PCI_NAME, name);
	return topo_is_address(full, strlen(full)) ? 0 : -EINVAL;
}

void pci_fill_runs(struct pci_mapping *m, struct pci_run *runs, size_t n, uint64_t head)
{
	uint64_t left = m->length;
	size_t n_runs = 0;

	for (size_t i = 0; i < n && left; i++) {
		struct pci_run r = runs[i];
		uint64_t skip = min_u64(head, r.length);

		head -= skip;
		r.bus += skip;
		r.length = min_u64(r.length - skip, left);
		left -= r.length;
		if (!r.length)
			continue;
		if (n_runs && runs[n_runs - 1].bus + runs[n_runs - 1].length == r.bus)
			runs[n_runs - 1].length += r.length;
		else
			runs[n_runs++] = r;
	}
	m->run = runs;
	m->count = n_runs;
}

static const struct backend {
	const char *name, *driver;
	int (*open)(const struct log_sink *log, const char *name, const char *backend, char *why, size_t why_len,
		    struct pci_device **ret);
} backends[] = {
	{ "strait", "strait", pci_open_strait },
	{ "vfio", "vfio-pci", pci_open_vfio },
	{ "vfio-type1", "vfio-pci", pci_open_vfio },
	{ "vfio-iommufd", "vfio-pci", pci_open_vfio },
};

static const struct backend *find_backend(const char *name, const char *driver)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(backends); i++)
		if (!strcmp(name ? name : driver, name ? backends[i].name : backends[i].driver))
			return &backends[i];
	return NULL;
}

/* The driver of a device, empty if it has none. */
static void read_driver(const char *name, char *driver, size_t len)
{
	char path[128], link[256];

	driver[0] = '\0';
	str_format(path, sizeof(path), SYSFS "/%s/driver", name);
	if (os_read_link(path, link, sizeof(link)) >= 0)
		str_copy(driver, len, strrchr(link, '/') ? strrchr(link, '/') + 1 : link);
}

/* Of VFIO's two interfaces only type1 maps device memory, and not every kernel has it. */
static int open_by(const struct backend *b, const struct log_sink *log, const char *name, unsigned int flags, char *why,
		   size_t why_len, struct pci_device **ret)
{
	bool either = !strcmp(b->name, "vfio") && flags & PCI_MAP_UNREVOCABLE;
	int rc = either ? b->open(log, name, "vfio-type1", why, why_len, ret) : -ENOENT;

	return rc == -ENOENT ? b->open(log, name, b->name, why, why_len, ret) : rc;
}

static int open_device(const struct log_sink *log, const char *name, const char *backend, unsigned int flags, char *why,
		       size_t why_len, struct pci_device **ret)
{
	char full[PCI_NAME], path[64], driver[64];
	const struct backend *b;

	if (why_len)
		why[0] = '\0';
	if (pci_full_name(name, full)) {
		str_format(why, why_len, "\"%s\" is not a PCI address such as 0000:01:00.0", name);
		return -ENODEV;
	}
	str_format(path, sizeof(path), SYSFS "/%s", full);
	if (os_access(path)) {
		str_format(why, why_len, "there is no PCI device %s: lspci -D lists those of this machine", full);
		return -ENODEV;
	}
	read_driver(full, driver, sizeof(driver));
	b = find_backend(backend, driver);
	if (b && !strcmp(b->driver, driver))
		return open_by(b, log, full, flags, why, why_len, ret);
	if (backend && !b) {
		str_format(why, why_len, "unknown backend \"%s\": use strait, vfio, vfio-type1 or vfio-iommufd",
			   backend);
		return -EINVAL;
	}
	str_format(why, why_len, "%s is %s%s%s: strait bind %s%s", full,
		   driver[0] ? "bound to \"" : "bound to no driver", driver, driver[0] ? "\"" : "", full,
		   b && b->open == pci_open_vfio ? " --driver vfio-pci" : "");
	return -EBUSY;
}

int pci_open(const struct log_sink *log, const char *name, const char *backend, char *why, size_t why_len,
	     struct pci_device **ret)
{
	return open_device(log, name, backend, 0, why, why_len, ret);
}

int pci_open_or_say(const struct log_sink *log, const char *name, const char *backend, unsigned int flags,
		    struct pci_device **ret)
{
	char why[256] = "";
	int rc = open_device(log, name, backend, flags, why, sizeof(why), ret);

	if (rc)
		log_error(log, "%s: %s", name, why[0] ? why : strerror(-rc));
	return rc;
}
