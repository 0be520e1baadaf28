# SPDX-License-Identifier: MIT
# shellcheck shell=sh disable=SC2034
#
# Functions that the lab's scripts share. Read with ".", from a script that has set $lab to the folder of this file.

cache=${STRAIT_LAB_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/strait/lab}
self=${0##*/}

say() { echo "$self: $*" >&2; }

# The lab needs something that is not available here: a reason to skip, not a failure of the tree.
absent() {
	say "$*"
	exit 77
}

die() {
	say "$*"
	exit 1
}

# Only one process at a time changes a part of the cache: two "make test" may share it.
lock() {
	mkdir -p "$cache" || absent "cannot make $cache"
	exec 9>"$cache/$1.lock"
	flock -w 3600 9 || die "another process has held $cache/$1.lock for an hour"
}

# The Debian archive that this machine installs from; the suite is chosen by the lab.
mirror() {
	if [ -n "${STRAIT_LAB_MIRROR:-}" ]; then
		echo "$STRAIT_LAB_MIRROR"
		return
	fi
	command -v apt-get >/dev/null 2>&1 || absent "no apt-get here: name a Debian mirror in STRAIT_LAB_MIRROR"
	apt-get --print-uris update 2>/dev/null | sed -n "s|^'\(.*/debian\)/dists/[a-z]*/InRelease'.*|\1|p" | head -n 1 |
		grep . || absent "no Debian mirror in this machine's apt sources: name one in STRAIT_LAB_MIRROR"
}

# apt_setup SUITE...: configure apt for the lab alone; the machine's apt is not changed. Sets APT_CONFIG.
apt_setup() {
	apt=$cache/apt/$1
	uri=$(mirror)
	keys=
	for file in /usr/share/keyrings/debian-archive-keyring.gpg /usr/share/keyrings/debian-archive-keyring.pgp; do
		[ ! -e "$file" ] || keys=$file
	done
	[ -n "$keys" ] || absent "the package debian-archive-keyring is missing"
	mkdir -p "$apt/lists/partial" "$apt/archives/partial"
	: >"$apt/status"
	for suite; do
		echo "deb [arch=amd64 signed-by=$keys] $uri $suite main"
	done >"$apt/sources.list"
	cat >"$apt/apt.conf" <<-EOF
		Dir::Etc::sourcelist "$apt/sources.list";
		Dir::Etc::sourceparts "/dev/null";
		Dir::Etc::preferences "/dev/null";
		Dir::Etc::preferencesparts "/dev/null";
		Dir::State "$apt";
		Dir::State::lists "$apt/lists";
		Dir::State::status "$apt/status";
		Dir::Cache "$apt";
		Dir::Cache::archives "$apt/archives";
		APT::Architecture "amd64";
		APT::Architectures { "amd64"; };
		APT::Sandbox::User "";
		APT::Install-Recommends "false";
		Acquire::Languages "none";
		Acquire::Retries "2";
		Acquire::http::Timeout "30";
		Acquire::https::Timeout "30";
		Debug::NoLocking "true";
	EOF
	APT_CONFIG=$apt/apt.conf
	export APT_CONFIG
	# apt-get update may fail with status 0 and leave no lists.
	apt-get update -qq >"$apt/update.log" 2>&1 && ls "$apt"/lists/*_Packages* >/dev/null 2>&1 || {
		cat "$apt/update.log" >&2
		absent "the Debian mirror $uri does not answer"
	}
}

# cached_kernel NAME: a kernel that is in the cache. Sets $kernel, its folder, and $release.
cached_kernel() {
	kernel=$(readlink -f "$cache/kernels/$1" || :)
	[ -n "$kernel" ] && [ -e "$kernel/complete" ] ||
		absent "kernel $1 is not in the cache: lab/fetch-kernel or lab/build-kernel brings it"
	release=$(cat "$kernel/release")
}

# Where modules are compiled for kernels whose tools are newer than this machine's C library.
chroot_dir=$cache/chroot

# The headers of $kernel in the chroot, where make looks for them there. Sets $headers.
chroot_headers() {
	headers=/usr/src/linux-headers-$release
	# Debug kernels with different configurations have the same release.
	[ "$(cat "$chroot_dir$headers.from" 2>/dev/null)" != "$kernel" ] || return 0
	lock headers
	if [ "$(cat "$chroot_dir$headers.from" 2>/dev/null)" != "$kernel" ]; then
		rm -rf "$chroot_dir$headers" "$chroot_dir$headers.from"
		cp -a "$kernel/root/usr" "$chroot_dir"
		# Its Makefile includes the files that several kernels share by their path outside of the chroot.
		[ ! -f "$chroot_dir$headers/Makefile" ] || sed -i "s|$kernel/root||" "$chroot_dir$headers/Makefile"
		echo "$kernel" >"$chroot_dir$headers.from"
	fi
	exec 9>&-
}

# in_chroot COMMAND...: run in the chroot as its root. Nothing stays mounted, however the command ends.
in_chroot() {
	if [ "$(id -u)" -eq 0 ] && chroot "$chroot_dir" /bin/sh -c 'test -c /dev/null && : >/dev/null' 2>/dev/null; then
		chroot "$chroot_dir" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ LC_ALL=C "$@"
	else
		# This user cannot make device nodes: in a mount namespace the machine's /dev is bound into the chroot.
		# shellcheck disable=SC2016
		unshare --user --map-root-user --mount sh -c '
			root=$1
			shift
			mount --rbind /dev "$root/dev" || exit 77
			exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ LC_ALL=C "$@"
		' sh "$chroot_dir" "$@"
	fi
}
