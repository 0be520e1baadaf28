/* SPDX-License-Identifier: MIT */
/* The commands, and where their data is. */
#include "nvme_model.h"

#include <stdlib.h>
#include <string.h>

#define PAGE 4096u
#define CMD_MAX (1u << 22)

static uint32_t get32(const uint8_t *p, unsigned int off)
{
	return (uint32_t)p[off] | (uint32_t)p[off + 1] << 8 | (uint32_t)p[off + 2] << 16 | (uint32_t)p[off + 3] << 24;
}

static uint64_t get64(const uint8_t *p, unsigned int off)
{
	return get32(p, off) | (uint64_t)get32(p, off + 4) << 32;
}

static void put(uint8_t *p, unsigned int off, uint64_t v, unsigned int bytes)
{
	for (unsigned int i = 0; i < bytes; i++)
		p[off + i] = (uint8_t)(v >> (8 * i));
}

/* The device's access to one piece of data. */
static bool touch(struct nvme_model *m, uint64_t bus, uint8_t *buf, uint64_t len, bool to_host)
{
	return to_host ? bus_write(&m->bus, bus, buf, len) : bus_read(&m->bus, bus, buf, len);
}

static uint16_t move_prp(struct nvme_model *m, const uint8_t *sqe, uint8_t *buf, uint64_t len, bool to_host)
{
	uint64_t prp1 = get64(sqe, 24), prp2 = get64(sqe, 32), first = PAGE - prp1 % PAGE, list;

	if (prp1 & 3)
		return 0x13;
	first = first < len ? first : len;
	if (!touch(m, prp1, buf, first, to_host))
		return 0x04;
	buf += first;
	len -= first;
	if (!len)
		return 0;
	if (len <= PAGE) {
		if (prp2 % PAGE)
			return 0x13;
		return touch(m, prp2, buf, len, to_host) ? 0 : 0x04;
	}
	m->prp_lists++;
	if (prp2 & 7)
		return 0x13;
	for (list = prp2; len; list += 8) {
		uint64_t n = len < PAGE ? len : PAGE;
		uint8_t entry[8];

		if (!bus_read(&m->bus, list, entry, 8))
			return 0x04;
		/* The last entry of a page of them leads to the next page, if more follow. */
		if (list % PAGE == PAGE - 8 && len > PAGE) {
			list = get64(entry, 0);
			if (list % PAGE || !bus_read(&m->bus, list, entry, 8))
				return 0x13;
		}
		if (get64(entry, 0) % PAGE)
			return 0x13;
		if (!touch(m, get64(entry, 0), buf, n, to_host))
			return 0x04;
		buf += n;
		len -= n;
	}
	return 0;
}

static uint16_t move_sgl(struct nvme_model *m, const uint8_t *sqe, uint8_t *buf, uint64_t len, bool to_host)
{
	uint64_t at = get64(sqe, 24), size = get32(sqe, 32);
	uint8_t type = sqe[39] >> 4, d[16];

	m->sgls++;
	if (!m->c.sgls)
		return 0x02;
	if (type == 0) {
		if (m->c.sgls == 2 && at & 3)
			return 0x16;
		return size != len ? 0x0f : touch(m, at, buf, len, to_host) ? 0 : 0x04;
	}
	if (type != 3 || size % 16 || !size)
		return 0x11;
	for (uint64_t i = 0; i < size / 16; i++) {
		uint64_t n;

		if (!bus_read(&m->bus, at + i * 16, d, 16))
			return 0x04;
		n = get32(d, 8);
		if (d[15] >> 4 || n > len)
			return 0x0f;
		if (m->c.sgls == 2 && (get64(d, 0) & 3 || n & 3))
			return 0x16;
		if (!touch(m, get64(d, 0), buf, n, to_host))
			return 0x04;
		buf += n;
		len -= n;
	}
	return len ? 0x0f : 0;
}

static uint16_t move(struct nvme_model *m, const uint8_t *sqe, uint8_t *buf, uint64_t len, bool to_host)
{
	switch (sqe[1] >> 6) {
	case 0:
		return move_prp(m, sqe, buf, len, to_host);
	case 1:
		return move_sgl(m, sqe, buf, len, to_host);
	default:
		return 0x02;
	}
}

static void identify_controller(const struct nvme_model *m, uint8_t *page)
{
	put(page, 0, 0x1b36, 2);
	memcpy(page + 4, "model-serial        ", 20);
	memcpy(page + 24, "Software NVMe controller                ", 40);
	memcpy(page + 64, "1.0     ", 8);
	page[77] = (uint8_t)m->c.mdts;
	put(page, 78, 7, 2);
	put(page, 80, 0x10400, 4);
	put(page, 92, 1 << 8, 4);
	put(page, 256, m->c.dbbuf ? 1 << 8 : 0, 2);
	page[258] = 3;
	page[259] = 3;
	page[512] = 0x66;
	page[513] = 0x44;
	put(page, 516, m->c.namespaces, 4);
	put(page, 520, m->c.no_zeroes ? 0 : 1 << 2 | 1 << 3, 2);
	page[525] = m->c.no_cache ? 0 : 1;
	put(page, 536, m->c.sgls, 4);
}

static void identify_namespace(const struct nvme_model *m, uint32_t nsid, uint8_t *page)
{
	uint64_t blocks = m->blocks[nsid - 1];
	uint32_t lba = nsid > 1 ? m->c.lba2 : m->c.lba;

	put(page, 0, blocks, 8);
	put(page, 8, blocks, 8);
	put(page, 16, blocks, 8);
	page[26] = 2; /* the third format */
	page[29] = (uint8_t)m->c.protection;
	put(page, 128 + 8, m->c.metadata | (uint32_t)__builtin_ctz(lba) << 16, 4);
}

static uint16_t identify(struct nvme_model *m, const uint8_t *sqe)
{
	uint32_t nsid = get32(sqe, 4);
	uint8_t page[PAGE] = { 0 };

	switch (sqe[40]) {
	case 0:
		if (!nsid || nsid > m->c.namespaces)
			return 0x0b;
		if (m->blocks[nsid - 1])
			identify_namespace(m, nsid, page);
		break;
	case 1:
		identify_controller(m, page);
		break;
	case 2:
		for (uint32_t i = 0, n = 0; i < m->c.namespaces; i++)
			if (m->blocks[i] && i + 1 > nsid)
				put(page, 4 * n++, i + 1, 4);
		break;
	default:
		return 0x02;
	}
	if (m->mutate)
		m->mutate(m, page, PAGE);
	return move(m, sqe, page, PAGE, true);
}

static uint16_t log_page(struct nvme_model *m, const uint8_t *sqe)
{
	uint64_t len = ((get32(sqe, 40) >> 16 | (uint64_t)(get32(sqe, 44) & 0xffff) << 16) + 1) * 4;
	uint64_t off = get64(sqe, 48);
	uint8_t page[PAGE] = { 0 };

	if (len > PAGE)
		return 0x02;
	/* The health log, recognised by a temperature; other pages are empty. */
	if (sqe[40] == 2 && !off)
		put(page, 1, 300, 2);
	return sqe[40] && sqe[40] < 5 ? move(m, sqe, page, len, true) : 0x109;
}

static uint16_t create_cq(struct nvme_model *m, const uint8_t *sqe)
{
	uint32_t id = get32(sqe, 40) & 0xffff, size = (get32(sqe, 40) >> 16) + 1, flags = get32(sqe, 44);
	struct model_queue *q = &m->q[id < MODEL_QUEUES ? id : 0];

	if (!id || id > m->c.queues || q->cq_there)
		return 0x101;
	if (size > m->c.entries || size < 2)
		return 0x102;
	if (!(flags & 1) || get64(sqe, 24) % PAGE)
		return 0x02;
	if ((flags & 2) && flags >> 16 >= m->c.vectors)
		return 0x108;
	q->cq_there = true;
	q->cq_bus = get64(sqe, 24);
	q->cq_size = size;
	q->cq_head = q->cq_tail = 0;
	q->phase = 1;
	q->irq = flags & 2;
	q->vector = (uint16_t)(flags >> 16);
	return 0;
}

static uint16_t create_sq(struct nvme_model *m, const uint8_t *sqe)
{
	uint32_t id = get32(sqe, 40) & 0xffff, size = (get32(sqe, 40) >> 16) + 1, flags = get32(sqe, 44);
	struct model_queue *q = &m->q[id < MODEL_QUEUES ? id : 0];

	if (!id || id > m->c.queues || q->sq_there)
		return 0x101;
	if (size > m->c.entries || size < 2)
		return 0x102;
	if (flags >> 16 >= MODEL_QUEUES || !m->q[flags >> 16].cq_there)
		return 0x100;
	if (!(flags & 1) || get64(sqe, 24) % PAGE)
		return 0x02;
	q->sq_there = true;
	q->sq_bus = get64(sqe, 24);
	q->sq_size = size;
	q->head = q->tail = 0;
	q->cqid = (uint16_t)(flags >> 16);
	return 0;
}

static uint16_t delete_queue(struct nvme_model *m, uint32_t id, bool sq)
{
	struct model_queue *q = &m->q[id < MODEL_QUEUES ? id : 0];

	if (!id || id >= MODEL_QUEUES || !(sq ? q->sq_there : q->cq_there))
		return 0x101;
	if (!sq && q->sq_there)
		return 0x10c;
	q->rung = false;
	if (sq)
		q->sq_there = false;
	else
		q->cq_there = false;
	return 0;
}

/* Bit 0 of the result: too late. */
static void abort_command(struct nvme_model *m, const uint8_t *sqe, uint32_t *result)
{
	uint16_t sqid = (uint16_t)get32(sqe, 40), cid = (uint16_t)(get32(sqe, 40) >> 16);

	m->aborts++;
	*result = 1;
	for (uint32_t i = 0; i < m->n_held; i++) {
		if (m->held[i].sqid != sqid || m->held[i].cid != cid)
			continue;
		m->held[i] = m->held[--m->n_held];
		model_complete(m, sqid, cid, 0x07, 0);
		*result = 0;
		return;
	}
}

uint16_t model_admin(struct nvme_model *m, const uint8_t *sqe, uint32_t *result, bool *later)
{
	if (m->refusal && sqe[0] == m->refused)
		return m->refusal;
	switch (sqe[0]) {
	case 0x00:
		return delete_queue(m, get32(sqe, 40) & 0xffff, true);
	case 0x01:
		return create_sq(m, sqe);
	case 0x02:
		return log_page(m, sqe);
	case 0x04:
		return delete_queue(m, get32(sqe, 40) & 0xffff, false);
	case 0x05:
		return create_cq(m, sqe);
	case 0x06:
		return identify(m, sqe);
	case 0x08:
		abort_command(m, sqe, result);
		return 0;
	case 0x09:
		if (sqe[40] == 7)
			*result = (m->c.queues - 1) | (m->c.queues - 1) << 16;
		return sqe[40] == 7 || sqe[40] == 0x0b ? 0 : 0x02;
	case 0x0c:
		if (m->n_aer == 4)
			return 0x105;
		m->aer[m->n_aer++] = (uint16_t)(sqe[2] | sqe[3] << 8);
		*later = true;
		return 0;
	case 0x7c:
		if (!m->c.dbbuf)
			return 0x01;
		m->shadow = get64(sqe, 24);
		m->events = get64(sqe, 32);
		return m->shadow % PAGE || m->events % PAGE ? 0x02 : 0;
	default:
		return 0x01;
	}
}

static uint16_t read_write(struct nvme_model *m, const uint8_t *sqe, uint8_t *disk, uint32_t lba)
{
	uint64_t slba = get64(sqe, 40), blocks = (get32(sqe, 48) & 0xffff) + 1u, len = blocks * lba;
	uint64_t most = m->c.mdts ? (uint64_t)PAGE << m->c.mdts : CMD_MAX;
	uint16_t status;
	uint8_t *buf;

	if (len > most)
		return 0x02;
	m->max_seen = len > m->max_seen ? len : m->max_seen;
	m->fua += get32(sqe, 48) >> 30 & 1;
	if (sqe[0] == 0x02)
		return move(m, sqe, disk + slba * lba, len, true);
	/* Read all data before writing any to the disk: a command that fails has no effect. */
	buf = malloc(len);
	if (!buf)
		return 0x06;
	status = move(m, sqe, buf, len, false);
	if (!status)
		memcpy(disk + slba * lba, buf, len);
	free(buf);
	return status;
}

static uint16_t dataset(struct nvme_model *m, const uint8_t *sqe, uint8_t *disk, uint32_t lba, uint64_t all)
{
	uint8_t range[16];
	uint64_t slba, n;
	uint16_t status = move(m, sqe, range, sizeof(range), false);

	if (status)
		return status;
	n = get32(range, 4);
	slba = get64(range, 8);
	if (slba > all || n > all - slba)
		return 0x80;
	if (get32(sqe, 44) & 4)
		memset(disk + slba * lba, 0, n * lba);
	return 0;
}

uint16_t model_io(struct nvme_model *m, const uint8_t *sqe)
{
	uint32_t nsid = get32(sqe, 4), lba = nsid > 1 ? m->c.lba2 : m->c.lba;
	uint64_t slba = get64(sqe, 40), blocks = (get32(sqe, 48) & 0xffff) + 1u, all;
	uint8_t *disk;

	if (!nsid || nsid > m->c.namespaces || !m->blocks[nsid - 1])
		return 0x0b | 1u << 14;
	disk = m->disk[nsid - 1];
	all = m->blocks[nsid - 1];
	if (sqe[0] == 0x00) {
		m->flushes++;
		return 0;
	}
	if (sqe[0] == 0x09)
		return dataset(m, sqe, disk, lba, all);
	if (slba > all || blocks > all - slba)
		return 0x80 | 1u << 14;
	switch (sqe[0]) {
	case 0x01:
	case 0x02:
		return read_write(m, sqe, disk, lba);
	case 0x08:
		memset(disk + slba * lba, 0, blocks * lba);
		return 0;
	default:
		return 0x01 | 1u << 14;
	}
}
