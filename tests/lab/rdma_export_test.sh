#!/bin/sh
# SPDX-License-Identifier: MIT
#
# "strait rdma serve --export": a drive of one process, by the kernel and by the driver in user space, and memory of its GPU,
# through memory of the GPU of another one.
. /lab/tap.sh
. /lab/rxe.sh

[ -e /dev/strait ] || skip_all "there is no /dev/strait"
[ -z "$LAB_NO_TRANSLATION" ] || skip_all "$LAB_NO_TRANSLATION"

MIB=$((1 << 20))
SIZE=$((10 * MIB + 777))
[ "$LAB_KERNEL" != debug ] || SIZE=$((2 * MIB + 777))

start_server() {
	rm -f /tmp/server # that of the server before says that it serves
	strait rdma serve --listen "$RXE_ADDRESS" "$@" >/tmp/server 2>&1 &
	echo $! >/tmp/pid
	for _ in $(seq 100); do
		grep -qs serving /tmp/server && return 0
		kill -0 "$(cat /tmp/pid)" 2>/dev/null || break
		usleep 100000
	done
	cat /tmp/server
	return 1
}

stop_server() {
	kill "$(cat /tmp/pid)"
	while kill -0 "$(cat /tmp/pid)" 2>/dev/null; do usleep 100000; done
}

pull() { strait rdma pull "$RXE_ADDRESS" "$@" --device vgpu:0 --region 4M --save /tmp/copy; }
push() { strait rdma push "$RXE_ADDRESS" "$@" --device vgpu:0 --region 4M --from /tmp/new; }
# on_drive OFFSET LENGTH: the drive's bytes, as the kernel's driver has them.
on_drive() { dd if=/dev/nvme0n1 bs=64K iflag=skip_bytes,count_bytes,fullblock skip="$1" count="$2" 2>/dev/null; }

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

plan 31
check "there is an RDMA link" rxe_start
for drive in /sys/bus/pci/devices/*; do
	[ "$(cat "$drive/class")" = 0x010802 ] && break
done
drive=${drive##*/}
head -c $SIZE /dev/urandom >/tmp/old
head -c $SIZE /dev/urandom >/tmp/new
# Data of another test would be a reason to refuse the drive.
dd if=/dev/zero of=/dev/nvme0n1 bs=1M count=16 conv=fsync 2>/dev/null
dd if=/tmp/old of=/dev/nvme0n1 bs=64K seek=$((4 * MIB)) oflag=seek_bytes conv=fsync 2>/dev/null

refused "nothing to serve is refused" "serve --export NAME=WHAT" strait rdma serve
refused "an export without what it is, too" "give NAME=WHAT" strait rdma serve --export disk
refused "and one with a name that is none" "a name has letters" strait rdma serve --export a/b=/dev/nvme0n1
refused "and two of one name" "another export" strait rdma serve --export a=/tmp/old --export a=/tmp/new
refused "and memory of no size" "needs size=SIZE or from=FILE" strait rdma serve --export a=emu:0
refused "and a file with a size" "are of memory" strait rdma serve --export a=/tmp/old,size=1M
refused "and an unknown option" "options are write" strait rdma serve --export a=/tmp/old,fast
refused "a drive that is not bound" "strait bind" strait rdma serve --export a="nvme:$drive"

# By the kernel's driver.
check "a drive is served" start_server --export disk=/dev/nvme0n1
check "pull from it" pull @disk --offset $((4 * MIB)) --size $SIZE
check "every byte of the drive arrives" cmp /tmp/copy /tmp/old
refused "its end is the end" "the file ends there" pull @disk --offset $((1024 * MIB - 1000)) --size 4096
refused "it is read-only" "with --write" push @disk --offset $((4 * MIB))
refused "there is no other" "No such file" pull @other
refused "and no directory" "No such file" pull tmp/old
stop_server

# By the driver in user space.
check "bind" strait bind "$drive"
check "it is served from user space" start_server --export "disk=nvme:$drive,ns=1,write" --queue-pairs 4
check "pull from it" pull @disk --offset $((4 * MIB)) --size $SIZE --queue-pairs 4
check "every byte of the drive arrives" cmp /tmp/copy /tmp/old
check "push to it" push @disk --offset $((20 * MIB + 100))
check "and pull that" pull @disk --offset $((20 * MIB + 100)) --size $SIZE
check "it is the same" cmp /tmp/copy /tmp/new
stop_server
check "unbind" strait unbind "$drive"
for _ in $(seq 10); do [ -e /dev/nvme0n1 ] && break; sleep 1; done
on_drive $((20 * MIB + 100)) $SIZE >/tmp/copy
check "the kernel's driver finds what was pushed" cmp /tmp/copy /tmp/new

# Memory of the GPU.
check "memory with the bytes of a file is served" start_server --export weights=vgpu:0,from=/tmp/old \
	--export scratch=vgpu:0,size=2M,write
check "pull from it" pull @weights
check "every byte arrives" cmp /tmp/copy /tmp/old
refused "memory is read-only" "with --write" push @weights
head -c $((2 * MIB)) /tmp/new >/tmp/part
mv /tmp/part /tmp/new
check "push to the other one" push @scratch
check "and it is there" sh -c "strait rdma pull $RXE_ADDRESS @scratch --device emu:0 --save /tmp/copy && cmp /tmp/copy /tmp/new"
stop_server
finish
