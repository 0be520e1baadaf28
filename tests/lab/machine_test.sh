#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Is the machine the one that was asked for?
. /lab/tap.sh

# The address of the PCI device VENDOR:DEVICE.
pci() {
	for device in /sys/bus/pci/devices/*; do
		if [ "$(cat "$device/vendor"):$(cat "$device/device")" = "0x${1%:*}:0x${1#*:}" ]; then
			echo "${device##*/}"
			return 0
		fi
	done
	return 1
}

# How many bridges are between the device and the root complex.
depth() { readlink -f "/sys/bus/pci/devices/$1" | tr '/' '\n' | grep -c '^0000:' | awk '{ print $1 - 1 }'; }

domain() { cat "/sys/bus/pci/devices/$1/iommu_group/type" 2>/dev/null || echo none; }

plan 11
drive=$(pci 1b36:0010)
gpu=$(pci 1af4:1110)
edu=$(pci 1234:11e8)
check "there is a drive" test -n "$drive"
check "there is a GPU" test -n "$gpu"
check "there is a DMA engine" test -n "$edu"
check "there is a network card" test -d /sys/class/net/eth0

equal "the GPU has its memory" "$(awk 'NR == 3 { printf "%d", $2 - $1 + 1 }' "/sys/bus/pci/devices/$gpu/resource")" \
	"$LAB_BAR_SIZE"
equal "the drive has its size" "$(cat /sys/class/nvme/nvme0/nvme0n1/size 2>/dev/null ||
	cat /sys/block/nvme0n1/size)" "$((LAB_DRIVE_SIZE / 512))"

case $LAB_TOPOLOGY in
root-ports) want="1 1" ;;
switch) want="3 3" ;;
flat) want="0 0" ;;
esac
equal "the topology is $LAB_TOPOLOGY" "$(depth "$drive") $(depth "$gpu")" "$want"

case $LAB_IOMMU in
strict) want=DMA ;;
lazy) want=DMA-FQ ;;
pt) want=identity ;;
off) want=none ;;
esac
equal "the IOMMU of the drive is $LAB_IOMMU" "$(domain "$drive")" "$want"
equal "the IOMMU of the DMA engine is $LAB_IOMMU" "$(domain "$edu")" "$want"

remapping=on
[ -z "$LAB_NO_REMAPPING" ] || remapping=off
equal "the remapping of interrupts is $remapping" \
	"$(dmesg | grep -q 'Enabled IRQ remapping' && echo on || echo off)" $remapping

# BAR 0 of edu: its identification, and a register that gives back the complement of what was written.
if [ -c /dev/mem ]; then
	base=$(awk 'NR == 1 { print $1 }' "/sys/bus/pci/devices/$edu/resource")
	echo 1 >"/sys/bus/pci/devices/$edu/enable"
	devmem $((base + 4)) 32 0x12345678
	equal "the DMA engine answers" "$(devmem $((base)) 32) $(devmem $((base + 4)) 32)" "0x010000ED 0xEDCBA987"
	echo 0 >"/sys/bus/pci/devices/$edu/enable"
else
	skip "the DMA engine answers" "the debug kernel has no /dev/mem"
fi
finish
