#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The examples of coherent mappings with a GPU: a table that the CPU and the GPU update in turns, and a file that the GPU
# transforms in place, through less memory than the file takes.
. /lab/tap.sh
drive=/dev/nvme0n1

[ -e /dev/strait ] || skip_all "there is no /dev/strait"
command -v example-shared_table >/dev/null || skip_all "the examples are not built"

plan 5
modprobe ext4
mkfs.ext4 -q -F $drive >/dev/null 2>&1 && mount -t ext4 $drive /mnt
check "the CPU and the GPU update a table in turns" example-shared_table --device vgpu:0 --turns 6 /mnt/table
head -c 12000077 /dev/urandom >/mnt/file
cp /mnt/file /tmp/file
check "the GPU transforms a file in place" example-edit_in_place --device vgpu:0 --budget 4 --window 1 /mnt/file
cmp -s /mnt/file /tmp/file
equal "the file has changed" $? 1
check "and transforms it again" example-edit_in_place --device vgpu:0 --budget 4 --window 1 /mnt/file
echo 3 >/proc/sys/vm/drop_caches
check "it is as it was, also on the drive" cmp /mnt/file /tmp/file
finish
