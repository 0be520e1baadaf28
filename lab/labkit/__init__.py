# SPDX-License-Identifier: MIT
"""The QEMU lab: kernels, the guest's root, the machine, and what came of a run."""
