/* SPDX-License-Identifier: MIT */
#include "xdma_model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

static struct xdma_model *of(struct pci_device *dev)
{
	return (struct xdma_model *)((char *)dev - offsetof(struct xdma_model, pci));
}

static uint32_t get32(const uint8_t *p, unsigned int off)
{
	return (uint32_t)p[off] | (uint32_t)p[off + 1] << 8 | (uint32_t)p[off + 2] << 16 | (uint32_t)p[off + 3] << 24;
}

static uint64_t get64(const uint8_t *p, unsigned int off)
{
	return get32(p, off) | (uint64_t)get32(p, off + 4) << 32;
}

/* Bits of the status register. */
enum { BUSY = 1, STOPPED = 2, COMPLETED = 4, ALIGN = 8, MAGIC = 16, LENGTH = 32, READ = 1 << 9, DESC = 1 << 19 };

static void finish(struct xdma_model *m, int dir, uint32_t status)
{
	struct xdma_channel *ch = &m->ch[dir];

	ch->status = (ch->status & ~(uint32_t)BUSY) | status;
	if ((ch->enable & status) && (ch->control & status) && m->irq_mask && m->irq >= 0)
		eventfd_write(m->irq, 1);
}

/* Runs one descriptor. Returns 0, or the status that the channel stops with. */
static uint32_t run_one(struct xdma_model *m, int dir, const uint8_t *d)
{
	uint64_t len = get32(d, 4), src = get64(d, 8), dst = get64(d, 16), card = dir ? src : dst,
		 host = dir ? dst : src;

	if (get32(d, 0) >> 16 != 0xad4b)
		return MAGIC;
	if (!len || len >= 1u << 28)
		return LENGTH;
	if ((len | src | dst) % m->c.align)
		return ALIGN;
	if (card > m->c.card_bytes || len > m->c.card_bytes - card)
		return READ;
	if (!(dir ? bus_write(&m->bus, host, m->card + card, len) : bus_read(&m->bus, host, m->card + card, len)))
		return READ;
	m->descriptors++;
	m->ch[dir].completed++;
	return 0;
}

static bool faulty(struct xdma_model *m, enum xdma_fault fault)
{
	if (m->fault != fault || !m->fault_count)
		return false;
	if (fault != XDMA_GONE && fault != XDMA_STUCK_HARD)
		m->fault_count--;
	return true;
}

/* Follows the chain; with the lock held. */
static void run(struct xdma_model *m, int dir)
{
	struct xdma_channel *ch = &m->ch[dir];
	uint64_t at = ch->lo | (uint64_t)ch->hi << 32;
	uint8_t d[32];
	uint32_t rc;

	if (!m->master || faulty(m, XDMA_STUCK) || faulty(m, XDMA_STUCK_HARD)) {
		ch->control &= ~1u; /* accepted, without effect */
		return;
	}
	ch->control |= 1u << 31;
	if (faulty(m, XDMA_READ_ERROR)) {
		finish(m, dir, READ);
		return;
	}
	for (;;) {
		if (!bus_read(&m->bus, at, d, sizeof(d)) || faulty(m, XDMA_DESC_ERROR)) {
			finish(m, dir, DESC);
			return;
		}
		if (faulty(m, XDMA_BAD_MAGIC))
			d[3] ^= 0x40;
		rc = run_one(m, dir, d);
		if (rc) {
			finish(m, dir, rc);
			return;
		}
		if ((d[0] & 1) || faulty(m, XDMA_HALT)) {
			finish(m, dir, STOPPED | (d[0] & 2 ? COMPLETED : 0));
			return;
		}
		at = get64(d, 24);
	}
}

static void step(struct xdma_model *m)
{
	for (int dir = 0; dir < 2; dir++)
		if ((m->ch[dir].status & BUSY) && (m->ch[dir].control & 1) && !(m->ch[dir].control >> 31))
			run(m, dir);
}

static void *work(void *arg)
{
	struct xdma_model *m = arg;

	for (;;) {
		pthread_mutex_lock(&m->lock);
		if (m->stop)
			break;
		step(m);
		pthread_mutex_unlock(&m->lock);
		nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
	}
	pthread_mutex_unlock(&m->lock);
	return NULL;
}

static uint32_t channel_read(struct xdma_model *m, int dir, uint64_t reg)
{
	struct xdma_channel *ch = &m->ch[dir];
	uint32_t v;

	switch (reg) {
	case 0x00:
		return 0x1fc00006 | (uint32_t)dir << 16;
	case 0x04:
		return ch->control & 0x7fffffff;
	case 0x40:
		return ch->status;
	case 0x44:
		v = ch->status;
		ch->status &= BUSY;
		return v;
	case 0x48:
		return ch->completed;
	case 0x4c:
		return m->c.align << 16 | m->c.align << 8 | 40;
	case 0x90:
		return ch->enable;
	default:
		return 0;
	}
}

static void channel_write(struct xdma_model *m, int dir, uint64_t reg, uint32_t value)
{
	struct xdma_channel *ch = &m->ch[dir];

	if (reg == 0x0c)
		value = ch->control & ~value & 0x7fffffff;
	else if (reg == 0x90)
		ch->enable = value;
	if (reg != 0x04 && reg != 0x0c)
		return;
	if ((value & 1) && !(ch->status & BUSY)) {
		ch->control = value;
		ch->completed = 0;
		ch->status |= BUSY;
		m->starts++;
	} else if (!(value & 1) && !(m->fault == XDMA_STUCK_HARD && m->fault_count)) {
		ch->control = value;
		ch->status &= ~(uint32_t)BUSY;
	}
}

static uint32_t read32(struct pci_device *dev, unsigned int bar, uint64_t off)
{
	struct xdma_model *m = of(dev);
	uint32_t v = 0;

	pthread_mutex_lock(&m->lock);
	if (m->fault == XDMA_GONE && m->fault_count)
		v = UINT32_MAX;
	else if (bar == m->c.bar && off >> 12 < 2 && !(off >> 8 & 0xf))
		v = channel_read(m, (int)(off >> 12), off & 0xff);
	else if (bar == m->c.bar && off == 0x2000)
		v = 0x1fc20006;
	else if (bar == m->c.bar && off == 0x3000)
		v = 0x1fc30006;
	pthread_mutex_unlock(&m->lock);
	return v;
}

static void write32(struct pci_device *dev, unsigned int bar, uint64_t off, uint32_t value)
{
	struct xdma_model *m = of(dev);

	pthread_mutex_lock(&m->lock);
	if (bar == m->c.bar && off >> 12 < 2)
		channel_write(m, (int)(off >> 12), off & 0xff, value);
	else if (bar == m->c.bar && off == 0x2010)
		m->irq_mask = value;
	else if (bar == m->c.bar && (off & ~0x1000ull) == 0x4080)
		m->ch[off >> 12 & 1].lo = value;
	else if (bar == m->c.bar && (off & ~0x1000ull) == 0x4084)
		m->ch[off >> 12 & 1].hi = value;
	if (!m->c.threaded)
		step(m);
	pthread_mutex_unlock(&m->lock);
}

static uint64_t read64(struct pci_device *dev, unsigned int bar, uint64_t off)
{
	return read32(dev, bar, off);
}

static void write64(struct pci_device *dev, unsigned int bar, uint64_t off, uint64_t value)
{
	write32(dev, bar, off, (uint32_t)value);
}

static int config_read(struct pci_device *dev, unsigned int off, unsigned int size, uint32_t *value)
{
	*value = off == 0x2e ? 1 : 0;
	return 0;
}

static int bus_master(struct pci_device *dev, bool on)
{
	struct xdma_model *m = of(dev);

	pthread_mutex_lock(&m->lock);
	m->master = on;
	pthread_mutex_unlock(&m->lock);
	return 0;
}

static int reset(struct pci_device *dev)
{
	struct xdma_model *m = of(dev);

	pthread_mutex_lock(&m->lock);
	memset(m->ch, 0, sizeof(m->ch));
	m->master = false;
	m->resets++;
	pthread_mutex_unlock(&m->lock);
	return 0;
}

static int irq(struct pci_device *dev, unsigned int vector, int *fd)
{
	struct xdma_model *m = of(dev);

	if (m->irq < 0)
		m->irq = eventfd(0, EFD_CLOEXEC);
	*fd = m->irq;
	return vector ? -EINVAL : 0;
}

static int map_region(struct pci_device *dev, struct strait_region *r, uint64_t off, uint64_t len, unsigned int flags,
		      struct pci_mapping *map)
{
	struct xdma_model *m = of(dev);

	return bus_map_region(&m->bus, r, off, len, m->c.lose_peer_writes ? BUS_LOSES | flags : flags, map);
}

static int map_host(struct pci_device *dev, void *addr, uint64_t len, unsigned int flags, struct pci_mapping *map)
{
	return bus_map_host(&of(dev)->bus, addr, len, flags, map);
}

static void unmap(struct pci_device *dev, struct pci_mapping *map)
{
	bus_unmap(&of(dev)->bus, map);
}

static int mapping_check(struct pci_device *dev, const struct pci_mapping *map)
{
	return of(dev)->revoked ? -ENODEV : 0;
}

static void close_device(struct pci_device *dev)
{
	of(dev)->is_open = false;
}

static const struct pci_ops model_ops = BUS_PCI_OPS;

struct xdma_model *xdma_new(const struct xdma_config *config)
{
	struct xdma_model *m = calloc(1, sizeof(*m));

	if (!m)
		abort();
	m->c = *config;
	m->c.card_bytes = m->c.card_bytes ? m->c.card_bytes : 65536;
	m->c.align = m->c.align ? m->c.align : 1;
	m->c.bar = m->c.bar ? m->c.bar : 1;
	m->card = calloc(1, m->c.card_bytes);
	if (!m->card)
		abort();
	m->irq = -1;
	m->is_open = true;
	bus_init(&m->bus, m->c.scattered);
	m->bus.refuse_regions = m->c.refuse_regions;
	pthread_mutex_init(&m->lock, NULL);
	m->pci.ops = &model_ops;
	memcpy(m->pci.name, "0000:00:01.0", 13);
	m->pci.vendor = 0x10de;
	m->pci.device = 0x0001;
	m->pci.node = -1;
	m->pci.vectors = m->c.interrupts ? 1 : 0;
	m->pci.bar[0].length = 4096;
	m->pci.bar[m->c.bar].length = 0x10000;
	if (m->c.threaded && pthread_create(&m->thread, NULL, work, m))
		abort();
	return m;
}

void xdma_free(struct xdma_model *m)
{
	if (m->c.threaded) {
		pthread_mutex_lock(&m->lock);
		m->stop = true;
		pthread_mutex_unlock(&m->lock);
		pthread_join(m->thread, NULL);
	}
	if (m->irq >= 0)
		close(m->irq);
	bus_fini(&m->bus);
	pthread_mutex_destroy(&m->lock);
	free(m->card);
	free(m);
}

void xdma_break(struct xdma_model *m, enum xdma_fault fault, uint64_t count)
{
	pthread_mutex_lock(&m->lock);
	m->fault = fault;
	m->fault_count = count;
	pthread_mutex_unlock(&m->lock);
}
