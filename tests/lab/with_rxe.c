/* SPDX-License-Identifier: MIT */
/* For tests that need an RDMA device: the lab's software one, made before they run. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* In a guest its absence is a failure: a suite that skips all of RDMA tests nothing. */
__attribute__((constructor)) static void start_rxe(void)
{
	if (!getenv("LAB_KERNEL") || !system(". /lab/rxe.sh; rxe_start >/tmp/rxe.log 2>&1"))
		return;
	printf("1..1\nnot ok 1 - there is an RDMA link\n");
	fflush(stdout);
	if (system("sed 's/^/# /' /tmp/rxe.log"))
		printf("# without a log\n");
	fflush(stdout);
	_exit(1);
}
