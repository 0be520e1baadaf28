/* SPDX-License-Identifier: MIT */
/* For tests that need an RDMA device: the lab's software one, made before they run. */
#include <stdlib.h>

__attribute__((constructor)) static void start_rxe(void)
{
	if (getenv("LAB_KERNEL") && system(". /lab/rxe.sh; rxe_start >/dev/null 2>&1"))
		setenv("STRAIT_NO_RXE", "1", 1);
}
