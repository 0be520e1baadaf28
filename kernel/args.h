/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef STRAIT_ARGS_H
#define STRAIT_ARGS_H

/* The argument of an ioctl: a struct that begins with its size as the caller knows it. */

#include <linux/uaccess.h>

/* A longer struct than ours is one of a newer program: fine, if what we do not know is 0. */
static inline int args_from_user(void *arg, size_t size, void __user *user)
{
	u32 user_size;

	if (get_user(user_size, (u32 __user *)user))
		return -EFAULT;
	if (user_size < size)
		return -EINVAL;
	if (user_size > PAGE_SIZE)
		return -E2BIG;
	return copy_struct_from_user(arg, size, user, user_size);
}

#endif
