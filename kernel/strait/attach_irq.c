// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Interrupts of an attached device, as eventfds. */
#include <linux/interrupt.h>

#include "attach.h"
#include "core.h"

static irqreturn_t attach_irq_handler(int nr, void *data)
{
	struct strait_irq *irq = data;

	spin_lock(&irq->lock);
	eventfd_signal(irq->eventfd);
	spin_unlock(&irq->lock);
	strait_count(STRAIT_N_IRQS, 1);
	return IRQ_HANDLED;
}

void strait_irqs_init(struct strait_attach *at)
{
	struct pci_dev *pdev = at->pdev;
	int n = max(pci_msix_vec_count(pdev), pci_msi_vec_count(pdev)), i;

	at->vectors = 0;
	if (n <= 0)
		return;
	at->irqs = strait_zalloc_array(min(n, STRAIT_IRQS_MAX), sizeof(*at->irqs));
	if (!at->irqs)
		return;
	n = strait_alloc_irq_vectors(pdev, min(n, STRAIT_IRQS_MAX));
	if (n > 0) {
		at->vectors = n;
		for (i = 0; i < n; i++)
			spin_lock_init(&at->irqs[i].lock);
		return;
	}
	kvfree(at->irqs);
	at->irqs = NULL;
}

static void attach_irq_clear(struct strait_attach *at, u32 vector)
{
	struct strait_irq *irq = &at->irqs[vector];

	lockdep_assert_held(&at->irq_lock);
	if (!irq->eventfd)
		return;
	free_irq(pci_irq_vector(at->pdev, vector), irq);
	eventfd_ctx_put(irq->eventfd);
	irq->eventfd = NULL;
}

void strait_irqs_free(struct strait_attach *at)
{
	u32 i;

	mutex_lock(&at->irq_lock);
	for (i = 0; i < at->vectors; i++)
		attach_irq_clear(at, i);
	if (at->vectors)
		pci_free_irq_vectors(at->pdev);
	kvfree(at->irqs);
	at->irqs = NULL;
	at->vectors = 0;
	mutex_unlock(&at->irq_lock);
}

/*
 * Takes over the reference on @eventfd. The first eventfd of a vector requests the interrupt;
 * replacing it cannot fail.
 */
static int attach_irq_install(struct strait_attach *at, u32 vector, struct eventfd_ctx *eventfd)
{
	struct strait_irq *irq = &at->irqs[vector];
	struct eventfd_ctx *old = irq->eventfd;
	int rc = 0;

	lockdep_assert_held(&at->irq_lock);
	spin_lock_irq(&irq->lock);
	irq->eventfd = eventfd;
	spin_unlock_irq(&irq->lock);
	if (!old)
		rc = strait_request_irq(pci_irq_vector(at->pdev, vector), attach_irq_handler,
					pci_name(at->pdev), irq);
	if (rc) {
		irq->eventfd = NULL;
		eventfd_ctx_put(eventfd);
	} else if (old) {
		eventfd_ctx_put(old);
	}
	return rc;
}

int strait_irq_set(struct strait_attach *at, u32 vector, int fd)
{
	struct eventfd_ctx *eventfd = NULL;
	int rc = 0;

	if (fd != -1) {
		eventfd = eventfd_ctx_fdget(fd);
		if (IS_ERR(eventfd))
			return PTR_ERR(eventfd);
	}
	mutex_lock(&at->irq_lock);
	if (vector >= at->vectors) {
		rc = -EINVAL;
		if (eventfd)
			eventfd_ctx_put(eventfd);
	} else if (eventfd) {
		rc = attach_irq_install(at, vector, eventfd);
	} else {
		attach_irq_clear(at, vector);
	}
	mutex_unlock(&at->irq_lock);
	return rc;
}
