#!/bin/sh
# SPDX-License-Identifier: MIT
#
# "strait rdma" between two machines: files of guest 1 into memory of this one's GPU and back; a link that goes down and up; a
# server that is killed.
. /lab/tap.sh
. /lab/rxe.sh
[ "$LAB_GUESTS" -ge 2 ] || skip_all "needs two guests"

MIB=$((1 << 20))
SIZE=$((24 * MIB + 4321))
[ "$LAB_KERNEL" != debug ] || SIZE=$((2 * MIB + 4321))
SERVER=10.77.0.2

# One line: a command line is what a guest reads.
serve() {
	start="strait rdma serve /tmp/export --listen $SERVER $* >server 2>&1 & echo \$! >pid"
	ready="for i in 1 2 3 4 5 6 7 8 9 10; do grep -q serving server && exit 0; sleep 1; done; cat server; exit 1"
	peer 1 "cd /tmp; rm -f server; $start; $ready"
}
stop() { peer 1 "kill -$1 \$(cat /tmp/pid); sleep 1"; }

pull() { strait rdma pull $SERVER data --device vgpu:0 --save /tmp/copy --region 8M "$@"; }
# packets: that the RDMA device has received. until_moving N: a transfer that began after N is in flight.
packets() { cat "/sys/class/infiniband/$(rxe_of "$RXE_NETDEV")/ports/1/hw_counters/rcvd_pkts"; }
until_moving() {
	for _ in $(seq 600); do
		[ "$(packets)" -lt "$(($1 + 300))" ] || return 0
		usleep 50000
	done
	return 1
}
sum() { sha256sum <"$1" | cut -d ' ' -f 1; }

plan 13
check "there is an RDMA link here" rxe_start
check "there is an RDMA link there" peer 1 ". /lab/rxe.sh; rxe_start"
head -c 32 /dev/urandom | base64 >/tmp/key
chmod 600 /tmp/key
key=$(cat /tmp/key)
peer 1 "mkdir -p /tmp/export; head -c $SIZE /dev/urandom >/tmp/export/data; echo $key >/tmp/key; chmod 600 /tmp/key"
want=$(peer 1 "sha256sum </tmp/export/data" | cut -d ' ' -f 1)

check "a server without a key starts" serve
if pull >/tmp/out 2>&1; then
	fail "a client without a key connects to no other machine" "$(cat /tmp/out)"
else
	pass "a client without a key connects to no other machine"
fi
# The client has a key, and tries: it is the server that refuses.
if pull --key /tmp/key >/tmp/out 2>&1; then
	fail "a server without a key refuses another machine" "$(cat /tmp/out)"
else
	equal "a server without a key refuses another machine" \
		"$(peer 1 "grep -c '10.77.0.1:[0-9]* is rejected: without a key' /tmp/server")" 1
fi
stop TERM
check "a server with a key starts" serve --key /tmp/key --write
check "pull from the other machine" pull --key /tmp/key
equal "every byte arrives" "$(sum /tmp/copy)" "$want"
check "push to the other machine" strait rdma push $SERVER back --from /tmp/copy --device vgpu:0 --region 8M --key /tmp/key
equal "every byte arrives there" "$(peer 1 "sha256sum </tmp/export/back" | cut -d ' ' -f 1)" "$want"

rm -f /tmp/copy
before=$(packets)
(
	until_moving "$before"
	ip link set eth1 down
	sleep 3
	ip link set eth1 up
) &
check "a pull survives a link that goes down" pull --key /tmp/key --retries 30
wait
equal "and every byte arrives" "$(sum /tmp/copy)" "$want"
before=$(packets)
(
	until_moving "$before"
	stop KILL
) >/dev/null 2>&1 &
if pull --key /tmp/key --timeout 20 >/tmp/out 2>&1; then
	skip "a killed server is noticed" "the pull had ended before"
elif grep -q "failed after\|reset\|accepts\|timed out" /tmp/out; then
	pass "a killed server is noticed"
else
	fail "a killed server is noticed" "$(cat /tmp/out)"
fi
wait
finish
