/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_ARGS_H
#define STRAIT_ARGS_H

/*
 * The argument of an ioctl: a struct that begins with its size as the program knows it. A module that knows more takes
 * the rest for zero, and writes no more than the program has room for; one that knows less refuses what it does not
 * know, unless that is zero.
 */

#include <linux/uaccess.h>

struct args {
	void __user *user;
	u32 user_size;
	u32 size;	/* of the struct as this module knows it */
};

/* @min: the least a program knows of the struct: what its first published version had. */
static inline int args_from_user(struct args *a, void *arg, size_t min, size_t size, void __user *user)
{
	u32 user_size;

	if (get_user(user_size, (u32 __user *)user))
		return -EFAULT;
	if (user_size < min)
		return -EINVAL;
	if (user_size > PAGE_SIZE)
		return -E2BIG;
	*a = (struct args){ .user = user, .user_size = user_size, .size = size };
	return copy_struct_from_user(arg, size, user, user_size);
}

/* The answer. Its size tells the program how much of the struct the module knows. */
static inline int args_to_user(const struct args *a, void *arg)
{
	u32 size = min(a->size, a->user_size);

	*(u32 *)arg = size;
	return copy_to_user(a->user, arg, size) ? -EFAULT : 0;
}

#endif
