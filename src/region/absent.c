/* SPDX-License-Identifier: MIT */
/* Providers this build does not have: kinds of device that exist, and what it takes to get them. */
#include "region/absent.h"

static int absent_vgpu_open(struct provider *p)
{
	str_copy(p->why, sizeof(p->why),
		 "this build has no vgpu provider: it is for the GPU of Strait's lab, a virtual machine");
	return -EOPNOTSUPP;
}

const struct provider_ops absent_vgpu_ops = { .name = "vgpu", .open = absent_vgpu_open };
