/* SPDX-License-Identifier: MIT */
#include "pci/pci.h"

#include <errno.h>

#include "base/util.h"

int pci_open(const struct log_sink *log, const char *name, const char *backend, char *why, size_t why_len,
	     struct pci_device **ret)
{
	str_format(why, why_len, "this build gives no access to PCI devices");
	return -EOPNOTSUPP;
}
