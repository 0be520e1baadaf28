#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What does the software RDMA device of this machine do without Strait? perftest between two processes, sleeping on events:
# the numbers that docs/rdma.md compares with.
. /lab/tap.sh
command -v ib_read_bw >/dev/null || skip_all "perftest is not in the guest"
. /lab/rxe.sh

# run PROGRAM ARGUMENT...: a server and a client on this machine; prints what the client prints.
run() {
	"$@" >/tmp/server 2>&1 &
	server=$!
	tries=0
	until netstat -lnt | grep -q :18515 || [ $tries -ge 100 ]; do
		tries=$((tries + 1))
		usleep 100000
	done
	timeout 120 "$@" "$RXE_ADDRESS"
	status=$?
	kill $server 2>/dev/null
	wait $server 2>/dev/null
	return $status
}

# measure NAME COLUMN PROGRAM ARGUMENT...: three runs; the value of each in the log.
measure() {
	name=$1 column=$2
	shift 2
	for _ in 1 2 3; do
		run "$@" >/tmp/client 2>&1 || {
			fail "$name" "$(tail -n 20 /tmp/client)"
			return
		}
		echo "# $name: $(awk -v c="$column" '/^ *[0-9]+ +[0-9]+ / { print $c }' /tmp/client)"
	done
	pass "$name"
}

plan 5
check "there is an RDMA link" rxe_start
common="-d $(rxe_of "$RXE_NETDEV") -x 1 -F -u 20"
measure "ib_read_bw -e, 64 KiB, MiB/s" 4 ib_read_bw $common -e -s 65536 -n 200 -t 16 -o 4
measure "ib_write_bw, 64 KiB, MiB/s" 4 ib_write_bw $common -s 65536 -n 200 -t 16
measure "ib_read_lat -e, 4 KiB, median us" 5 ib_read_lat $common -e -s 4096 -n 100 -o 1
measure "ib_write_lat, 64 B, median us" 5 ib_write_lat $common -s 64 -n 100
finish
