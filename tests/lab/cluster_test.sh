#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Files on a drive of another machine, by NVMe over Fabrics: TCP, and RDMA in software. The kernel's target and initiator; the
# command must read and write what is there, say what is in between, and go on when the target was away for a while.
. /lab/tap.sh
. /lab/rxe.sh
[ "$LAB_GUESTS" -ge 2 ] || skip_all "needs two guests"

TARGET=10.77.0.2
NQN=nqn.2024-01.lab:drive
SIZE=24M
[ "$LAB_KERNEL" != debug ] || SIZE=4M

# The target's script: target on TRANSPORT, target off TRANSPORT. configfs has one directory per object.
cat >/tmp/target <<'END'
c=/sys/kernel/config/nvmet
s=$c/subsystems/nqn.2024-01.lab:drive
case $2 in tcp) p=$c/ports/1 port=4420 ;; rdma) p=$c/ports/2 port=4421 ;; esac
if [ $1 = off ]; then rm $p/subsystems/nqn.2024-01.lab:drive; exit; fi
if [ $1 = back ]; then ln -s $s $p/subsystems/nqn.2024-01.lab:drive; exit; fi
# First what others need: the guest's modprobe tries them in another order, and the kernel complains.
modprobe nvme_keyring 2>/dev/null
modprobe -a configfs nvmet nvmet_$2
[ -d $c ] || mount -t configfs configfs /sys/kernel/config
if [ ! -d $s ]; then
	mkdir $s && echo 1 >$s/attr_allow_any_host && mkdir $s/namespaces/1 || exit 1
	echo /dev/nvme0n1 >$s/namespaces/1/device_path && echo 1 >$s/namespaces/1/enable || exit 1
fi
mkdir $p || exit 1
echo $2 >$p/addr_trtype
echo ipv4 >$p/addr_adrfam
echo 10.77.0.2 >$p/addr_traddr
echo $port >$p/addr_trsvcid
ln -s $s $p/subsystems/nqn.2024-01.lab:drive
END

target() { peer 1 "sh /tmp/target $1 $2"; }

# connect TRANSPORT PORT: what "nvme connect" writes. Prints nothing; the disk is in $disk.
connect() {
	before=$(ls /sys/class/block)
	echo "transport=$1,traddr=$TARGET,trsvcid=$2,nqn=$NQN,reconnect_delay=1,nr_io_queues=2" >/dev/nvme-fabrics || return 1
	for _ in $(seq 100); do
		for name in $(ls /sys/class/block); do
			case $name in
			nvme*c*n*) ;; # a path to the disk, hidden
			nvme*n*) echo "$before" | grep -qx "$name" || [ ! -b "/dev/$name" ] || {
				echo "$name" >/tmp/disk
				return 0
			} ;;
			esac
		done
		usleep 100000
	done
	return 1
}

disconnect() {
	for c in /sys/class/nvme/nvme*; do
		[ "$(cat "$c/transport")" = pcie ] || echo 1 >"$c/delete_controller"
	done
}

mounted() { mkfs.ext4 -q -F -E nodiscard "/dev/$(cat /tmp/disk)" && mount -t ext4 "/dev/$(cat /tmp/disk)" /mnt; }

# away TRANSPORT: the target goes away in half a second, and comes back.
away() {
	usleep 500000
	target off "$1"
	sleep 2
	target back "$1"
}

plan 17
check "there is an RDMA link here" rxe_start
check "there is an RDMA link there" peer 1 ". /lab/rxe.sh; rxe_start"
encoded=$(base64 </tmp/target | tr -d '\n')
check "the other machine has the target's script" peer 1 "echo $encoded | base64 -d >/tmp/target"
modprobe nvme_keyring 2>/dev/null
modprobe -a ext4 nvme_tcp nvme_rdma
for transport in tcp rdma; do
	[ $transport = tcp ] && port=4420 nic=eth1 || { port=4421 nic="rxe0 on eth1"; }
	check "$transport: a target starts" target on $transport
	check "$transport: its drive appears" connect $transport $port
	check "$transport: it has a file system" mounted
	grep -q ' /mnt ext4 ' /proc/mounts || finish
	strait verify /mnt --device vgpu:0 --size $SIZE >/tmp/verify 2>&1
	equal "$transport: verify finds what it wrote" $? 0
	head -c 25165824 /dev/urandom >/mnt/file
	sync
	echo 3 >/proc/sys/vm/drop_caches
	strait explain /mnt/file vgpu:0 >/tmp/explain 2>&1
	check "$transport: explain names transport, target and NIC" \
		grep -q "storage .*NVMe over $transport, traddr=$TARGET.*by $nic:" /tmp/explain
	check "$transport: explain says why the drive does not reach the GPU" grep -q '^  p2p  *no: ' /tmp/explain
	sed 's/^/# /' /tmp/explain
	away $transport >/dev/null 2>&1 &
	for _ in 1 2 3; do
		echo 3 >/proc/sys/vm/drop_caches
		strait load /mnt/file --device vgpu:0 --verify || break
		echo loaded
	done >/tmp/load 2>&1
	if [ "$(grep -c '^loaded' /tmp/load)" = 3 ]; then
		pass "$transport: load goes on when the target was away"
	else
		fail "$transport: load goes on when the target was away" "$(cat /tmp/load)"
	fi
	wait
	umount /mnt
	disconnect
done
finish
