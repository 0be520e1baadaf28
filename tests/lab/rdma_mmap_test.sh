#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Stock perftest with memory of the lab's GPU: it maps the device's node as a file, and registers what it gets.
. /lab/tap.sh
command -v ib_read_bw >/dev/null || skip_all "perftest is not in the guest"
ib_read_bw --help 2>&1 | grep -q -- --mmap || skip_all "this perftest cannot map a file"
. /lab/rxe.sh

NODE=/dev/strait_vgpu0
[ -e $NODE ] || skip_all "there is no $NODE"
# count allocated|freed: bytes of the GPU's memory since the driver was loaded.
count() { sed -n "s/^$1_bytes //p" /sys/kernel/debug/strait_vgpu/*/counters; }

# run PROGRAM ARGUMENT...: both sides on this machine, both with memory of the GPU.
run() {
	"$@" >/tmp/server 2>&1 &
	server=$!
	tries=0
	until netstat -lnt | grep -q :18515 || [ $tries -ge 100 ]; do
		tries=$((tries + 1))
		usleep 100000
	done
	timeout 120 "$@" "$RXE_ADDRESS" >/tmp/client 2>&1
	status=$?
	kill $server 2>/dev/null
	wait $server 2>/dev/null
	sed 's/^/# /' /tmp/client
	return $status
}

plan 5
check "there is an RDMA link" rxe_start
common="-d $(rxe_of "$RXE_NETDEV") -x 1 -F -u 20 --mmap=$NODE"
before=$(count allocated)
check "ib_read_bw -e reads memory of the GPU" run ib_read_bw $common -e -s 65536 -n 64 -t 16 -o 4
# Both sides: the buffer is twice the size, in pages of 64 KiB.
if [ "$(($(count allocated) - before))" -ge $((4 * 65536)) ]; then
	pass "both sides allocated it"
else
	fail "both sides allocated it" "$before, then $(count allocated) bytes"
fi
check "ib_write_bw writes it" run ib_write_bw $common -s 65536 -n 64 -t 16
# Pages that were registered are drained after their file is closed.
for _ in $(seq 50); do
	[ "$(count allocated)" != "$(count freed)" ] || break
	usleep 100000
done
equal "nothing of it is left" "$(count freed)" "$(count allocated)"
finish
