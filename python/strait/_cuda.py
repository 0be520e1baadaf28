# SPDX-License-Identifier: MIT
"""The two attributes of the CUDA driver that the package reads and restores itself."""
import contextlib
import ctypes
from typing import Any, Iterator, Optional

_SYNC_MEMOPS = 6
_driver: Optional[Any] = None


def driver() -> Optional[Any]:
    """libcuda.so.1 if the process has it, else None. It is not loaded here."""
    global _driver
    if _driver is None:
        try:
            _driver = ctypes.CDLL('libcuda.so.1', mode=getattr(ctypes, 'RTLD_NOLOAD', 4) | ctypes.RTLD_LOCAL)
            _driver.cuPointerGetAttribute.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64]
            _driver.cuPointerSetAttribute.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64]
        except OSError:
            return None
    return _driver


def sync_memops(addr: int) -> Optional[bool]:
    """Whether synchronous copies to the allocation at addr wait for the device; None if that is not known."""
    cuda, value = driver(), ctypes.c_uint(0)
    if cuda is None or cuda.cuPointerGetAttribute(ctypes.byref(value), _SYNC_MEMOPS, addr):
        return None
    return bool(value.value)


@contextlib.contextmanager
def unchanged_memory(addr: int) -> Iterator[None]:
    """Import memory of another library without leaving SYNC_MEMOPS set on it.

    The library sets the attribute so that copies of the application complete before transfers start. This package waits
    for the stream of the memory's owner instead, and the attribute would make later copies of that owner wait.
    """
    before = sync_memops(addr)
    yield
    cuda = driver()
    if before is False and cuda is not None:
        value = ctypes.c_uint(0)
        cuda.cuPointerSetAttribute(ctypes.byref(value), _SYNC_MEMOPS, addr)
