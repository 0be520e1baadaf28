// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * /dev/strait-pci/<address>: a device node for each bound device. Permission to open it is the
 * right to drive that device. No capability is needed: the IOMMU confines the device to memory that
 * the process mapped for it.
 */
#include <linux/idr.h>

#include "attach.h"
#include "core.h"
#include "file.h"

#define NODES_MAX 1024

static dev_t node_first;
static DEFINE_IDA(node_minors);

static char *node_path(const struct device *dev, umode_t *mode)
{
	/* For root only, until an administrator changes the owner. */
	if (mode)
		*mode = 0600;
	return kasprintf(GFP_KERNEL, "strait-pci/%s", dev_name(dev));
}

static const struct class node_class = {
	.name = "strait-pci",
	.devnode = node_path,
};

int strait_nodes_init(void)
{
	int rc;

	rc = class_register(&node_class);
	if (rc)
		return rc;
	rc = alloc_chrdev_region(&node_first, 0, NODES_MAX, "strait-pci");
	if (rc)
		class_unregister(&node_class);
	return rc;
}

void strait_nodes_exit(void)
{
	unregister_chrdev_region(node_first, NODES_MAX);
	class_unregister(&node_class);
	ida_destroy(&node_minors);
}

static void node_release(struct device *dev)
{
	struct strait_attach *at = container_of(dev, struct strait_attach, dev);

	pci_dev_put(at->pdev);
	xa_destroy(&at->maps);
	kfree(at);
}

static int node_open(struct inode *inode, struct file *file)
{
	struct strait_attach *at = container_of(inode->i_cdev, struct strait_attach, cdev);
	int rc = strait_file_open(inode, file);

	if (rc)
		return rc;
	strait_attach_get(at);
	((struct strait_file *)file->private_data)->attach = at;
	return 0;
}

static const struct file_operations node_fops = {
	.owner = THIS_MODULE,
	.open = node_open,
	.release = strait_file_release,
	.unlocked_ioctl = strait_file_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = strait_file_mmap,
	.uring_cmd = strait_uring_cmd,
};

int strait_node_init(struct strait_attach *at)
{
	device_initialize(&at->dev);
	at->dev.class = &node_class;
	at->dev.parent = &at->pdev->dev;
	at->dev.release = node_release;
	cdev_init(&at->cdev, &node_fops);
	at->cdev.owner = THIS_MODULE;
	return dev_set_name(&at->dev, "%s", pci_name(at->pdev));
}

int strait_node_add(struct strait_attach *at)
{
	int rc, minor = ida_alloc_max(&node_minors, NODES_MAX - 1, GFP_KERNEL);

	if (minor < 0)
		return minor;
	at->dev.devt = MKDEV(MAJOR(node_first), MINOR(node_first) + minor);
	rc = cdev_device_add(&at->cdev, &at->dev);
	if (rc)
		ida_free(&node_minors, minor);
	return rc;
}

void strait_node_remove(struct strait_attach *at)
{
	cdev_device_del(&at->cdev, &at->dev);
	ida_free(&node_minors, MINOR(at->dev.devt) - MINOR(node_first));
}
