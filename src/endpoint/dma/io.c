/* SPDX-License-Identifier: MIT */
/* Transfers between memory and the card: pieces, runs of the engine, deadlines. */
#include "base/util.h"
#include "endpoint/dma/dma.h"
#include "os/os.h"

#define SPINS 256
#define NAP_NS 20000u
#define NAP_MOST_NS 1000000u
#define SLICE_NS 20000000u

/* The pieces of one run, from @at. */
static unsigned int cut(const struct strait_dma *d, const struct dma_job *job, uint64_t at, struct dma_piece *p,
			uint64_t *bytes)
{
	unsigned int n = 0;

	*bytes = 0;
	while (n < d->pieces && at < job->length) {
		uint64_t run;

		p[n].bus = pci_bus(job->pm, job->offset + at, &run);
		p[n].card = job->card + at;
		p[n].length = min_u64(min_u64(run, d->chunk), job->length - at);
		at += p[n].length;
		*bytes += p[n++].length;
	}
	return n;
}

/* If the engine does not stop, disable bus mastering, so that memory can be freed. */
static void force_stop(struct strait_dma *d, bool to_card)
{
	int rc;

	d->stops++;
	rc = d->engine->stop(d, to_card);
	if (!rc)
		return;
	log_error(d->log, "%s: the engine does not stop (%s): it is disabled", d->pci->name, strerror(-rc));
	d->pci->ops->bus_master(d->pci, false);
	if (rc != -ENODEV)
		d->pci->ops->reset(d->pci);
	atomic_store(&d->dead, -ENODEV);
}

/* Wait until the run completes. d->lock is held. */
static int wait(struct strait_dma *d, struct dma_job *job)
{
	uint64_t end = os_now_ns() + d->timeout, nap = NAP_NS;

	for (unsigned int i = 0;; i++) {
		int rc = d->engine->ended(d, job->to_card, &job->status);

		if (rc == -EAGAIN && i < SPINS) {
			cpu_pause();
			continue;
		}
		if (rc == -EAGAIN)
			rc = os_stop(job->deadline, job->cancel);
		else if (!rc)
			return 0;
		else {
			d->errors++;
			force_stop(d, job->to_card);
			return rc;
		}
		if (!rc && os_now_ns() >= end) {
			log_warn(d->log, "%s: the engine timed out: stopping it", d->pci->name);
			d->errors++;
			rc = -ETIMEDOUT;
		}
		if (rc) {
			force_stop(d, job->to_card);
			return rc;
		}
		if (d->irq >= 0) {
			os_event_wait(d->irq, SLICE_NS);
		} else {
			os_sleep_ns(nap);
			nap = min_u64(2 * nap, NAP_MOST_NS);
		}
	}
}

uint64_t dma_move(struct strait_dma *d, struct dma_job *job)
{
	struct dma_piece p[DMA_PIECES];
	uint64_t at = 0, bytes;

	job->err = 0;
	while (!job->err && at < job->length) {
		unsigned int n = cut(d, job, at, p, &bytes);

		pthread_mutex_lock(&d->lock);
		job->err = atomic_load(&d->dead);
		if (!job->err)
			job->err = os_stop(job->deadline, job->cancel);
		if (!job->err)
			job->err = d->engine->start(d, job->to_card, p, n);
		if (job->err == -ENODEV && !atomic_load(&d->dead))
			force_stop(d, job->to_card);
		if (!job->err) {
			d->starts++;
			job->err = wait(d, job);
		}
		if (!job->err && job->to_card)
			d->to_card += bytes;
		else if (!job->err)
			d->from_card += bytes;
		pthread_mutex_unlock(&d->lock);
		if (!job->err)
			at += bytes;
	}
	/* An access to revoked memory faults in the IOMMU; the engine may report success or an error. */
	if ((at || job->err == -EIO) && d->pci->ops->mapping_check(d->pci, job->pm)) {
		job->err = -ENODEV;
		at = 0;
	}
	if (job->err && job->status)
		log_warn(d->log, "%s: the %s engine reports an error: status %#x", d->pci->name, d->engine->name,
			 (uint32_t)job->status);
	return at;
}

static int flush(struct strait_region *r)
{
	int rc = r->dev->ops->flush_peer_writes(r->dev);

	return rc == -EOPNOTSUPP ? 0 : rc;
}

/* The caller holds a use of both regions. */
static int through_card(struct strait_dma *d, struct strait_region *src, uint64_t src_off, struct strait_region *dst,
			uint64_t dst_off, uint64_t len, uint64_t deadline, uint64_t *done)
{
	struct dma_job in = { .to_card = true, .deadline = deadline }, out = { .deadline = deadline };
	uint32_t reason = STRAIT_WHY_NONE;
	int rc = dma_map_device(d, src->dev, src, &reason);

	if (!rc)
		rc = dma_map_device(d, dst->dev, dst, &reason);
	if (rc) {
		log_warn(d->log, "%s: %s: %s", d->pci->name, strait_reason_text(reason), strerror(-rc));
		return rc;
	}
	rc = dma_map(d, src, &in.pm);
	if (!rc)
		rc = dma_map(d, dst, &out.pm);
	while (!rc && *done < len) {
		in.offset = src_off + *done;
		out.offset = dst_off + *done;
		in.length = out.length = min_u64(len - *done, d->card_bytes);
		dma_move(d, &in);
		rc = in.err;
		if (rc)
			break;
		*done += dma_move(d, &out);
		rc = out.err;
	}
	if (!rc)
		rc = flush(dst);
	return rc;
}

int dma_bounce(struct strait_dma *d, struct strait_region *src, uint64_t src_off, struct strait_region *dst,
	       uint64_t dst_off, uint64_t len, uint64_t deadline, uint64_t *done)
{
	int rc = region_use(src, src_off, len);

	*done = 0;
	if (rc)
		return rc;
	rc = region_use(dst, dst_off, len);
	if (!rc && (src_off | dst_off | len | src->mem.addr | dst->mem.addr) & (d->align - 1))
		rc = -EINVAL;
	if (!rc) {
		rc = through_card(d, src, src_off, dst, dst_off, len, deadline, done);
		region_unuse(dst);
	}
	region_unuse(src);
	return rc;
}
