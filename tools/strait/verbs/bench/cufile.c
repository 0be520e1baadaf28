/* SPDX-License-Identifier: MIT */
#include "verbs/bench/cufile.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <strait/region.h>

#include "common/cufile_library.h"
#include "lib/cli.h"

#define DRIVER "libcuda.so.1"

/* Meaning and usual cause of the frequent error codes. */
static const struct {
	int code;
	const char *means, *cause;
} codes[] = {
	{ 5001, "the driver is not initialized", "" },
	{ 5007, "the platform is not supported", "" },
	{ 5008, "I/O is not supported", "it does not support the file system, and its compatibility mode is off" },
	{ 5010, "error of the nvidia-fs module", "the module is not loaded and the compatibility mode is off" },
	{ 5011, "error of the CUDA driver", "" },
	{ 5018, "the type of the file is not supported", "" },
	{ 5020, "the file is not open for direct I/O", "the file system has no direct I/O" },
	{ 5025, "permission denied", "" },
	{ 5027, "the file handle is not registered", "udev" },
	{ 5029, "the device is not found", "udev" },
	{ 5030, "internal error", "udev" },
	{ 5033, "the nvidia-fs module cannot be set up", "" },
};

bool cufile_refused(struct cufile *c, const char *what, int code, int cu_err, int fd)
{
	char extra[48] = "", udev[160];
	const char *means = "", *cause = "";
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
		if (codes[i].code != code)
			continue;
		means = codes[i].means;
		cause = codes[i].cause;
	}
	if (!strcmp(cause, "udev")) {
		char entry[48] = "";

		if (fd >= 0 && !fstat(fd, &st))
			snprintf(entry, sizeof(entry), " (/run/udev/data/b%u:%u)", major(st.st_dev), minor(st.st_dev));
		snprintf(udev, sizeof(udev), "the udev entry of the block device%s is missing, as in most containers",
			 entry);
		cause = udev;
	}
	if (code == 5011 && cu_err)
		snprintf(extra, sizeof(extra), " (CUDA error %d)", cu_err);
	snprintf(c->why, sizeof(c->why), "%s: error %d%s%s%s%s%s", what, code, extra, *means ? ", " : "", means,
		 *cause ? "; usual cause: " : "", cause);
	c->code = code;
	return false;
}

static bool cannot(struct cufile *c, const char *what, const char *why)
{
	snprintf(c->why, sizeof(c->why), "%s: %s", what, why);
	return false;
}

static bool find(struct cufile *c, void *lib, const char *name, void *to)
{
	void *fn = dlsym(lib, name);

	if (!fn)
		return cannot(c, name, "the library lacks this function");
	memcpy(to, &fn, sizeof(fn));
	return true;
}

/* Never unloaded: the library has threads of its own. */
static void *load(struct cufile *c, const char *name)
{
	void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);

	if (!lib) {
		const char *text = dlerror();

		cannot(c, name, text ? text : "cannot be loaded");
	}
	return lib;
}

static bool load_library(struct cufile *c)
{
	void *lib = cufile_library_open(c->library, sizeof(c->library), c->why, sizeof(c->why));

	if (!lib)
		return false;
	return find(c, lib, "cuFileDriverOpen", &c->driver_open) &&
	       find(c, lib, "cuFileDriverClose", &c->driver_close) &&
	       find(c, lib, "cuFileHandleRegister", &c->handle_register) &&
	       find(c, lib, "cuFileHandleDeregister", &c->handle_deregister) &&
	       find(c, lib, "cuFileBufRegister", &c->buf_register) &&
	       find(c, lib, "cuFileBufDeregister", &c->buf_deregister) && find(c, lib, "cuFileRead", &c->read) &&
	       find(c, lib, "cuFileWrite", &c->write) && find(c, lib, "cuFileBatchIOSetUp", &c->batch_setup) &&
	       find(c, lib, "cuFileBatchIOSubmit", &c->batch_submit) &&
	       find(c, lib, "cuFileBatchIOGetStatus", &c->batch_status) &&
	       find(c, lib, "cuFileBatchIODestroy", &c->batch_destroy);
}

static bool load_driver(struct cufile *c, unsigned int ordinal)
{
	void *lib = load(c, DRIVER);
	int err;

	if (!lib)
		return false;
	if (!find(c, lib, "cuInit", &c->init) || !find(c, lib, "cuDeviceGet", &c->device_get) ||
	    !find(c, lib, "cuDevicePrimaryCtxRetain", &c->retain) ||
	    !find(c, lib, "cuDevicePrimaryCtxRelease_v2", &c->release) ||
	    !find(c, lib, "cuCtxSetCurrent", &c->set_current))
		return false;
	err = c->init(0);
	if (!err)
		err = c->device_get(&c->device, (int)ordinal);
	if (!err)
		err = c->retain(&c->context, c->device);
	c->retained = !err;
	if (!err)
		err = c->set_current(c->context);
	if (err) {
		snprintf(c->why, sizeof(c->why), "cannot get a CUDA context: CUDA error %d", err);
		return false;
	}
	return true;
}

static bool start(struct cufile *c, struct strait_region *region)
{
	struct strait_region_info info = { .size = sizeof(info) };
	struct cufile_status s;
	int err = strait_region_info(region, &info);

	if (err)
		return cannot(c, "device memory", error_text(err));
	c->addr = info.addr;
	s = c->driver_open();
	if (s.err)
		return cufile_refused(c, "cuFileDriverOpen", s.err, s.cu_err, -1);
	c->opened = true;
	s = c->buf_register((const void *)(uintptr_t)c->addr, info.length, 0);
	c->registered = !s.err;
	if (s.err)
		note("cuFileBufRegister failed with error %d: cuFile is measured without registered memory", s.err);
	return true;
}

bool cufile_open(struct cufile *c, const struct target *t, struct strait_region *region)
{
	char text[160];

	memset(c, 0, sizeof(*c));
	if (!load_library(c))
		return false;
	if (strcmp(t->info.provider, "cuda")) {
		snprintf(text, sizeof(text), "it supports CUDA devices only, and the device is %s", t->info.name);
		return cannot(c, c->library, text);
	}
	return load_driver(c, t->info.index) && start(c, region);
}

void cufile_close(struct cufile *c)
{
	if (c->registered)
		c->buf_deregister((const void *)(uintptr_t)c->addr);
	if (c->opened)
		c->driver_close();
	if (c->retained) {
		c->set_current(NULL);
		c->release(c->device);
	}
	c->registered = c->opened = c->retained = false;
}

void cufile_attach(struct cufile *c)
{
	c->set_current(c->context);
}
