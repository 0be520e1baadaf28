// SPDX-License-Identifier: GPL-2.0 OR MIT
/* A PCI device in user space: bound, attached to a file, detached, removed; and the calls on it. */
#include <linux/capability.h>
#include <linux/dma-map-ops.h>
#include <linux/iommu.h>
#include <linux/uaccess.h>

#include "args.h"
#include "attach.h"
#include "trace.h"

#define ADDRESS_BITS_MIN 24
#define SEGMENT_MAX SZ_2G

static DEFINE_MUTEX(bound_lock);
static LIST_HEAD(bound);	/* strait_attach.node */

void strait_attach_release(struct kref *kref)
{
	struct strait_attach *at = container_of(kref, struct strait_attach, kref);

	pci_dev_put(at->pdev);
	xa_destroy(&at->maps);
	kfree(at);
}

static int count_device(struct device *dev, void *data)
{
	int *n = data;

	/* Bridges are in the groups of what is below them, and start nothing themselves. */
	if (!dev_is_pci(dev) || !pci_is_bridge(to_pci_dev(dev)))
		(*n)++;
	return 0;
}

static u32 judge_group(struct pci_dev *pdev, int *id)
{
	struct iommu_group *group = iommu_group_get(&pdev->dev);
	int n = 0;

	*id = -1;
	if (!group)
		return STRAIT_ATTACH_NO_IOMMU;
	*id = iommu_group_id(group);
	iommu_group_for_each_dev(group, &n, count_device);
	iommu_group_put(group);
	return n == 1 ? STRAIT_ATTACH_NONE : STRAIT_ATTACH_GROUP;
}

/* Only what is unmapped in a domain of the DMA API's own is out of the device's reach. */
static u32 judge_domain(struct pci_dev *pdev)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&pdev->dev);

	if (!domain)
		return STRAIT_ATTACH_NO_IOMMU;
	if (domain->type == IOMMU_DOMAIN_IDENTITY)
		return STRAIT_ATTACH_IDENTITY;
	if (domain->type != IOMMU_DOMAIN_DMA && domain->type != IOMMU_DOMAIN_DMA_FQ)
		return STRAIT_ATTACH_DOMAIN;
	return STRAIT_ATTACH_NONE;
}

u32 strait_attach_judge(struct pci_dev *pdev, int *group)
{
	u32 reason = judge_group(pdev, group);

	/* What kind of domain it is says more than who else is in it. */
	if (!reason || reason == STRAIT_ATTACH_GROUP)
		reason = judge_domain(pdev) ?: reason;
	if (!reason && pdev->untrusted)
		reason = STRAIT_ATTACH_UNTRUSTED;
	if (!reason && !dev_is_dma_coherent(&pdev->dev))
		reason = STRAIT_ATTACH_NOT_COHERENT;
	return reason;
}

static void set_master(struct strait_attach *at, bool on)
{
	spin_lock(&at->master_lock);
	at->master = on;
	if (on)
		pci_set_master(at->pdev);
	else
		pci_clear_master(at->pdev);
	spin_unlock(&at->master_lock);
}

void strait_attach_quiesce(struct strait_attach *at)
{
	spin_lock(&at->master_lock);
	if (at->open) {
		at->master = false;
		pci_clear_master(at->pdev);
		WRITE_ONCE(at->status->revoked, at->status->revoked + 1);
	}
	spin_unlock(&at->master_lock);
}

/* With the device's lock, and at->state for writing. */
static int device_open(struct strait_attach *at)
{
	struct pci_dev *pdev = at->pdev;
	struct page *page;
	void *status;
	int rc;

	page = strait_alloc_page(__GFP_ZERO);
	if (!page)
		return -ENOMEM;
	status = page_address(page);
	rc = pci_enable_device(pdev);
	if (rc)
		goto err_status;
	pci_clear_master(pdev);
	rc = pci_request_regions(pdev, "strait");
	if (rc)
		goto err_disable;
	rc = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (rc)
		goto err_regions;
	at->old_seg_size = dma_get_max_seg_size(&pdev->dev);
	dma_set_max_seg_size(&pdev->dev, SEGMENT_MAX);
	strait_bars_find_irqs(at);
	strait_irqs_begin(at);
	at->bars_off = false;
	spin_lock(&at->master_lock);
	at->status = status;
	at->master = false;
	at->open = true;
	spin_unlock(&at->master_lock);
	strait_count(STRAIT_N_ATTACHED, 1);
	return 0;
err_regions:
	pci_release_regions(pdev);
err_disable:
	pci_disable_device(pdev);
err_status:
	free_page((unsigned long)status);
	return rc;
}

/*
 * With the same locks. The order matters: it starts nothing more, it forgets what it was doing, it raises
 * no interrupt, its memory is unmapped.
 */
static void device_close(struct strait_attach *at)
{
	struct pci_dev *pdev = at->pdev;
	int rc = -ENODEV;

	set_master(at, false);
	if (pci_device_is_present(pdev))
		rc = pci_reset_function_locked(pdev);
	strait_irqs_end(at);
	strait_maps_kill_all(at);
	spin_lock(&at->master_lock);
	at->open = false;
	put_page(virt_to_page(at->status));
	at->status = NULL;
	spin_unlock(&at->master_lock);
	dma_set_max_seg_size(&pdev->dev, at->old_seg_size);
	pci_release_regions(pdev);
	pci_disable_device(pdev);
	strait_count(STRAIT_N_ATTACHED, -1);
	trace_strait_detach(pci_name(pdev), rc);
}

static struct strait_attach *bound_find(const char *name)
{
	struct strait_attach *at, *found = NULL;

	mutex_lock(&bound_lock);
	list_for_each_entry(at, &bound, node)
		if (!strcmp(pci_name(at->pdev), name)) {
			kref_get(&at->kref);
			found = at;
			break;
		}
	mutex_unlock(&bound_lock);
	return found;
}

static void describe(struct strait_attach *at, struct strait_ioc_attach *req)
{
	struct pci_dev *pdev = at->pdev;
	int bar;

	req->size = sizeof(*req);
	req->vendor = pdev->vendor;
	req->device = pdev->device;
	req->class_code = pdev->class;
	req->node = dev_to_node(&pdev->dev);
	req->vectors = at->vectors;
	req->irq_bar = at->irq_bar;
	req->irq_offset = at->irq_offset;
	req->irq_length = at->irq_length;
	for (bar = 0; bar < STRAIT_BARS; bar++)
		req->bar_length[bar] = strait_bar_length(pdev, bar);
}

/* With the device's lock, and at->state for writing. */
static int attach(struct strait_attach *at, struct strait_file *f, struct strait_ioc_attach *req)
{
	int rc;

	if (at->gone)
		return -ENODEV;
	if (at->file)
		return -EBUSY;
	req->reason = strait_attach_judge(at->pdev, &req->group);
	if (req->reason)
		return -EOPNOTSUPP;
	rc = device_open(at);
	if (rc)
		return rc;
	at->file = f;
	describe(at, req);
	return 0;
}

static void unlock_device(struct strait_attach *at)
{
	up_write(&at->state);
	device_unlock(&at->pdev->dev);
}

static void lock_device(struct strait_attach *at)
{
	device_lock(&at->pdev->dev);
	down_write(&at->state);
}

/* The device is not the file's any more, whether it is there or not. Drops the file's hold. */
static void let_go(struct strait_attach *at, struct strait_file *f)
{
	lock_device(at);
	if (!at->gone)
		device_close(at);
	at->file = NULL;
	strait_maps_free_all(at);
	unlock_device(at);
	strait_attach_put(at);
}

static long do_attach(struct strait_file *f, struct strait_ioc_attach *req, struct strait_ioc_attach __user *user)
{
	struct strait_attach *at;
	int rc;

	if (req->flags || !memchr(req->pci, 0, sizeof(req->pci)))
		return -EINVAL;
	if (!capable(CAP_SYS_RAWIO))
		return -EPERM;
	if (smp_load_acquire(&f->attach))
		return -EBUSY;
	at = bound_find(req->pci);
	if (!at)
		return -ENODEV;
	req->reason = STRAIT_ATTACH_NONE;
	lock_device(at);
	rc = attach(at, f, req);
	unlock_device(at);
	trace_strait_attach(req->pci, rc, req->reason);
	if (rc) {
		strait_attach_put(at);
		if (rc == -EOPNOTSUPP &&
		    (put_user(req->reason, &user->reason) || put_user(req->group, &user->group)))
			return -EFAULT;
		return rc;
	}
	rc = copy_to_user(user, req, sizeof(*req)) ? -EFAULT : 0;
	/* Of two that come at the same time one is late. */
	if (!rc && cmpxchg(&f->attach, NULL, at))
		rc = -EBUSY;
	if (rc)
		let_go(at, f);
	return rc;
}

void strait_detach(struct strait_file *f)
{
	if (f->attach)
		let_go(f->attach, f);
}

static long do_map(struct strait_attach *at, struct strait_file *f, void *arg, void __user *user)
{
	struct strait_ioc_map *req = arg;
	struct strait_ioc_map __user *out = user;
	int rc;

	req->reason = STRAIT_ATTACH_NONE;
	rc = strait_map(at, f, req, user);
	trace_strait_map(pci_name(at->pdev), rc ? 0 : req->handle, req->region, req->length, rc ? 0 : req->runs, rc);
	if (rc == -EOPNOTSUPP && put_user(req->reason, &out->reason))
		return -EFAULT;
	return rc;
}

static long do_unmap(struct strait_attach *at, struct strait_file *f, void *arg, void __user *user)
{
	struct strait_ioc_mapping *req = arg;

	return req->flags || req->reserved ? -EINVAL : strait_map_remove(at, req->handle);
}

static long do_mapped(struct strait_attach *at, struct strait_file *f, void *arg, void __user *user)
{
	struct strait_ioc_mapping *req = arg;

	return req->flags || req->reserved ? -EINVAL : strait_map_mapped(at, req->handle);
}

static long do_runs(struct strait_attach *at, struct strait_file *f, void *arg, void __user *user)
{
	struct strait_ioc_runs *req = arg;
	struct strait_ioc_runs __user *out = user;
	int rc;

	if (req->flags || req->reserved)
		return -EINVAL;
	rc = strait_map_runs(at, req);
	return rc ? rc : put_user(req->count, &out->count);
}

static long do_irq(struct strait_attach *at, struct strait_file *f, void *arg, void __user *user)
{
	struct strait_ioc_irq *req = arg;

	return req->flags ? -EINVAL : strait_irq_set(at, req->vector, req->fd);
}

static long do_config(struct strait_attach *at, struct strait_file *f, void *arg, void __user *user)
{
	struct strait_ioc_config *req = arg;
	struct strait_ioc_config __user *out = user;
	struct pci_dev *pdev = at->pdev;
	u32 value = 0;
	u16 word;
	u8 byte;
	int rc;

	if (req->flags || req->reserved || (req->width != 1 && req->width != 2 && req->width != 4) ||
	    req->offset % req->width || req->offset >= pdev->cfg_size)
		return -EINVAL;
	/* These wait while the device is being reset. */
	if (req->width == 1) {
		rc = pci_user_read_config_byte(pdev, req->offset, &byte);
		value = byte;
	} else if (req->width == 2) {
		rc = pci_user_read_config_word(pdev, req->offset, &word);
		value = word;
	} else {
		rc = pci_user_read_config_dword(pdev, req->offset, &value);
	}
	return rc ? -EIO : put_user(value, &out->value);
}

static long do_control(struct strait_attach *at, struct strait_file *f, void *arg, void __user *user)
{
	struct strait_ioc_control *req = arg;
	u64 mask;
	int rc;

	if (req->flags)
		return -EINVAL;
	switch (req->what) {
	case STRAIT_CONTROL_BUS_MASTER:
		if (req->value > 1)
			return -EINVAL;
		set_master(at, req->value);
		return 0;
	case STRAIT_CONTROL_RESET:
		/* strait_attach_ioctl() has taken the device's lock for this. */
		rc = req->value ? -EINVAL : pci_reset_function_locked(at->pdev);
		return rc == -ENOTTY ? -EOPNOTSUPP : rc;
	case STRAIT_CONTROL_ADDRESS_BITS:
		if (req->value < ADDRESS_BITS_MIN || req->value > 64)
			return -EINVAL;
		mask = DMA_BIT_MASK(req->value);
		return dma_set_mask_and_coherent(&at->pdev->dev, mask) ? -EOPNOTSUPP : 0;
	}
	return -EINVAL;
}

static const struct {
	unsigned int cmd;
	size_t size;
	long (*fn)(struct strait_attach *at, struct strait_file *f, void *arg, void __user *user);
	bool always;	/* also when the device is gone */
} calls[] = {
	{ STRAIT_IOC_ATTACH, sizeof(struct strait_ioc_attach), NULL, false },
	{ STRAIT_IOC_MAP, sizeof(struct strait_ioc_map), do_map, false },
	{ STRAIT_IOC_UNMAP, sizeof(struct strait_ioc_mapping), do_unmap, true },
	{ STRAIT_IOC_MAPPED, sizeof(struct strait_ioc_mapping), do_mapped, false },
	{ STRAIT_IOC_RUNS, sizeof(struct strait_ioc_runs), do_runs, false },
	{ STRAIT_IOC_IRQ, sizeof(struct strait_ioc_irq), do_irq, false },
	{ STRAIT_IOC_CONFIG, sizeof(struct strait_ioc_config), do_config, false },
	{ STRAIT_IOC_CONTROL, sizeof(struct strait_ioc_control), do_control, false },
};

long strait_attach_ioctl(struct strait_file *f, unsigned int cmd, void __user *user)
{
	union {
		struct strait_ioc_attach attach;
		struct strait_ioc_map map;
		struct strait_ioc_mapping mapping;
		struct strait_ioc_runs runs;
		struct strait_ioc_irq irq;
		struct strait_ioc_config config;
		struct strait_ioc_control control;
	} arg;
	unsigned int nr = _IOC_NR(cmd) - _IOC_NR(STRAIT_IOC_ATTACH);
	struct strait_attach *at;
	bool reset;
	long rc;

	if (nr >= ARRAY_SIZE(calls) || ((cmd ^ calls[nr].cmd) & ~IOCSIZE_MASK))
		return -ENOTTY;
	rc = args_from_user(&arg, calls[nr].size, user);
	if (rc)
		return rc;
	if (!calls[nr].fn)
		return do_attach(f, &arg.attach, user);
	at = smp_load_acquire(&f->attach);
	if (!at)
		return -ENXIO;
	reset = calls[nr].fn == do_control && arg.control.what == STRAIT_CONTROL_RESET;
	if (reset)
		device_lock(&at->pdev->dev);
	down_read(&at->state);
	rc = at->gone && !calls[nr].always ? -ENODEV : calls[nr].fn(at, f, &arg, user);
	up_read(&at->state);
	if (reset)
		device_unlock(&at->pdev->dev);
	return rc;
}

static int strait_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct strait_attach *at;

	at = strait_zalloc(sizeof(*at));
	if (!at)
		return -ENOMEM;
	kref_init(&at->kref);
	at->pdev = pci_dev_get(pdev);
	init_rwsem(&at->state);
	init_rwsem(&at->bars);
	init_waitqueue_head(&at->reset_over);
	spin_lock_init(&at->master_lock);
	mutex_init(&at->irq_lock);
	xa_init_flags(&at->maps, XA_FLAGS_ALLOC1);
	at->next = 1;
	pci_set_drvdata(pdev, at);
	mutex_lock(&bound_lock);
	list_add_tail(&at->node, &bound);
	mutex_unlock(&bound_lock);
	return 0;
}

/* With the device's lock held by the core. Who has it attached keeps dead handles, and registers of ones. */
static void strait_remove(struct pci_dev *pdev)
{
	struct strait_attach *at = pci_get_drvdata(pdev);

	mutex_lock(&bound_lock);
	list_del(&at->node);
	mutex_unlock(&bound_lock);
	down_write(&at->state);
	at->gone = true;
	if (at->file) {
		strait_bars_off(at, at->file);
		WRITE_ONCE(at->status->gone, 1);
		device_close(at);
	}
	up_write(&at->state);
	strait_attach_put(at);
}

/* Whoever asked for the reset: nobody touches registers meanwhile. */
static void strait_reset_prepare(struct pci_dev *pdev)
{
	struct strait_attach *at = pci_get_drvdata(pdev);

	strait_bars_reset(at, at->file);
}

static void strait_reset_done(struct pci_dev *pdev)
{
	struct strait_attach *at = pci_get_drvdata(pdev);

	strait_bars_reset_over(at);
	/* A mapping may have been taken back while the device did not listen. */
	spin_lock(&at->master_lock);
	if (at->open && !at->master)
		pci_clear_master(pdev);
	spin_unlock(&at->master_lock);
}

static const struct pci_error_handlers strait_err_handler = {
	.reset_prepare = strait_reset_prepare,
	.reset_done = strait_reset_done,
};

/* No table: it takes what it is told to by driver_override, or new_id. */
static struct pci_driver strait_driver = {
	.name = "strait",
	.probe = strait_probe,
	.remove = strait_remove,
	.err_handler = &strait_err_handler,
};

int strait_attach_init(void)
{
	return pci_register_driver(&strait_driver);
}

void strait_attach_exit(void)
{
	pci_unregister_driver(&strait_driver);
}
