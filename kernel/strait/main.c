// SPDX-License-Identifier: GPL-2.0 OR MIT
/* The module, /dev/strait and its ioctls. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/dma-buf.h>
#include <linux/file.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/nospec.h>
#include <linux/uaccess.h>

#include "args.h"
#include "attach.h"
#include "backing.h"
#include "core.h"
#include "file.h"
#include "import.h"
#include "io.h"
#include "region.h"
#define CREATE_TRACE_POINTS
#include "trace.h"

struct workqueue_struct *strait_wq, *strait_retry_wq;
atomic64_t strait_counts[STRAIT_COUNTS];

u64 strait_features(void)
{
	u64 features = STRAIT_FEATURE_IMPORT_USER | STRAIT_FEATURE_IMPORT_DMABUF |
		       STRAIT_FEATURE_URING | STRAIT_FEATURE_ATTACH;

	if (IS_ENABLED(CONFIG_PCI_P2PDMA) && COMPAT_FOLL_PCI_P2PDMA)
		features |= STRAIT_FEATURE_P2PDMA | STRAIT_FEATURE_IMPORT_P2P;
	if (strait_bridge_is_registered(STRAIT_IMPORT_NVP2P))
		features |= STRAIT_FEATURE_IMPORT_NVP2P;
	if (strait_bridge_is_registered(STRAIT_IMPORT_PEER))
		features |= STRAIT_FEATURE_IMPORT_PEER;
	return features;
}

int strait_file_open(struct inode *inode, struct file *file)
{
	struct strait_file *f = strait_zalloc(sizeof(*f));

	if (!f)
		return -ENOMEM;
	xa_init_flags(&f->regions, XA_FLAGS_ALLOC1);
	f->next = 1;
	address_space_init_once(&f->mapping);
	f->mapping.host = inode;
	f->mapping.a_ops = inode->i_mapping->a_ops;
	file->f_mapping = &f->mapping;
	file->private_data = f;
	return 0;
}

/* No I/O of this file is in flight: an ioctl or io_uring command keeps the file open. */
int strait_file_release(struct inode *inode, struct file *file)
{
	struct strait_file *f = file->private_data;
	struct strait_region *r;
	unsigned long handle;

	/* The device's mappings are killed before the memory is unpinned. */
	strait_detach(f);
	xa_for_each(&f->regions, handle, r) {
		xa_erase(&f->regions, handle);
		strait_region_put(r);
	}
	xa_destroy(&f->regions);
	/* f->mapping is freed here: @file must not refer to it any more. */
	file->f_mapping = inode->i_mapping;
	kfree(f);
	return 0;
}

static long strait_ioctl_info(struct strait_file *f, void *arg, const struct args *user)
{
	struct strait_ioc_info *info = arg;

	if (info->flags)
		return -EINVAL;
	info->abi = STRAIT_ABI;
	info->abi_min = STRAIT_ABI_MIN;
	info->features = strait_features();
	info->device_bytes_max = strait_device_max();
	info->device_bytes = atomic64_read(&strait_counts[STRAIT_N_DEVICE_BYTES]);
	strscpy_pad(info->version, STRAIT_VERSION, sizeof(info->version));
	return args_to_user(user, info);
}

static void strait_ioctl_describe(const struct strait_region *r, struct strait_ioc_import *req)
{
	req->handle = r->handle;
	req->can = r->can;
	memcpy(req->pci, r->pci, sizeof(req->pci));
}

static long strait_ioctl_import(struct strait_file *f, void *arg, const struct args *user)
{
	struct strait_ioc_import *req = arg;
	struct strait_region *r;
	int rc;

	rc = strait_import(req, &r);
	if (!rc) {
		rc = strait_region_reserve(f, r);
		if (!rc) {
			strait_ioctl_describe(r, req);
			rc = args_to_user(user, req);
			if (rc)
				strait_region_unreserve(f, r);
			else
				strait_region_commit(f, r);
		}
		if (rc)
			strait_region_put(r);
	}
	trace_strait_import(rc ? 0 : req->handle, req->kind, req->length, rc);
	return rc;
}

static long strait_ioctl_release(struct strait_file *f, void *arg, const struct args *user)
{
	struct strait_ioc_release *req = arg;
	struct strait_region *r;

	if (req->flags || req->reserved)
		return -EINVAL;
	r = strait_region_remove(f, req->handle);
	if (!r)
		return -ENOENT;
	strait_region_revoke_sync(r);
	strait_region_put(r);
	return 0;
}

static long strait_ioctl_check(struct strait_file *f, void *arg, const struct args *user)
{
	struct strait_ioc_check *req = arg;
	long rc;

	rc = strait_io_check(f, req);
	return rc ? rc : args_to_user(user, req);
}

static long strait_ioctl_io(struct strait_file *f, void *arg, const struct args *user)
{
	struct strait_ioc_io *req = arg, __user *out = user->user;
	long rc;

	rc = strait_io(f, req);
	if (put_user(req->reason, &out->reason))
		return -EFAULT;
	if (rc)
		return rc;
	return put_user(req->done, &out->done);
}

static long strait_ioctl_export(struct strait_file *f, void *arg, const struct args *user)
{
	struct strait_ioc_export *req = arg;
	struct dma_buf *dmabuf;
	struct strait_region *r;
	int rc, fd;

	r = strait_region_find(f, req->handle);
	if (!r)
		return -ENOENT;
	dmabuf = strait_dmabuf_export(r, req);
	strait_region_put(r);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	fd = get_unused_fd_flags(req->fd_flags & O_CLOEXEC);
	rc = fd < 0 ? fd : 0;
	if (!rc) {
		req->fd = fd;
		rc = args_to_user(user, req);
		if (rc)
			put_unused_fd(fd);
		else
			fd_install(fd, dmabuf->file);
	}
	if (rc)
		dma_buf_put(dmabuf);
	return rc;
}

#define STRAIT_IOCTL(name, type) { \
	.cmd = STRAIT_IOC_##name, \
	.min = STRAIT_##name##_SIZE_MIN, \
	.size = sizeof(struct strait_ioc_##type), \
	.fn = strait_ioctl_##type, \
}

static const struct {
	unsigned int cmd;
	size_t min, size;
	long (*fn)(struct strait_file *f, void *arg, const struct args *user);
} strait_ioctls[] = {
	STRAIT_IOCTL(INFO, info),
	STRAIT_IOCTL(IMPORT, import),
	STRAIT_IOCTL(RELEASE, release),
	STRAIT_IOCTL(CHECK, check),
	STRAIT_IOCTL(IO, io),
	STRAIT_IOCTL(EXPORT, export),
};

long strait_file_ioctl(struct file *file, unsigned int cmd, unsigned long user)
{
	union {
		struct strait_ioc_info info;
		struct strait_ioc_import import;
		struct strait_ioc_release release;
		struct strait_ioc_check check;
		struct strait_ioc_io io;
		struct strait_ioc_export export;
	} arg;
	unsigned int nr = _IOC_NR(cmd);
	struct args args;
	long rc;

	if (nr >= _IOC_NR(STRAIT_IOC_ATTACH))
		return strait_attach_ioctl(file->private_data, cmd, (void __user *)user);
	if (nr >= ARRAY_SIZE(strait_ioctls))
		return -ENOTTY;
	nr = array_index_nospec(nr, ARRAY_SIZE(strait_ioctls));
	/* The size in @cmd is ignored: struct args has the size that the program knows. */
	if ((cmd ^ strait_ioctls[nr].cmd) & ~IOCSIZE_MASK)
		return -ENOTTY;
	rc = args_from_user(&args, &arg, strait_ioctls[nr].min, strait_ioctls[nr].size,
			    (void __user *)user);
	if (rc)
		return rc;
	return strait_ioctls[nr].fn(file->private_data, &arg, &args);
}

int strait_file_mmap(struct file *file, struct vm_area_struct *vma)
{
	return strait_attach_mmap(file->private_data, vma);
}

static const struct file_operations strait_fops = {
	.owner = THIS_MODULE,
	.open = strait_file_open,
	.release = strait_file_release,
	.unlocked_ioctl = strait_file_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = strait_file_mmap,
	.uring_cmd = strait_uring_cmd,
};

static struct miscdevice strait_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "strait",
	.fops = &strait_fops,
	.mode = 0660,
};

static int __init strait_init(void)
{
	int rc;

	/*
	 * WQ_MEM_RECLAIM: unpinning pages and ending I/O must make progress under memory pressure.
	 */
	strait_wq = alloc_workqueue("strait", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	strait_retry_wq = alloc_workqueue("strait_retry", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	rc = -ENOMEM;
	if (!strait_wq || !strait_retry_wq)
		goto err_queues;
	strait_debug_init();
	rc = strait_attach_init();
	if (rc)
		goto err_debug;
	rc = misc_register(&strait_misc);
	if (rc)
		goto err_attach;
	if (!(strait_features() & STRAIT_FEATURE_P2PDMA))
		pr_info("the kernel lacks CONFIG_PCI_P2PDMA: file I/O with host memory only\n");
	return 0;
err_attach:
	strait_attach_exit();
err_debug:
	strait_debug_fini();
err_queues:
	if (strait_retry_wq)
		destroy_workqueue(strait_retry_wq);
	if (strait_wq)
		destroy_workqueue(strait_wq);
	return rc;
}
module_init(strait_init);

static void __exit strait_exit(void)
{
	misc_deregister(&strait_misc);
	strait_attach_exit();
	destroy_workqueue(strait_retry_wq);
	/* Waits for pending unpins. */
	destroy_workqueue(strait_wq);
	strait_debug_fini();
}
module_exit(strait_exit);

MODULE_DESCRIPTION("File I/O with memory of PCI devices, and PCI devices driven from user space");
MODULE_AUTHOR("The Strait authors");
MODULE_VERSION(STRAIT_VERSION);
MODULE_LICENSE("Dual MIT/GPL");
COMPAT_IMPORT_NS_DMA_BUF;
