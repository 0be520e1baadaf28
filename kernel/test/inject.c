// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * strait_inject_test: makes the nth call that a process makes to a module's inject.c fail, by
 * kprobes on its functions. CONFIG_FAIL_FUNCTION could do it, but stock kernels lack it, and where
 * kprobes are breakpoints /proc/<tid>/fail-nth does not count them, because it needs in_task().
 *
 *	/sys/kernel/debug/strait_inject/<module>	write n: the nth call of this process fails,
 *							once; 0: none. Read: the calls left.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/debugfs.h>
#include <linux/kprobes.h>
#include <linux/linkage.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/objtool.h>
#include <linux/sched.h>

#define POINTS_MAX 32

struct inject_point {
	const char *name;	/* the function */
	long value;		/* its return value on an injected error */
	struct inject_set *set;
	struct kprobe probe;
};

struct inject_set {
	const char *module;
	struct inject_point *points;
	unsigned int n;
	bool armed;
	pid_t tgid;
	atomic_t left;		/* calls until one fails; 0: none fails */
};

static DEFINE_MUTEX(strait_inject_lock);	/* inject_set.armed, and the probes */

static struct inject_point strait_points[] = {
	{ "strait_zalloc", 0 },
	{ "strait_zalloc_array", 0 },
	{ "strait_alloc_page", 0 },
	{ "strait_xa_reserve", -ENOMEM },
	{ "strait_notifier_insert", -ENOMEM },
	{ "strait_alloc_irq_vectors", -ENOMEM },
	{ "strait_request_irq", -ENOMEM },
	{ "strait_sg_alloc_table", -ENOMEM },
	{ "strait_dma_map_sgtable", -ENOMEM },
	{ "strait_dma_map_mmio", -ENOMEM },
	{ "strait_dma_buf_attach", -ENOMEM },
	{ "strait_dma_buf_map", -ENOMEM },
};

/* Not an error: a result that the kernel does not return on an emulated machine. */
static struct inject_point reserved_points[] = {
	{ "strait_has_direct_regions", 1 },
};

static struct inject_point vgpu_points[] = {
	{ "vgpu_zalloc", 0 },
	{ "vgpu_zalloc_array", 0 },
	{ "vgpu_zalloc_page", 0 },
	{ "vgpu_xa_reserve", -ENOMEM },
	{ "vgpu_dma_map", -ENOMEM },
	{ "vgpu_sg_alloc_table", -ENOMEM },
	{ "vgpu_dma_buf_export", -ENOMEM },
	{ "vgpu_get_unused_fd", -ENOMEM },
};

static struct inject_point peer_points[] = {
	{ "peer_zalloc", 0 },
	{ "peer_sg_alloc_table", -ENOMEM },
	{ "peer_alloc_ticket", -ENOMEM },
	{ "peer_dma_buf_export", -ENOMEM },
};

#define INJECT_SET(name, list) { .module = (name), .points = (list), .n = ARRAY_SIZE(list) }

static struct inject_set inject_sets[] = {
	INJECT_SET("strait", strait_points),
	INJECT_SET("strait_reserved", reserved_points),
	INJECT_SET("strait_vgpu", vgpu_points),
	INJECT_SET("strait_peer", peer_points),
};

/* A function that only returns: the kernel's just_return_func() is not exported. */
asmlinkage void inject_just_return(void);
asm(".text\n"
	".type inject_just_return, @function\n"
	".globl inject_just_return\n"
	ASM_FUNC_ALIGN
	"inject_just_return:\n"
	ANNOTATE_NOENDBR "\n"
	ASM_RET
	".size inject_just_return, .-inject_just_return\n");

static int inject_entered(struct kprobe *probe, struct pt_regs *regs)
{
	struct inject_point *point = container_of(probe, struct inject_point, probe);
	struct inject_set *set = point->set;

	if (READ_ONCE(set->tgid) != current->tgid || atomic_dec_if_positive(&set->left) != 0)
		return 0;
	regs_set_return_value(regs, point->value);
	instruction_pointer_set(regs, (unsigned long)inject_just_return);
	return 1;
}

NOKPROBE_SYMBOL(inject_entered);

/* A post handler keeps the kernel from optimizing the probe: a jump cannot change the address. */
static void inject_passed(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}

NOKPROBE_SYMBOL(inject_passed);

static void inject_disarm(struct inject_set *set, unsigned int n)
{
	struct kprobe *probes[POINTS_MAX];
	unsigned int i;

	lockdep_assert_held(&strait_inject_lock);
	for (i = 0; i < n; i++)
		probes[i] = &set->points[i].probe;
	/* All in one call: each call waits for an RCU grace period. */
	if (n)
		unregister_kprobes(probes, n);
	set->armed = false;
}

static int inject_arm(struct inject_set *set)
{
	unsigned int i;
	int rc;

	lockdep_assert_held(&strait_inject_lock);
	for (i = 0; i < set->n; i++) {
		struct inject_point *point = &set->points[i];

		point->set = set;
		point->probe = (struct kprobe){
			.symbol_name = point->name,
			.pre_handler = inject_entered,
			.post_handler = inject_passed,
		};
		rc = register_kprobe(&point->probe);
		if (rc) {
			pr_err("no probe on %s: %d\n", point->name, rc);
			inject_disarm(set, i);
			return rc;
		}
	}
	set->armed = true;
	return 0;
}

static int inject_nth_get(void *data, u64 *value)
{
	struct inject_set *set = data;

	*value = atomic_read(&set->left);
	return 0;
}

static int inject_nth_set(void *data, u64 value)
{
	struct inject_set *set = data;
	int rc = 0;

	if (value > INT_MAX)
		return -EINVAL;
	mutex_lock(&strait_inject_lock);
	atomic_set(&set->left, 0);
	/* Registering probes is slow: they stay until this or the probed module is unloaded. */
	if (set->armed && kprobe_gone(&set->points[0].probe))
		inject_disarm(set, set->n);
	if (value && !set->armed)
		rc = inject_arm(set);
	if (!rc) {
		WRITE_ONCE(set->tgid, current->tgid);
		atomic_set(&set->left, value);
	}
	mutex_unlock(&strait_inject_lock);
	return rc;
}
DEFINE_DEBUGFS_ATTRIBUTE(inject_nth_fops, inject_nth_get, inject_nth_set, "%llu\n");

static struct dentry *inject_root;

static int __init inject_init(void)
{
	unsigned int i;

	BUILD_BUG_ON(ARRAY_SIZE(strait_points) > POINTS_MAX);
	BUILD_BUG_ON(ARRAY_SIZE(vgpu_points) > POINTS_MAX);
	BUILD_BUG_ON(ARRAY_SIZE(peer_points) > POINTS_MAX);

	inject_root = debugfs_create_dir("strait_inject", NULL);
	for (i = 0; i < ARRAY_SIZE(inject_sets); i++)
		debugfs_create_file_unsafe(inject_sets[i].module, 0600, inject_root,
					   &inject_sets[i], &inject_nth_fops);
	return 0;
}
module_init(inject_init);

static void __exit inject_exit(void)
{
	unsigned int i;

	debugfs_remove(inject_root);
	mutex_lock(&strait_inject_lock);
	for (i = 0; i < ARRAY_SIZE(inject_sets); i++)
		if (inject_sets[i].armed)
			inject_disarm(&inject_sets[i], inject_sets[i].n);
	mutex_unlock(&strait_inject_lock);
}
module_exit(inject_exit);

MODULE_DESCRIPTION("Error injection for the tests of Strait's modules");
MODULE_AUTHOR("The Strait authors");
MODULE_LICENSE("Dual MIT/GPL");
