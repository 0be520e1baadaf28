#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Do two guests reach each other, and each other's memory by RDMA over Ethernet in software?
. /lab/tap.sh
. /lab/rxe.sh
[ "$LAB_GUESTS" -ge 2 ] || skip_all "needs two guests"

plan 7
check "the other guest answers a ping" ping -c 2 -W 5 10.77.0.2
equal "the other guest runs commands" "$(peer 1 hostname)" guest1
peer 1 exit 3
equal "and says how they ended" $? 3
check "there is an RDMA link here" rxe_start
check "and a second start finds it" rxe_start
check "there is an RDMA link there" peer 1 ". /lab/rxe.sh; rxe_start"
if ! command -v ibv_rc_pingpong >/dev/null; then
	skip "RDMA moves data between guests" "ibv_rc_pingpong is not in the guest"
	finish
fi
# Few and small messages with long timeouts: the test is whether bytes arrive, on emulated processors. The program
# sleeps until an event (-e): polling keeps the other processor of its guest from running for longer than the peer
# waits for an acknowledgement. On a busy host timeouts still happen, and both sides start again.
size=16384
[ "$LAB_KERNEL" != debug ] || size=2048
pingpong="timeout $((4 * HARNESS_SLOW)) ibv_rc_pingpong -g 1 -n 20 -s $size -e -c"
move_data() {
	for _ in 1 2 3 4 5 6; do
		peer 1 "killall ibv_rc_pingpong; ($pingpong >/tmp/pingpong 2>&1 &)"
		tries=0
		until peer 1 "netstat -lnt | grep -q :18515" || [ $tries -ge 30 ]; do
			tries=$((tries + 1))
			sleep 1
		done
		$pingpong 10.77.0.2 && return 0
	done
	return 1
}
check "RDMA moves data between guests" move_data
finish
