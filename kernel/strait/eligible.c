// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Does anything speak against moving bytes between a file and a region? The kernel itself hardly asks
 * when the iterator is one of its own: then what lies below a file takes peer memory that it cannot
 * reach, or copies it with the CPU, and says that all went well.
 */
#include <linux/blk-integrity.h>
#include <linux/blkdev.h>
#include <linux/fileattr.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/pci-p2pdma.h>
#include <linux/stat.h>

#include "core.h"

#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif

/* Attributes of a file whose bytes are not on the drive as they are read. */
#define TRANSFORMED_FL (FS_COMPR_FL | FS_ENCRYPT_FL | FS_VERITY_FL | FS_INLINE_DATA_FL | FS_DAX_FL | \
			FS_JOURNAL_DATA_FL)

u64 strait_features(void)
{
	u64 features = STRAIT_FEATURE_IMPORT_USER | STRAIT_FEATURE_IMPORT_DMABUF | STRAIT_FEATURE_URING |
		       STRAIT_FEATURE_ATTACH;

	if (IS_ENABLED(CONFIG_PCI_P2PDMA) && COMPAT_FOLL_PCI_P2PDMA)
		features |= STRAIT_FEATURE_P2PDMA | STRAIT_FEATURE_IMPORT_P2P;
	if (strait_bridge_is_registered())
		features |= STRAIT_FEATURE_IMPORT_NVP2P;
	return features;
}

/* ext4 keeps files without extents too, and writes of holes in those are buffered. */
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

static u32 eligible_regular(struct file *file, struct strait_eligibility *e, struct block_device **bdev)
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

static u32 eligible_file(struct file *file, u32 op, struct strait_eligibility *e, struct block_device **bdev)
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
 * Why a drive without peer-to-peer support is refused. A disk that was removed while it is open has given up its
 * reference on its parent, which is freed then: del_gendisk() takes the open_mutex to mark it as dead before that.
 */
static u32 eligible_unsupported_disk(struct block_device *bdev)
{
	struct gendisk *disk = bdev->bd_disk;
	u32 reason = STRAIT_REASON_NO_DRIVE;

	mutex_lock(&disk->open_mutex);
	if (disk_live(disk))
		reason = eligible_disk_to_pci(bdev) ? STRAIT_REASON_NO_QUEUE : STRAIT_REASON_NOT_PCI;
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

/* Another thread may have done the same meanwhile: an entry more than needed does no harm. */
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

/* The distance is looked up once per drive and region: that takes a walk through all bridges. */
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

static u32 eligible_drive(struct strait_backing *b, struct block_device *bdev, struct strait_eligibility *e)
{
	/* Only nvme-pci says so of its queues; what is open there keeps the controller, and that its PCI device. */
	if (!blk_queue_pci_p2pdma(bdev_get_queue(bdev)))
		return eligible_unsupported_disk(bdev);
	e->drive = eligible_disk_to_pci(bdev);
	if (!e->drive)
		return STRAIT_REASON_NOT_PCI;
	if (blk_get_integrity(bdev->bd_disk) || bdev_stable_writes(bdev))
		return STRAIT_REASON_CHECKSUMS;
	return eligible_path(b, e);
}

void strait_check_eligibility(struct strait_backing *b, struct file *file, u32 op, struct strait_eligibility *e)
{
	struct block_device *bdev = NULL;

	memset(e, 0, sizeof(*e));
	e->distance = -1;
	if (!b->n) {
		e->reason = STRAIT_REASON_NO_PAGES;
		return;
	}
	e->reason = eligible_file(file, op, e, &bdev);
	/* Any drive that does direct I/O reaches the host's own memory. */
	if (!e->reason && b->pdev)
		e->reason = eligible_drive(b, bdev, e);
}
