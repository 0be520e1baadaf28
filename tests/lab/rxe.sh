# SPDX-License-Identifier: MIT
# shellcheck shell=sh
#
# The RDMA device in software, for tests that are scripts. Read with ". /lab/rxe.sh", after tap.sh.

# The address of RDMA connections: that of the network between guests if there is one.
RXE_NETDEV=eth0
[ ! -e /sys/class/net/eth1 ] || RXE_NETDEV=eth1
RXE_ADDRESS=$(ip -4 addr show dev "$RXE_NETDEV" | awk '/inet / { sub("/.*", "", $2); print $2; exit }')

# rxe_of NETDEV: the name of the RDMA device in software of a network interface. Fails if there is none.
rxe_of() {
	for rxe_path in /sys/class/infiniband/*; do
		[ "$(cat "$rxe_path/parent" 2>/dev/null)" != "$1" ] || { echo "${rxe_path##*/}" && return 0; }
	done
	return 1
}

# rxe_link: $RXE_NETDEV has an RDMA device. Another program of this guest may have made it, or be about to: the kernel
# allows one per interface, and answers "File exists" to a second one before the first is in sysfs.
rxe_link() {
	rxe_error=
	for _ in $(seq 25); do
		! rxe_of "$RXE_NETDEV" >/dev/null || return 0
		rxe_error=$(rdma link add rxe0 type rxe netdev "$RXE_NETDEV" 2>&1) || usleep 200000
	done
	echo "$rxe_error"
	rdma link show
	ls -l /sys/class/infiniband
	return 1
}

# rxe_stop: $RXE_NETDEV has none.
rxe_stop() {
	while rxe_name=$(rxe_of "$RXE_NETDEV"); do
		rdma link del "$rxe_name" || return 1
		usleep 100000
	done
}

# rxe_start: an RDMA device, ready for connections to $RXE_ADDRESS.
rxe_start() {
	# Frames that hold a packet of the longest path MTU. Where guests are joined by a hub, too.
	[ "$RXE_NETDEV" != eth1 ] || ip link set eth1 mtu 4200
	modprobe ib_uverbs && modprobe rdma_ucm && modprobe crc32_generic 2>/dev/null
	rxe_link || return 1
	# The address gets its entry in the table of GIDs a moment later.
	rxe_gids=/sys/class/infiniband/$(rxe_of "$RXE_NETDEV")/ports/1/gids
	want=$(echo "$RXE_ADDRESS" | awk -F . '{ printf "ffff:%02x%02x:%02x%02x", $1, $2, $3, $4 }')
	for _ in $(seq 50); do
		[ "$(cut -c 26- "$rxe_gids/1" 2>/dev/null)" = "$want" ] && return 0
		usleep 200000
	done
	grep . "$rxe_gids"/[01]
	return 1
}
