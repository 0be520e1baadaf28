#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The command and the examples on a card's DMA engine, between memory of the GPU.
. /lab/tap.sh

[ -e /dev/strait ] || skip_all "there is no /dev/strait"
[ -z "$LAB_NO_TRANSLATION" ] || skip_all "$LAB_NO_TRANSLATION"
plan 20
for card in /sys/bus/pci/devices/*; do
	[ "$(cat "$card/vendor" "$card/device" | tr -d '\n')" = 0x12340x11e8 ] && break
done
card=${card##*/}
refused() { ! "$@" >/tmp/out 2>&1; }

strait dma list >/tmp/out
check "the card is listed, without a driver" grep -q "$card .*1234:11e8 .*edu .*no (strait bind)" /tmp/out
check "the same for programs" sh -c "strait dma list --json | grep -q '\"engine\": *\"edu\"'"
check "it is not driven before it is bound" refused strait dma h2c2h --src vgpu:0 --dst vgpu:0
check "what to do first is said" grep -q "strait bind $card" /tmp/out
check "nor by the example" refused example-h2c2h "$card" vgpu:0
check "bind" strait bind "$card"
strait dma list >/tmp/out
check "it can be driven now" grep -q "$card .*edu .*strait .*yes" /tmp/out
strait dma h2c2h --src vgpu:0 --dst vgpu:0 --size 10000 >/tmp/out 2>&1
equal "h2c2h succeeds" $? 0
check "and says how" grep -q "from vgpu:0 through $card (edu, .* of memory) to vgpu:0: compared, no mismatch" /tmp/out
check "from the host's memory, by interrupts" strait dma h2c2h "$card" --src host --dst vgpu:0 --size 4K --interrupts
strait dma h2c2h --src vgpu:0 --dst host --size 4K --json >/tmp/out 2>&1
check "to the host's, for programs" grep -q '"bytes": *4096' /tmp/out
check "a size of nothing is refused" refused strait dma h2c2h --size 0
check "an engine that is not there is refused" refused strait dma h2c2h --engine nothing
strait dma bench --src vgpu:0 --dst vgpu:0 --size 2K --seconds 1 >/tmp/out 2>&1
check "bench says how long it takes" grep -q '[1-9][0-9]* transfers, latency p50 [0-9.]* us' /tmp/out
sed 's/^/# /' /tmp/out
check "example h2c2h" sh -c "example-h2c2h $card vgpu:0 10000 >/tmp/out"
check "finds the same surface" grep -qx "10000 bytes through $card (edu): the same" /tmp/out
check "example mailbox" sh -c "example-mailbox $card vgpu:0 >/tmp/out"
check "delivers the device's letter" grep -qx "the device wrote 12345678, the card answers edcba987: delivered" /tmp/out
check "unbind" strait unbind "$card"
check "the card has no driver again" test ! -e "/sys/bus/pci/devices/$card/driver"
finish
