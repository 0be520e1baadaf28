# SPDX-License-Identifier: MIT
#
# A thin front of the Meson build: see meson.build for what is built.
#
#   make               the library and the command, in build/
#   make run           the same, then a demonstration that moves and verifies data
#   make test          all tests: release, address and undefined behaviour, threads
#   make test-long     the same with the long ones
#   make lab           the suite that runs in emulated machines
#   make lab-debug     the same on a kernel that looks for mistakes, built once: half an hour
#   make bench         measurements
#   make install       DESTDIR= PREFIX=
#   make clean

PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc)
NINJA = ninja -j $(JOBS)
# The system's Meson before one that some other Python in PATH has.
export MESON ?= $(firstword $(wildcard /usr/bin/meson) meson)

.PHONY: all run test test-long lab lab-debug lab-tests bench install clean build-tests

all:
	@scripts/setup build
	@scripts/configure build
	@$(NINJA) -C build

run: all
	@scripts/demo build

build-tests:
	@scripts/setup build test
	@scripts/setup --try lab
	@scripts/configure build -Dwerror=true
	@scripts/configure build-asan -Dwerror=true
	@scripts/configure build-tsan -Dwerror=true
	@$(NINJA) -C build all all-tests
	@$(NINJA) -C build-asan all-tests
	@$(NINJA) -C build-tsan all-tests

test: build-tests
	@scripts/run-tests build build-asan build-tsan

test-long: build-tests
	@scripts/run-tests --long build build-asan build-tsan

lab-tests:
	@scripts/setup build test lab
	@scripts/configure build
	@$(NINJA) -C build all all-tests

lab: lab-tests
	@lab/run run --compat 6.12

lab-debug: lab-tests
	@lab/run run --kernel debug

bench: all
	@bench/run

install:
	@scripts/setup build
	@scripts/configure build --prefix=$(PREFIX)
	@$(NINJA) -C build
	@$(MESON) install -C build --no-rebuild --quiet $(if $(DESTDIR),--destdir $(abspath $(DESTDIR)))

clean:
	@rm -rf build build-asan build-tsan
