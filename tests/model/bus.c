/* SPDX-License-Identifier: MIT */
#include "bus.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <strait/device.h>

#define PAGE 4096u

struct bus_page {
	uint64_t bus;
	uint8_t *cpu;
	unsigned int flags;
	const void *owner;
};

void bus_init(struct bus *b, bool scattered)
{
	memset(b, 0, sizeof(*b));
	pthread_mutex_init(&b->lock, NULL);
	b->next = 0x7300000000u;
	b->scattered = scattered;
}

void bus_fini(struct bus *b)
{
	free(b->pages);
	pthread_mutex_destroy(&b->lock);
}

static int compare(const void *a, const void *b)
{
	const struct bus_page *x = a, *y = b;

	return x->bus < y->bus ? -1 : x->bus > y->bus;
}

/* Maps pages [cpu, cpu + len) at separate addresses. */
static int map_pages(struct bus *b, uint8_t *cpu, uint64_t len, unsigned int flags, struct pci_mapping *m,
		     uint64_t skip)
{
	uint64_t n = len / PAGE, step = b->scattered ? 3 * PAGE : PAGE;
	struct bus_page *pages;

	pages = realloc(b->pages, (b->count + n) * sizeof(*pages));
	if (!pages)
		return -ENOMEM;
	b->pages = pages;
	m->run = calloc(b->scattered ? n : 1, sizeof(*m->run));
	if (!m->run)
		return -ENOMEM;
	m->count = b->scattered ? n : 1;
	for (uint64_t i = 0; i < n; i++) {
		/* Downwards, so that the order differs from that of the memory. */
		uint64_t bus = b->next + (b->scattered ? (n - 1 - i) * step : i * step);

		pages[b->count++] = (struct bus_page){ bus, cpu + i * PAGE, flags, m };
		if (b->scattered)
			m->run[i] = (struct pci_run){ bus, PAGE };
	}
	if (!b->scattered)
		m->run[0] = (struct pci_run){ b->next, len };
	b->next += n * step + 16 * PAGE;
	qsort(b->pages, b->count, sizeof(*b->pages), compare);
	/* Offset 0 of the mapping is the first byte asked for. */
	m->run[0].bus += skip;
	m->run[0].length -= skip;
	if (m->length < len - skip)
		m->run[m->count - 1].length -= len - skip - m->length;
	b->mapped++;
	return 0;
}

int bus_map_host(struct bus *b, void *addr, uint64_t len, unsigned int flags, struct pci_mapping *m)
{
	int rc;

	if ((uintptr_t)addr % PAGE || len % PAGE || !len)
		return -EINVAL;
	pthread_mutex_lock(&b->lock);
	rc = map_pages(b, addr, len, flags, m, 0);
	pthread_mutex_unlock(&b->lock);
	return rc;
}

/* Memory that only devices reach, by its dma-buf. The mapping stays: tests are short. */
static int map_dmabuf(struct strait_region *r, void **cpu)
{
	uint64_t at;
	int fd, rc = r->dev->ops->mem_dmabuf_part(r->dev, &r->mem, 0, r->mem.len, &fd, &at);

	if (rc)
		return rc;
	*cpu = mmap(NULL, r->mem.len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)at);
	close(fd);
	return *cpu == MAP_FAILED ? -errno : 0;
}

int bus_map_region(struct bus *b, struct strait_region *r, uint64_t off, uint64_t len, unsigned int flags,
		   struct pci_mapping *m)
{
	uintptr_t start;
	void *cpu;
	int rc;

	if (b->refuse_regions)
		return -EOPNOTSUPP;
	rc = r->dev->ops->mem_map(r->dev, &r->mem, &cpu);
	if (rc == -EOPNOTSUPP)
		rc = map_dmabuf(r, &cpu);
	if (rc)
		return rc;
	start = (uintptr_t)cpu + off;
	pthread_mutex_lock(&b->lock);
	rc = map_pages(b, (uint8_t *)(start & ~(uintptr_t)(PAGE - 1)),
		       ((start + len + PAGE - 1) & ~(uint64_t)(PAGE - 1)) - (start & ~(uintptr_t)(PAGE - 1)), flags, m,
		       start % PAGE);
	pthread_mutex_unlock(&b->lock);
	return rc;
}

void bus_unmap(struct bus *b, struct pci_mapping *m)
{
	size_t reg_window = 0;

	pthread_mutex_lock(&b->lock);
	for (size_t i = 0; i < b->count; i++)
		if (b->pages[i].owner != m)
			b->pages[reg_window++] = b->pages[i];
	b->count = reg_window;
	b->mapped--;
	pthread_mutex_unlock(&b->lock);
}

/* With the lock held. */
static const struct bus_page *find_page(struct bus *b, uint64_t bus, unsigned int flag)
{
	struct bus_page key = { .bus = bus & ~(uint64_t)(PAGE - 1) };
	const struct bus_page *p = b->count ? bsearch(&key, b->pages, b->count, sizeof(*b->pages), compare) : NULL;

	if (!p || !(p->flags & flag)) {
		b->faults++;
		return NULL;
	}
	return p;
}

static uint8_t *find(struct bus *b, uint64_t bus, unsigned int flag)
{
	const struct bus_page *p = find_page(b, bus, flag);

	return p ? p->cpu + bus % PAGE : NULL;
}

static bool each_page(struct bus *b, uint64_t bus, uint8_t *buf, uint64_t len, bool write)
{
	while (len) {
		uint64_t n = PAGE - bus % PAGE;
		const struct bus_page *p;

		n = n < len ? n : len;
		p = find_page(b, bus, write ? PCI_MAP_WRITE : PCI_MAP_READ);
		if (!p)
			return false;
		if (!write)
			memcpy(buf, p->cpu + bus % PAGE, n);
		else if (!(p->flags & BUS_LOSES))
			memcpy(p->cpu + bus % PAGE, buf, n);
		bus += n;
		buf += n;
		len -= n;
	}
	return true;
}

bool bus_read(struct bus *b, uint64_t bus, void *to, uint64_t len)
{
	bool ok;

	pthread_mutex_lock(&b->lock);
	ok = each_page(b, bus, to, len, false);
	pthread_mutex_unlock(&b->lock);
	return ok;
}

bool bus_write(struct bus *b, uint64_t bus, const void *from, uint64_t len)
{
	bool ok;

	pthread_mutex_lock(&b->lock);
	ok = each_page(b, bus, (uint8_t *)from, len, true);
	pthread_mutex_unlock(&b->lock);
	return ok;
}

bool bus_write_last(struct bus *b, uint64_t bus, uint32_t value)
{
	uint8_t *at;

	pthread_mutex_lock(&b->lock);
	at = bus % 4 ? NULL : find(b, bus, PCI_MAP_WRITE);
	if (at)
		__atomic_store_n((uint32_t *)(void *)at, value, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&b->lock);
	return at;
}

bool bus_exchange(struct bus *b, uint64_t store, uint32_t value, uint64_t load, uint32_t *seen)
{
	uint8_t *to, *from;

	pthread_mutex_lock(&b->lock);
	to = find(b, store, PCI_MAP_WRITE);
	from = find(b, load, PCI_MAP_READ);
	if (to && from) {
		__atomic_store_n((uint32_t *)(void *)to, value, __ATOMIC_SEQ_CST);
		*seen = __atomic_load_n((uint32_t *)(void *)from, __ATOMIC_SEQ_CST);
	}
	pthread_mutex_unlock(&b->lock);
	return to && from;
}
