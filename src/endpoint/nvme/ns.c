/* SPDX-License-Identifier: MIT */
/* The namespaces of a controller, and whether they can be endpoints. */
#include "endpoint/nvme/nvme.h"

#include <stdlib.h>

#include "base/util.h"

#define NS_MAX 1024u
#define VERSION_1_1 0x10100u

/* Set whether it can be an endpoint, and why not. */
static void check_usable(struct strait_nvme_namespace *i)
{
	if (i->protection)
		i->reason = STRAIT_WHY_NS_PROTECTION;
	else if (i->metadata_bytes)
		i->reason = STRAIT_WHY_NS_METADATA;
	else if (i->lba_bytes != 512 && i->lba_bytes != 4096)
		i->reason = STRAIT_WHY_NS_BLOCK_SIZE;
	else if (!i->blocks || i->blocks > INT64_MAX / i->lba_bytes)
		i->reason = STRAIT_WHY_NS_LENGTH;
	i->usable = i->reason ? -EOPNOTSUPP : 0;
}

static void parse(const uint8_t *page, uint32_t nsid, struct strait_nvme_namespace *i)
{
	unsigned int format = (page[NVME_NS_FORMAT] & 0xf) | (page[NVME_NS_FORMAT] & 0x60) >> 1;
	uint32_t lbaf = hw_get32(page, NVME_NS_LBAF + 4 * format), shift = lbaf >> 16 & 0xff;

	*i = (struct strait_nvme_namespace){ .size = sizeof(*i), .nsid = nsid };
	i->blocks = hw_get64(page, NVME_NS_SIZE);
	i->capacity = hw_get64(page, NVME_NS_CAPACITY);
	i->utilization = hw_get64(page, NVME_NS_UTILIZATION);
	i->metadata_bytes = lbaf & 0xffff;
	i->lba_bytes = shift < 31 ? 1u << shift : 0;
	i->protection = page[NVME_NS_PROTECTION] & 7;
	check_usable(i);
}

/* The IDs of the active namespaces, in ascending order. */
static int list(struct strait_nvme *ctrl, uint32_t *nsid, uint32_t *count)
{
	uint8_t page[4096];
	uint32_t n, nn = hw_get32(ctrl->id, NVME_CTRL_NN);
	int rc;

	if (nvme_reg32(ctrl, NVME_VS) >= VERSION_1_1) {
		rc = nvme_identify(ctrl, NVME_ID_NAMESPACES, 0, page);
		if (rc)
			return rc;
		for (n = 0; n < NS_MAX; n++) {
			nsid[n] = hw_get32(page, n * 4);
			if (!nsid[n] || (n && nsid[n] <= nsid[n - 1]))
				break;
		}
	} else {
		for (n = 0; n < NS_MAX && n < nn; n++)
			nsid[n] = n + 1;
	}
	*count = n;
	return 0;
}

static const struct nvme_ns *find(const struct strait_nvme *ctrl, uint32_t nsid)
{
	for (uint32_t i = 0; i < ctrl->n_ns; i++)
		if (ctrl->ns[i].info.nsid == nsid)
			return &ctrl->ns[i];
	return NULL;
}

int nvme_scan(struct strait_nvme *ctrl)
{
	uint32_t nsid[NS_MAX], n = 0, found = 0;
	uint8_t page[4096];
	struct nvme_ns *ns;
	int rc = list(ctrl, nsid, &n);

	if (rc)
		return rc;
	ns = calloc(n ? n : 1, sizeof(*ns));
	if (!ns)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		const struct nvme_ns *old = find(ctrl, nsid[i]);

		rc = nvme_identify(ctrl, NVME_ID_NAMESPACE, nsid[i], page);
		if (nvme_dead(ctrl)) {
			free(ns);
			return rc;
		}
		if (rc || !hw_get64(page, NVME_NS_SIZE)) /* removed meanwhile, or inactive */
			continue;
		parse(page, nsid[i], &ns[found].info);
		ns[found].there = true;
		if (old)
			ns[found].generation = old->generation + (old->info.lba_bytes != ns[found].info.lba_bytes);
		found++;
	}
	free(ctrl->ns);
	ctrl->ns = ns;
	ctrl->n_ns = found;
	atomic_fetch_add(&ctrl->ns_epoch, 1);
	return 0;
}

int nvme_ns_find(struct strait_nvme *ctrl, uint32_t nsid, struct nvme_ns *ns)
{
	const struct nvme_ns *found;

	pthread_mutex_lock(&ctrl->lock);
	found = find(ctrl, nsid);
	if (found)
		*ns = *found;
	pthread_mutex_unlock(&ctrl->lock);
	return found ? 0 : -ENOENT;
}
