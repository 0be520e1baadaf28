/* SPDX-License-Identifier: MIT */
/* Registers, queues, and their faults. */
#include "nvme_model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

static struct nvme_model *of(struct pci_device *dev)
{
	return (struct nvme_model *)((char *)dev - offsetof(struct nvme_model, pci));
}

uint64_t model_random(struct nvme_model *m)
{
	m->seed ^= m->seed << 13;
	m->seed ^= m->seed >> 7;
	m->seed ^= m->seed << 17;
	return m->seed;
}

/* Writes one entry into a completion queue; the caller has checked that there is room. */
void model_entry(struct nvme_model *m, uint32_t cqid, uint32_t dw0, uint32_t dw2, uint32_t dw3)
{
	struct model_queue *cq = &m->q[cqid];
	uint64_t at = cq->cq_bus + (uint64_t)cq->cq_tail * 16;
	uint32_t words[3] = { dw0, 0, dw2 };

	bus_write(&m->bus, at, words, sizeof(words));
	bus_write_last(&m->bus, at + 12, (dw3 & ~(1u << 16)) | cq->phase << 16);
	if (++cq->cq_tail == cq->cq_size) {
		cq->cq_tail = 0;
		cq->phase ^= 1;
	}
	if (cq->irq && m->irq[cq->vector] >= 0)
		eventfd_write(m->irq[cq->vector], 1);
}

void model_complete(struct nvme_model *m, uint16_t sqid, uint16_t cid, uint16_t status, uint32_t result)
{
	struct model_queue *sq = &m->q[sqid];

	model_entry(m, sq->cqid, result, sq->head | (uint32_t)sqid << 16, cid | (uint32_t)status << 17);
}

/* Does this command fail now? */
static enum model_fault fault_now(struct nvme_model *m)
{
	if (m->fault == MODEL_GOOD)
		return MODEL_GOOD;
	if (m->fault_at) {
		m->fault_at--;
		return MODEL_GOOD;
	}
	if (!m->fault_count)
		return MODEL_GOOD;
	m->fault_count--;
	return m->fault;
}

static void hold(struct nvme_model *m, uint16_t sqid, uint16_t cid)
{
	if (m->n_held < MODEL_HELD)
		m->held[m->n_held++] = (struct model_held){ sqid, cid };
}

static void run_io(struct nvme_model *m, uint16_t sqid, const uint8_t *sqe)
{
	struct model_queue *sq = &m->q[sqid];
	uint16_t cid = (uint16_t)(sqe[2] | sqe[3] << 8), status;
	uint32_t dw2 = sq->head | (uint32_t)sqid << 16;
	enum model_fault fault = fault_now(m);

	m->io++;
	if (m->hook && m->hook(m, sqid, sqe))
		return;
	switch (fault) {
	case MODEL_FATAL:
		m->csts |= 2;
		return;
	case MODEL_GONE:
		return;
	case MODEL_STALL:
		m->stalled = true;
		return;
	case MODEL_HOLD:
		hold(m, sqid, cid);
		return;
	case MODEL_STATUS:
		model_complete(m, sqid, cid, m->status, 0);
		return;
	default:
		break;
	}
	status = model_io(m, sqe);
	switch (fault) {
	case MODEL_LOSE:
		break;
	case MODEL_BAD_CID:
		model_entry(m, sq->cqid, 0, dw2, (uint16_t)(cid ^ (1u << (model_random(m) % 16))));
		break;
	case MODEL_BAD_PHASE:
		m->q[sq->cqid].phase ^= 1;
		model_entry(m, sq->cqid, 0, dw2, cid);
		m->q[sq->cqid].phase ^= 1;
		break;
	case MODEL_BAD_SQHD:
		model_entry(m, sq->cqid, 0, (sq->sq_size + (uint32_t)(model_random(m) % 100)) | (uint32_t)sqid << 16,
			    cid);
		break;
	case MODEL_BAD_SQID:
		model_entry(m, sq->cqid, 0, sq->head | (sqid + 1u) << 16, cid);
		break;
	case MODEL_TWICE:
		model_complete(m, sqid, cid, status, 0);
		model_complete(m, sqid, cid, status, 0);
		break;
	case MODEL_GARBAGE:
		model_entry(m, sq->cqid, (uint32_t)model_random(m), (uint32_t)model_random(m),
			    (uint32_t)model_random(m));
		break;
	default:
		model_complete(m, sqid, cid, status, 0);
	}
}

static void run_admin(struct nvme_model *m, const uint8_t *sqe)
{
	uint16_t cid = (uint16_t)(sqe[2] | sqe[3] << 8), status;
	uint32_t result = 0;
	bool later = false;

	m->admin++;
	status = model_admin(m, sqe, &result, &later);
	if (m->mutate)
		m->mutate(m, (uint8_t *)&result, sizeof(result));
	if (!later)
		model_complete(m, 0, cid, status, result);
}

static bool has_room(const struct nvme_model *m, uint32_t cqid)
{
	const struct model_queue *cq = &m->q[cqid];

	return (cq->cq_tail + 1) % cq->cq_size != cq->cq_head;
}

static void run_queue(struct nvme_model *m, uint16_t id)
{
	struct model_queue *q = &m->q[id];
	uint8_t sqe[64];

	while (q->sq_there && q->head != q->tail && (m->cc & 1) && !(m->csts & 2) && !m->stalled &&
	       has_room(m, q->cqid)) {
		if (m->fault == MODEL_GONE && !m->fault_at && m->fault_count)
			return;
		if (!bus_read(&m->bus, q->sq_bus + (uint64_t)q->head * 64, sqe, sizeof(sqe))) {
			m->csts |= 2;
			return;
		}
		q->head = (q->head + 1) % q->sq_size;
		if (id)
			run_io(m, id, sqe);
		else
			run_admin(m, sqe);
	}
}

/*
 * Reads the shadow doorbells, and sets the event index so that the next doorbell need not be rung while the thread
 * polls.
 */
static void look_at_shadow(struct nvme_model *m, uint16_t id)
{
	struct model_queue *q = &m->q[id];
	uint32_t seen, event;

	if (!m->shadow || !id || !q->rung)
		return;
	event = m->c.threaded ? (q->tail - 1) & 0xffff : q->tail;
	if (q->sq_there && bus_exchange(&m->bus, m->events + id * 8, event, m->shadow + id * 8, &seen) &&
	    seen < q->sq_size)
		q->tail = seen;
	event = m->c.threaded ? (q->cq_head - 1) & 0xffff : q->cq_head;
	if (q->cq_there && bus_exchange(&m->bus, m->events + id * 8 + 4, event, m->shadow + id * 8 + 4, &seen) &&
	    seen < q->cq_size)
		q->cq_head = seen;
}

static void step(struct nvme_model *m)
{
	if (!(m->csts & 1))
		return;
	for (uint16_t i = 0; i < MODEL_QUEUES; i++) {
		look_at_shadow(m, i);
		run_queue(m, i);
		look_at_shadow(m, i);
	}
}

static void *work(void *arg)
{
	struct nvme_model *m = arg;

	for (;;) {
		pthread_mutex_lock(&m->lock);
		if (m->stop)
			break;
		step(m);
		pthread_mutex_unlock(&m->lock);
		nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
	}
	pthread_mutex_unlock(&m->lock);
	return NULL;
}

static bool gone(const struct nvme_model *m)
{
	return m->fault == MODEL_GONE && !m->fault_at && m->fault_count;
}

static uint64_t capabilities(const struct nvme_model *m)
{
	/* Half a second to become ready, contiguous queues, the NVM command set. */
	return (m->c.entries - 1) | 1u << 16 | 1ull << 24 | 1ull << 37;
}

static uint64_t reg(const struct nvme_model *m, uint64_t off)
{
	switch (off) {
	case 0x00:
		return capabilities(m);
	case 0x04:
		return capabilities(m) >> 32;
	case 0x08:
		return m->c.old ? 0x10000 : 0x10400;
	case 0x14:
		return m->cc;
	case 0x1c:
		return m->csts;
	case 0x24:
		return m->aqa;
	case 0x28:
		return m->asq;
	case 0x30:
		return m->acq;
	default:
		return 0;
	}
}

static uint64_t read64(struct pci_device *dev, unsigned int bar, uint64_t off)
{
	struct nvme_model *m = of(dev);
	uint64_t v;

	pthread_mutex_lock(&m->lock);
	v = gone(m) ? UINT64_MAX : reg(m, off);
	pthread_mutex_unlock(&m->lock);
	return v;
}

static uint32_t read32(struct pci_device *dev, unsigned int bar, uint64_t off)
{
	return (uint32_t)read64(dev, bar, off);
}

static void disable(struct nvme_model *m)
{
	memset(m->q, 0, sizeof(m->q));
	m->n_aer = m->n_held = 0;
	m->stalled = false;
	m->shadow = m->events = 0;
	if (!m->never_idle)
		m->csts = 0;
	m->resets++;
}

static void enable(struct nvme_model *m)
{
	struct model_queue *q = &m->q[0];

	/* Pages of 4 KiB, entries of 64 and 16 bytes, and bus mastering on. */
	if ((m->cc >> 7 & 0xf) != 0 || (m->cc >> 16 & 0xf) != 6 || (m->cc >> 20 & 0xf) != 4 || !m->master ||
	    m->asq % 4096 || m->acq % 4096) {
		m->csts |= 2;
		return;
	}
	*q = (struct model_queue){ .sq_there = true, .cq_there = true, .phase = 1 };
	q->sq_bus = m->asq;
	q->cq_bus = m->acq;
	q->sq_size = (m->aqa & 0xfff) + 1;
	q->cq_size = (m->aqa >> 16 & 0xfff) + 1;
	m->csts |= 1;
}

static void write_cc(struct nvme_model *m, uint32_t value)
{
	uint32_t old = m->cc;

	m->cc = value;
	if ((old & 1) && !(value & 1))
		disable(m);
	else if (!(old & 1) && (value & 1))
		enable(m);
	if (value >> 14 & 3) {
		m->csts |= 2u << 2;
		m->shut_down = true;
	}
}

static void write_doorbell(struct nvme_model *m, uint64_t off, uint32_t value)
{
	uint64_t index = (off - 0x1000) / 4, id = index / 2;

	m->doorbells++;
	if (id >= MODEL_QUEUES)
		return;
	m->q[id].rung = true;
	if (index & 1) {
		if (value < m->q[id].cq_size)
			m->q[id].cq_head = value;
	} else if (value < m->q[id].sq_size) {
		m->q[id].tail = value;
	}
}

static void write64(struct pci_device *dev, unsigned int bar, uint64_t off, uint64_t value)
{
	struct nvme_model *m = of(dev);

	pthread_mutex_lock(&m->lock);
	if (gone(m))
		goto out;
	if (off == 0x14)
		write_cc(m, (uint32_t)value);
	else if (off == 0x24)
		m->aqa = (uint32_t)value;
	else if (off == 0x28)
		m->asq = value;
	else if (off == 0x30)
		m->acq = value;
	else if (off >= 0x1000)
		write_doorbell(m, off, (uint32_t)value);
	if (!m->c.threaded)
		step(m);
out:
	pthread_mutex_unlock(&m->lock);
}

static void write32(struct pci_device *dev, unsigned int bar, uint64_t off, uint32_t value)
{
	write64(dev, bar, off, value);
}

static int config_read(struct pci_device *dev, unsigned int off, unsigned int size, uint32_t *value)
{
	struct nvme_model *m = of(dev);

	pthread_mutex_lock(&m->lock);
	*value = off == 4 && m->master ? 4 : 0;
	pthread_mutex_unlock(&m->lock);
	return 0;
}

static int bus_master(struct pci_device *dev, bool on)
{
	struct nvme_model *m = of(dev);

	pthread_mutex_lock(&m->lock);
	m->master = on;
	pthread_mutex_unlock(&m->lock);
	return 0;
}

static int reset(struct pci_device *dev)
{
	struct nvme_model *m = of(dev);
	int rc = -EOPNOTSUPP;

	pthread_mutex_lock(&m->lock);
	if (m->reset_works) {
		m->never_idle = false;
		disable(m);
		m->cc = m->csts = 0;
		m->master = false;
		rc = 0;
	}
	pthread_mutex_unlock(&m->lock);
	return rc;
}

static int irq(struct pci_device *dev, unsigned int vector, int *fd)
{
	struct nvme_model *m = of(dev);

	if (vector >= m->c.vectors)
		return -EINVAL;
	pthread_mutex_lock(&m->lock);
	if (m->irq[vector] < 0)
		m->irq[vector] = eventfd(0, EFD_CLOEXEC);
	*fd = m->irq[vector];
	pthread_mutex_unlock(&m->lock);
	return *fd < 0 ? -errno : 0;
}

static int map_region(struct pci_device *dev, struct strait_region *r, uint64_t off, uint64_t len, unsigned int flags,
		      struct pci_mapping *map)
{
	struct nvme_model *m = of(dev);

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
	struct nvme_model *m = of(dev);

	pthread_mutex_lock(&m->lock);
	m->is_open = false;
	pthread_mutex_unlock(&m->lock);
}

static const struct pci_ops model_ops = BUS_PCI_OPS;

struct nvme_model *model_new(const struct model_config *config)
{
	struct nvme_model *m = calloc(1, sizeof(*m));

	if (!m)
		abort();
	m->c = *config;
	m->c.namespaces = m->c.namespaces ? m->c.namespaces : 1;
	m->c.lba = m->c.lba ? m->c.lba : 512;
	m->c.lba2 = m->c.lba2 ? m->c.lba2 : m->c.lba;
	m->c.blocks = m->c.blocks ? m->c.blocks : 16384;
	m->c.entries = m->c.entries ? m->c.entries : 1024;
	m->c.queues = m->c.queues ? m->c.queues : 4;
	m->seed = 88172645463325252u;
	m->is_open = true;
	bus_init(&m->bus, m->c.scattered);
	m->bus.refuse_regions = m->c.refuse_regions;
	pthread_mutex_init(&m->lock, NULL);
	for (uint32_t i = 0; i < m->c.namespaces; i++) {
		m->blocks[i] = m->c.blocks;
		m->disk[i] = calloc(m->c.blocks, i ? m->c.lba2 : m->c.lba);
		if (!m->disk[i])
			abort();
	}
	for (int i = 0; i < 8; i++)
		m->irq[i] = -1;
	m->pci.ops = &model_ops;
	memcpy(m->pci.name, "0000:00:00.0", 13);
	m->pci.vendor = 0x1b36;
	m->pci.device = 0x10;
	m->pci.class_code = 0x010802;
	m->pci.node = -1;
	m->pci.vectors = m->c.vectors;
	m->pci.bar[0].length = 0x4000;
	if (m->c.threaded && pthread_create(&m->thread, NULL, work, m))
		abort();
	return m;
}

void model_free(struct nvme_model *m)
{
	if (m->c.threaded) {
		pthread_mutex_lock(&m->lock);
		m->stop = true;
		pthread_mutex_unlock(&m->lock);
		pthread_join(m->thread, NULL);
	}
	for (int i = 0; i < 8; i++)
		if (m->irq[i] >= 0)
			close(m->irq[i]);
	for (uint32_t i = 0; i < m->c.namespaces; i++)
		free(m->disk[i]);
	bus_fini(&m->bus);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

void model_break(struct nvme_model *m, enum model_fault fault, uint64_t at, uint64_t count)
{
	pthread_mutex_lock(&m->lock);
	m->fault = fault;
	m->fault_at = at;
	m->fault_count = count;
	pthread_mutex_unlock(&m->lock);
}

bool model_event(struct nvme_model *m, uint32_t result)
{
	bool ok;

	pthread_mutex_lock(&m->lock);
	ok = m->n_aer;
	if (ok)
		model_complete(m, 0, m->aer[--m->n_aer], 0, result);
	pthread_mutex_unlock(&m->lock);
	return ok;
}

void model_resize(struct nvme_model *m, uint32_t nsid, uint64_t blocks)
{
	pthread_mutex_lock(&m->lock);
	m->blocks[nsid - 1] = blocks < m->c.blocks ? blocks : m->c.blocks;
	pthread_mutex_unlock(&m->lock);
}
