#!/bin/sh
# SPDX-License-Identifier: MIT
#
# strait bind and unbind, on the lab's drive.
. /lab/tap.sh
drive=/dev/nvme0n1

[ -e /dev/strait ] || skip_all "there is no /dev/strait"
plan 39
bdf=$(basename "$(readlink -f /sys/block/nvme0n1/device/device)")
driver() { basename "$(readlink "/sys/bus/pci/devices/$bdf/driver")"; }
wait_drive() {
	tries=0
	while [ ! -b $drive ] && [ $tries -lt 100 ]; do
		usleep 100000
		tries=$((tries + 1))
	done
}
refused() { ! strait "$@" >/tmp/out 2>&1; }

dd if=/dev/zero of=$drive bs=1M count=4 conv=fsync 2>/dev/null
dd if=/dev/zero of=$drive bs=1M seek=1020 count=4 conv=fsync 2>/dev/null
modprobe ext4
mkfs.ext4 -q -F $drive >/dev/null 2>&1 && mount -t ext4 $drive /mnt
check "a mounted drive is refused" refused bind "$bdf"
check "with what to do" grep -q "umount $drive" /tmp/out
umount /mnt
check "one with a file system is refused" refused bind "$bdf"
check "which libblkid names" grep -q "$drive is not empty: file system ext4, found by libblkid" /tmp/out
check "and how to insist" grep -q -- "--force $bdf" /tmp/out
check "force must name the device again" refused bind "$bdf" --force 0000:00:00.0
equal "nothing was done" "$(driver)" nvme
check "forced, it is taken" strait bind "$bdf" --force "$bdf"
equal "by strait" "$(driver)" strait
check "and has no block device" test ! -b $drive
strait bind --status >/tmp/status
check "status shows both drivers" grep -q "$bdf .*strait .*nvme" /tmp/status
equal "its node is root's" "$(stat -c %U:%a "/dev/strait-pci/$bdf")" root:600
check "it can be given to a user" strait bind "$bdf" --owner nobody
equal "whose it is then" "$(stat -c %U:%a "/dev/strait-pci/$bdf")" nobody:600
strait bind --status >/tmp/status
check "status shows the owner" grep -q "$bdf .* nobody" /tmp/status
check "and to a group" strait bind "$bdf" --owner root:nogroup
check "but not to a user that there is not" refused bind "$bdf" --owner noone
check "the same for programs" sh -c "strait bind --status --json | grep -q '\"owner\": *\"root:nogroup\"'"
check "with the previous driver" sh -c "strait bind --status --json | grep -q '\"previous\": *\"nvme\"'"
check "unbind gives it back" strait unbind "$bdf"
equal "to nvme" "$(driver)" nvme
wait_drive
check "with what was on it" sh -c "mount -t ext4 $drive /mnt && umount /mnt"
strait bind --status >/tmp/status
check "status is empty" grep -q "no device is bound" /tmp/status
dd if=/dev/zero of=$drive bs=1M count=4 conv=fsync 2>/dev/null
mkswap $drive >/dev/null && swapon $drive
check "one for swapping is refused" refused bind "$bdf"
check "with what to do about that" grep -q "swapoff $drive" /tmp/out
swapoff $drive
dd if=/dev/zero of=$drive bs=1M count=4 conv=fsync 2>/dev/null
printf 'n\np\n1\n\n+8M\nw\n' | fdisk $drive >/dev/null 2>&1
check "one with partitions is refused" refused bind "$bdf"
check "which is said" grep -q "$drive has .*partition" /tmp/out
check "also when another device is named as well" refused bind "$bdf" --force "${bdf%?}7"
dd if=/dev/zero of=$drive bs=1M count=4 conv=fsync 2>/dev/null
blockdev --rereadpt $drive
# A format that only libblkid knows: the label of an Oracle ASM disk.
printf ORCLDISKVOL1 | dd of=$drive bs=1 seek=32 conv=fsync 2>/dev/null
blkid=$(find / -xdev -name libblkid.so.1 | head -n 1)
if [ -n "$blkid" ]; then
	check "an Oracle ASM disk is refused" refused bind "$bdf"
	check "by what libblkid says" grep -q "$drive is not empty: file system oracleasm, found by libblkid" /tmp/out
	mv "$blkid" /tmp/hidden
	check "without libblkid it is taken" sh -c "strait bind $bdf >/tmp/out 2>&1"
	check "with a note that fewer formats were compared" grep -q "note: libblkid.so.1 cannot be loaded" /tmp/out
	strait unbind "$bdf" >/dev/null
	wait_drive
	dd if=/dev/zero of=$drive bs=4096 count=1 conv=fsync 2>/dev/null
	printf XFSB | dd of=$drive conv=fsync 2>/dev/null
	check "one with XFS is still refused" refused bind "$bdf"
	check "by the built-in list" grep -q "XFS file system, found by the built-in list of signatures (libblkid" /tmp/out
	mv /tmp/hidden "$blkid"
else
	for i in 1 2 3 4 5 6; do skip "libblkid" "it is not in the guest"; done
fi
dd if=/dev/zero of=$drive bs=4096 count=1 conv=fsync 2>/dev/null
check "an empty one is taken without force" strait bind "${bdf#0000:}"
# Where it is part of the kernel itself there is nothing to load.
modprobe -a vfio_iommu_type1 vfio_pci 2>/dev/null
if [ -d /sys/bus/pci/drivers/vfio-pci ]; then
	check "and goes to VFIO" strait bind "$bdf" --driver vfio-pci
	equal "by its driver" "$(driver)" vfio-pci
else
	skip "and goes to VFIO" "this kernel has no VFIO"
	skip "by its driver" "this kernel has no VFIO"
fi
check "and back" strait unbind "$bdf"
equal "to what it was first" "$(driver)" nvme
wait_drive
finish
