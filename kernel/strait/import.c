// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Memory imported by the address at which a process has it mapped. */
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>

#include "backing.h"
#include "core.h"
#include "import.h"
#include "region.h"
#include "window.h"

/* Pages per call that pins or looks up pages. */
#define PIN_BATCH 1024
#define VERIFY_BATCH 32

/*
 * Invalidation of a P2PDMA mapping is final. Anonymous pages may be unmapped briefly (failed
 * migration of a pinned page): re-verify before the next use.
 */
static void import_invalidated(struct strait_region *r, const struct mmu_notifier_range *range)
{
	bool revoke;

	switch (range->event) {
	case MMU_NOTIFY_PROTECTION_VMA:
	case MMU_NOTIFY_PROTECTION_PAGE:
	case MMU_NOTIFY_SOFT_DIRTY:
		return;
	case MMU_NOTIFY_UNMAP:
	case MMU_NOTIFY_RELEASE:
		revoke = true;
		break;
	default:
		revoke = r->kind == STRAIT_IMPORT_P2P;
	}
	if (revoke) {
		strait_region_revoke(r);
		return;
	}
	strait_window_meet(STRAIT_W_VERIFY);
	spin_lock(&r->lock);
	r->changes++;
	spin_unlock(&r->lock);
}

/* Never sleeps, so mmu_notifier_range_blockable() need not be checked. */
static bool import_notify(struct mmu_interval_notifier *notifier,
			  const struct mmu_notifier_range *range, unsigned long seq)
{
	struct strait_region *r = container_of(notifier, struct strait_region, notifier);

	mmu_interval_set_seq(notifier, seq);
	import_invalidated(r, range);
	return true;
}

static const struct mmu_interval_notifier_ops import_notifier_ops = {
	.invalidate = import_notify,
};

static int import_watch(struct strait_region *r)
{
	int rc;

	rc = strait_notifier_insert(&r->notifier, r->address, r->length, &import_notifier_ops);
	if (!rc)
		r->watched = true;
	return rc;
}

/*
 * GUP refuses long-term pins of P2PDMA pages because their holders cannot be asked to unpin. A
 * short-term pin is correct here: the notifier revokes the region.
 */
static unsigned int import_pin_flags(u32 kind)
{
	if (kind == STRAIT_IMPORT_P2P)
		return FOLL_WRITE | COMPAT_FOLL_PCI_P2PDMA;
	return FOLL_WRITE | FOLL_LONGTERM;
}

static int import_pin_pages(struct strait_region *r, struct page **pages, unsigned long n)
{
	unsigned long done = 0;
	long rc;

	while (done < n) {
		rc = fatal_signal_pending(current) ? -EINTR :
		     pin_user_pages_fast(r->address + (done << PAGE_SHIFT),
					 min_t(unsigned long, n - done, PIN_BATCH),
					 import_pin_flags(r->kind), pages + done);
		if (rc <= 0) {
			unpin_user_pages(pages, done);
			/*
			 * -EREMOTEIO: P2PDMA pages, without FOLL_PCI_P2PDMA. -EEXIST: a page table
			 * entry without a struct page.
			 */
			return !rc ? -EFAULT : rc == -EREMOTEIO || rc == -EEXIST ? -EOPNOTSUPP : rc;
		}
		done += rc;
		cond_resched();
	}
	return 0;
}

static bool import_pages_match(struct page **pages, unsigned long n, u32 kind)
{
	unsigned long i;

	for (i = 0; i < n; i++)
		if (kind == STRAIT_IMPORT_P2P ? !is_pci_p2pdma_page(pages[i]) :
						is_zone_device_page(pages[i]))
			return false;
	return true;
}

bool strait_bar_contains(struct pci_dev *pdev, phys_addr_t start, u64 length)
{
	int bar;

	for (bar = 0; bar < PCI_STD_NUM_BARS; bar++)
		if ((pci_resource_flags(pdev, bar) & IORESOURCE_MEM) &&
		    pci_resource_len(pdev, bar) && start >= pci_resource_start(pdev, bar) &&
		    start + length - 1 <= pci_resource_end(pdev, bar))
			return true;
	return false;
}

struct pci_dev *strait_device_by_address(phys_addr_t start, u64 length)
{
	struct pci_dev *pdev = NULL;

	for_each_pci_dev(pdev)
		if (strait_bar_contains(pdev, start, length))
			break;
	return pdev;
}

static phys_addr_t import_vector_phys(const struct strait_backing *b, unsigned int i)
{
	return page_to_phys(virt_to_page(b->vec[i].iov_base));
}

/* P2PDMA pages do not name their device. All of them must lie in BARs of one device. */
static int import_find_device(struct strait_backing *b)
{
	struct pci_dev *pdev;
	unsigned int i;

	pdev = strait_device_by_address(import_vector_phys(b, 0), b->vec[0].iov_len);
	if (!pdev)
		return -EOPNOTSUPP;
	b->pdev = pdev;
	for (i = 1; i < b->n; i++)
		if (!strait_bar_contains(pdev, import_vector_phys(b, i), b->vec[i].iov_len))
			return -EOPNOTSUPP;
	return 0;
}

static int import_pin_user(struct strait_region *r, struct strait_backing *b)
{
	unsigned long n = r->length >> PAGE_SHIFT;
	struct page **pages;
	int rc;

	pages = strait_zalloc_array(n, sizeof(*pages));
	if (!pages)
		return -ENOMEM;
	rc = import_pin_pages(r, pages, n);
	if (rc)
		goto out;
	rc = import_pages_match(pages, n, r->kind) ? strait_backing_fill(b, pages, n) : -EOPNOTSUPP;
	if (rc)
		unpin_user_pages(pages, n);
out:
	kvfree(pages);
	return rc;
}

static int import_pin(struct strait_region *r, struct strait_backing *b)
{
	int rc;

	/* The driver behind a bridge revokes the memory itself: no notifier. */
	if (r->kind == STRAIT_IMPORT_NVP2P || r->kind == STRAIT_IMPORT_PEER)
		return strait_bridge_import(r, b);
	rc = import_watch(r);
	return rc ? rc : import_pin_user(r, b);
}

static int import_fill_region(struct strait_region *r)
{
	bool peer = r->kind == STRAIT_IMPORT_PEER;
	struct strait_backing *b;
	int rc;

	b = strait_backing_alloc(r->length);
	if (!b)
		return -ENOMEM;
	/* Memory of a peer client is charged while it is mapped: until then it is not pinned. */
	rc = peer ? 0 : strait_backing_charge(b, r->kind == STRAIT_IMPORT_USER);
	if (!rc)
		rc = import_pin(r, b);
	if (!rc && r->kind != STRAIT_IMPORT_USER && !peer && !b->pdev)
		rc = import_find_device(b);
	r->can = (b->n ? STRAIT_CAN_FILE_IO : 0) | STRAIT_CAN_DMA;
	if (b->pdev)
		strscpy(r->pci, pci_name(b->pdev), sizeof(r->pci));
	strait_window(STRAIT_W_SET_BACKING);
	if (!rc)
		rc = strait_region_set_backing(r, b);
	if (rc)
		strait_backing_free(b);
	return rc;
}

static const u64 import_feature[] = {
	[STRAIT_IMPORT_P2P] = STRAIT_FEATURE_IMPORT_P2P,
	[STRAIT_IMPORT_USER] = STRAIT_FEATURE_IMPORT_USER,
	[STRAIT_IMPORT_DMABUF] = STRAIT_FEATURE_IMPORT_DMABUF,
	[STRAIT_IMPORT_NVP2P] = STRAIT_FEATURE_IMPORT_NVP2P,
	[STRAIT_IMPORT_PEER] = STRAIT_FEATURE_IMPORT_PEER,
};

static int import_check_request(const struct strait_ioc_import *req)
{
	u64 end;

	if (req->flags || req->reserved)
		return -EINVAL;
	if (!req->kind || req->kind >= STRAIT_IMPORT_KINDS ||
	    !(strait_features() & import_feature[req->kind]))
		return -EOPNOTSUPP;
	if (!req->length || !PAGE_ALIGNED(req->address | req->length))
		return -EINVAL;
	if (req->kind == STRAIT_IMPORT_DMABUF)
		return 0;
	if (req->fd != -1)
		return -EINVAL;
	if (check_add_overflow(req->address, req->length, &end) || end > TASK_SIZE)
		return -EFAULT;
	/*
	 * In the worst case each page is a vector, and kvcalloc() allocates at most INT_MAX bytes.
	 */
	if (req->length >> PAGE_SHIFT > INT_MAX / sizeof(struct kvec))
		return -E2BIG;
	return 0;
}

int strait_import(const struct strait_ioc_import *req, struct strait_region **ret)
{
	struct strait_region *r;
	int rc;

	rc = import_check_request(req);
	if (rc)
		return rc;
	r = strait_region_new(req->kind, req->length);
	if (!r)
		return -ENOMEM;
	r->address = req->address;
	if (req->kind == STRAIT_IMPORT_DMABUF)
		rc = strait_dmabuf_import(r, req->fd, req->address);
	else
		rc = import_fill_region(r);
	if (rc) {
		strait_region_put(r);
		return rc;
	}
	strait_count(STRAIT_N_IMPORTS, 1);
	*ret = r;
	return 0;
}

/* Verifies @n pages from @offset on. */
static int import_verify_batch(struct strait_region *r, struct strait_backing *b,
			       struct mm_struct *mm, u64 offset, long n)
{
	struct page *pages[VERIFY_BATCH];
	int rc = 0;
	long i, got;

	mmap_assert_locked(mm);
	got = get_user_pages_remote(mm, r->address + offset, n, FOLL_WRITE, pages, NULL);
	if (got < 0)
		return -ENODEV;
	for (i = 0; i < got; i++) {
		if (page_address(pages[i]) != strait_backing_at(b, offset + ((u64)i << PAGE_SHIFT)))
			rc = -ENODEV;
		put_page(pages[i]);
	}
	return got == n ? rc : -ENODEV;
}

int strait_import_verify(struct strait_region *r, struct strait_backing *b)
{
	struct mm_struct *mm = r->notifier.mm;
	u64 offset, n;
	int rc = 0;

	if (!mmget_not_zero(mm))
		return -ENODEV;
	for (offset = 0; !rc && offset < b->length; offset += n << PAGE_SHIFT) {
		n = min_t(u64, (b->length - offset) >> PAGE_SHIFT, VERIFY_BATCH);
		mmap_read_lock(mm);
		rc = import_verify_batch(r, b, mm, offset, n);
		mmap_read_unlock(mm);
		cond_resched();
	}
	mmput(mm);
	return rc;
}
