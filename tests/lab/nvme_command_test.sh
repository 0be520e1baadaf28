#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The command drives the drive, with the GPU's memory as its target.
. /lab/tap.sh

[ -e /dev/strait ] || skip_all "there is no /dev/strait"
[ -z "$LAB_NO_TRANSLATION" ] || skip_all "$LAB_NO_TRANSLATION"
plan 16
for drive in /sys/bus/pci/devices/*; do
	[ "$(cat "$drive/class")" = 0x010802 ] && break
done
drive=${drive##*/}
yes 'The quick brown fox jumps over the lazy dog.' | dd of=/tmp/fox bs=512 count=8 iflag=fullblock 2>/dev/null
# Data of another test would be a reason to refuse the drive.
dd if=/dev/zero of=/dev/nvme0n1 bs=1M count=4 conv=fsync 2>/dev/null
dd if=/tmp/fox of=/dev/nvme0n1 bs=512 seek=100 conv=fsync 2>/dev/null

strait nvme list >/tmp/out
check "the drive is listed with the kernel's driver" grep -q "$drive.* nvme .*no (strait bind)" /tmp/out
strait nvme read --blocks 8 >/tmp/out 2>&1
check "what to do first is said" grep -q "strait bind $drive" /tmp/out
check "bind" strait bind "$drive"
strait nvme list >/tmp/out
check "it can be driven now" grep -q "$drive.* strait .*yes" /tmp/out
strait nvme identify >/tmp/out
check "identify" grep -q 'serial *strait0' /tmp/out
check "its namespace" grep -q 'namespace 1 *2097152 blocks of 512 bytes' /tmp/out
strait nvme read --blocks 8 --offset 100 --ascii --device vgpu:0 >/tmp/out 2>/tmp/err
check "read shows what is on the drive" cmp -s /tmp/out /tmp/fox
check "by the GPU's memory" grep -q 'memory on vgpu:0, route p2p' /tmp/err
strait nvme read "$drive" --blocks 8 --offset 100 --output /tmp/copy --device host --interrupts 2>/dev/null
check "into a file, by interrupts" cmp -s /tmp/copy /tmp/fox
check "write" strait nvme write --from /tmp/fox --offset 3000 --device vgpu:0 --queues vgpu:0
strait nvme read --blocks 8 --offset 3000 --output /tmp/copy --device vgpu:0 2>/dev/null
check "and read back" cmp -s /tmp/copy /tmp/fox
check "verify" strait nvme verify --blocks 20000 --offset 100000 --force --device vgpu:0
check "bench" strait nvme bench --seconds 1 --device vgpu:0
check "health" strait nvme log --json
check "unbind" strait unbind "$drive"
for i in 1 2 3 4 5 6 7 8 9 10; do [ -e /dev/nvme0n1 ] && break; sleep 1; done
dd if=/dev/nvme0n1 of=/tmp/copy bs=512 skip=3000 count=8 iflag=direct 2>/dev/null
check "the kernel's driver finds what was written" cmp -s /tmp/copy /tmp/fox
finish
