/* SPDX-License-Identifier: MIT */
/* Host memory registered with an engine. */
#include <stdlib.h>

#include "base/lock.h"
#include "device/soft/engine.h"
#include "os/os.h"

struct hostreg {
	struct range_node node;
	bool file;
};

void soft_hostregs_init(struct soft_hostregs *regs)
{
	rwlock_init(&regs->lock);
}

void soft_hostregs_fini(struct soft_hostregs *regs)
{
	pthread_rwlock_destroy(&regs->lock);
}

bool soft_have_vm_read(void)
{
	char from = 1, to = 0;

	return os_vm_read(&to, &from, 1) == 1 && to == 1;
}

static bool tree_covers(const struct range_tree *t, uint64_t addr, uint64_t len)
{
	/* Several registrations may contain the first byte: try each. */
	for (struct range_node *n = range_tree_overlap(t, addr, addr + 1); n;
	     n = range_tree_next(t, addr, addr + 1, n->start, n->seq))
		if (len <= n->end - addr)
			return true;
	return false;
}

bool soft_hostreg_covers(struct soft_hostregs *regs, uint64_t addr, uint64_t len)
{
	bool yes;

	pthread_rwlock_rdlock(&regs->lock);
	yes = tree_covers(&regs->plain, addr, len) || tree_covers(&regs->file, addr, len);
	pthread_rwlock_unlock(&regs->lock);
	return yes;
}

bool soft_hostreg_is_file(struct soft_hostregs *regs, uint64_t addr, uint64_t len)
{
	bool yes;

	/* The common case, no file mapping registered, takes no lock. */
	if (!atomic_load_explicit(&regs->n_file, memory_order_acquire))
		return false;
	pthread_rwlock_rdlock(&regs->lock);
	yes = range_tree_overlap(&regs->file, addr, addr + len);
	pthread_rwlock_unlock(&regs->lock);
	return yes;
}

int soft_host_register(struct strait_device *dev, void *ptr, size_t len, uint32_t flags, struct host_reg *ret)
{
	struct soft_hostregs *regs = &soft_engine(dev)->regs;
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	struct hostreg *reg;
	int rc;

	if (flags & ~(HOST_REG_READ_ONLY | HOST_REG_FILE) || !ptr || !len || len > UINT64_MAX - addr)
		return -EINVAL;
	if (soft_removed(soft_engine(dev)))
		return -ENODEV;
	if (flags & HOST_REG_FILE) {
		if (!(dev->caps & STRAIT_DEVICE_REGISTER_FILE))
			return -EOPNOTSUPP;
		rc = os_populate_read(ptr, len);
		if (rc)
			return rc;
	}
	reg = calloc(1, sizeof(*reg));
	if (!reg)
		return -ENOMEM;
	reg->node.start = addr;
	reg->node.end = addr + len;
	reg->file = flags & HOST_REG_FILE;
	pthread_rwlock_wrlock(&regs->lock);
	range_tree_insert(reg->file ? &regs->file : &regs->plain, &reg->node);
	if (reg->file)
		atomic_fetch_add_explicit(&regs->n_file, 1, memory_order_release);
	pthread_rwlock_unlock(&regs->lock);
	*ret = (struct host_reg){ .ptr = ptr, .len = len, .dev_addr = addr, .priv = reg };
	return 0;
}

void soft_host_unregister(struct strait_device *dev, struct host_reg *ret)
{
	struct soft_hostregs *regs = &soft_engine(dev)->regs;
	struct hostreg *reg = ret->priv;

	if (!reg)
		return;
	pthread_rwlock_wrlock(&regs->lock);
	range_tree_remove(reg->file ? &regs->file : &regs->plain, &reg->node);
	if (reg->file)
		atomic_fetch_sub_explicit(&regs->n_file, 1, memory_order_release);
	pthread_rwlock_unlock(&regs->lock);
	free(reg);
	ret->priv = NULL;
}
