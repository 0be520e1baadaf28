/* SPDX-License-Identifier: MIT */
/*
 * Read leases. The kernel sends a signal to the holder of a lease when a writer is waiting; its default action kills
 * the process. Before the lease is taken the signal is directed to a thread of the library that has all signals
 * blocked, where it stays pending. The state of the lease is polled with F_GETLEASE.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <time.h>

#include "os/inject.h"

int os_lease_take(int fd, int tid)
{
	struct f_owner_ex owner = { F_OWNER_TID, tid };

	OS_POINT(OS_FCNTL);
	if (fcntl(fd, F_SETOWN_EX, &owner))
		return -errno;
	return OS_RET(fcntl(fd, F_SETLEASE, F_RDLCK));
}

bool os_lease_held(int fd)
{
	return fcntl(fd, F_GETLEASE) == F_RDLCK;
}

void os_lease_drop(int fd)
{
	fcntl(fd, F_SETLEASE, F_UNLCK);
}

void os_lease_wait(int64_t timeout_ns)
{
	struct timespec ts = { timeout_ns / 1000000000, timeout_ns % 1000000000 };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGIO);
	sigtimedwait(&set, NULL, &ts);
}
