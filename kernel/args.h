/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_ARGS_H
#define STRAIT_ARGS_H

/*
 * The argument of an ioctl: a struct that starts with its size as the program knows it. If the
 * module's struct is larger, the rest reads as zero and is not written back. If it is smaller, the
 * program's rest must be zero.
 */

#include <linux/uaccess.h>

struct args {
	void __user *user;
	u32 user_size;
	u32 size;	/* of the module's struct */
};

/* @min: size of the struct in its first published version. */
static inline int args_from_user(struct args *a, void *arg, size_t min, size_t size,
				 void __user *user)
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

/* Copies the result. Its size field says how much of the program's struct the module knows. */
static inline int args_to_user(const struct args *a, void *arg)
{
	u32 size = min(a->size, a->user_size);

	*(u32 *)arg = size;
	return copy_to_user(a->user, arg, size) ? -EFAULT : 0;
}

#endif
