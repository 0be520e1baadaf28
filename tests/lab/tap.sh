# SPDX-License-Identifier: MIT
# shellcheck shell=sh
#
# TAP for tests that are scripts. Read with ". /lab/tap.sh".

tap_count=0
tap_failed=0

# plan N: how many results there will be. Comes first.
plan() { echo "1..$1"; }

# skip_all REASON: nothing of this program can be tested here.
skip_all() {
	echo "1..0 # SKIP $*"
	exit 0
}

pass() {
	tap_count=$((tap_count + 1))
	echo "ok $tap_count - $1"
}

# fail NAME [DETAIL]
fail() {
	tap_count=$((tap_count + 1))
	tap_failed=1
	echo "not ok $tap_count - $1"
	[ -z "${2:-}" ] || printf '%s\n' "$2" | sed 's/^/# /'
}

skip() {
	tap_count=$((tap_count + 1))
	echo "ok $tap_count - $1 # SKIP $2"
}

# check NAME COMMAND...: the command succeeds.
check() {
	tap_name=$1
	shift
	if tap_output=$("$@" 2>&1); then pass "$tap_name"; else fail "$tap_name" "$*: $tap_output"; fi
}

# equal NAME HAVE WANT
equal() {
	if [ "$2" = "$3" ]; then pass "$1"; else fail "$1" "is \"$2\", should be \"$3\""; fi
}

# The last line of a script.
finish() { exit $tap_failed; }
