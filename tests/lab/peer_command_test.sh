#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Peer memory clients in "strait info".
. /lab/tap.sh

[ -e /sys/module/strait_peer ] || skip_all "strait_peer is not loaded"
plan 5
strait info >/tmp/out 2>&1
check "the client is listed" grep -q "strait_vgpu  *1.0 extended: memory is revoked when it is freed; 0 mapped now" /tmp/out
sed -n '/^Peer memory clients/{n;p;}' /tmp/out >/tmp/first
check "what the kernel does with it comes first" grep -q "ib_core asks none of them: ibv_reg_mr() of their memory fails" /tmp/first
strait info --json >/tmp/out
check "the same for programs" grep -q '"kind": *"extended"' /tmp/out
rmmod strait_vgpu_peer && modprobe strait_vgpu_peer invalidate=0
strait info >/tmp/out 2>&1
check "another kind" grep -q "strait_vgpu  *1.0 persistent: memory stays until it is unmapped" /tmp/out
rmmod strait_vgpu_peer
strait info >/tmp/out 2>&1
check "without a client" grep -q "none is registered" /tmp/out
modprobe strait_vgpu_peer
finish
