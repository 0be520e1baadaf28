/* SPDX-License-Identifier: MIT */
/* A thread per device that waits for its removal and then revokes its regions. It starts with the first allocation. */
#include <pthread.h>

#include "base/util.h"
#include "device/vgpu/vgpu.h"
#include "os/os.h"

static void *vgpu_watch_main(void *arg)
{
	struct vgpu_device *gpu = arg;
	struct strait_device *dev = gpu->eng.dev;

	/* Woken through stop_fd: vgpu_watch_stop() was called. */
	if (os_wait_readable(gpu->fd, gpu->stop_fd) != 1)
		return NULL;
	if (!atomic_exchange_explicit(&dev->removed, true, memory_order_acq_rel))
		log_warn(dev->provider->set->log, "%s: the device was removed", dev->name);
	soft_engine_wake(&gpu->eng);
	device_set_revoke_device(dev);
	return NULL;
}

int vgpu_watch(struct vgpu_device *gpu)
{
	int rc = 0;

	pthread_mutex_lock(&gpu->watch_lock);
	if (gpu->stop_fd < 0) {
		rc = os_event_fd(&gpu->stop_fd);
		if (!rc)
			rc = os_thread("strait-vgpu", vgpu_watch_main, gpu, &gpu->watcher);
		if (rc && gpu->stop_fd >= 0) {
			os_close(gpu->stop_fd);
			gpu->stop_fd = -1;
		}
	}
	pthread_mutex_unlock(&gpu->watch_lock);
	return rc;
}

void vgpu_watch_stop(struct vgpu_device *gpu)
{
	if (gpu->stop_fd < 0)
		return;
	os_event_signal(gpu->stop_fd);
	pthread_join((pthread_t)gpu->watcher, NULL);
	os_close(gpu->stop_fd);
}
