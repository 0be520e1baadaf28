#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Files of another machine by NFS, over TCP and over RDMA in software: the kernel's server and client. The command must read
# and write what is there, say what is in between, and, over TCP, go on when the server was out of reach for a while. Loading
# over RDMA in software is not part of it: that did not end on emulated machines, for a reason that is not known.
. /lab/tap.sh
. /lab/rxe.sh
[ "$LAB_GUESTS" -ge 2 ] || skip_all "needs two guests"

SERVER=10.77.0.2
CLIENT=10.77.0.1
SIZE=24M
[ "$LAB_KERNEL" != debug ] || SIZE=4M

# The server's script. There is no mountd: the answers to the kernel's questions are given beforehand, for a time that does not
# end here. One export, the root of NFS 4: read and write, no squashing of root, any port, fsid 0.
cat >/tmp/nfs <<'END'
never=2000000000
# First what others need: the guest's modprobe tries them in another order, and the kernel complains.
for m in ext4 sunrpc grace lockd auth_rpcgss nfs_acl nfsd rpcrdma; do modprobe $m || exit 1; done
mkdir -p /srv
mkfs.ext4 -q -F -E nodiscard /dev/nvme0n1 && mount -t ext4 /dev/nvme0n1 /srv || exit 1
[ -e /proc/fs/nfsd/threads ] || mount -t nfsd nfsd /proc/fs/nfsd || exit 1
ip link set lo up
# Without version 3 there is nothing to register with a port mapper, which is not there either.
echo "-3 +4 +4.1 +4.2" >/proc/fs/nfsd/versions || exit 1
# Before it has waited for clients of an earlier server no file is opened: the least that the kernel allows.
echo 10 >/proc/fs/nfsd/nfsv4leasetime && echo 10 >/proc/fs/nfsd/nfsv4gracetime || exit 1
echo "nfsd 10.77.0.1 $never clients" >/proc/net/rpc/auth.unix.ip/channel || exit 1
echo "clients /srv $never 9218 65534 65534 0" >/proc/net/rpc/nfsd.export/channel || exit 1
echo "clients 1 \\x00000000 $never /srv" >/proc/net/rpc/nfsd.fh/channel || exit 1
echo "tcp 2049" >/proc/fs/nfsd/portlist || exit 1
echo "rdma 20049" >/proc/fs/nfsd/portlist || exit 1
echo 4 >/proc/fs/nfsd/threads || exit 1
END

# mounted TRANSPORT: on /mnt, by that transport.
mounted() {
	case $1 in tcp) port=2049 ;; rdma) port=20049 ;; esac
	mount -i -t nfs4 -o "vers=4.2,proto=$1,port=$port,addr=$SERVER,clientaddr=$CLIENT,timeo=50" $SERVER:/ /mnt
}

# away: the network between them goes down in half a second, and up again.
away() {
	usleep 500000
	ip link set eth1 down
	sleep 2
	ip link set eth1 up
}

plan 15
check "there is an RDMA link here" rxe_start
check "there is an RDMA link there" peer 1 ". /lab/rxe.sh; rxe_start"
encoded=$(base64 </tmp/nfs | tr -d '\n')
check "the other machine has the server's script" peer 1 "echo $encoded | base64 -d >/tmp/nfs"
check "the server starts" peer 1 "sh /tmp/nfs"
for m in sunrpc grace lockd netfs nfs dns_resolver nfsv4 rpcrdma; do modprobe $m; done
for transport in tcp rdma; do
	[ $transport = tcp ] && nic=eth1 || nic="$(rxe_of eth1) on eth1"
	check "$transport: it is mounted" mounted $transport
	grep -q ' /mnt nfs4 ' /proc/mounts || finish
	strait verify /mnt --device vgpu:0 --size $SIZE >/tmp/verify 2>&1
	equal "$transport: verify finds what it wrote" $? 0
	sed 's/^/# /' /tmp/verify
	head -c 25165824 /dev/urandom >/mnt/file
	sync
	echo 3 >/proc/sys/vm/drop_caches
	strait explain /mnt/file vgpu:0 >/tmp/explain 2>&1
	check "$transport: explain names transport, server and NIC" \
		grep -q "storage .*$SERVER:/, NFS 4.2 over $transport, addr=$SERVER, by $nic:" /tmp/explain
	check "$transport: explain says why the drive does not reach the GPU" grep -q '^  p2p  *no: ' /tmp/explain
	sed 's/^/# /' /tmp/explain
	want=$(sha256sum </mnt/file)
	echo 3 >/proc/sys/vm/drop_caches
	equal "$transport: what the server has on its drive is the same" "$(peer 1 'sync; sha256sum </srv/file')" "$want"
	[ $transport = tcp ] || continue
	away >/dev/null 2>&1 &
	for _ in 1 2 3; do
		echo 3 >/proc/sys/vm/drop_caches
		strait load /mnt/file --device vgpu:0 --verify || break
		echo loaded
	done >/tmp/load 2>&1
	if [ "$(grep -c '^loaded' /tmp/load)" = 3 ]; then
		pass "$transport: load goes on when the server was out of reach"
	else
		fail "$transport: load goes on when the server was out of reach" "$(cat /tmp/load)"
	fi
	wait
	umount /mnt
done
umount /mnt
finish
