#!/bin/sh
# SPDX-License-Identifier: MIT
#
# "strait rdma" between two processes of a machine: files of one, through memory of the lab's GPU, the emulated device and
# the host of the other.
. /lab/tap.sh
. /lab/rxe.sh

MIB=$((1 << 20))
SIZE=$((20 * MIB + 12345))
[ "$LAB_KERNEL" != debug ] || SIZE=$((2 * MIB + 12345))

# value NAME: of the JSON report in /tmp/report.
value() { sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}$/\1/p" /tmp/report | head -n 1; }

start_server() {
	rm -f /tmp/server # that of the server before says that it serves
	strait rdma serve /tmp/export --listen "$RXE_ADDRESS" "$@" >/tmp/server 2>&1 &
	echo $! >/tmp/pid
	for _ in $(seq 100); do
		grep -qs serving /tmp/server && return 0
		usleep 100000
	done
	cat /tmp/server
	return 1
}

stop_server() {
	kill "$(cat /tmp/pid)"
	while kill -0 "$(cat /tmp/pid)" 2>/dev/null; do usleep 100000; done
}

pull() { strait rdma pull "$RXE_ADDRESS" "$@"; }
push() { strait rdma push "$RXE_ADDRESS" "$@"; }

# refused NAME TEXT COMMAND...: it fails, and says why.
refused() {
	name=$1 text=$2
	shift 2
	if output=$("$@" 2>&1); then
		fail "$name" "succeeded: $output"
	elif echo "$output" | grep -q "$text"; then
		pass "$name"
	else
		fail "$name" "$output"
	fi
}

plan 30
check "there is no RDMA link at first" rxe_stop
equal "without a device the commands for one are named" \
	"$(strait rdma list | grep -c 'rdma link add rxe0 type rxe netdev eth')" 1
check "there is an RDMA link" rxe_start
mkdir -p /tmp/export/sub
head -c $SIZE /dev/urandom >/tmp/export/data
echo secret >/tmp/secret
ln -s ../secret /tmp/export/out
head -c 32 /dev/urandom | base64 >/tmp/key
head -c 32 /dev/urandom | base64 >/tmp/other
chmod 600 /tmp/key /tmp/other

strait rdma list --json >/tmp/report
for device in vgpu:0 emu:0 host; do
	equal "$device is registered by its mapping" "$(grep -A 3 "\"device\": \"$device\"" /tmp/report |
		sed -n 's/.*"kind": "\(.*\)",/\1/p')" mapping
done

strait explain /tmp/export/data vgpu:0 >/tmp/explain 2>&1
check "explain has it, and why not better" grep -q 'rdma  *rxe[0-9]*: mapping: dma-buf: ' /tmp/explain
strait explain /tmp/export/data vgpu:0 --json >/tmp/report 2>&1
equal "and its report" "$(value kind)" mapping

check "a server starts" start_server --key /tmp/key --write
for device in vgpu:0 emu:0 host; do
	check "pull into $device" pull data --device $device --key /tmp/key --save /tmp/copy --region 8M
	check "every byte arrives in $device" cmp /tmp/copy /tmp/export/data
	check "push from $device" push sub/$device --from /tmp/export/data --device $device --key /tmp/key --region 8M
	check "every byte arrives from $device" cmp /tmp/export/sub/$device /tmp/export/data
done
pull data --device vgpu:0 --key /tmp/key --region 8M --json >/tmp/report 2>&1
equal "no byte is copied by the CPU, the region is registered once" \
	"$(value bytes_direct) $(value bytes_staged) $(value registrations)" "$SIZE 0 1"
refused "a wrong key is refused" "not authenticated" pull data --device host --key /tmp/other
refused "no key is refused" "not authenticated" pull data --device host
refused "a path out of the directory is refused" "below the served directory" pull ../secret --device host --key /tmp/key
refused "a link out of the directory is refused" "below the served directory" pull out --device host --key /tmp/key
stop_server

# IPv6, without a key: this machine's own address.
check "the machine gets an IPv6 address" ip -6 addr add fd77::1/64 dev "$RXE_NETDEV"
sleep 3 # until the kernel has looked for duplicates
address=$RXE_ADDRESS
RXE_ADDRESS=fd77::1
check "a server on an IPv6 address starts" start_server
check "pull over IPv6" pull data --device emu:0 --save /tmp/copy --size 1M
stop_server
RXE_ADDRESS=$address
ip -6 addr del fd77::1/64 dev "$RXE_NETDEV"

rm -f /tmp/server
example-rdma_gpu_server "$RXE_ADDRESS" 0123456789abcdef >/tmp/server 2>&1 &
echo $! >/tmp/pid
for _ in $(seq 100); do
	grep -qs listening /tmp/server && break
	usleep 100000
done
check "the examples: device memory written and read" example-rdma_gpu_client vgpu:0 "$RXE_ADDRESS" 0123456789abcdef
stop_server
finish
