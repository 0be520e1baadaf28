#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Does what is written to the drive arrive, and do file systems on it work?
. /lab/tap.sh
drive=/dev/nvme0n1

# KIND COMMAND: make a file system, write to it, mount it again, compare.
file_system() {
	command -v "$2" >/dev/null || {
		skip "$1" "$2 is not in the guest"
		return
	}
	shift
	check "${1#mkfs.} keeps what is written" fs_steps "$@"
}

fs_steps() {
	kind=${1#mkfs.}
	"$@" $drive >/dev/null && mount -t "$kind" $drive /mnt && cp /tmp/data /mnt/data && umount /mnt &&
		mount -t "$kind" $drive /mnt && cmp /tmp/data /mnt/data && umount /mnt
}

plan 4
dd if=/dev/urandom of=/tmp/data bs=65536 count=32 2>/dev/null
sum=$(sha256sum </tmp/data | cut -d ' ' -f 1)
file_system ext4 mkfs.ext4 -q -F
file_system xfs mkfs.xfs -q -f
blockdev --flushbufs $drive
dd if=/tmp/data of=$drive bs=65536 seek=1024 conv=fsync 2>/dev/null
equal "the host sees what is written" "$(host drive $((65536 * 1024)) $((65536 * 32)) sha256)" "$sum"
dd if=/dev/zero of=/tmp/zero bs=4096 count=1 2>/dev/null
equal "and where nothing is written, nothing" "$(host drive 1000000000 4096 crc32c)" 98f94189
finish
