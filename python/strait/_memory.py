# SPDX-License-Identifier: MIT
"""Regions: memory that Strait allocated, and memory of other libraries that it imported."""
import bisect
import errno
import threading
from ctypes import byref, c_uint64, c_void_p, sizeof
from typing import List, Optional, Tuple

from ._context import Context, Device
from ._lib import IMPORT_ORDERED, RegionInfo
from .errors import check


class Region:
    """A region of the library, closed when the last reference goes.

    addr is the address that tensors have; device is None for memory of another allocator.
    """

    def __init__(self, ctx: Context, device: Optional[Device], handle: c_void_p, addr: int, length: int) -> None:
        self._close, self.handle = ctx.lib.strait_region_close, handle
        self.ctx, self.device, self.addr, self.length = ctx, device, addr, length

    def __del__(self) -> None:
        if self.handle:
            self._close(self.handle)

    @classmethod
    def allocate(cls, ctx: Context, device: Device, length: int) -> 'Region':
        """Memory of Strait's own."""
        handle, info = c_void_p(), RegionInfo(size=sizeof(RegionInfo))
        check(ctx.lib.strait_region_alloc(device.handle, max(length, 1), byref(handle)),
              f'cannot allocate {length} bytes on {device.name}')
        region = cls(ctx, device, handle, 0, length)
        check(ctx.lib.strait_region_info(handle, byref(info)), 'cannot query the memory')
        region.addr = info.addr
        if device.on_cpu:
            cpu = c_void_p()
            check(ctx.lib.strait_region_map(handle, byref(cpu)), 'cannot map the memory for the CPU')
            region.addr = cpu.value or 0
        return region

    @classmethod
    def of_host(cls, ctx: Context, addr: int, length: int) -> 'Region':
        """Host memory that the application owns and keeps until the region is closed."""
        handle, device = c_void_p(), ctx.device('host')
        check(ctx.lib.strait_region_import(ctx.handle, device.handle, addr, length, byref(handle)),
              f'cannot import {length} bytes of host memory')
        return cls(ctx, device, handle, addr, length)


class Segments:
    """Regions of device memory that another allocator owns, one per allocation of that allocator.

    PyTorch and CuPy cut their blocks out of a few large allocations. Importing one costs some microseconds, so each is
    imported once and found again by address. The library detects an allocation that was freed since.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx, self._lock = ctx, threading.Lock()
        self._starts: List[int] = []
        self._regions: List[Region] = []
        self.imports = 0

    def find(self, addr: int, length: int) -> Tuple[Region, int]:
        """The region that contains a range, and the offset of the range in it."""
        with self._lock:
            k = bisect.bisect_right(self._starts, addr) - 1
            if k >= 0:
                region = self._regions[k]
                if addr + length <= region.addr + region.length:
                    # The allocator may have freed the allocation and made another one at the same address.
                    if self._ctx.lib.strait_region_check(region.handle) == 0:
                        return region, addr - region.addr
                    self._forget_freed()
            return self._import(addr, length), 0

    def _forget_freed(self) -> None:
        lib = self._ctx.lib
        self._regions = [r for r in self._regions if lib.strait_region_check(r.handle) == 0]
        self._starts = [r.addr for r in self._regions]

    def _import(self, addr: int, length: int) -> Region:
        ctx, device, extent, handle = self._ctx, c_void_p(), c_uint64(), c_void_p()
        rc = ctx.lib.strait_region_extent(ctx.handle, addr, byref(device), byref(extent))
        if rc == 0 and extent.value < length:
            rc = -errno.EFAULT
        check(rc, f'no device has {length} bytes at {addr:#x}')
        # Ordered: transfers wait for the stream of the memory's owner, whose own copies stay as they are.
        check(ctx.lib.strait_region_import_flags(ctx.handle, device, addr, extent.value, IMPORT_ORDERED, byref(handle)),
              f'cannot import the memory at {addr:#x}')
        self.imports += 1
        region = Region(ctx, None, handle, addr, extent.value)
        k = bisect.bisect_left(self._starts, addr)
        if k < len(self._starts) and self._starts[k] == addr:
            self._regions[k] = region
        else:
            self._starts.insert(k, addr)
            self._regions.insert(k, region)
        return region


_segments: Optional[Tuple[Context, Segments]] = None
_lock = threading.Lock()


def segments(ctx: Context) -> Segments:
    """The imported allocations of a context."""
    global _segments
    with _lock:
        if _segments is None or _segments[0] is not ctx:
            _segments = (ctx, Segments(ctx))
        return _segments[1]


def locate(ctx: Context, addr: int, length: int, on_cpu: bool) -> Tuple[Region, int]:
    """The region and offset of memory that another library owns."""
    if on_cpu:
        return Region.of_host(ctx, addr, length), 0
    return segments(ctx).find(addr, length)
