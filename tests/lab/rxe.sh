# SPDX-License-Identifier: MIT
# shellcheck shell=sh
#
# The RDMA device in software, for tests that are scripts. Read with ". /lab/rxe.sh", after tap.sh.

# The address of RDMA connections: that of the network between guests if there is one.
RXE_NETDEV=eth0
[ ! -e /sys/class/net/eth1 ] || RXE_NETDEV=eth1
RXE_ADDRESS=$(ip -4 addr show dev $RXE_NETDEV | awk '/inet / { sub("/.*", "", $2); print $2; exit }')

# rxe_start: the device rxe0, ready for connections to $RXE_ADDRESS.
rxe_start() {
	# Frames that hold a packet of the longest path MTU. Where guests are joined by a hub, too.
	[ $RXE_NETDEV != eth1 ] || ip link set eth1 mtu 4200
	modprobe ib_uverbs && modprobe rdma_ucm && modprobe crc32_generic 2>/dev/null
	[ -e /sys/class/infiniband/rxe0 ] || rdma link add rxe0 type rxe netdev $RXE_NETDEV || return 1
	# The address gets its entry in the table of GIDs a moment later.
	want=$(echo "$RXE_ADDRESS" | awk -F . '{ printf "ffff:%02x%02x:%02x%02x", $1, $2, $3, $4 }')
	for _ in $(seq 50); do
		[ "$(cut -c 26- /sys/class/infiniband/rxe0/ports/1/gids/1 2>/dev/null)" = "$want" ] && return 0
		usleep 200000
	done
	grep . /sys/class/infiniband/rxe0/ports/1/gids/[01]
	return 1
}
