// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * mmap() of an attached device's registers. When the device is lost its registers read as ones: the
 * program gets no SIGBUS.
 */
#include <linux/mm.h>

#include "attach.h"
#include "core.h"
#include "file.h"

#define OFFSET_SHIFT 40	/* of STRAIT_MMAP_BAR() */
#define STATUS_INDEX (STRAIT_MMAP_STATUS >> OFFSET_SHIFT)
#define MSIX_ENTRY 16
#define RESET_WAIT_MS 10

/* Only page-aligned BARs are mapped: a shared page would expose another device's registers. */
u64 strait_bar_length(struct pci_dev *pdev, int bar)
{
	u64 length = pci_resource_len(pdev, bar);

	if (!(pci_resource_flags(pdev, bar) & IORESOURCE_MEM) ||
	    !PAGE_ALIGNED(pci_resource_start(pdev, bar) | length))
		return 0;
	return length;
}

/* The MSI-X table is not mapped: only the kernel chooses where interrupts go. */
void strait_bars_find_irqs(struct strait_attach *at)
{
	struct pci_dev *pdev = at->pdev;
	u64 offset, end;
	u32 where;

	at->irq_bar = -1;
	at->irq_offset = 0;
	at->irq_length = 0;
	if (!pdev->msix_cap)
		return;
	pci_read_config_dword(pdev, pdev->msix_cap + PCI_MSIX_TABLE, &where);
	offset = where & PCI_MSIX_TABLE_OFFSET;
	end = offset + (u64)max(pci_msix_vec_count(pdev), 0) * MSIX_ENTRY;
	at->irq_bar = where & PCI_MSIX_TABLE_BIR;
	at->irq_offset = round_down(offset, PAGE_SIZE);
	at->irq_length = round_up(end, PAGE_SIZE) - at->irq_offset;
}

static void bar_unmap_all(struct strait_file *f)
{
	unmap_mapping_range(&f->mapping, 0, (loff_t)STRAIT_MMAP_STATUS, 1);
}

void strait_bars_disable(struct strait_attach *at, struct strait_file *f)
{
	down_write(&at->bars);
	at->bars_disabled = true;
	up_write(&at->bars);
	bar_unmap_all(f);
}

void strait_bars_reset_begin(struct strait_attach *at, struct strait_file *f)
{
	down_write(&at->bars);
	WRITE_ONCE(at->bars_in_reset, true);
	up_write(&at->bars);
	if (f)
		bar_unmap_all(f);
}

void strait_bars_reset_end(struct strait_attach *at)
{
	down_write(&at->bars);
	WRITE_ONCE(at->bars_in_reset, false);
	up_write(&at->bars);
	wake_up_all(&at->reset_done);
}

/* Drops the caller's reference on @page. */
static vm_fault_t bar_fault_page(struct vm_fault *vmf, struct page *page)
{
	int rc = vm_insert_page(vmf->vma, vmf->address & PAGE_MASK, page);

	put_page(page);
	if (!rc || rc == -EBUSY)
		return VM_FAULT_NOPAGE;
	return rc == -ENOMEM ? VM_FAULT_OOM : VM_FAULT_SIGBUS;
}

/* A private page filled with @value: writes to it have no effect on a device. */
static vm_fault_t bar_fault_dummy(struct vm_fault *vmf, int value)
{
	struct page *page;

	page = strait_alloc_page(0);
	if (!page)
		return VM_FAULT_OOM;
	memset(page_address(page), value, PAGE_SIZE);
	return bar_fault_page(vmf, page);
}

static bool bar_is_msix_table(const struct strait_attach *at, int bar, u64 offset)
{
	return bar == at->irq_bar && offset >= at->irq_offset &&
	       offset - at->irq_offset < at->irq_length;
}

static vm_fault_t bar_fault(struct vm_fault *vmf)
{
	struct strait_attach *at = vmf->vma->vm_private_data;
	u64 at_byte = (u64)vmf->pgoff << PAGE_SHIFT;
	int bar = at_byte >> OFFSET_SHIFT;
	u64 offset = at_byte & (BIT_ULL(OFFSET_SHIFT) - 1);
	unsigned long pfn;
	vm_fault_t ret = VM_FAULT_NOPAGE;
	bool again = false;

	down_read(&at->bars);
	pfn = PHYS_PFN(pci_resource_start(at->pdev, bar) + offset);
	if (at->bars_disabled)
		ret = bar_fault_dummy(vmf, 0xff);
	else if (at->bars_in_reset)
		again = true;
	else if (bar_is_msix_table(at, bar, offset))
		ret = bar_fault_dummy(vmf, 0);
	else if (pfn_valid(pfn))
		ret = VM_FAULT_SIGBUS;	/* a BAR with struct pages is memory, not registers */
	else
		ret = vmf_insert_pfn(vmf->vma, vmf->address & PAGE_MASK, pfn);
	up_read(&at->bars);
	/* Bounded: the reset may be waiting for a lock whose holder needs our mmap_lock. */
	if (again)
		wait_event_timeout(at->reset_done, !READ_ONCE(at->bars_in_reset),
				   msecs_to_jiffies(RESET_WAIT_MS));
	return ret;
}

static const struct vm_operations_struct bar_vm_ops = {
	.fault = bar_fault,
};

static int bar_mmap(struct strait_attach *at, struct vm_area_struct *vma)
{
	u64 start = (u64)vma->vm_pgoff << PAGE_SHIFT;
	u64 offset = start & (BIT_ULL(OFFSET_SHIFT) - 1);
	u64 bar = start >> OFFSET_SHIFT, length;

	if (bar >= STRAIT_BARS)
		return -EINVAL;
	length = strait_bar_length(at->pdev, bar);
	if (offset > length || vma->vm_end - vma->vm_start > length - offset)
		return -EINVAL;
	vm_flags_set(vma, VM_IO | VM_MIXEDMAP | VM_DONTEXPAND | VM_DONTCOPY | VM_DONTDUMP);
	vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
	vma->vm_private_data = at;
	vma->vm_ops = &bar_vm_ops;
	return 0;
}

static struct page *status_page(struct strait_attach *at)
{
	struct page *page = NULL;

	spin_lock(&at->master_lock);
	if (at->status) {
		page = virt_to_page(at->status);
		get_page(page);
	}
	spin_unlock(&at->master_lock);
	return page;
}

static vm_fault_t status_fault(struct vm_fault *vmf)
{
	struct page *page = status_page(vmf->vma->vm_private_data);

	/* Without a status page the device is lost: ones say so in strait_status.gone too. */
	return page ? bar_fault_page(vmf, page) : bar_fault_dummy(vmf, 0xff);
}

static const struct vm_operations_struct status_vm_ops = {
	.fault = status_fault,
};

static int status_mmap(struct strait_attach *at, struct vm_area_struct *vma)
{
	if (vma->vm_pgoff != STRAIT_MMAP_STATUS >> PAGE_SHIFT ||
	    vma->vm_end - vma->vm_start != PAGE_SIZE || vma->vm_flags & VM_WRITE)
		return -EINVAL;
	vm_flags_set(vma, VM_MIXEDMAP | VM_DONTEXPAND | VM_DONTCOPY | VM_DONTDUMP);
	vm_flags_clear(vma, VM_MAYWRITE);
	vma->vm_private_data = at;
	vma->vm_ops = &status_vm_ops;
	return 0;
}

int strait_attach_mmap(struct strait_file *f, struct vm_area_struct *vma)
{
	struct strait_attach *at = f->attach;

	/* A file that has the device keeps it until it is closed, so no lock is needed. */
	if (!at || READ_ONCE(at->file) != f)
		return -ENXIO;
	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	if (vma->vm_flags & VM_EXEC)
		return -EPERM;
	vm_flags_clear(vma, VM_MAYEXEC);
	if (vma->vm_pgoff >> (OFFSET_SHIFT - PAGE_SHIFT) == STATUS_INDEX)
		return status_mmap(at, vma);
	return bar_mmap(at, vma);
}
