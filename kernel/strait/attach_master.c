// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Bus mastering of an attached device, and revocations that keep it off. */
#include "attach.h"
#include "map.h"
#include "strait.h"

#define REVOKE_LIMIT msecs_to_jiffies(10000)

int strait_attach_set_master(struct strait_attach *at, bool on)
{
	int rc = 0;

	spin_lock(&at->master_lock);
	if (!on) {
		at->master = false;
		pci_clear_master(at->pdev);
	} else if (list_empty(&at->revoking)) {
		at->master = true;
		pci_set_master(at->pdev);
	} else {
		rc = -EAGAIN;
	}
	spin_unlock(&at->master_lock);
	return rc;
}

static bool master_is_allowed(struct strait_attach *at)
{
	return list_empty_careful(&at->revoking) || READ_ONCE(at->lost);
}

int strait_attach_wait_master(struct strait_attach *at)
{
	return wait_event_killable(at->revoked, master_is_allowed(at)) ? -EINTR : 0;
}

void strait_attach_revoke_begin(struct strait_map *m)
{
	spin_lock(&m->at->master_lock);
	m->revoker = current;
	list_add_tail(&m->revoking, &m->at->revoking);
	spin_unlock(&m->at->master_lock);
}

void strait_attach_revoke_end(struct strait_map *m)
{
	spin_lock(&m->at->master_lock);
	list_del(&m->revoking);
	spin_unlock(&m->at->master_lock);
	wake_up_all(&m->at->revoked);
}

/* Does a task other than the calling one revoke memory? */
static bool master_revoked_by_others(struct strait_attach *at)
{
	struct strait_map *m;
	bool found = false;

	spin_lock(&at->master_lock);
	list_for_each_entry(m, &at->revoking, revoking)
		found |= m->revoker != current;
	spin_unlock(&at->master_lock);
	return found;
}

void strait_attach_wait_revoked(struct strait_attach *at)
{
	if (!wait_event_timeout(at->revoked, !master_revoked_by_others(at), REVOKE_LIMIT))
		pci_warn(at->pdev, "a driver that freed memory has not unmapped it yet\n");
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
