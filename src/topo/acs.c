/* SPDX-License-Identifier: MIT */
#include "base/util.h"
#include "topo/topo.h"

/*
 * Access Control Services, PCIe base specification 7.7.11: an extended capability of a port. With a
 * redirect bit set, a request from one device below a switch to another is routed through the root complex.
 */
enum {
	CONFIG_BASIC = 64,   /* bytes that an unprivileged reader of sysfs gets */
	CONFIG_LEGACY = 256, /* length on conventional PCI; extended capabilities begin here */
	CONFIG_FULL = 4096,

	CAP_ID_ACS = 0x000d,
	ACS_CTRL = 6,
	ACS_REQUEST_REDIRECT = 1 << 2,
	ACS_COMPLETION_REDIRECT = 1 << 3,
	ACS_EGRESS_CONTROL = 1 << 5,
};

static uint32_t get_le32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

int topo_acs_redirect(const uint8_t *config, size_t len)
{
	unsigned int at = CONFIG_LEGACY;

	if (len <= CONFIG_BASIC)
		return -1;
	/* A broken device may chain its capabilities in a loop: limit the number of steps. */
	for (unsigned int left = (CONFIG_FULL - CONFIG_LEGACY) / 8; left && at >= CONFIG_LEGACY; left--) {
		uint32_t header;

		if (at + 8 > len)
			return 0;
		header = get_le32(config + at);
		if (!header || header == UINT32_MAX)
			return 0;
		if ((header & 0xffff) == CAP_ID_ACS) {
			uint32_t ctrl = config[at + ACS_CTRL];

			return !!(ctrl & (ACS_REQUEST_REDIRECT | ACS_COMPLETION_REDIRECT | ACS_EGRESS_CONTROL));
		}
		at = header >> 20 & ~3u;
	}
	return 0;
}
