// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Is this file eligible for peer I/O with this region? For kernel-built iterators the VFS checks
 * almost nothing: unsupported drives copy by CPU or DMA to a wrong address and report success.
 */
#include <linux/blk-integrity.h>
#include <linux/blkdev.h>
#include <linux/fileattr.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/pci-p2pdma.h>
#include <linux/stat.h>

#include "backing.h"
#include "core.h"
#include "io.h"

#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif

/* Attributes of files whose bytes on the drive differ from the bytes that are read. */
#define TRANSFORMED_FL (FS_COMPR_FL | FS_ENCRYPT_FL | FS_VERITY_FL | FS_INLINE_DATA_FL | \
			FS_DAX_FL | FS_JOURNAL_DATA_FL)

/*
 * ext4 files without extents are refused: direct writes to their holes fall back to buffered I/O.
 */
static u32 eligible_attributes(struct file *file, unsigned long magic)
{
	struct compat_fileattr attr = { .flags_valid = true };

	if (vfs_fileattr_get(file->f_path.dentry, &attr))
		return STRAIT_REASON_FILE_SYSTEM;
	if (attr.flags & TRANSFORMED_FL)
		return STRAIT_REASON_TRANSFORMED;
	if (magic == EXT4_SUPER_MAGIC && !(attr.flags & FS_EXTENT_FL))
		return STRAIT_REASON_FILE_SYSTEM;
	if (magic == XFS_SUPER_MAGIC && (attr.fsx_xflags & FS_XFLAG_REALTIME))
		return STRAIT_REASON_OTHER_DRIVE;
	return STRAIT_REASON_NONE;
}

static u32 eligible_regular(struct file *file, struct strait_eligibility *e,
			    struct block_device **bdev)
{
	struct inode *inode = file_inode(file);
	unsigned long magic = inode->i_sb->s_magic;
	struct kstat stat;
	u32 reason;

	if (magic != EXT4_SUPER_MAGIC && magic != XFS_SUPER_MAGIC)
		return STRAIT_REASON_FILE_SYSTEM;
	if (IS_ENCRYPTED(inode) || IS_VERITY(inode) || IS_DAX(inode))
		return STRAIT_REASON_TRANSFORMED;
	reason = eligible_attributes(file, magic);
	if (reason)
		return reason;
	if (vfs_getattr(&file->f_path, &stat, STATX_DIOALIGN, AT_STATX_DONT_SYNC) ||
	    !(stat.result_mask & STATX_DIOALIGN) || !stat.dio_offset_align || !stat.dio_mem_align)
		return STRAIT_REASON_NO_DIRECT;
	e->offset_align = stat.dio_offset_align;
	e->mem_align = stat.dio_mem_align;
	*bdev = inode->i_sb->s_bdev;
	return *bdev ? STRAIT_REASON_NONE : STRAIT_REASON_NO_DRIVE;
}

static u32 eligible_file(struct file *file, u32 op, struct strait_eligibility *e,
			 struct block_device **bdev)
{
	umode_t mode = file_inode(file)->i_mode;

	if (!S_ISREG(mode) && !S_ISBLK(mode))
		return STRAIT_REASON_NOT_A_FILE;
	if (op == STRAIT_OP_WRITE && (file->f_flags & O_APPEND))
		return STRAIT_REASON_APPEND;
	if (!(file->f_mode & FMODE_CAN_ODIRECT))
		return STRAIT_REASON_NO_DIRECT;
	if (S_ISREG(mode))
		return eligible_regular(file, e, bdev);
	*bdev = I_BDEV(file->f_mapping->host);
	e->offset_align = bdev_logical_block_size(*bdev);
	e->mem_align = bdev_dma_alignment(*bdev) + 1;
	return STRAIT_REASON_NONE;
}

static struct pci_dev *eligible_disk_to_pci(struct block_device *bdev)
{
	struct device *dev = disk_to_dev(bdev->bd_disk);

	while (dev && !dev_is_pci(dev))
		dev = dev->parent;
	return dev ? to_pci_dev(dev) : NULL;
}

/*
 * The reason for a disk whose queue does not support P2PDMA. A disk that was removed while it is
 * open has dropped the reference on its parent, which may be freed. del_gendisk() marks the disk as
 * dead under open_mutex before that, so the parent is valid for a live disk under this mutex.
 */
static u32 eligible_unsupported_disk(struct block_device *bdev)
{
	struct gendisk *disk = bdev->bd_disk;
	u32 reason = STRAIT_REASON_NO_DRIVE;

	mutex_lock(&disk->open_mutex);
	if (disk_live(disk) && eligible_disk_to_pci(bdev))
		reason = STRAIT_REASON_NO_QUEUE;
	else if (disk_live(disk))
		reason = STRAIT_REASON_NOT_PCI;
	mutex_unlock(&disk->open_mutex);
	return reason;
}

static bool eligible_cached_distance(struct strait_backing *b, struct strait_eligibility *e)
{
	bool found = false;
	unsigned int i;

	spin_lock(&b->peers_lock);
	for (i = 0; i < STRAIT_PEERS && !found; i++)
		if (b->peers[i].drive == e->drive) {
			e->distance = b->peers[i].distance;
			found = true;
		}
	spin_unlock(&b->peers_lock);
	return found;
}

/* Another thread may have cached the same drive: a duplicate entry does no harm. */
static void eligible_cache_distance(struct strait_backing *b, const struct strait_eligibility *e)
{
	struct pci_dev *old;
	unsigned int i;

	pci_dev_get(e->drive);
	spin_lock(&b->peers_lock);
	i = b->next_peer++ % STRAIT_PEERS;
	old = b->peers[i].drive;
	b->peers[i].drive = e->drive;
	b->peers[i].distance = e->distance;
	spin_unlock(&b->peers_lock);
	pci_dev_put(old);
}

/* The distance is computed once per drive and region: it walks all bridges between the two. */
static u32 eligible_path(struct strait_backing *b, struct strait_eligibility *e)
{
	if (eligible_cached_distance(b, e))
		return STRAIT_REASON_NONE;
	strait_count(STRAIT_N_PATHS, 1);
	e->distance = pci_p2pdma_distance(b->pdev, &e->drive->dev, false);
	if (e->distance < 0)
		return STRAIT_REASON_NO_PATH;
	eligible_cache_distance(b, e);
	return STRAIT_REASON_NONE;
}

static u32 eligible_drive(struct strait_backing *b, struct block_device *bdev,
			  struct strait_eligibility *e)
{
	/*
	 * Only nvme-pci sets this flag. An open namespace has a reference on its controller, which
	 * has one on the PCI device: eligible_disk_to_pci() is safe without open_mutex.
	 */
	if (!blk_queue_pci_p2pdma(bdev_get_queue(bdev)))
		return eligible_unsupported_disk(bdev);
	e->drive = eligible_disk_to_pci(bdev);
	if (!e->drive)
		return STRAIT_REASON_NOT_PCI;
	if (blk_get_integrity(bdev->bd_disk) || bdev_stable_writes(bdev))
		return STRAIT_REASON_CHECKSUMS;
	return eligible_path(b, e);
}

void strait_check_eligibility(struct strait_backing *b, struct file *file, u32 op,
			      struct strait_eligibility *e)
{
	struct block_device *bdev = NULL;

	memset(e, 0, sizeof(*e));
	e->distance = -1;
	if (!b->n) {
		e->reason = STRAIT_REASON_NO_PAGES;
		return;
	}
	e->reason = eligible_file(file, op, e, &bdev);
	/* Any drive that does direct I/O reaches host memory. */
	if (!e->reason && b->pdev)
		e->reason = eligible_drive(b, bdev, e);
}
