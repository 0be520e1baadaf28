// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Pins pages of the calling process, as a driver does. */
#include <linux/mm.h>

#include "test.h"

struct vt_pages {
	long n;
	struct page *page[];
};

static void pin_free_pages(struct vt_pages *p)
{
	unpin_user_pages(p->page, p->n);
	kvfree(p);
}

int vt_pin(struct vt_file *f, struct vt_pin *req)
{
	unsigned int flags = FOLL_WRITE;
	struct vt_pages *p;
	u64 n = req->len >> PAGE_SHIFT;
	long got;
	u32 i;

	if (!n || n > 16384)
		return -EINVAL;
	for (i = 0; i < VT_SLOTS && f->pages[i]; i++)
		;
	if (i == VT_SLOTS)
		return -ENOSPC;
	p = kvzalloc(struct_size(p, page, n), GFP_KERNEL);
	if (!p)
		return -ENOMEM;
	if (req->flags & VT_PIN_LONGTERM)
		flags |= FOLL_LONGTERM;
	if (req->flags & VT_PIN_PEER)
		flags |= COMPAT_FOLL_PCI_P2PDMA;
	got = pin_user_pages_fast(req->va, n, flags, p->page);
	p->n = max(got, 0l);
	req->result = got < 0 ? got : got < n ? -EFAULT : 0;
	if (req->result) {
		pin_free_pages(p);
		return 0;
	}
	f->pages[i] = p;
	req->id = i + 1;
	return 0;
}

int vt_unpin(struct vt_file *f, struct vt_pin *req)
{
	if (req->id < 1 || req->id > VT_SLOTS || !f->pages[req->id - 1])
		return -ENOENT;
	pin_free_pages(f->pages[req->id - 1]);
	f->pages[req->id - 1] = NULL;
	req->result = 0;
	return 0;
}

void vt_pin_release(struct vt_file *f)
{
	int i;

	for (i = 0; i < VT_SLOTS; i++)
		if (f->pages[i])
			pin_free_pages(f->pages[i]);
}
