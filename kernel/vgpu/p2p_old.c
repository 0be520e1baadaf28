// SPDX-License-Identifier: GPL-2.0 OR MIT
/* nvidia_p2p: functions without a use on this device, exported for consumers that link to them. */
#include "p2p.h"

int nvidia_p2p_init_mapping(u64 p2p_token, struct nvidia_p2p_params *params,
			    void (*destroy_callback)(void *data), void *data)
{
	return -ENOTSUPP;
}
EXPORT_SYMBOL(nvidia_p2p_init_mapping);

int nvidia_p2p_destroy_mapping(u64 p2p_token)
{
	return -ENOTSUPP;
}
EXPORT_SYMBOL(nvidia_p2p_destroy_mapping);

static DEFINE_MUTEX(vgpu_rsync_lock);
static nvidia_p2p_rsync_driver_t *rsync_driver;
static void *rsync_data;

/* Writes of this device are ordered: a registered driver is never called. */
int nvidia_p2p_register_rsync_driver(nvidia_p2p_rsync_driver_t *driver, void *data)
{
	int rc = 0;

	if (!driver || !NVIDIA_P2P_RSYNC_DRIVER_VERSION_COMPATIBLE(driver) ||
	    !driver->get_relaxed_ordering_mode || !driver->put_relaxed_ordering_mode ||
	    !driver->wait_for_rsync)
		return -EINVAL;
	mutex_lock(&vgpu_rsync_lock);
	if (rsync_driver) {
		rc = -EBUSY;
	} else {
		rsync_driver = driver;
		rsync_data = data;
	}
	mutex_unlock(&vgpu_rsync_lock);
	return rc;
}
EXPORT_SYMBOL(nvidia_p2p_register_rsync_driver);

void nvidia_p2p_unregister_rsync_driver(nvidia_p2p_rsync_driver_t *driver, void *data)
{
	mutex_lock(&vgpu_rsync_lock);
	if (rsync_driver == driver && rsync_data == data)
		rsync_driver = NULL;
	mutex_unlock(&vgpu_rsync_lock);
}
EXPORT_SYMBOL(nvidia_p2p_unregister_rsync_driver);

int nvidia_p2p_get_rsync_registers(nvidia_p2p_rsync_reg_info_t **reg_info)
{
	return -ENODEV;
}
EXPORT_SYMBOL(nvidia_p2p_get_rsync_registers);

void nvidia_p2p_put_rsync_registers(nvidia_p2p_rsync_reg_info_t *reg_info)
{
}
EXPORT_SYMBOL(nvidia_p2p_put_rsync_registers);
