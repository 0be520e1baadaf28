# SPDX-License-Identifier: MIT
"""A file mapped once, for the CPU and for devices, of which only changed parts are copied."""
import errno
import importlib
import math
import os
import threading
from ctypes import byref, c_int, c_uint64, c_void_p, sizeof
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from ._context import Context, Device, context
from ._lib import MappingInfo, MappingOpts
from ._memory import Region
from ._ordered import imported
from .dtypes import BITS, TYPESTR, code_of
from .errors import StraitError, check
from .stream import Stream
from .tensor import Tensor

_INTENTS = ('read', 'write', 'overwrite')
_ADVICE = ('normal', 'sequential', 'random', 'once', 'keep')
_TRACKING = ('none', 'scan', 'compare')
_BACKING = ('shared', 'copy')
_READ_ONLY, _PRIVATE, _COMPARE, _COPY = 1, 2, 4, 8
_NOT_DONE = 1

# The library writes the results of calls on a stream: they are referenced until then, whatever the caller drops.
_in_flight: List[c_int] = []
_lock = threading.Lock()


def _result() -> c_int:
    result = c_int(_NOT_DONE)
    with _lock:
        _in_flight[:] = [other for other in _in_flight if other.value == _NOT_DONE]
        _in_flight.append(result)
    return result


class _Handle:
    """The library's mapping, closed when the last view goes: an array must not outlive its memory."""

    def __init__(self, ctx: Context, handle: c_void_p, endpoint: Optional[c_void_p]) -> None:
        self.ctx, self.handle, self._endpoint, self._pid = ctx, handle, endpoint, os.getpid()

    def __del__(self) -> None:
        # A child made by fork() has nothing to close.
        if self._pid == os.getpid():
            self.ctx.lib.strait_mapping_close(self.handle)
            if self._endpoint is not None:
                self.ctx.lib.strait_endpoint_close(self._endpoint)


class _Bytes:
    """The CPU's bytes of a range: an array interface that references the mapping."""

    def __init__(self, owner: _Handle, addr: int, typestr: str, shape: Tuple[int, ...], readonly: bool) -> None:
        self._owner = owner
        self.__array_interface__ = {'shape': shape, 'typestr': typestr, 'data': (addr, readonly), 'version': 3}


class Range:
    """An acquired range. Released at the end of a with statement, or by release().

    data is what the side uses: on the CPU a NumPy array, on a device a strait.Tensor, for torch.from_dlpack and others. It
    is valid until the release. Work on a device that uses it must have ended by then, or be on the stream of the range.
    """

    def __init__(self, mapping: 'Mapping', device: Optional[Device], stream: Optional[Stream], offset: int, length: int,
                 intent: int, data: Any) -> None:
        self._mapping: Optional['Mapping'] = mapping
        self._device, self._stream, self._args, self.data = device, stream, (offset, length, intent), data
        self._path, self._results = mapping._path, []  # type: Optional[str], List[c_int]

    def release(self) -> None:
        """Publish what was changed: when the stream gets there, if it was acquired on one. The data must not be used any more."""
        mapping, self._mapping, self.data = self._mapping, None, None
        if mapping is None:
            return
        if self._stream is None:
            mapping._call('release', self._device.handle if self._device else None, *self._args)
        else:
            self._results.append(mapping._call_on('release', self._stream, *self._args))

    def wait(self, timeout: Optional[float] = None) -> None:
        """Wait for the stream on which the range was acquired. Raises what acquire, or release, failed with there."""
        if self._stream is not None and any(result.value == _NOT_DONE for result in self._results):
            self._stream.synchronize(timeout)
        for result in self._results:
            check(min(result.value, 0), 'cannot acquire or release the range', self._path)

    def __enter__(self) -> Any:
        return self.data

    def __exit__(self, *exc: object) -> None:
        self.release()


class Mapping:
    """A coherent mapping of a file, or of memory if path is None (docs/mapping.md).

        with strait.Mapping("table.bin") as table:
            with table.acquire(intent="write", dtype="float32") as rows:             # the CPU: a NumPy array
                rows[17] = 1
            with table.acquire("cuda:0", intent="write", dtype="float32") as rows:   # a strait.Tensor
                torch.from_dlpack(rows).mul_(2)
                torch.cuda.synchronize()
            stream = torch.cuda.current_stream()
            with table.acquire("cuda:0", intent="write", dtype="float32", stream=stream) as rows:   # nothing waits
                torch.from_dlpack(rows).mul_(2)
            stream.synchronize()
            table.sync()
    """

    def __init__(self, path: Optional[Union[str, 'os.PathLike[str]']], offset: int = 0, length: int = 0, *,
                 read_only: bool = False, private: bool = False, compare: bool = False, copy: bool = False,
                 device_budget: int = 0, pinned_budget: int = 0, copy_budget: int = 0) -> None:
        self._ctx: Context = context()
        self._handle: Optional[_Handle] = None
        self._path = None if path is None else os.fspath(path)
        opts = MappingOpts(size=sizeof(MappingOpts), device_budget=device_budget, pinned_budget=pinned_budget,
                           copy_budget=copy_budget, flags=_READ_ONLY * read_only | _PRIVATE * private |
                           _COMPARE * compare | _COPY * copy)
        endpoint, handle = None, c_void_p()
        if self._path is not None:
            endpoint = self._ctx.open_file(self._path, os.O_CLOEXEC | (os.O_RDONLY if read_only or private else os.O_RDWR))
        rc = self._ctx.lib.strait_mapping_open(self._ctx.handle, endpoint, offset, length, byref(opts), byref(handle))
        if rc and endpoint is not None:
            self._ctx.lib.strait_endpoint_close(endpoint)
        check(rc, 'cannot map the file', self._path)
        self._handle, self._read_only = _Handle(self._ctx, handle, endpoint), read_only
        info = self._info()
        self._addr, self.nbytes = info.addr or 0, info.length

    def _live(self) -> _Handle:
        if self._handle is None:
            raise StraitError(errno.EBADF, 'the mapping is closed')
        return self._handle

    def _call(self, name: str, *args: Any) -> None:
        function = getattr(self._ctx.lib, f'strait_mapping_{name}')
        check(function(self._live().handle, *args), f'cannot {name} the range', self._path)

    def _call_on(self, name: str, stream: Stream, *args: Any) -> c_int:
        if stream.handle is None:
            raise StraitError(errno.EBADF, 'the stream is closed', self._path)
        result = _result()
        function = getattr(self._ctx.lib, f'strait_mapping_{name}_on')
        rc = function(self._live().handle, stream.handle, *args, byref(result))
        if rc:
            result.value = rc
        check(rc, f'cannot {name} the range on the stream', self._path)
        return result

    def _info(self) -> MappingInfo:
        info = MappingInfo(size=sizeof(MappingInfo))
        check(self._ctx.lib.strait_mapping_info(self._live().handle, byref(info)), 'cannot query the mapping', self._path)
        return info

    def info(self) -> Dict[str, Any]:
        """State and counters, by the names of struct strait_mapping_info."""
        info = self._info()
        found = {name: getattr(info, name) for name, _ in MappingInfo._fields_ if name not in ('size', 'reserved', 'flags')}
        found['tracking'], found['backing'] = _TRACKING[info.tracking], _BACKING[info.backing]
        return found

    def __len__(self) -> int:
        return self.nbytes

    def _range(self, offset: int, length: Optional[int]) -> Tuple[int, int]:
        if offset < 0 or (length is not None and length < 0):
            raise StraitError(errno.EINVAL, f'the range ({offset}, {length}) is not in the mapping')
        return offset, max(self.nbytes - offset, 0) if length is None else length

    def _side(self, device: Any) -> Optional[Device]:
        return None if device is None or str(device) == 'cpu' else self._ctx.device(device)

    def _stream(self, side: Optional[Device], stream: Any) -> Optional[Stream]:
        if stream is None:
            return None
        if side is None:
            raise StraitError(errno.EINVAL, 'the CPU acquires on no stream: name a device', self._path)
        if not isinstance(stream, Stream):
            return imported(self._ctx, side.handle.value or 0, side.name, stream)
        if stream.device.name != side.name:
            raise StraitError(errno.EINVAL, f'the stream is one of {stream.device.name}, not of {side.name}', self._path)
        return stream

    def acquire(self, device: Any = None, offset: int = 0, length: Optional[int] = None, intent: str = 'read',
                dtype: Any = 'uint8', shape: Optional[Sequence[int]] = None, stream: Any = None) -> Range:
        """Make the latest bytes of a range visible to the CPU (None, "cpu") or a device, until it is released.

        intent: "read", "write", or "overwrite": the old bytes are not fetched. Without a length, to the end.
        stream: acquire and release when this stream of the device gets there, and do not wait: a torch.cuda.Stream, a
        cupy.cuda.Stream, the number of a CUstream, or a strait.Stream. wait() of the result raises what failed there.
        """
        offset, length = self._range(offset, length)
        code = dtype if dtype in BITS else code_of(getattr(dtype, 'name', None) or str(dtype))
        if intent not in _INTENTS or code is None or BITS[code] % 8:
            raise StraitError(errno.EINVAL, f'cannot acquire with the intent {intent!r} and the type {dtype!r}')
        item, side = BITS[code] // 8, self._side(device)
        dims = (length // item,) if shape is None else tuple(shape)
        if math.prod(dims) * item != length:
            raise StraitError(errno.EINVAL, f'{length} bytes are no array of {code} with the shape {list(dims)}')
        args, addr, on = (offset, length, _INTENTS.index(intent)), c_void_p(), self._stream(side, stream)
        part = Range(self, side, on, *args, None)
        if on is None:
            self._call('acquire', side.handle if side else None, *args, byref(addr))
        else:
            part._results.append(self._call_on('acquire', on, *args, byref(addr)))
        try:
            part.data = self._tensor(side, addr, code, dims) if side else self._array(offset, code, dims, intent)
        except BaseException:
            part.release()
            raise
        return part

    def _array(self, offset: int, code: str, dims: Tuple[int, ...], intent: str) -> Any:
        typestr = TYPESTR.get(code)
        if typestr is None:
            raise StraitError(errno.EINVAL, f'NumPy has no type for {code}')
        view = _Bytes(self._live(), self._addr + offset, typestr, dims, self._read_only or intent == 'read')
        return importlib.import_module('numpy').asarray(view)

    def _tensor(self, device: Device, addr: c_void_p, code: str, dims: Tuple[int, ...]) -> Tensor:
        lib, handle, within, cpu = self._ctx.lib, c_void_p(), c_uint64(), c_void_p()
        check(lib.strait_region_lookup(self._ctx.handle, addr, byref(within), byref(handle)), 'cannot use the memory')
        region = Region(self._ctx, device, handle, (addr.value or 0) - within.value, 0)
        if device.on_cpu:
            check(lib.strait_region_map(handle, byref(cpu)), 'cannot map the memory for the CPU')
            region.addr = cpu.value or 0
        return Tensor(region, within.value, code, dims)

    def refresh(self, offset: int = 0, length: Optional[int] = None) -> None:
        """See changes that other processes made to the file."""
        self._call('refresh', *self._range(offset, length))

    def flush(self, offset: int = 0, length: Optional[int] = None) -> None:
        """Write what was published to the file."""
        self._call('flush', *self._range(offset, length))

    def sync(self, offset: int = 0, length: Optional[int] = None) -> None:
        """Flush, and make the file durable."""
        self._call('sync', *self._range(offset, length))

    def prefetch(self, device: Any = None, offset: int = 0, length: Optional[int] = None) -> None:
        """Start to make a range current for the CPU or a device."""
        side = self._side(device)
        self._call('prefetch', side.handle if side else None, *self._range(offset, length))

    def evict(self, device: Any = None, offset: int = 0, length: Optional[int] = None) -> None:
        """Write back and give up what the CPU or a device has of a range."""
        side = self._side(device)
        self._call('evict', side.handle if side else None, *self._range(offset, length))

    def advise(self, advice: str, offset: int = 0, length: Optional[int] = None) -> None:
        """Say how a range will be used: "normal", "sequential", "random", "once", "keep"."""
        if advice not in _ADVICE:
            raise StraitError(errno.EINVAL, f'there is no advice {advice!r}: there are {", ".join(_ADVICE)}')
        self._call('advise', *self._range(offset, length), _ADVICE.index(advice))

    def close(self) -> None:
        """Write back what was published. The memory is unmapped with the last array of it."""
        if self._handle is not None:
            try:
                self.flush()
            finally:
                self._handle = None

    def __enter__(self) -> 'Mapping':
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
