#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The command, over route p2p: what it says of it, and that what it moves is right.
. /lab/tap.sh
drive=/dev/nvme0n1

[ -e /dev/strait ] || skip_all "there is no /dev/strait"
[ -z "$LAB_NO_P2PDMA" ] || skip_all "$LAB_NO_P2PDMA"
plan 9
modprobe ext4
mkfs.ext4 -q -F $drive >/dev/null 2>&1 && mount -t ext4 $drive /mnt
dd if=/dev/urandom of=/mnt/file bs=65536 count=64 conv=fsync 2>/dev/null
echo 3 >/proc/sys/vm/drop_caches
strait info >/tmp/info
check "info knows the module and its version" grep -q 'strait.ko *0.1.0: .*p2pdma.*uring' /tmp/info
strait explain /mnt/file vgpu:0 >/tmp/explain
check "explain takes p2p" grep -q '^  p2p  *taken' /tmp/explain
check "after a block was tried" grep -q 'a test block between the two arrived' /tmp/explain
strait explain --json /mnt/file vgpu:0 >/tmp/json
check "the same for programs" grep -q '"p2p"' /tmp/json
echo text >/tmp/file
strait explain /tmp/file vgpu:0 >/tmp/explain
check "a file in memory is refused, with the reason" grep -q 'p2p *no: no direct I/O; the file system is in memory' /tmp/explain
check "verify finds what it wrote" strait verify /mnt --device vgpu:0 --size 4M
# What it costs, by p2p and staged: the table goes to the log.
strait bench file /mnt/bench --size 64M --device vgpu:0 --direct --block 1M,16M --mode read,write --seconds 0 \
	--compare staged --keep >/tmp/bench 2>&1
check "bench compares p2p with staged" grep -q ' p2p$' /tmp/bench
sed 's/^/# /' /tmp/bench
strait bench file /mnt/bench --device vgpu:0 --direct --block 16M --seconds 0 --compare staged --json >/tmp/json 2>/dev/null
equal "both are in it" "$(grep -c '"series"' /tmp/json)" 2
equal "with what the CPUs had to do" "$(grep -c '"machine_cpu_ms_per_gib": *[0-9]' /tmp/json)" 2
finish
