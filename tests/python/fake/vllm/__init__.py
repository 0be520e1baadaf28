# SPDX-License-Identifier: MIT
"""The part of vLLM that a loader plugin meets."""
