/* SPDX-License-Identifier: MIT */
/* Advice about ranges, readahead, and eviction on request. */
#include <stdlib.h>

#include "base/util.h"
#include "mapping/copy.h"
#include "mapping/range.h"
#include "os/os.h"

enum strait_advice advice_at_locked(const struct strait_mapping *m, uint64_t g)
{
	return m->advice ? m->advice[(g - m->first) / ADVICE_GRANULES] : STRAIT_ADVICE_NORMAL;
}

static int advice_alloc_locked(struct strait_mapping *m)
{
	if (!m->advice)
		m->advice = calloc((m->end - m->first + ADVICE_GRANULES - 1) / ADVICE_GRANULES, 1);
	return m->advice ? 0 : -ENOMEM;
}

/* The kernel reads ahead for the CPU. Its page cache is not told what to keep: other processes share it. */
static void advise_kernel(struct strait_mapping *m, uint64_t offset, uint64_t length, uint32_t advice)
{
	struct page_span p = page_span((uintptr_t)m->host + offset, length, os_page_size());
	enum os_advice kind = OS_ADVICE_NORMAL;

	if (advice == STRAIT_ADVICE_SEQUENTIAL)
		kind = OS_ADVICE_SEQUENTIAL;
	if (advice == STRAIT_ADVICE_RANDOM)
		kind = OS_ADVICE_RANDOM;
	if (m->ep && m->host)
		os_advise((void *)(uintptr_t)p.start, p.length, kind);
}

int mapping_advise(struct strait_mapping *m, uint64_t offset, uint64_t length, uint32_t advice)
{
	struct span s = span_around(m, offset, length);
	uint64_t first = (s.first - m->first) / ADVICE_GRANULES, end;
	int rc;

	rc = range_check_any(m, offset, length);
	if (!rc && advice > STRAIT_ADVICE_KEEP)
		rc = -EINVAL;
	if (rc || !length)
		return rc;
	end = (s.end - m->first + ADVICE_GRANULES - 1) / ADVICE_GRANULES;
	pthread_mutex_lock(&m->index->lock);
	rc = advice_alloc_locked(m);
	if (!rc)
		memset(m->advice + first, (int)advice, end - first);
	pthread_mutex_unlock(&m->index->lock);
	if (!rc)
		advise_kernel(m, offset, length, advice);
	return rc;
}

void advice_acquired(struct strait_mapping *m, struct strait_device *dev, uint64_t offset, uint64_t length)
{
	struct span s = span_around(m, offset, length);
	enum strait_advice advice;

	pthread_mutex_lock(&m->index->lock);
	advice = advice_at_locked(m, s.first);
	pthread_mutex_unlock(&m->index->lock);
	if (advice != STRAIT_ADVICE_SEQUENTIAL || offset + length >= m->length)
		return;
	/* What does not fit beside the range, and a twin of both, would only evict others. */
	if (dev && m->device_budget && length > m->device_budget / 4)
		return;
	mapping_read_ahead(m, dev, offset + length, min_u64(length, m->length - offset - length));
}

int mapping_evict(struct strait_mapping *m, struct strait_device *dev, uint64_t offset, uint64_t length)
{
	struct span s = span_around(m, offset, length);
	struct view *v;
	int rc;

	rc = range_check_any(m, offset, length);
	if (rc || !length)
		return rc;
	if (!dev)
		return m->copy ? copy_evict(m, s) : 0;
	pthread_mutex_lock(&m->index->lock);
	v = m->views[dev->number];
	pthread_mutex_unlock(&m->index->lock);
	return v ? extents_evict(v, s) : 0;
}
