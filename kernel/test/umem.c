// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * strait_umem_test: imports a dma-buf as RDMA drivers do, through ib_umem, for QEMU's "edu". The
 * ib_device is not registered: ib_umem uses only its DMA device.
 *
 *	/sys/kernel/debug/strait_umem_test/<form>	write "fd offset length": import, once for
 *							each open file; read: "mapped" or
 *							"unmapped", and the notifications
 *
 * Forms: dynamic (on-demand paging), pinned, and, where the kernel has it, revocable.
 */
#include <linux/debugfs.h>
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>

#include "compat.h"

struct umem_file {
	struct mutex lock;		/* @umem until it is set */
	struct ib_umem_dmabuf *umem;
	bool revoked;			/* revocable: under the dma_resv lock */
};

static struct ib_device *umem_device;
static struct pci_dev *umem_edu;
static struct dentry *umem_root;
static atomic_t umem_notified;

static void umem_invalidate(struct dma_buf_attachment *attach)
{
	struct ib_umem_dmabuf *umem = attach->importer_priv;

	dma_resv_assert_held(attach->dmabuf->resv);
	atomic_inc(&umem_notified);
	ib_umem_dmabuf_unmap_pages(umem);
}

static const struct dma_buf_attach_ops umem_dynamic_ops = {
	.allow_peer2peer = true,
	.COMPAT_INVALIDATE = umem_invalidate,
};

static struct ib_umem_dmabuf *umem_get_dynamic(struct umem_file *f, int fd, u64 offset, u64 length)
{
	struct ib_umem_dmabuf *umem;
	int rc;

	umem = ib_umem_dmabuf_get(umem_device, offset, length, fd, IB_ACCESS_LOCAL_WRITE,
				  &umem_dynamic_ops);
	if (IS_ERR(umem))
		return umem;
	dma_resv_lock(umem->attach->dmabuf->resv, NULL);
	rc = ib_umem_dmabuf_map_pages(umem);
	dma_resv_unlock(umem->attach->dmabuf->resv);
	if (rc) {
		ib_umem_release(&umem->umem);
		return ERR_PTR(rc);
	}
	return umem;
}

static struct ib_umem_dmabuf *umem_get_pinned(struct umem_file *f, int fd, u64 offset, u64 length)
{
	return ib_umem_dmabuf_get_pinned(umem_device, offset, length, fd, IB_ACCESS_LOCAL_WRITE);
}

#if HAVE_IB_UMEM_REVOCABLE
static void umem_revoke(void *priv)
{
	struct umem_file *f = priv;

	atomic_inc(&umem_notified);
	f->revoked = true;
}

static struct ib_umem_dmabuf *umem_get_revocable(struct umem_file *f, int fd, u64 offset,
						 u64 length)
{
	struct ib_umem_dmabuf *umem;

	umem = ib_umem_dmabuf_get_pinned_revocable_and_lock(umem_device, offset, length, fd,
							    IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(umem))
		return umem;
	ib_umem_dmabuf_set_revoke_locked(umem, umem_revoke, f);
	ib_umem_dmabuf_revoke_unlock(umem);
	return umem;
}
#endif

static int umem_open(struct inode *inode, struct file *file)
{
	struct umem_file *f = kzalloc(sizeof(*f), GFP_KERNEL);

	if (!f)
		return -ENOMEM;
	mutex_init(&f->lock);
	file->private_data = f;
	return 0;
}

static int umem_release(struct inode *inode, struct file *file)
{
	struct umem_file *f = file->private_data;

	if (f->umem)
		ib_umem_release(&f->umem->umem);
	kfree(f);
	return 0;
}

static ssize_t umem_write(struct file *file, const char __user *user, size_t n, loff_t *pos)
{
	struct ib_umem_dmabuf *(*get)(struct umem_file *f, int fd, u64 offset, u64 length) =
		file_inode(file)->i_private;
	struct umem_file *f = file->private_data;
	struct ib_umem_dmabuf *umem;
	unsigned long long offset, length;
	char text[64] = "";
	int fd;

	if (n >= sizeof(text) || copy_from_user(text, user, n))
		return -EFAULT;
	if (sscanf(text, "%d %llu %llu", &fd, &offset, &length) != 3)
		return -EINVAL;
	mutex_lock(&f->lock);
	umem = f->umem ? ERR_PTR(-EBUSY) : get(f, fd, offset, length);
	if (!IS_ERR(umem))
		f->umem = umem;
	mutex_unlock(&f->lock);
	return IS_ERR(umem) ? PTR_ERR(umem) : n;
}

static ssize_t umem_read(struct file *file, char __user *user, size_t n, loff_t *pos)
{
	struct umem_file *f = file->private_data;
	bool mapped = false;
	char text[64];
	int len;

	mutex_lock(&f->lock);
	if (f->umem) {
		dma_resv_lock(f->umem->attach->dmabuf->resv, NULL);
		mapped = f->umem->sgt && !f->revoked;
		dma_resv_unlock(f->umem->attach->dmabuf->resv);
	}
	mutex_unlock(&f->lock);
	len = scnprintf(text, sizeof(text), "%s %d\n", mapped ? "mapped" : "unmapped",
			atomic_read(&umem_notified));
	return simple_read_from_buffer(user, n, pos, text, len);
}

static const struct file_operations umem_fops = {
	.owner = THIS_MODULE,
	.open = umem_open,
	.release = umem_release,
	.write = umem_write,
	.read = umem_read,
};

static int __init umem_init(void)
{
	umem_edu = pci_get_device(0x1234, 0x11e8, NULL);
	if (!umem_edu)
		return -ENODEV;
	umem_device = kzalloc(sizeof(*umem_device), GFP_KERNEL);
	if (!umem_device) {
		pci_dev_put(umem_edu);
		return -ENOMEM;
	}
	umem_device->dma_device = &umem_edu->dev;
	umem_root = debugfs_create_dir("strait_umem_test", NULL);
	debugfs_create_file("dynamic", 0600, umem_root, umem_get_dynamic, &umem_fops);
	debugfs_create_file("pinned", 0600, umem_root, umem_get_pinned, &umem_fops);
#if HAVE_IB_UMEM_REVOCABLE
	debugfs_create_file("revocable", 0600, umem_root, umem_get_revocable, &umem_fops);
#endif
	return 0;
}
module_init(umem_init);

static void __exit umem_exit(void)
{
	debugfs_remove(umem_root);
	kfree(umem_device);
	pci_dev_put(umem_edu);
}
module_exit(umem_exit);

MODULE_DESCRIPTION("Imports dma-bufs through ib_umem, for the tests of Strait's modules");
MODULE_AUTHOR("The Strait authors");
MODULE_LICENSE("Dual MIT/GPL");
COMPAT_IMPORT_NS_DMA_BUF;
