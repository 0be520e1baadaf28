# SPDX-License-Identifier: MIT
"""As safetensors.torch of a version that reads one tensor after the other."""
from safetensors import safe_open


def load_file(filename, device='cpu'):
    """Loads a safetensors file into torch format."""
    result = {}
    with safe_open(filename, framework='pt', device=device) as f:
        for k in f.offset_keys():
            result[k] = f.get_tensor(k)
    return result
