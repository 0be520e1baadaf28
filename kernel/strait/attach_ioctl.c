// SPDX-License-Identifier: GPL-2.0 OR MIT
/* ioctls on an attached device. */
#include <linux/nospec.h>
#include <linux/uaccess.h>

#include "args.h"
#include "attach.h"
#include "core.h"
#include "file.h"
#include "map.h"
#include "trace.h"

#define ADDRESS_BITS_MIN 24

union attach_arg {
	struct strait_ioc_attach attach;
	struct strait_ioc_map map;
	struct strait_ioc_mapping mapping;
	struct strait_ioc_runs runs;
	struct strait_ioc_irq irq;
	struct strait_ioc_config config;
	struct strait_ioc_control control;
};

/*
 * One ioctl. Its handler runs with strait_attach.state held, and user memory is accessed only
 * before and after.
 */
struct attach_call {
	struct strait_attach *at;
	struct strait_file *f;
	union attach_arg arg;
	struct strait_map *map;		/* the mapping it concerns, with a reference, or NULL */
	bool again;			/* wait for revocations, and call the handler again */
};

static long attach_ioctl_map(struct attach_call *c)
{
	struct strait_ioc_map *req = &c->arg.map;
	int rc = strait_map_new(c->at, c->f, req, &c->map);

	trace_strait_map(pci_name(c->at->pdev), rc ? 0 : req->handle, req->region, req->length,
			 rc ? 0 : req->runs, rc);
	return rc;
}

static long attach_ioctl_unmap(struct attach_call *c)
{
	struct strait_ioc_mapping *req = &c->arg.mapping;

	if (req->flags || req->reserved)
		return -EINVAL;
	return strait_map_remove(c->at, req->handle, NULL);
}

static long attach_ioctl_mapped(struct attach_call *c)
{
	struct strait_ioc_mapping *req = &c->arg.mapping;

	if (req->flags || req->reserved)
		return -EINVAL;
	return strait_map_mapped(c->at, req->handle);
}

static long attach_ioctl_runs(struct attach_call *c)
{
	struct strait_ioc_runs *req = &c->arg.runs;

	if (req->flags || req->reserved)
		return -EINVAL;
	c->map = strait_map_find(c->at, req->handle);
	if (!c->map)
		return -ENOENT;
	if (!READ_ONCE(c->map->live))
		return -ENODEV;
	req->count = req->first < c->map->n ? min(req->count, c->map->n - req->first) : 0;
	return 0;
}

static long attach_ioctl_irq(struct attach_call *c)
{
	struct strait_ioc_irq *req = &c->arg.irq;

	return req->flags ? -EINVAL : strait_irq_set(c->at, req->vector, req->fd);
}

static long attach_ioctl_config(struct attach_call *c)
{
	struct strait_ioc_config *req = &c->arg.config;
	struct pci_dev *pdev = c->at->pdev;
	u16 word;
	u8 byte;
	int rc;

	if (req->flags || req->reserved)
		return -EINVAL;
	if ((req->width != 1 && req->width != 2 && req->width != 4) ||
	    req->offset % req->width || req->offset >= pdev->cfg_size)
		return -EINVAL;
	/* pci_user_*() wait while the device is being reset. */
	if (req->width == 1) {
		rc = pci_user_read_config_byte(pdev, req->offset, &byte);
		req->value = byte;
	} else if (req->width == 2) {
		rc = pci_user_read_config_word(pdev, req->offset, &word);
		req->value = word;
	} else {
		rc = pci_user_read_config_dword(pdev, req->offset, &req->value);
	}
	return rc ? -EIO : 0;
}

static bool attach_ioctl_is_reset(const struct attach_call *c)
{
	return c->arg.control.what == STRAIT_CONTROL_RESET;
}

static long attach_ioctl_control(struct attach_call *c)
{
	struct strait_ioc_control *req = &c->arg.control;
	u64 mask;
	int rc;

	if (req->flags)
		return -EINVAL;
	switch (req->what) {
	case STRAIT_CONTROL_BUS_MASTER:
		if (req->value > 1)
			return -EINVAL;
		rc = strait_attach_set_master(c->at, req->value);
		c->again = rc == -EAGAIN;
		return rc;
	case STRAIT_CONTROL_RESET:
		rc = req->value ? -EINVAL : strait_attach_reset(c->at);
		return rc == -ENOTTY ? -EOPNOTSUPP : rc;
	case STRAIT_CONTROL_ADDRESS_BITS:
		if (req->value < ADDRESS_BITS_MIN || req->value > 64)
			return -EINVAL;
		mask = DMA_BIT_MASK(req->value);
		return dma_set_mask_and_coherent(&c->at->pdev->dev, mask) ? -EOPNOTSUPP : 0;
	}
	return -EINVAL;
}

#define ATTACH_IOCTL(name, type, ...) { \
	.cmd = STRAIT_IOC_##name, \
	.min = STRAIT_##name##_SIZE_MIN, \
	.size = sizeof(struct strait_ioc_##type), \
	__VA_ARGS__ \
}

static const struct {
	unsigned int cmd;
	size_t min, size;
	long (*fn)(struct attach_call *c);	/* NULL: attach_ioctl_attach() */
	bool always;				/* also after the device was lost */
	bool out;				/* the struct is copied back on success */
} attach_ioctls[] = {
	ATTACH_IOCTL(ATTACH, attach, .out = true),
	ATTACH_IOCTL(MAP, map, .fn = attach_ioctl_map, .out = true),
	ATTACH_IOCTL(UNMAP, mapping, .fn = attach_ioctl_unmap, .always = true),
	ATTACH_IOCTL(MAPPED, mapping, .fn = attach_ioctl_mapped),
	ATTACH_IOCTL(RUNS, runs, .fn = attach_ioctl_runs, .out = true),
	ATTACH_IOCTL(IRQ, irq, .fn = attach_ioctl_irq),
	ATTACH_IOCTL(CONFIG, config, .fn = attach_ioctl_config, .out = true),
	ATTACH_IOCTL(CONTROL, control, .fn = attach_ioctl_control),
};

static long attach_ioctl_attach(struct attach_call *c, struct args *user)
{
	struct strait_ioc_attach *req = &c->arg.attach;
	int rc;

	if (req->flags)
		return -EINVAL;
	req->reason = STRAIT_ATTACH_NONE;
	rc = strait_attach_take(c->at, c->f, req);
	if (rc && rc != -EOPNOTSUPP)
		return rc;
	if (!args_to_user(user, req))
		return rc;
	if (!rc)
		strait_attach_leave(c->at, c->f);
	return -EFAULT;
}

/* Copies the result to the program. A mapping whose handle cannot be copied is removed again. */
static long attach_ioctl_copy_out(struct attach_call *c, unsigned int nr, struct args *user)
{
	struct strait_ioc_runs *runs = &c->arg.runs;

	if (attach_ioctls[nr].fn == attach_ioctl_runs &&
	    copy_to_user(u64_to_user_ptr(runs->runs), c->map->runs + runs->first,
			 runs->count * sizeof(*c->map->runs)))
		return -EFAULT;
	if (!args_to_user(user, &c->arg))
		return 0;
	if (attach_ioctls[nr].fn == attach_ioctl_map) {
		down_read(&c->at->state);
		strait_map_remove(c->at, c->map->handle, c->map);
		up_read(&c->at->state);
	}
	return -EFAULT;
}

static long attach_ioctl_call(struct attach_call *c, unsigned int nr)
{
	struct strait_attach *at = c->at;
	bool reset = attach_ioctls[nr].fn == attach_ioctl_control && attach_ioctl_is_reset(c);
	long rc;

	c->again = false;
	if (reset)
		device_lock(&at->pdev->dev);
	down_read(&at->state);
	if (at->file != c->f)
		rc = -ENXIO;
	else if (at->lost && !attach_ioctls[nr].always)
		rc = -ENODEV;
	else
		rc = attach_ioctls[nr].fn(c);
	up_read(&at->state);
	if (reset)
		device_unlock(&at->pdev->dev);
	return rc;
}

/* Waits without strait_attach.state, and the device may be lost meanwhile. */
static long attach_ioctl_run(struct attach_call *c, unsigned int nr)
{
	long rc = attach_ioctl_call(c, nr);

	while (c->again) {
		rc = strait_attach_wait_master(c->at);
		if (rc)
			break;
		rc = attach_ioctl_call(c, nr);
	}
	return rc;
}

long strait_attach_ioctl(struct strait_file *f, unsigned int cmd, void __user *user)
{
	unsigned int nr = _IOC_NR(cmd) - _IOC_NR(STRAIT_IOC_ATTACH);
	struct attach_call c = { .at = f->attach, .f = f };
	struct args args;
	long rc;

	if (nr >= ARRAY_SIZE(attach_ioctls))
		return -ENOTTY;
	nr = array_index_nospec(nr, ARRAY_SIZE(attach_ioctls));
	if ((cmd ^ attach_ioctls[nr].cmd) & ~IOCSIZE_MASK)
		return -ENOTTY;
	rc = args_from_user(&args, &c.arg, attach_ioctls[nr].min, attach_ioctls[nr].size, user);
	if (rc)
		return rc;
	/* A file of /dev/strait has no device. */
	if (!c.at)
		return -ENXIO;
	if (!attach_ioctls[nr].fn)
		return attach_ioctl_attach(&c, &args);
	rc = attach_ioctl_run(&c, nr);
	/* STRAIT_IOC_MAP returns a reason with -EOPNOTSUPP. */
	if (attach_ioctls[nr].out && !rc)
		rc = attach_ioctl_copy_out(&c, nr, &args);
	else if (attach_ioctls[nr].fn == attach_ioctl_map && rc == -EOPNOTSUPP &&
		 args_to_user(&args, &c.arg))
		rc = -EFAULT;
	if (c.map)
		strait_map_put(c.map);
	return rc;
}
