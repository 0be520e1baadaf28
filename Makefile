# SPDX-License-Identifier: MIT
#
# A thin front of the Meson build: see meson.build for what is built.
#
#   make               build the library and the command in build/. Installs nothing: where something is missing it says
#                      what, and which command installs it
#   make deps          install the Debian packages for building, testing and the lab. Needs root
#   make run           install what is missing for building, build, and run a demonstration that moves and verifies data
#   make check         the tests that need no emulated machine, on the release build: the one to run before each commit
#   make test          all tests: release, address and undefined behaviour sanitizers, thread sanitizer, and the lab.
#                      Installs what is missing, as "make deps" does, and names it first
#   make test-long     the same with the programs that take long, which need more packages: "scripts/setup long"
#   make lab           the suite in emulated machines, on the stock kernel and on 6.12, in part with a lazy IOMMU
#   make lab-debug     the suite on a kernel with KASAN, lockdep and kmemleak, which is built once: half an hour
#   make bench         measurements
#   make install       install what "make" builds: DESTDIR= PREFIX=
#   make wheel         the Python wheel strait-io with library and command, in dist/: packaging/wheel/build
#   make deb           Debian packages, in dist/: packaging/debian
#   make clean
#
# Variables:
#
#   T=PATTERN...       of check, test, test-long, lab and lab-debug: only the programs of that name, or with that in their
#                      names, or that match ("functional/queue_test", "queue", "unit/*", "lab/vgpu_*"). Only what
#                      they need is built. "make lab T=..." runs them on the stock kernel only
#   LAB="OPTION..."    of lab: options of lab/run, such as "--kernel 6.12 --iommu lazy"
#   WERROR=1           of check, test and test-long: warnings of the compiler are errors, as in CI
#   JOBS=N             programs at a time, one more than processors by default; also for the compiler

PREFIX ?= /usr/local
DESTDIR ?=
T ?=
LAB ?=
NINJA = ninja $(if $(JOBS),-j $(JOBS))
# The system's Meson before one that some other Python in PATH has.
export MESON ?= $(firstword $(wildcard /usr/bin/meson) meson)

RUN_TESTS = scripts/run-tests --build $(if $(WERROR),--werror) $(if $(JOBS),--jobs $(JOBS)) $(foreach t,$(T),--match '$(t)')
# With T the programs that run in guests, and what every guest has.
LAB_BUILD = scripts/run-tests --build-only $(foreach t,$(or $(T),lab/suite),--match '$(t)') build
LAB_RUN = lab/run run $(foreach t,$(T),'$(t)')

.PHONY: all deps run check test test-long lab lab-debug bench install wheel deb clean

all:
	@scripts/setup --check build
	@scripts/configure build
	@$(NINJA) -C build

deps:
	@scripts/setup build test lab

run:
	@scripts/setup build
	@$(MAKE) --no-print-directory all
	@scripts/demo build

check:
	@scripts/setup --check build
	@scripts/setup --check --try test
	@$(RUN_TESTS) --no-lab build

test:
	@scripts/setup build test
	@scripts/setup --try lab
	@$(RUN_TESTS) build build-asan build-tsan

test-long:
	@scripts/setup build test
	@scripts/setup --try lab
	@scripts/setup --try long
	@$(RUN_TESTS) --long build build-asan build-tsan

lab:
	@scripts/setup build test lab
	@$(LAB_BUILD)
	@$(LAB_RUN) $(if $(T),,--lazy --compat 6.12) $(LAB)

lab-debug:
	@scripts/setup build test lab
	@$(LAB_BUILD)
	@$(LAB_RUN) --kernel debug $(if $(T),,--lazy) $(LAB)

bench: all
	@bench/run

install:
	@scripts/setup --check build
	@scripts/configure build --prefix=$(PREFIX)
	@$(NINJA) -C build
	@$(MESON) install -C build --no-rebuild --quiet $(if $(DESTDIR),--destdir $(abspath $(DESTDIR)))

wheel:
	@scripts/setup --check build
	@packaging/wheel/build

deb:
	@scripts/setup --check build
	@packaging/build-deb

clean:
	@rm -rf build build-asan build-tsan build-wheel build-wheel.d build-deb dist
