// SPDX-License-Identifier: GPL-2.0 OR MIT
/* /dev/strait_vgpu_test: kernel-side tests of strait_vgpu, controlled from user space. */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>

#include "test.h"

static int vt_open(struct inode *inode, struct file *file)
{
	struct vt_file *f = kzalloc(sizeof(*f), GFP_KERNEL);

	if (!f)
		return -ENOMEM;
	mutex_init(&f->lock);
	file->private_data = f;
	return 0;
}

static int vt_release(struct inode *inode, struct file *file)
{
	struct vt_file *f = file->private_data;

	vt_edu_wait();
	vt_p2p_release(f);
	vt_buf_release(f);
	vt_pin_release(f);
	kfree(f);
	return 0;
}

static int vt_dma_transfer(struct vt_file *f, struct vt_dma *req)
{
	void __user *user = u64_to_user_ptr(req->data);
	bool write = req->flags & VT_DMA_WRITE;
	u8 data[VT_DMA_MAX / 4];
	dma_addr_t addr;
	u32 at, len;
	int rc = 0;

	if (!req->len || req->len > VT_DMA_MAX)
		return -EINVAL;
	/* In chunks that fit on the stack; VT_DMA_START takes one chunk only. */
	for (at = 0; at < req->len && !rc; at += len) {
		len = min_t(u32, req->len - at, sizeof(data));
		if (req->flags & VT_DMA_BUF)
			rc = vt_buf_addr(f, req->id, req->offset + at, len, &addr);
		else
			rc = vt_p2p_addr(f, req->id, req->offset + at, len, &addr);
		if (rc)
			break;
		if (write && copy_from_user(data, user + at, len))
			return -EFAULT;
		if (req->flags & VT_DMA_START) {
			rc = -EINVAL;
			if (write && req->len <= sizeof(data))
				rc = vt_edu_start(addr, data, len);
			break;
		}
		rc = vt_edu_transfer(addr, data, len, write);
		if (!rc && !write && copy_to_user(user + at, data, len))
			return -EFAULT;
	}
	req->result = rc;
	return 0;
}

/* Calls that may wait in the driver under test run without the lock, so that others can race. */
static long vt_call(struct vt_file *f, unsigned int cmd, void *arg)
{
	int rc;

	switch (cmd) {
	case VT_PUT:
		return vt_put(f, arg);
	case VT_MAP:
		return vt_map(f, arg);
	case VT_UNMAP:
		return vt_unmap(f, arg);
	case VT_STATUS:
		return vt_status(f, arg);
	case VT_BUF_MAP:
		return vt_buf_map(f, arg);
	case VT_BUF_STATUS:
		return vt_buf_status(f, arg);
	case VT_FOREIGN_PUT:
		return vt_foreign_put(f, arg);
	case VT_OLD:
		return vt_old(f, arg);
	}
	mutex_lock(&f->lock);
	switch (cmd) {
	case VT_GET:
		rc = vt_get(f, arg);
		break;
	case VT_DMA:
		rc = vt_dma_transfer(f, arg);
		break;
	case VT_ATTACH:
		rc = vt_attach(f, arg);
		break;
	case VT_BUF_UNMAP:
		rc = vt_buf_unmap(f, arg);
		break;
	case VT_DETACH:
		rc = vt_detach(f, arg);
		break;
	case VT_PIN:
		rc = vt_pin(f, arg);
		break;
	case VT_UNPIN:
		rc = vt_unpin(f, arg);
		break;
	default:
		rc = -ENOTTY;
	}
	mutex_unlock(&f->lock);
	return rc;
}

static long vt_ioctl(struct file *file, unsigned int cmd, unsigned long user)
{
	union {
		struct vt_get get;
		struct vt_op op;
		struct vt_status status;
		struct vt_dma dma;
		struct vt_buf buf;
		struct vt_pin pin;
		struct vt_old old;
	} arg;
	size_t size = _IOC_SIZE(cmd);
	long rc;

	if (cmd == VT_DMA_WAIT) {
		vt_edu_wait();
		return 0;
	}
	if (cmd == VT_DMA_BUSY)
		return vt_edu_busy();
	if (_IOC_TYPE(cmd) != VT_IOC || !size || size > sizeof(arg))
		return -ENOTTY;
	if (copy_from_user(&arg, (void __user *)user, size))
		return -EFAULT;
	rc = vt_call(file->private_data, cmd, &arg);
	if (!rc && copy_to_user((void __user *)user, &arg, size))
		rc = -EFAULT;
	return rc;
}

static const struct file_operations vt_fops = {
	.owner = THIS_MODULE,
	.open = vt_open,
	.release = vt_release,
	.unlocked_ioctl = vt_ioctl,
};

static struct miscdevice vt_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "strait_vgpu_test",
	.fops = &vt_fops,
	.mode = 0600,
};

static int __init vt_init(void)
{
	int rc;

	rc = vt_edu_register();
	if (rc)
		return rc;
	rc = misc_register(&vt_misc);
	if (rc)
		vt_edu_unregister();
	return rc;
}
module_init(vt_init);

static void __exit vt_exit(void)
{
	misc_deregister(&vt_misc);
	vt_edu_unregister();
}
module_exit(vt_exit);

MODULE_DESCRIPTION("Tests of strait_vgpu");
MODULE_AUTHOR("The Strait authors");
MODULE_LICENSE("Dual MIT/GPL");
COMPAT_IMPORT_NS_DMA_BUF;
