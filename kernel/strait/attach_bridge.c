// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Memory of a bridge of the per-device form, mapped for an attached device. */
#include "attach.h"
#include "backing.h"
#include "core.h"
#include "import.h"
#include "map.h"
#include "window.h"

/*
 * The memory's driver revokes it, with its locks held. Unmapping would wait for that driver, and a
 * thread that unmaps this mapping may be waiting for it now: the device is stopped instead.
 */
static void bridge_revoke_begin(void *arg)
{
	struct strait_map *m = arg;
	bool mine;

	strait_window_meet(STRAIT_W_MAP);
	kref_get(&m->kref);
	strait_attach_revoke_begin(m);
	spin_lock(&m->lock);
	m->revoked = true;
	mine = m->live;
	m->live = false;
	spin_unlock(&m->lock);
	/* Either call switches bus mastering off. */
	if (mine)
		strait_map_put_backing(m, true);
	else
		strait_attach_quiesce(m->at);
}

static void bridge_revoke_end(void *arg)
{
	struct strait_map *m = arg;

	strait_attach_revoke_end(m);
	strait_map_put(m);
}

static const struct strait_bridge_notify bridge_notify = {
	.revoke_begin = bridge_revoke_begin,
	.revoke_end = bridge_revoke_end,
};

void strait_bridge_unmap(struct strait_map *m)
{
	const struct strait_bridge *bridge = m->bridge;

	m->bridge = NULL;
	if (!bridge)
		return;
	bridge->unmap(&m->bridged);
	module_put(bridge->owner);
}

int strait_bridge_map(struct strait_map *m, u64 offset, u32 *reason)
{
	static struct lock_class_key kill_key;
	const struct strait_bridge *bridge;
	void *priv;
	int rc;

	m->kind = STRAIT_MAP_BRIDGE;
	/* A class of its own: see attach.h. */
	lockdep_set_class_and_name(&m->kill, &kill_key, "strait_map.kill/bridge");
	bridge = strait_bridge_per_device(m->backing, &priv);
	if (WARN_ON_ONCE(!bridge))
		return -EOPNOTSUPP;
	rc = strait_map_charge(m);
	if (rc)
		return rc;
	rc = bridge->map(priv, m->at->pdev, offset, m->length, &bridge_notify, m, &m->bridged);
	if (rc) {
		if (rc == -EACCES || rc == -EFAULT || rc == -ENODEV || rc == -ENOMEM ||
		    rc == -EINTR)
			return rc;
		*reason = STRAIT_ATTACH_EXPORTER;
		return -EOPNOTSUPP;
	}
	/* A revoked mapping has no backing, which has a reference as well. */
	__module_get(bridge->owner);
	m->bridge = bridge;
	m->access = STRAIT_MAP_READ | STRAIT_MAP_WRITE;
	rc = strait_dma_save_runs(m, m->bridged.table, 0);
	if (!rc) {
		m->where = strait_dma_where(m);
		rc = strait_map_publish(m);
	}
	if (rc)
		strait_bridge_unmap(m);
	return rc;
}
