/* SPDX-License-Identifier: MIT */
#include "endpoint/dma/dma.h"

#include <stdlib.h>

#include "base/util.h"
#include "device/verify.h"
#include "os/os.h"

#define DEFAULT_TIMEOUT 10000000000u
#define MAX_TIMEOUT 3600000000000u
#define VERIFY_BYTES 256u

static const struct dma_engine *const engines[] = { &dma_xdma, &dma_edu };

static const struct dma_engine *find_engine(const struct pci_device *pci, const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(engines); i++)
		if (name ? !strcmp(engines[i]->name, name) : engines[i]->knows(pci))
			return engines[i];
	return NULL;
}

static void unmap_region(struct region_watcher *w, struct strait_region *r)
{
	struct strait_dma *d = container_of(w, struct strait_dma, watcher);

	pthread_mutex_lock(&d->map_lock);
	list_for_each_safe(it, tmp, &d->maps) {
		struct dma_map *m = list_entry(it, struct dma_map, node);

		if (m->region != r)
			continue;
		list_del(&m->node);
		pci_unmap(m->pm);
		free(m);
	}
	pthread_mutex_unlock(&d->map_lock);
}

static int bring_up(struct strait_dma *d)
{
	int rc;

	/* The engine may still be running: no DMA before it is reset. */
	rc = d->pci->ops->bus_master(d->pci, false);
	if (!rc && (d->flags & STRAIT_DMA_INTERRUPTS)) {
		rc = d->pci->vectors ? d->pci->ops->irq(d->pci, 0, &d->irq) : -EOPNOTSUPP;
		if (!rc)
			rc = os_event_share(d->irq);
	}
	if (!rc)
		rc = d->engine->open(d);
	if (rc)
		return rc;
	rc = pci_address_bits(d->pci, d->address_bits);
	if (rc)
		return rc;
	rc = os_map_anon(DMA_BOUNCE, d->pci->node, &d->bounce);
	if (rc)
		return rc;
	os_dont_fork(d->bounce, DMA_BOUNCE);
	rc = pci_map_host(d->pci, d->bounce, DMA_BOUNCE, PCI_MAP_READ | PCI_MAP_WRITE, &d->bounce_map);
	return rc ? rc : d->pci->ops->bus_master(d->pci, true);
}

static int check_opts(const struct strait_dma_opts *o)
{
	if (o->flags & ~(STRAIT_DMA_INTERRUPTS | STRAIT_DMA_UNREVOCABLE) || o->timeout_ns > MAX_TIMEOUT ||
	    o->card_bytes > INT64_MAX)
		return -EINVAL;
	return 0;
}

int dma_open(struct device_set *set, struct pci_device *pci, const struct strait_dma_opts *opts,
	     struct strait_dma **ret)
{
	struct strait_dma *d;
	int rc = check_opts(opts);

	d = rc ? NULL : calloc(1, sizeof(*d));
	if (!d) {
		pci_close(pci);
		return rc ? rc : -ENOMEM;
	}
	atomic_init(&d->refs, 1);
	d->pci = pci;
	d->set = set;
	d->log = set->log;
	d->flags = opts->flags;
	d->channel = opts->channel;
	d->card_bytes = opts->card_bytes;
	d->timeout = opts->timeout_ns ? opts->timeout_ns : DEFAULT_TIMEOUT;
	d->irq = -1;
	list_init(&d->maps);
	pthread_mutex_init(&d->lock, NULL);
	pthread_mutex_init(&d->bounce_lock, NULL);
	pthread_mutex_init(&d->map_lock, NULL);
	d->watcher.drop_mappings = unmap_region;
	device_set_watch(set, &d->watcher);
	d->engine = find_engine(pci, opts->engine);
	rc = d->engine ? bring_up(d) : -EPROTO;
	if (rc) {
		log_error(d->log, "%s: no usable DMA engine: %s", pci->name, strerror(-rc));
		dma_unref(d);
		return rc;
	}
	*ret = d;
	return 0;
}

void dma_ref(struct strait_dma *d)
{
	atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed);
}

void dma_unref(struct strait_dma *d)
{
	if (atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) != 1)
		return;
	device_set_unwatch(d->set, &d->watcher);
	d->pci->ops->bus_master(d->pci, false);
	if (d->engine)
		d->engine->close(d);
	list_for_each_safe(it, tmp, &d->maps) {
		struct dma_map *m = list_entry(it, struct dma_map, node);

		pci_unmap(m->pm);
		free(m);
	}
	pci_unmap(d->bounce_map);
	if (d->bounce)
		os_unmap(d->bounce, DMA_BOUNCE);
	pci_close(d->pci);
	pthread_mutex_destroy(&d->map_lock);
	pthread_mutex_destroy(&d->bounce_lock);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

void dma_info(struct strait_dma *d, struct strait_dma_info *i)
{
	*i = (struct strait_dma_info){ .size = sizeof(*i) };
	str_copy(i->name, sizeof(i->name), d->pci->name);
	str_copy(i->backend, sizeof(i->backend), d->pci->ops->name);
	str_copy(i->engine, sizeof(i->engine), d->engine->name);
	i->vendor = d->pci->vendor;
	i->device = d->pci->device;
	i->address_bits = d->address_bits;
	i->align = d->align;
	i->channels = d->channels;
	i->revokes = d->pci->ops->revokes;
	i->card_bytes = d->card_bytes;
	i->chunk_bytes = d->chunk;
	pthread_mutex_lock(&d->lock);
	i->starts = d->starts;
	i->errors = d->errors;
	i->stops = d->stops;
	i->bytes_to_card = d->to_card;
	i->bytes_from_card = d->from_card;
	pthread_mutex_unlock(&d->lock);
}

static int map_new_locked(struct strait_dma *d, struct strait_region *r, struct dma_map **ret)
{
	unsigned int flags = PCI_MAP_READ | PCI_MAP_WRITE |
			     (d->flags & STRAIT_DMA_UNREVOCABLE ? PCI_MAP_UNREVOCABLE : 0);
	struct dma_map *m = calloc(1, sizeof(*m));
	int rc;

	if (!m)
		return -ENOMEM;
	rc = pci_map_region(d->pci, r, 0, r->mem.len, flags, &m->pm);
	if (rc) {
		free(m);
		return rc;
	}
	m->region = r;
	list_add(&d->maps, &m->node);
	*ret = m;
	return 0;
}

int dma_map(struct strait_dma *d, struct strait_region *r, const struct pci_mapping **ret)
{
	struct dma_map *m = NULL;
	int rc = 0;

	pthread_mutex_lock(&d->map_lock);
	list_for_each(it, &d->maps) {
		m = list_entry(it, struct dma_map, node);
		if (m->region == r)
			break;
		m = NULL;
	}
	if (!m)
		rc = map_new_locked(d, r, &m);
	pthread_mutex_unlock(&d->map_lock);
	if (!rc)
		*ret = m->pm;
	return rc;
}

struct verify_job {
	struct strait_dma *d;
	struct dma_job job;
};

static int read_block(void *arg)
{
	struct verify_job *v = arg;

	dma_move(v->d, &v->job);
	return v->job.err;
}

/* Reads the start of the card's memory through host memory, then directly into @r, and compares. */
static int verify_card(struct strait_region *r, struct dev_stream *s, void *arg)
{
	struct strait_dma *d = arg;
	struct verify_job v = { .d = d,
				.job = { .length = min_u64(VERIFY_BYTES, d->card_bytes), .deadline = UINT64_MAX } };
	uint8_t want[VERIFY_BYTES], back[VERIFY_BYTES];
	int rc;

	v.job.length -= v.job.length % d->align;
	v.job.pm = d->bounce_map;
	pthread_mutex_lock(&d->bounce_lock);
	rc = read_block(&v);
	memcpy(want, d->bounce, v.job.length);
	pthread_mutex_unlock(&d->bounce_lock);
	if (!rc)
		rc = dma_map(d, r, &v.job.pm);
	return rc ? rc : verify_block(s, r->mem.addr, want, back, v.job.length, read_block, &v);
}

int dma_map_device(struct strait_dma *d, struct strait_device *dev, struct strait_region *r, uint32_t *reason)
{
	const struct pci_mapping *pm;
	int rc = r ? dma_map(d, r, &pm) : 0;

	if (rc) {
		*reason = STRAIT_WHY_NO_DEVICE_MAP;
		return rc;
	}
	if (dev->caps & (STRAIT_DEVICE_HOST | STRAIT_DEVICE_IMPORT_ONLY))
		return 0;
	rc = verify_once(&d->pair[dev->number], dev, verify_card, d);
	if (rc)
		*reason = rc == -EREMOTEIO ? STRAIT_WHY_NOT_ARRIVED : STRAIT_WHY_VERIFY_FAILED;
	return rc;
}
