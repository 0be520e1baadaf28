# SPDX-License-Identifier: MIT
"""import strait.patch: programs that use safetensors load by Strait, unchanged.

safe_open() and load_file() on a CUDA device read into the GPU's memory. On the CPU they return tensors that know which bytes of the
file they are: moving one to a GPU, or copying it into a tensor there, reads the file into the GPU's memory. What Strait cannot serve
goes to the original, and is counted: strait.patch.summary().

It takes effect for safetensors whether imported before or later; modules that took safe_open from it before keep the original. It
imports neither safetensors nor PyTorch itself.
"""
import importlib.abc
import importlib.machinery
import os
import sys
from typing import Any, Optional, Sequence

from ._counts import counts, print_at_exit

_PATCHED = ('safetensors', 'safetensors.torch')


def summary() -> str:
    """What was served in this process, and what was left to the original, in one line."""
    return counts.summary()


def _patch(module: Any) -> None:
    from . import _patched
    if module.__name__ == 'safetensors' and not hasattr(module, '_strait_original'):
        module._strait_original = module.safe_open
        module.safe_open = _patched.make(module.safe_open)
    elif module.__name__ == 'safetensors.torch' and not hasattr(module.load_file, '__wrapped__'):
        module.safe_open = sys.modules['safetensors'].safe_open
        _patched.patch_load_file(module)


class _Loader(importlib.abc.Loader):
    """Runs a module as its own loader does, then replaces functions in it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def create_module(self, spec: Any) -> Any:
        return self._inner.create_module(spec)

    def exec_module(self, module: Any) -> None:
        # What the module sees of itself is its own loader.
        module.__spec__.loader = module.__loader__ = self._inner
        self._inner.exec_module(module)
        try:
            _patch(module)
        except AttributeError as error:  # a version that has no such function
            counts.left(f'{module.__name__}: {error}')


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules to be patched where the other finders do."""

    def find_spec(self, name: str, path: Optional[Sequence[str]], target: Any = None) -> Any:
        if name not in _PATCHED:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, 'find_spec'):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, 'exec_module'):
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


def install() -> None:
    """Called by the import of this module."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    for name in _PATCHED:
        if name in sys.modules:
            _patch(sys.modules[name])
    if os.environ.get('STRAIT_PATCH') == 'summary':
        print_at_exit()


install()
