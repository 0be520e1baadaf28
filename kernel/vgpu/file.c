// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Open files and their ioctls. */
#include <linux/capability.h>
#include <linux/dma-buf.h>
#include <linux/file.h>
#include <linux/poll.h>
#include <linux/random.h>
#include <linux/uaccess.h>

#include "args.h"
#include "vgpu.h"

static int vgpu_open(struct inode *inode, struct file *file)
{
	/* misc_open() holds a mutex that misc_deregister(), called by remove(), waits for. */
	struct vgpu_dev *dev = container_of(file->private_data, struct vgpu_dev, misc);
	struct vgpu_file *f;

	f = vgpu_zalloc(sizeof(*f));
	if (!f)
		return -ENOMEM;
	vgpu_dev_get(dev);
	f->dev = dev;
	xa_init_flags(&f->allocs, XA_FLAGS_ALLOC1);
	f->next = 1;
	f->token = get_random_u64() | 1;
	f->va_space = get_random_u32() | 1;
	address_space_init_once(&f->mapping);
	f->mapping.host = inode;
	f->mapping.a_ops = inode->i_mapping->a_ops;
	file->f_mapping = &f->mapping;
	file->private_data = f;
	return 0;
}

static int vgpu_release(struct inode *inode, struct file *file)
{
	struct vgpu_file *f = file->private_data;

	vgpu_window(VGPU_W_CLOSE);
	vgpu_file_free_all(f);
	xa_destroy(&f->allocs);
	vgpu_dev_put(f->dev);
	/* f->mapping is freed here: @file must not refer to it any more. */
	file->f_mapping = inode->i_mapping;
	kfree(f);
	return 0;
}

static long file_ioctl_info(struct vgpu_file *f, void *arg, void __user *user)
{
	struct strait_vgpu_info *info = arg;
	struct vgpu_dev *dev = f->dev;
	int i;

	if (info->flags)
		return -EINVAL;
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	info->abi = STRAIT_VGPU_ABI;
	info->numa_node = dev_to_node(&dev->pdev->dev);
	info->caps = STRAIT_VGPU_CAP_DMABUF | (dev->p2pdma ? STRAIT_VGPU_CAP_P2PDMA : 0) |
		     (dev->pools[STRAIT_VGPU_MEM_PINNABLE].n ? STRAIT_VGPU_CAP_PINNABLE : 0);
	info->page_size = STRAIT_VGPU_PAGE_SIZE;
	info->bar_base = capable(CAP_SYS_ADMIN) ? pci_resource_start(dev->pdev, VGPU_BAR) : 0;
	for (i = 0; i < STRAIT_VGPU_MEM_KINDS; i++) {
		info->mem_total[i] = (u64)dev->pools[i].n << VGPU_SHIFT;
		info->mem_free[i] = vgpu_pool_free_bytes(&dev->pools[i]);
		info->mem_offset[i] = dev->pools[i].bar_offset;
	}
	info->token = f->token;
	info->va_space = f->va_space;
	strscpy(info->pci, pci_name(dev->pdev), sizeof(info->pci));
	return copy_to_user(user, info, sizeof(*info)) ? -EFAULT : 0;
}

static long file_ioctl_alloc(struct vgpu_file *f, void *arg, void __user *user)
{
	struct strait_vgpu_alloc *req = arg;
	struct vgpu_alloc *a;
	int rc;

	if (req->flags || req->reserved || req->reserved2 || req->kind >= STRAIT_VGPU_MEM_KINDS)
		return -EINVAL;
	if (!req->length || req->length % VGPU_SIZE)
		return -EINVAL;
	rc = vgpu_alloc_new(f, req->kind, req->length, &a);
	if (rc)
		return rc;
	req->size = sizeof(*req);
	req->handle = a->handle;
	req->mmap_offset = a->mmap_offset;
	req->identity = a->identity;
	req->bar_offset = vgpu_block_bar(a->block, 0);
	if (copy_to_user(user, req, sizeof(*req))) {
		vgpu_alloc_discard(a);
		return -EFAULT;
	}
	vgpu_alloc_publish(a);
	return 0;
}

static long file_ioctl_free(struct vgpu_file *f, void *arg, void __user *user)
{
	struct strait_vgpu_free *req = arg;

	if (req->flags || req->reserved)
		return -EINVAL;
	return READ_ONCE(f->dev->gone) ? -ENODEV : vgpu_alloc_free(f, req->handle);
}

static long file_ioctl_move(struct vgpu_file *f, void *arg, void __user *user)
{
	struct strait_vgpu_move *req = arg;

	if (req->flags || req->reserved)
		return -EINVAL;
	return READ_ONCE(f->dev->gone) ? -ENODEV : vgpu_alloc_move(f, req->handle);
}

/* Installs the descriptor after its number was copied to the process, which cannot fail then. */
static long file_install_dmabuf(struct vgpu_alloc *a, u64 offset, u64 length, u32 fd_flags,
				void *arg, size_t size, s32 *fd, void __user *user)
{
	struct dma_buf *dmabuf;

	if (fd_flags & ~(O_CLOEXEC | O_ACCMODE))
		return -EINVAL;
	dmabuf = vgpu_dmabuf_export(a, offset, length, fd_flags);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	*fd = vgpu_get_unused_fd(fd_flags & O_CLOEXEC);
	if (*fd < 0) {
		dma_buf_put(dmabuf);
		return *fd;
	}
	if (copy_to_user(user, arg, size)) {
		put_unused_fd(*fd);
		dma_buf_put(dmabuf);
		return -EFAULT;
	}
	fd_install(*fd, dmabuf->file);
	return 0;
}

static long file_ioctl_dmabuf(struct vgpu_file *f, void *arg, void __user *user)
{
	struct strait_vgpu_dmabuf *req = arg;
	struct vgpu_alloc *a;
	long rc;

	if (req->flags || req->reserved)
		return -EINVAL;
	a = vgpu_alloc_find(f, req->handle);
	if (!a)
		return -ENOENT;
	req->size = sizeof(*req);
	rc = file_install_dmabuf(a, req->offset, req->length, req->fd_flags, req, sizeof(*req),
				 &req->fd, user);
	vgpu_alloc_put(a);
	return rc;
}

static long file_ioctl_dmabuf_at(struct vgpu_file *f, void *arg, void __user *user)
{
	struct strait_vgpu_dmabuf_at *req = arg;
	struct vgpu_alloc *a;
	u64 offset;
	long rc;

	if (req->flags || !req->length)
		return -EINVAL;
	rc = vgpu_alloc_at(req->address, req->length, &a, &offset);
	if (rc)
		return rc;
	if (a->dev != f->dev)
		rc = -ENOENT;
	else if (a->identity != req->identity)
		rc = -ESTALE;
	req->size = sizeof(*req);
	if (!rc)
		rc = file_install_dmabuf(a, offset, req->length, req->fd_flags, req, sizeof(*req),
					 &req->fd, user);
	vgpu_alloc_put(a);
	return rc;
}

static long file_ioctl_query(struct vgpu_file *f, void *arg, void __user *user)
{
	struct strait_vgpu_query *q = arg;
	int rc;

	if (q->flags)
		return -EINVAL;
	rc = vgpu_query(f, q);
	if (rc)
		return rc;
	q->size = sizeof(*q);
	return copy_to_user(user, q, sizeof(*q)) ? -EFAULT : 0;
}

static long file_ioctl_counters(struct vgpu_file *f, void *arg, void __user *user)
{
	struct strait_vgpu_counters *c = arg;
	__u64 *value = (__u64 *)c + 1;
	int i;

	BUILD_BUG_ON(sizeof(*c) != (1 + VGPU_COUNTS) * sizeof(*value));
	if (c->flags)
		return -EINVAL;
	c->size = sizeof(*c);
	for (i = 0; i < VGPU_COUNTS; i++)
		value[i] = atomic64_read(&f->dev->counts[i]);
	return copy_to_user(user, c, sizeof(*c)) ? -EFAULT : 0;
}

static const struct {
	unsigned int cmd;
	size_t size;
	long (*fn)(struct vgpu_file *f, void *arg, void __user *user);
	bool waits;	/* for peers: runs without gone_lock and tolerates removal */
} file_ioctls[] = {
	{ STRAIT_VGPU_INFO, sizeof(struct strait_vgpu_info), file_ioctl_info },
	{ STRAIT_VGPU_ALLOC, sizeof(struct strait_vgpu_alloc), file_ioctl_alloc },
	{ STRAIT_VGPU_FREE, sizeof(struct strait_vgpu_free), file_ioctl_free, .waits = true },
	{ STRAIT_VGPU_DMABUF, sizeof(struct strait_vgpu_dmabuf), file_ioctl_dmabuf },
	{ STRAIT_VGPU_QUERY, sizeof(struct strait_vgpu_query), file_ioctl_query },
	{ STRAIT_VGPU_DMABUF_AT, sizeof(struct strait_vgpu_dmabuf_at), file_ioctl_dmabuf_at },
	{ STRAIT_VGPU_COUNTERS, sizeof(struct strait_vgpu_counters), file_ioctl_counters },
	{ STRAIT_VGPU_MOVE, sizeof(struct strait_vgpu_move), file_ioctl_move, .waits = true },
};

static long vgpu_ioctl(struct file *file, unsigned int cmd, unsigned long user)
{
	union {
		struct strait_vgpu_info info;
		struct strait_vgpu_alloc alloc;
		struct strait_vgpu_free free;
		struct strait_vgpu_dmabuf dmabuf;
		struct strait_vgpu_query query;
		struct strait_vgpu_dmabuf_at dmabuf_at;
		struct strait_vgpu_counters counters;
		struct strait_vgpu_move move;
	} arg;
	struct vgpu_file *f = file->private_data;
	unsigned int nr = _IOC_NR(cmd);
	struct args args;
	long rc;

	/* The size in @cmd is ignored: the struct has the size that the program knows. */
	if (nr >= ARRAY_SIZE(file_ioctls) || ((cmd ^ file_ioctls[nr].cmd) & ~IOCSIZE_MASK))
		return -ENOTTY;
	rc = args_from_user(&args, &arg, file_ioctls[nr].size, file_ioctls[nr].size,
			    (void __user *)user);
	if (rc)
		return rc;
	if (file_ioctls[nr].waits)
		return file_ioctls[nr].fn(f, &arg, (void __user *)user);
	down_read(&f->dev->gone_lock);
	rc = f->dev->gone ? -ENODEV : file_ioctls[nr].fn(f, &arg, (void __user *)user);
	up_read(&f->dev->gone_lock);
	return rc;
}

/* EPOLLIN: the device is gone and all revocations were delivered. */
static __poll_t vgpu_poll(struct file *file, poll_table *wait)
{
	struct vgpu_file *f = file->private_data;

	poll_wait(file, &f->dev->gone_wait, wait);
	/* Pairs with vgpu_remove(). */
	return smp_load_acquire(&f->dev->revoked) ? EPOLLIN | EPOLLERR | EPOLLHUP : 0;
}

const struct file_operations vgpu_fops = {
	.owner = THIS_MODULE,
	.open = vgpu_open,
	.poll = vgpu_poll,
	.release = vgpu_release,
	.unlocked_ioctl = vgpu_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = vgpu_mmap,
};
