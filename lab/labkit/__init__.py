# SPDX-License-Identifier: MIT
"""The QEMU lab: kernels, the initramfs of guests, machines, and the report of a run."""
