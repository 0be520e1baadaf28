/* SPDX-License-Identifier: MIT */
#include "device/device_set.h"

#include <stdlib.h>

#include "base/lock.h"
#include "device/cuda/cuda.h"
#include "device/dmabuf.h"
#include "device/emu/emu.h"
#include "device/host.h"
#include "device/region.h"
#include "device/scratch.h"
#include "device/vgpu/vgpu.h"

/* All providers in order of preference, which is the order of devices in a context. */
static const struct provider_ops *const provider_table[] = {
	&cuda_provider_ops, &vgpu_provider_ops, &emu_provider_ops, &host_provider_ops, &dmabuf_provider_ops,
};

static void provider_free_devices(struct provider *p)
{
	list_for_each_safe(it, tmp, &p->devices) {
		struct strait_device *dev = list_entry(it, struct strait_device, node);

		list_del(it);
		pthread_mutex_destroy(&dev->scratch_lock);
		free(dev);
	}
}

int device_set_open_table(struct device_set *set, const struct log_sink *log, void *owner,
			  const struct provider_ops *const *table, unsigned int n)
{
	memset(set, 0, sizeof(*set));
	set->log = log;
	set->owner = owner;
	rwlock_init(&set->lock);
	pthread_mutex_init(&set->watch_lock, NULL);
	list_init(&set->watchers);
	for (unsigned int i = 0; i < n && i < ARRAY_SIZE(set->providers); i++) {
		struct provider *p = &set->providers[set->n_providers++];

		provider_ops_overlay(&p->table, table[i]);
		p->ops = &p->table;
		p->set = set;
		list_init(&p->devices);
		p->status = p->ops->open(p);
		while (set->n_listed < set->n_devices &&
		       !(set->devices[set->n_listed]->caps & STRAIT_DEVICE_IMPORT_ONLY))
			set->n_listed++;
		if (p->status == -ENOMEM) {
			device_set_close(set);
			return -ENOMEM;
		}
		if (!p->n && !p->missing_reason[0])
			str_format(p->missing_reason, sizeof(p->missing_reason), "the %s provider found no device",
				   p->ops->name);
		if (p->n)
			log_debug(set->log, "%s: %u device%s", p->ops->name, p->n, p->n == 1 ? "" : "s");
		else
			log_info(set->log, "%s: no device: %s", p->ops->name, p->missing_reason);
	}
	return 0;
}

int device_set_open(struct device_set *set, const struct log_sink *log, void *owner)
{
	_Static_assert(ARRAY_SIZE(provider_table) <= ARRAY_SIZE(set->providers), "device_set.providers is too small");

	return device_set_open_table(set, log, owner, provider_table, ARRAY_SIZE(provider_table));
}

void device_set_close(struct device_set *set)
{
	for (unsigned int i = set->n_providers; i-- > 0;) {
		struct provider *p = &set->providers[i];

		list_for_each(it, &p->devices)
			device_scratch_free(list_entry(it, struct strait_device, node));
		p->ops->close(p);
		provider_free_devices(p);
	}
	set->n_providers = set->n_devices = set->n_listed = 0;
	pthread_mutex_destroy(&set->watch_lock);
	pthread_rwlock_destroy(&set->lock);
}

void device_set_watch(struct device_set *set, struct region_watcher *w)
{
	pthread_mutex_lock(&set->watch_lock);
	list_add(&set->watchers, &w->node);
	pthread_mutex_unlock(&set->watch_lock);
}

void device_set_unwatch(struct device_set *set, struct region_watcher *w)
{
	pthread_mutex_lock(&set->watch_lock);
	list_del(&w->node);
	pthread_mutex_unlock(&set->watch_lock);
}

struct strait_device *provider_add_device(struct provider *p)
{
	struct device_set *set = p->set;
	struct strait_device *dev;

	if (set->n_devices == ARRAY_SIZE(set->devices))
		return NULL;
	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return NULL;
	dev->provider = p;
	dev->ops = p->ops;
	dev->index = p->n++;
	dev->number = set->n_devices;
	dev->numa_node = -1;
	dev->tuning = (struct device_tuning){
		.chunk_bytes = MIB(1),
		.pool_bytes = MIB(64),
		.window_bytes = MIB(8),
		.register_lanes = 1,
		.small_bytes = KIB(64),
	};
	atomic_init(&dev->removed, false);
	pthread_mutex_init(&dev->scratch_lock, NULL);
	list_init(&dev->scratch);
	if (!strcmp(p->ops->name, "host") || !strcmp(p->ops->name, "dmabuf"))
		str_copy(dev->name, sizeof(dev->name), p->ops->name);
	else
		str_format(dev->name, sizeof(dev->name), "%s:%u", p->ops->name, dev->index);
	list_add_tail(&p->devices, &dev->node);
	set->devices[set->n_devices++] = dev;
	return dev;
}

void device_info_common(const struct strait_device *dev, struct strait_device_info *info)
{
	str_copy(info->name, sizeof(info->name), dev->name);
	str_copy(info->provider, sizeof(info->provider), dev->ops->name);
	info->caps = dev->caps;
	info->index = dev->index;
	info->numa_node = dev->numa_node;
}

/* "<provider>" or "<provider>:<n>". -EINVAL for anything else. */
static int parse_device_name(struct device_set *set, const char *name, struct provider **ret, unsigned int *index)
{
	size_t len = strcspn(name, ":");
	struct provider *p = NULL;
	unsigned int n = 0;

	for (unsigned int i = 0; i < set->n_providers && !p; i++) {
		const char *has = set->providers[i].ops->name;

		if (strlen(has) == len && !memcmp(has, name, len))
			p = &set->providers[i];
	}
	if (!p)
		return -EINVAL;
	if (name[len] == ':') {
		const char *digits = name + len + 1;
		size_t n_digits = strspn(digits, "0123456789");

		if (!n_digits || n_digits > 6 || digits[n_digits])
			return -EINVAL;
		for (size_t i = 0; i < n_digits; i++)
			n = n * 10 + (unsigned int)(digits[i] - '0');
	}
	*ret = p;
	*index = n;
	return 0;
}

static struct strait_device *provider_device_at(struct provider *p, unsigned int index)
{
	list_for_each(it, &p->devices) {
		struct strait_device *dev = list_entry(it, struct strait_device, node);

		if (dev->index == index)
			return dev;
	}
	return NULL;
}

int device_set_find(struct device_set *set, const char *name, struct strait_device **ret)
{
	struct strait_device *dev;
	struct provider *p;
	unsigned int index;
	int rc;

	rc = parse_device_name(set, name, &p, &index);
	if (rc)
		return rc;
	dev = provider_device_at(p, index);
	if (!dev)
		return -ENODEV;
	*ret = dev;
	return 0;
}

/* Writes "... there are emu:0, host; none of cuda, vgpu". Truncates at a whole name. */
static void format_device_names(struct device_set *set, char *text, size_t len)
{
	size_t at;

	if (!len)
		return;
	str_copy(text, len, "a device is named by its provider and a number; there are");
	for (unsigned int i = 0; i < set->n_listed; i++) {
		at = strlen(text);
		str_format(text + at, len - at, "%s %s", i ? "," : "", set->devices[i]->name);
	}
	for (unsigned int i = 0, none = 0; i < set->n_providers; i++) {
		if (set->providers[i].n)
			continue;
		at = strlen(text);
		str_format(text + at, len - at, "%s %s", none++ ? "," : "; none of", set->providers[i].ops->name);
	}
}

int device_set_missing_reason(struct device_set *set, const char *name, char *text, size_t len)
{
	struct provider *p;
	unsigned int index;

	if (parse_device_name(set, name, &p, &index)) {
		format_device_names(set, text, len);
		return -EINVAL;
	}
	if (provider_device_at(p, index))
		return -EEXIST;
	if (!p->n)
		str_format(text, len, "%s", p->missing_reason);
	else
		str_format(text, len, "%s has %u device%s, the last one is %s%s%s", p->ops->name, p->n,
			   p->n == 1 ? "" : "s", list_entry(p->devices.prev, struct strait_device, node)->name,
			   p->more_devices_hint ? ": " : "", p->more_devices_hint ? p->more_devices_hint : "");
	return 0;
}

/*
 * Revokes all regions over [start, end) of @dev. Revocation waits and calls the application, so the lock is
 * dropped for each region and the walk resumes after its key.
 */
static void revoke_regions_over(struct strait_device *dev, uint64_t start, uint64_t end)
{
	struct device_set *set = dev->provider->set;
	uint64_t at = 0, seq = 0;
	struct range_node *n;

	for (;;) {
		struct strait_region *r = NULL;

		pthread_rwlock_rdlock(&set->lock);
		while ((n = range_tree_next(&set->regions, start, end, at, seq))) {
			at = n->start;
			seq = n->seq;
			r = container_of(n, struct strait_region, node);
			if (r->dev == dev) {
				region_ref(r);
				break;
			}
		}
		pthread_rwlock_unlock(&set->lock);
		if (!n)
			return;
		region_revoke(r);
		region_unref(r);
	}
}

void device_set_revoke_range(struct strait_device *dev, uint64_t addr, uint64_t len)
{
	revoke_regions_over(dev, addr, addr + len);
}

void device_set_revoke_device(struct strait_device *dev)
{
	atomic_store_explicit(&dev->removed, true, memory_order_release);
	revoke_regions_over(dev, 0, UINT64_MAX);
}
