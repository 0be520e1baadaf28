/* SPDX-License-Identifier: MIT */
#ifndef PCI_BIND_H
#define PCI_BIND_H

#include <stddef.h>
#include <stdint.h>

#include <strait/pci.h>

#include "pci/pci.h"

#define BIND_PATH 512

/* The directories used; tests have their own. */
struct bind_roots {
	const char *sys, *proc, *dev, *run;
	int (*write)(const char *path, const char *text); /* write to a file in sysfs */
};

extern const struct bind_roots bind_roots_default;

int bind_at(const struct bind_roots *at, const char *pci, const char *driver, uint32_t flags, char *why, size_t len);
int unbind_at(const struct bind_roots *at, const char *pci, uint32_t flags, char *why, size_t len);
int bind_info_at(const struct bind_roots *at, const char *pci, struct strait_pci_info *info);

/*
 * in_use.c. May the device @name, a full address, be taken from its driver? 0, or -EBUSY or -ENOTEMPTY with @why. With 0,
 * @why may hold a caution: what could not be checked.
 */
int bind_check_use(const struct bind_roots *at, const char *name, char *why, size_t len);

#endif
