/* SPDX-License-Identifier: MIT */
/* Providers this build does not have: kinds of device that exist, and what it takes to get them. */
#include "region/absent.h"

#include "os/os.h"

static int absent_cuda_open(struct provider *p)
{
	char why[160];
	void *lib;

	/* A missing driver is what a user can do something about, so that is asked first. */
	lib = os_dl_open("libcuda.so.1", why, sizeof(why));
	if (!lib) {
		str_format(
			p->why, sizeof(p->why),
			"libcuda.so.1 cannot be loaded (%s): install the NVIDIA driver, or give the container its libraries",
			why);
		return -ENOENT;
	}
	os_dl_close(lib);
	str_copy(p->why, sizeof(p->why), "this build has no CUDA provider: libcuda.so.1 is there and is not used");
	return -EOPNOTSUPP;
}

static int absent_vgpu_open(struct provider *p)
{
	str_copy(p->why, sizeof(p->why),
		 "this build has no vgpu provider: it is for the GPU of Strait's lab, a virtual machine");
	return -EOPNOTSUPP;
}

const struct provider_ops absent_cuda_ops = { .name = "cuda", .open = absent_cuda_open };
const struct provider_ops absent_vgpu_ops = { .name = "vgpu", .open = absent_vgpu_open };
