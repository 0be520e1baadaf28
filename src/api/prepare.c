/* SPDX-License-Identifier: MIT */
#include <strait/prepare.h>

#include "api/api.h"
#include "engine/prepare.h"

STRAIT_API int strait_device_prepare(struct strait_device *dev)
{
	API_CHECK(dev);
	API_ALIVE(device_context(dev));
	return prepare_start(dev);
}
