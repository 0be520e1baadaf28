// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * QEMU's "edu" as a DMA engine. It moves bytes between a DMA address and its internal buffer, and
 * takes 100 ms for it, which is long enough to race with.
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/io.h>

#include "test.h"

#define EDU_SRC 0x80
#define EDU_DST 0x88
#define EDU_COUNT 0x90
#define EDU_CMD 0x98
#define EDU_CMD_RUN 1
#define EDU_CMD_FROM_EDU 2
#define EDU_BUFFER 0x40000

static struct {
	struct pci_dev *pdev;
	void __iomem *regs;
	void *bounce;
	dma_addr_t bounce_addr;
} edu;
static DEFINE_MUTEX(vt_edu_lock);	/* edu, and one transfer at a time */

struct pci_dev *vt_edu_get(void)
{
	struct pci_dev *pdev;

	mutex_lock(&vt_edu_lock);
	pdev = edu.pdev ? pci_dev_get(edu.pdev) : NULL;
	mutex_unlock(&vt_edu_lock);
	return pdev;
}

/* Waits until the running transfer, of any file, has ended. */
static void edu_wait_idle(void)
{
	lockdep_assert_held(&vt_edu_lock);
	while (readq(edu.regs + EDU_CMD) & EDU_CMD_RUN)
		usleep_range(1000, 2000);
}

static void edu_start(u64 src, u64 dst, u32 len, u64 cmd)
{
	edu_wait_idle();
	writeq(src, edu.regs + EDU_SRC);
	writeq(dst, edu.regs + EDU_DST);
	writeq(len, edu.regs + EDU_COUNT);
	writeq(cmd | EDU_CMD_RUN, edu.regs + EDU_CMD);
}

static void edu_load_dma(dma_addr_t addr, u32 len)
{
	edu_start(addr, EDU_BUFFER, len, 0);
	edu_wait_idle();
}

static void edu_load(const void *data, u32 len)
{
	edu_wait_idle();
	memcpy(edu.bounce, data, len);
	edu_load_dma(edu.bounce_addr, len);
}

int vt_edu_transfer(dma_addr_t addr, void *data, u32 len, bool write)
{
	mutex_lock(&vt_edu_lock);
	if (!edu.pdev) {
		mutex_unlock(&vt_edu_lock);
		return -ENODEV;
	}
	if (write) {
		edu_load(data, len);
		edu_start(EDU_BUFFER, addr, len, EDU_CMD_FROM_EDU);
		edu_wait_idle();
	} else {
		edu_load_dma(addr, len);
		edu_start(EDU_BUFFER, edu.bounce_addr, len, EDU_CMD_FROM_EDU);
		edu_wait_idle();
		memcpy(data, edu.bounce, len);
	}
	mutex_unlock(&vt_edu_lock);
	return 0;
}

int vt_edu_start(dma_addr_t addr, const void *data, u32 len)
{
	int rc = -ENODEV;

	mutex_lock(&vt_edu_lock);
	if (edu.pdev) {
		edu_load(data, len);
		edu_start(EDU_BUFFER, addr, len, EDU_CMD_FROM_EDU);
		rc = 0;
	}
	mutex_unlock(&vt_edu_lock);
	return rc;
}

void vt_edu_wait(void)
{
	mutex_lock(&vt_edu_lock);
	if (edu.pdev)
		edu_wait_idle();
	mutex_unlock(&vt_edu_lock);
}

bool vt_edu_busy(void)
{
	bool busy;

	mutex_lock(&vt_edu_lock);
	busy = edu.pdev && readq(edu.regs + EDU_CMD) & EDU_CMD_RUN;
	mutex_unlock(&vt_edu_lock);
	return busy;
}

static int edu_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int rc;

	rc = pcim_enable_device(pdev);
	if (rc)
		return rc;
	rc = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (rc)
		return rc;
	pci_set_master(pdev);
	edu.regs = pcim_iomap(pdev, 0, 0);
	if (!edu.regs)
		return -ENOMEM;
	edu.bounce = dmam_alloc_coherent(&pdev->dev, PAGE_SIZE, &edu.bounce_addr, GFP_KERNEL);
	if (!edu.bounce)
		return -ENOMEM;
	mutex_lock(&vt_edu_lock);
	edu.pdev = pdev;
	mutex_unlock(&vt_edu_lock);
	return 0;
}

static void edu_remove(struct pci_dev *pdev)
{
	mutex_lock(&vt_edu_lock);
	edu_wait_idle();
	edu.pdev = NULL;
	mutex_unlock(&vt_edu_lock);
}

static const struct pci_device_id edu_ids[] = {
	{ PCI_DEVICE(0x1234, 0x11e8) },
	{ }
};

static struct pci_driver edu_driver = {
	.name = KBUILD_MODNAME,
	.id_table = edu_ids,
	.probe = edu_probe,
	.remove = edu_remove,
};

int vt_edu_register(void)
{
	return pci_register_driver(&edu_driver);
}

void vt_edu_unregister(void)
{
	pci_unregister_driver(&edu_driver);
}
