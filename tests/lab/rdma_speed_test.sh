#!/bin/sh
# SPDX-License-Identifier: MIT
#
# "strait rdma bench" beside perftest: reads of the same size, depth and kind of memory, sleeping on events, in turns.
. /lab/tap.sh
. /lab/rxe.sh
command -v ib_read_bw >/dev/null || skip_all "perftest is not in the guest"

ROUNDS=7

# until_listening PORT
until_listening() {
	tries=0
	until netstat -lnt | grep -q ":$1" || [ $tries -ge 100 ]; do
		tries=$((tries + 1))
		usleep 50000
	done
}

# perftest COLUMN PROGRAM ARGUMENT...: one run; prints the column.
perftest() {
	column=$1
	shift
	"$@" >/tmp/server 2>&1 &
	until_listening 18515
	timeout 120 "$@" "$RXE_ADDRESS" >/tmp/client 2>&1
	wait
	awk -v c="$column" '/^ *[0-9]+ +[0-9]+ / { print $c }' /tmp/client
}

# bench NAME ARGUMENT...: one run; prints that member of the report.
bench() {
	name=$1
	shift
	strait rdma bench --listen "$RXE_ADDRESS" --device host "$@" >/tmp/server 2>&1 &
	until grep -q offering /tmp/server; do usleep 50000; done
	strait rdma bench "$RXE_ADDRESS" --device host --json "$@" >/tmp/client 2>&1
	wait
	sed -n "s/^ *\"$name\": \([0-9.]*\),*$/\1/p" /tmp/client
}

median() { sort -n | sed -n "$(((ROUNDS + 1) / 2))p"; }

# compare NAME LIMIT LESS COLUMN "PERFTEST" MEMBER "BENCH": medians of both, in turns. LESS: the ratio is to be below.
compare() {
	rm -f /tmp/theirs /tmp/ours
	for _ in $(seq $ROUNDS); do
		perftest $4 $5 >>/tmp/theirs
		bench $6 $7 >>/tmp/ours
	done
	theirs=$(median </tmp/theirs)
	ours=$(median </tmp/ours)
	echo "# $1: perftest $theirs, strait $ours"
	if awk -v t="$theirs" -v o="$ours" -v l="$2" -v less="$3" 'BEGIN { exit !(t > 0 && o > 0 && (less ? o <= l * t : o >= l * t)) }'
	then
		pass "$1"
	else
		fail "$1" "perftest $(tr '\n' ' ' </tmp/theirs), strait $(tr '\n' ' ' </tmp/ours)"
	fi
}

plan 4
check "there is an RDMA link" rxe_start
common="-d $(rxe_of "$RXE_NETDEV") -x 1 -F -u 20 -e"
compare "reads of 64 KiB, 16 in flight, MiB/s" 0.9 0 4 "ib_read_bw $common -s 65536 -n 400 -t 16 -o 16" \
	mib_per_s "--block 64K --depth 16 --seconds 1"
signalled=$(sed -n 's/^ *"signalled": \([0-9]*\),*$/\1/p' /tmp/client)
requests=$(sed -n 's/^ *"work_requests": \([0-9]*\),*$/\1/p' /tmp/client)
if [ "$((signalled * 16))" -le "$((requests + 16))" ]; then
	pass "one request in 16 is signalled"
else
	fail "one request in 16 is signalled" "$signalled of $requests"
fi
compare "latency of reads of 4 KiB, us" 1.25 1 5 "ib_read_lat $common -s 4096 -n 400 -o 1" \
	p50_us "--block 4K --depth 1 --seconds 1"
finish
