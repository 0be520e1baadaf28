# SPDX-License-Identifier: MIT
"""Transfers that are ordered on a stream."""
import errno
import os
import threading
from ctypes import byref, c_int64, c_uint64, pointer, sizeof
from typing import Any, Dict, List, Optional, Tuple

from ._lib import StreamTransfer
from .errors import StraitError, check
from .stream import Stream, native_handle

_FIXED = 1
_NOT_DONE = -(1 << 63)

# The device writes the results of transfers on a stream: they are referenced until then, whatever the caller drops.
_in_flight: List['Ordered'] = []
_streams: Dict[Tuple[int, int, Optional[int]], Stream] = {}
_lock = threading.Lock()


class Ordered:
    """A transfer on a stream. It has happened when work that follows it on the stream runs."""

    def __init__(self, file: Any, memory: Any, offset: int, length: int) -> None:
        self._file, self._memory, self._name = file, memory, file.name
        self._numbers = (c_uint64 * 3)(offset, 0, length)
        self._result = c_int64(_NOT_DONE)
        self._stream: Optional[Stream] = None

    def done(self) -> bool:
        """Whether the stream has passed the transfer."""
        return self._result.value != _NOT_DONE

    def result(self, timeout: Optional[float] = None) -> int:
        """The bytes transferred. Waits for the work on the stream."""
        if not self.done() and self._stream is not None:
            self._stream.synchronize(timeout)
        value = self._result.value
        if value < 0:
            raise StraitError(-value, os.strerror(-value), self._name)
        return value


def enqueue(file: Any, op: int, memory: Any, offset: int, length: int, routes: int, stream: Any) -> Ordered:
    """Put a transfer on a stream."""
    ordered = Ordered(file, memory, offset, length)
    if not length:
        ordered._result.value = 0
        return ordered
    ordered._stream = stream if isinstance(stream, Stream) else _imported(file, memory, stream)
    if ordered._stream.handle is None:
        raise StraitError(errno.EBADF, 'the stream is closed', file.name)
    numbers = ordered._numbers
    transfer = StreamTransfer(
        size=sizeof(StreamTransfer), op=op, routes=routes, endpoint=file._open(), region=memory.region.handle,
        endpoint_offset=pointer(c_uint64.from_buffer(numbers, 0)), region_offset=pointer(c_uint64.from_buffer(numbers, 8)),
        length=pointer(c_uint64.from_buffer(numbers, 16)), result=pointer(ordered._result), region_base=memory.offset,
        flags=_FIXED)
    with _lock:
        _in_flight[:] = [other for other in _in_flight if not other.done()]
        _in_flight.append(ordered)
    rc = file._ctx.lib.strait_stream_transfer(ordered._stream.handle, byref(transfer))
    if rc:
        with _lock:
            _in_flight.remove(ordered)
    check(rc, 'cannot put the transfer on the stream', file.name)
    return ordered


def _imported(file: Any, memory: Any, stream: Any) -> Stream:
    device = file._ctx.region_device(memory.region)
    return imported(file._ctx, device.value or 0, f'cuda:{memory.device_index or 0}', stream)


def imported(ctx: Any, device: int, name: str, stream: Any) -> Stream:
    """The application's stream. Closing it would wait for its work, so it stays for the next transfer."""
    native = native_handle(stream)
    with _lock:
        key = (id(ctx), device, native)
        found = _streams.get(key)
        if found is None:
            found = _streams[key] = Stream(name, native or 0)
        return found
