// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The PCI driver: binding, attaching to a file, detaching, loss by an error or a reset, unbinding.
 */
#include <linux/sizes.h>

#include "attach.h"
#include "core.h"
#include "file.h"
#include "map.h"
#include "trace.h"

#define SEGMENT_MAX SZ_2G

int strait_attach_reset(struct strait_attach *at)
{
	int rc;

	device_lock_assert(&at->pdev->dev);
	lockdep_assert_held(&at->state);
	at->own_reset = true;
	rc = pci_reset_function_locked(at->pdev);
	at->own_reset = false;
	return rc;
}

static int attach_open_device(struct strait_attach *at)
{
	struct pci_dev *pdev = at->pdev;
	struct page *page;
	int rc;

	device_lock_assert(&pdev->dev);
	lockdep_assert_held_write(&at->state);
	page = strait_alloc_page(__GFP_ZERO);
	if (!page)
		return -ENOMEM;
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
	strait_irqs_init(at);
	at->bars_disabled = false;
	spin_lock(&at->master_lock);
	at->status = page_address(page);
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
	__free_page(page);
	return rc;
}

/*
 * The order matters: the device starts no new DMA, the reset ends what it was doing, its interrupts
 * are freed, then its memory is unmapped. @reset: false while the link does not work.
 */
static void attach_close_device(struct strait_attach *at, bool reset)
{
	struct pci_dev *pdev = at->pdev;
	int rc = -ENODEV;

	device_lock_assert(&pdev->dev);
	lockdep_assert_held_write(&at->state);
	strait_attach_set_master(at, false);
	if (reset && pci_device_is_present(pdev))
		rc = strait_attach_reset(at);
	strait_irqs_free(at);
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

static void attach_describe(struct strait_attach *at, struct strait_ioc_attach *req)
{
	struct pci_dev *pdev = at->pdev;
	int bar;

	strscpy_pad(req->pci, pci_name(pdev), sizeof(req->pci));
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

static int attach_take_locked(struct strait_attach *at, struct strait_file *f,
			      struct strait_ioc_attach *req)
{
	int rc;

	lockdep_assert_held_write(&at->state);
	if (at->gone)
		return -ENODEV;
	if (at->file)
		return -EBUSY;
	req->reason = strait_attach_check(at->pdev, &req->group);
	if (req->reason)
		return -EOPNOTSUPP;
	rc = attach_open_device(at);
	if (rc)
		return rc;
	WRITE_ONCE(at->file, f);
	attach_describe(at, req);
	return 0;
}

static void attach_lock(struct strait_attach *at)
{
	device_lock(&at->pdev->dev);
	down_write(&at->state);
}

static void attach_unlock(struct strait_attach *at)
{
	up_write(&at->state);
	device_unlock(&at->pdev->dev);
}

int strait_attach_take(struct strait_attach *at, struct strait_file *f,
		       struct strait_ioc_attach *req)
{
	int rc;

	attach_lock(at);
	rc = attach_take_locked(at, f, req);
	attach_unlock(at);
	trace_strait_attach(pci_name(at->pdev), rc, req->reason);
	return rc;
}

void strait_attach_leave(struct strait_attach *at, struct strait_file *f)
{
	attach_lock(at);
	if (at->file == f) {
		if (!at->lost)
			attach_close_device(at, true);
		WRITE_ONCE(at->lost, false);
		WRITE_ONCE(at->file, NULL);
		strait_maps_free_all(at);
	}
	attach_unlock(at);
}

void strait_detach(struct strait_file *f)
{
	if (!f->attach)
		return;
	strait_attach_leave(f->attach, f);
	strait_attach_put(f->attach);
}

/*
 * The device was removed, or lost the state that the program set up. The program keeps handles of
 * killed mappings, registers that read as ones and a status page that says so. It has to close the
 * file, and may open it again.
 */
static void attach_lose(struct strait_attach *at, bool reset)
{
	lockdep_assert_held_write(&at->state);
	if (!at->file || at->lost)
		return;
	strait_bars_disable(at, at->file);
	WRITE_ONCE(at->status->gone, 1);
	attach_close_device(at, reset);
	WRITE_ONCE(at->lost, true);
	wake_up_all(&at->revoked);
}

static void attach_lose_work(struct work_struct *work)
{
	struct strait_attach *at = container_of(work, struct strait_attach, lose_work);

	attach_lock(at);
	/*
	 * The file that was open during the reset may be closed by now, and another file attached.
	 */
	if (at->status && at->status->gone)
		attach_lose(at, false);
	attach_unlock(at);
	strait_attach_put(at);
}

static int strait_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct strait_attach *at;
	int rc;

	at = strait_zalloc(sizeof(*at));
	if (!at)
		return -ENOMEM;
	at->pdev = pci_dev_get(pdev);
	init_rwsem(&at->state);
	init_rwsem(&at->bars);
	init_waitqueue_head(&at->reset_done);
	init_waitqueue_head(&at->revoked);
	INIT_LIST_HEAD(&at->revoking);
	spin_lock_init(&at->master_lock);
	mutex_init(&at->irq_lock);
	INIT_WORK(&at->lose_work, attach_lose_work);
	xa_init_flags(&at->maps, XA_FLAGS_ALLOC1);
	at->next = 1;
	rc = strait_node_init(at);
	if (rc)
		goto err_put;
	/* For strait_slot_reset() to restore. */
	pci_save_state(pdev);
	pci_set_drvdata(pdev, at);
	rc = strait_node_add(at);
	if (rc)
		goto err_put;
	return 0;
err_put:
	strait_attach_put(at);
	return rc;
}

static void strait_remove(struct pci_dev *pdev)
{
	struct strait_attach *at = pci_get_drvdata(pdev);

	device_lock_assert(&pdev->dev);
	strait_node_remove(at);
	down_write(&at->state);
	at->gone = true;
	attach_lose(at, true);
	up_write(&at->state);
	strait_attach_put(at);
}

/* Called for every reset of the function, whether strait or an administrator requested it. */
static void strait_reset_prepare(struct pci_dev *pdev)
{
	struct strait_attach *at = pci_get_drvdata(pdev);

	strait_bars_reset_begin(at, READ_ONCE(at->file));
}

static void strait_reset_done(struct pci_dev *pdev)
{
	struct strait_attach *at = pci_get_drvdata(pdev);

	strait_bars_reset_end(at);
	if (at->own_reset) {
		/* A mapping revoked during the reset could not switch bus mastering off. */
		spin_lock(&at->master_lock);
		if (at->open && !at->master)
			pci_clear_master(pdev);
		spin_unlock(&at->master_lock);
		return;
	}
	/*
	 * An administrator reset the device, and the program's setup is lost. A work item handles
	 * that: a call that holds strait_attach.state may be waiting for configuration space,
	 * which is locked during a reset.
	 */
	spin_lock(&at->master_lock);
	if (at->open) {
		at->master = false;
		pci_clear_master(pdev);
		WRITE_ONCE(at->status->gone, 1);
	}
	spin_unlock(&at->master_lock);
	strait_attach_get(at);
	if (!queue_work(strait_wq, &at->lose_work))
		strait_attach_put(at);
}

static pci_ers_result_t strait_error_detected(struct pci_dev *pdev, pci_channel_state_t state)
{
	struct strait_attach *at = pci_get_drvdata(pdev);

	device_lock_assert(&pdev->dev);
	if (state == pci_channel_io_normal)
		return PCI_ERS_RESULT_CAN_RECOVER;
	down_write(&at->state);
	attach_lose(at, false);
	up_write(&at->state);
	if (state == pci_channel_io_perm_failure)
		return PCI_ERS_RESULT_DISCONNECT;
	return PCI_ERS_RESULT_NEED_RESET;
}

static pci_ers_result_t strait_mmio_enabled(struct pci_dev *pdev)
{
	return PCI_ERS_RESULT_RECOVERED;
}

static pci_ers_result_t strait_slot_reset(struct pci_dev *pdev)
{
	struct strait_attach *at = pci_get_drvdata(pdev);

	/* strait_error_detected() kept a working device: another one needs the reset. */
	device_lock_assert(&pdev->dev);
	down_write(&at->state);
	attach_lose(at, false);
	up_write(&at->state);
	pci_restore_state(pdev);
	pci_save_state(pdev);
	return PCI_ERS_RESULT_RECOVERED;
}

static const struct pci_error_handlers strait_err_handler = {
	.error_detected = strait_error_detected,
	.mmio_enabled = strait_mmio_enabled,
	.slot_reset = strait_slot_reset,
	.reset_prepare = strait_reset_prepare,
	.reset_done = strait_reset_done,
};

/* The device loses power, and with it the program's setup. */
static int strait_suspend(struct device *dev)
{
	struct strait_attach *at = dev_get_drvdata(dev);

	down_write(&at->state);
	attach_lose(at, true);
	up_write(&at->state);
	return 0;
}

static int strait_resume(struct device *dev)
{
	return 0;
}

static DEFINE_SIMPLE_DEV_PM_OPS(strait_pm_ops, strait_suspend, strait_resume);

/* No ID table: binds only by driver_override or new_id. */
static struct pci_driver strait_driver = {
	.name = "strait",
	.probe = strait_probe,
	.remove = strait_remove,
	.err_handler = &strait_err_handler,
	.driver.pm = pm_sleep_ptr(&strait_pm_ops),
};

int strait_attach_init(void)
{
	int rc = strait_nodes_init();

	if (rc)
		return rc;
	rc = pci_register_driver(&strait_driver);
	if (rc)
		strait_nodes_exit();
	return rc;
}

void strait_attach_exit(void)
{
	pci_unregister_driver(&strait_driver);
	strait_nodes_exit();
}
