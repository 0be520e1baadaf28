// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Binding and removal of the device, and the module. */
#include <linux/idr.h>
#include <linux/module.h>
#include <linux/random.h>

#include "vgpu.h"

static DEFINE_IDA(pci_ids);

void vgpu_dev_release(struct kref *kref)
{
	struct vgpu_dev *dev = container_of(kref, struct vgpu_dev, kref);

	ida_free(&pci_ids, dev->id);
	pci_dev_put(dev->pdev);
	kfree(dev);
}

static int pci_dev_new(struct pci_dev *pdev, struct vgpu_dev **ret)
{
	struct vgpu_dev *dev;

	dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	if (!dev)
		return -ENOMEM;
	dev->id = ida_alloc(&pci_ids, GFP_KERNEL);
	if (dev->id < 0) {
		int rc = dev->id;

		kfree(dev);
		return rc;
	}
	kref_init(&dev->kref);
	dev->pdev = pci_dev_get(pdev);
	init_rwsem(&dev->gone_lock);
	init_waitqueue_head(&dev->gone_wait);
	spin_lock_init(&dev->list_lock);
	INIT_LIST_HEAD(&dev->allocs);
	get_random_bytes(dev->uuid, sizeof(dev->uuid));
	snprintf(dev->name, sizeof(dev->name), "strait_vgpu%d", dev->id);
	dev->misc.minor = MISC_DYNAMIC_MINOR;
	dev->misc.name = dev->name;
	dev->misc.fops = &vgpu_fops;
	dev->misc.parent = &pdev->dev;
	dev->misc.mode = 0660;
	*ret = dev;
	return 0;
}

static int vgpu_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct vgpu_dev *dev;
	int rc;

	/* ivshmem-doorbell has the same IDs and no memory. */
	if (!(pci_resource_flags(pdev, VGPU_BAR) & IORESOURCE_MEM) ||
	    pci_resource_len(pdev, VGPU_BAR) < VGPU_SIZE)
		return -ENODEV;
	rc = pcim_enable_device(pdev);
	if (rc)
		return rc;
	rc = pci_request_region(pdev, VGPU_BAR, KBUILD_MODNAME);
	if (rc)
		return rc;
	rc = pci_dev_new(pdev, &dev);
	if (rc)
		goto err_region;
	rc = vgpu_pools_init(dev);
	if (rc)
		goto err_dev;
	pci_set_drvdata(pdev, dev);
	vgpu_debug_add(dev);
	rc = misc_register(&dev->misc);
	if (rc)
		goto err_pools;
	pci_info(pdev, "%s: %llu bytes of memory%s, %llu of them pinnable\n", dev->name,
		 (u64)pci_resource_len(pdev, VGPU_BAR),
		 dev->p2pdma ? " with peer-to-peer pages" : "",
		 (u64)dev->pools[STRAIT_VGPU_MEM_PINNABLE].n << VGPU_SHIFT);
	return 0;
err_pools:
	vgpu_debug_remove(dev);
	vgpu_pools_fini(dev);
err_dev:
	vgpu_dev_put(dev);
err_region:
	pci_release_region(pdev, VGPU_BAR);
	return rc;
}

/*
 * No new file can be opened, nothing can be allocated in open files, and all allocations are
 * revoked. Then wait for the pages, without a deadline: removing the struct page of a pinned page
 * would be worse than waiting.
 */
static void vgpu_remove(struct pci_dev *pdev)
{
	struct vgpu_dev *dev = pci_get_drvdata(pdev);

	misc_deregister(&dev->misc);
	down_write(&dev->gone_lock);
	WRITE_ONCE(dev->gone, true);
	up_write(&dev->gone_lock);
	vgpu_dev_revoke_all(dev);
	/* Pairs with vgpu_poll(): a process that is told sees the effects of all revocations. */
	smp_store_release(&dev->revoked, true);
	wake_up_all(&dev->gone_wait);
	vgpu_debug_remove(dev);
	vgpu_pools_fini(dev);
	pci_release_region(pdev, VGPU_BAR);
	vgpu_dev_put(dev);
}

static const struct pci_device_id vgpu_ids[] = {
	{ PCI_DEVICE(0x1af4, 0x1110) },
	{ }
};
MODULE_DEVICE_TABLE(pci, vgpu_ids);

static struct pci_driver vgpu_driver = {
	.name = KBUILD_MODNAME,
	.id_table = vgpu_ids,
	.probe = vgpu_probe,
	.remove = vgpu_remove,
};

static int __init vgpu_init(void)
{
	int rc;

	vgpu_debug_init();
	rc = pci_register_driver(&vgpu_driver);
	if (rc)
		vgpu_debug_fini();
	return rc;
}
module_init(vgpu_init);

static void __exit vgpu_exit(void)
{
	pci_unregister_driver(&vgpu_driver);
	vgpu_debug_fini();
	ida_destroy(&pci_ids);
}
module_exit(vgpu_exit);

MODULE_DESCRIPTION("The GPU of Strait's lab");
MODULE_AUTHOR("The Strait authors");
MODULE_LICENSE("Dual MIT/GPL");
COMPAT_IMPORT_NS_DMA_BUF;
