# SPDX-License-Identifier: MIT
"""Strait for Python: moves data between files and device memory.

    import strait

    tensors = strait.load_file("model.safetensors", device="cuda:0")       # PyTorch tensors
    strait.save_file(tensors, "copy.safetensors")

    with strait.safe_open("model.safetensors", device="cuda:0") as f:      # some tensors, or parts of one
        head = f.get_slice("lm_head.weight")[:1000]

    with strait.File("data.bin") as file:                                  # any bytes, any array
        file.pread(array, offset=4096)

    with strait.Mapping("table.bin") as table:                             # shared by the CPU and devices
        with table.acquire("cuda:0", intent="write") as tensor: ...

It needs libstrait.so.0, which the wheel brings along, and no other package: PyTorch, NumPy, CuPy and JAX are imported when
tensors for them are asked for. STRAIT_LIBRARY is the path of another library. docs/python.md describes all of it.
"""
from ._context import devices
from ._files import iter_tensors, load_file, load_sharded
from ._lib import version
from ._open import safe_open
from ._ordered import Ordered
from ._save import save_file
from ._slice import Slice
from ._stats import stats
from .errors import StraitError
from .file import File, Future
from .mapping import Mapping
from .stream import Stream
from .tensor import Tensor

__all__ = ['File', 'Future', 'Mapping', 'Ordered', 'Slice', 'StraitError', 'Stream', 'Tensor', 'devices', 'iter_tensors',
           'load_file', 'load_sharded', 'safe_open', 'save_file', 'stats', 'version']
