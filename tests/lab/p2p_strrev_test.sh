#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The example on cuFile, over route p2p: the text is reversed and restored, and the drive itself has moved it.
. /lab/tap.sh
drive=/dev/nvme0n1
bytes=1048576

[ -e /dev/strait ] || skip_all "there is no /dev/strait"
[ -z "$LAB_NO_P2PDMA" ] || skip_all "$LAB_NO_P2PDMA"
command -v example-strrev >/dev/null || skip_all "the example is not built"

count() { awk -v name="$1" '$1 == name { print $2 }' /sys/kernel/debug/strait/counters; }

# once NAME: by the GPU, from the drive and to it.
once() {
	echo 3 >/proc/sys/vm/drop_caches
	read_before=$(count read_bytes)
	written_before=$(count written_bytes)
	check "$1" example-strrev --device vgpu /mnt/text
	# The pair is verified with a block of its own.
	equal "all of it was read by the drive itself" $(($(count read_bytes) - read_before)) $((bytes + 4096))
	equal "and written" $(($(count written_bytes) - written_before)) $bytes
}

plan 8
modprobe ext4
mkfs.ext4 -q -F $drive >/dev/null 2>&1 && mount -t ext4 $drive /mnt
yes "Hello, GDS World!" | head -c $bytes >/mnt/text
cp /mnt/text /tmp/text
cp /mnt/text /tmp/reversed
example-strrev --device host /tmp/reversed >/dev/null
sync
once "strrev reverses"
check "the text is reversed" cmp /mnt/text /tmp/reversed
once "strrev reverses again"
check "the text is as it was" cmp /mnt/text /tmp/text
finish
