# SPDX-License-Identifier: MIT
"""strait.File: reads and writes between a file and memory of any device."""
import errno
import os
import threading
import time
from ctypes import byref, c_char, c_void_p
from typing import Any, Dict, Optional

from ._buffer import Buffer
from ._context import context, route_mask
from ._lib import FILE_BUFFERED, FILE_DIRECT, FILE_LEASE, FILE_UNCHANGING, PACKED_RESULT, READ, ROUTES, WRITE, Transfer
from ._ordered import enqueue
from ._transfer import reasons
from .errors import StraitError, check

_FETCH = 64
_SLICE_NS = 100_000_000
_MODES = {'r': os.O_RDONLY, 'r+': os.O_RDWR, 'w': os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
          'w+': os.O_RDWR | os.O_CREAT | os.O_TRUNC, 'x': os.O_WRONLY | os.O_CREAT | os.O_EXCL,
          'x+': os.O_RDWR | os.O_CREAT | os.O_EXCL}


class Future:
    """A transfer in flight. It references its memory until it is done."""

    def __init__(self, file: 'File', number: int, op: int, routes: int, offset: int, buffer: Buffer, length: int) -> None:
        self._file, self._number, self._buffer, self._value = file, number, buffer, None
        self._transfer = Transfer(op=op, routes=routes, endpoint=file._endpoint,
                                  region=buffer.region.handle if length else None, endpoint_offset=offset,
                                  region_offset=buffer.offset, length=length, user_data=number)
        self._error: Optional[StraitError] = None
        self.route_bytes: Dict[str, int] = {}

    def done(self) -> bool:
        """Whether the transfer is complete. Does not wait."""
        if self._value is None and self._error is None:
            self._file._fetch(0)
        return self._value is not None or self._error is not None

    def result(self, timeout: Optional[float] = None) -> int:
        """The bytes transferred, fewer than asked for only where the file ends. Waits, at most timeout seconds."""
        self._file._wait(self, timeout)
        if self._error is not None:
            raise self._error
        return self._value or 0

    def exception(self, timeout: Optional[float] = None) -> Optional[StraitError]:
        """What the transfer failed with, or None. Waits."""
        self._file._wait(self, timeout)
        return self._error

    def cancel(self) -> bool:
        """Stop the transfer. result() then raises ECANCELED, unless it completed before."""
        return self._file._cancel(self._number)

    def _complete(self, done: int, status: int, routes: int, by_route: Any) -> None:
        self.route_bytes = {name: by_route[k] for k, name in enumerate(ROUTES) if by_route[k]}
        if status:
            mask = routes or self._transfer.routes
            route = next((name for k, name in enumerate(ROUTES) if mask >> k & 1), None)
            why = reasons(self._file._ctx, self._transfer).get(route or '') if status != -errno.ECANCELED else None
            text = os.strerror(-status)
            if status == -errno.EOPNOTSUPP and route and why:
                text = f'the route {route} is not possible: {why}'
            self._error = StraitError(-status, text, self._file.name, route=route, reason=why)
        else:
            self._value = done
        self._buffer = None  # type: ignore[assignment]


class File:
    """A file whose bytes are read into, and written from, memory of any device.

        with strait.File("data.bin") as file:
            n = file.pread(tensor, offset=4096)
            future = file.submit_read(other, offset=1 << 20)
            ...
            future.result()

    mode: "r", "r+", "w", "w+", "x" or "x+", as of open().
    direct, buffered: always direct I/O where alignment allows, never direct I/O.
    immutable: a promise that the file does not change while it is open. lease: a read lease instead of the promise.
    The arrays may be PyTorch's, CuPy's, NumPy's, a bytearray, or any with DLPack or __cuda_array_interface__. Work that
    is queued on the stream of an array is waited for before a transfer starts.
    """

    def __init__(self, path: Any, mode: str = 'r', *, direct: bool = False, buffered: bool = False,
                 immutable: bool = False, lease: bool = False) -> None:
        oflags = _MODES.get(mode.replace('b', ''))
        if oflags is None:
            raise StraitError(errno.EINVAL, f'there is no mode {mode!r}: the modes are {", ".join(_MODES)}')
        self._ctx, self.name, self.mode = context(), os.fspath(path), mode
        self._endpoint: Optional[c_void_p] = None
        self._queue: Optional[c_void_p] = None
        flags = direct * FILE_DIRECT | buffered * FILE_BUFFERED | immutable * FILE_UNCHANGING | lease * FILE_LEASE
        self._endpoint = self._ctx.open_file(self.name, oflags, 0o666, flags)
        self._lock, self._fetching = threading.Lock(), threading.Lock()
        self._pending: Dict[int, Future] = {}
        self._count = 0
        self._results = bytearray(_FETCH * PACKED_RESULT.size)

    # Reads and writes

    def pread(self, buffer: Any, offset: int = 0, *, size: Optional[int] = None, route: Optional[str] = None,
              stream: Any = None) -> Any:
        """Read into an array from an offset of the file. Returns the bytes read, fewer only where the file ends.

        With stream, the read is ordered on that stream: it starts when earlier work there is done, later work waits for
        it, and the call returns a strait.Ordered at once.
        """
        return self._move(READ, buffer, offset, size, route, stream)

    def pwrite(self, buffer: Any, offset: int = 0, *, size: Optional[int] = None, route: Optional[str] = None,
               stream: Any = None) -> Any:
        """Write an array at an offset of the file. Returns the bytes written; with stream as pread()."""
        return self._move(WRITE, buffer, offset, size, route, stream)

    def submit_read(self, buffer: Any, offset: int = 0, *, size: Optional[int] = None,
                    route: Optional[str] = None) -> Future:
        """Start a read and return its Future. The array must not be used until it is done."""
        return self._submit(READ, buffer, offset, size, route)

    def submit_write(self, buffer: Any, offset: int = 0, *, size: Optional[int] = None,
                     route: Optional[str] = None) -> Future:
        """Start a write and return its Future. The array must not be changed until it is done."""
        return self._submit(WRITE, buffer, offset, size, route)

    def explain(self, buffer: Any, offset: int = 0, *, write: bool = False) -> Dict[str, str]:
        """For each route, how it would move the bytes of such a transfer, or why it cannot."""
        memory = Buffer(self._ctx, buffer, writable=not write)
        return reasons(self._ctx, Transfer(op=WRITE if write else READ, endpoint=self._open(),
                                           region=memory.region.handle, endpoint_offset=offset,
                                           region_offset=memory.offset, length=memory.nbytes))

    # The file

    @property
    def size(self) -> int:
        """Its length in bytes now."""
        return self._ctx.file_info(self._open()).length

    @property
    def closed(self) -> bool:
        return self._endpoint is None

    def sync(self) -> None:
        """Make completed writes durable."""
        check(self._ctx.lib.strait_endpoint_sync(self._open()), 'cannot make the file durable', self.name)

    def close(self) -> None:
        """Wait for the transfers in flight and close the file."""
        if self._endpoint is None:
            return
        while self._pending:
            self._fetch(1)
        endpoint, self._endpoint = self._endpoint, None
        if self._queue is not None:
            self._ctx.put_queue(self._queue, idle=True)
            self._queue = None
        self._ctx.lib.strait_endpoint_close(endpoint)

    def __enter__(self) -> 'File':
        self._open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, '_endpoint', None) is not None:
            if self._queue is not None:
                self._ctx.put_queue(self._queue, idle=not self._pending)
            self._ctx.lib.strait_endpoint_close(self._endpoint)

    def __repr__(self) -> str:
        return f'<strait.File {self.name!r} mode {self.mode!r}{" closed" if self.closed else ""}>'

    # Transfers

    def _open(self) -> c_void_p:
        if self._endpoint is None:
            raise StraitError(errno.EBADF, 'the file is closed', self.name)
        return self._endpoint

    def _memory(self, op: int, buffer: Any, offset: int, size: Optional[int]) -> Any:
        self._open()
        memory = Buffer(self._ctx, buffer, writable=op == READ)
        length = memory.nbytes if size is None else size
        if not 0 <= length <= memory.nbytes:
            raise StraitError(errno.EINVAL, f'{length} bytes do not fit an array of {memory.nbytes}', self.name)
        if offset < 0:
            raise StraitError(errno.EINVAL, f'the offset {offset} is negative', self.name)
        return memory, length

    def _move(self, op: int, buffer: Any, offset: int, size: Optional[int], route: Optional[str], stream: Any) -> Any:
        if stream is None:
            return self._submit(op, buffer, offset, size, route).result()
        memory, length = self._memory(op, buffer, offset, size)
        return enqueue(self, op, memory, offset, length, route_mask(route), stream)

    def _submit(self, op: int, buffer: Any, offset: int, size: Optional[int], route: Optional[str]) -> Future:
        memory, length = self._memory(op, buffer, offset, size)
        mask = route_mask(route)
        memory.wait()
        with self._lock:
            if self._queue is None:
                self._queue = self._ctx.take_queue()
            self._count += 1
            future = Future(self, self._count, op, mask, offset, memory, length)
            if not length:
                future._value = 0
                return future
            self._pending[self._count] = future
        while True:
            rc = self._ctx.lib.strait_queue_submit(self._queue, byref(future._transfer), 1)
            if rc != -errno.EAGAIN:
                break
            self._fetch(1)
        if rc:
            with self._lock:
                self._pending.pop(future._number, None)
            raise StraitError(-rc, f'cannot start the transfer: {os.strerror(-rc)}', self.name)
        return future

    def _fetch(self, minimum: int) -> None:
        """Fetch results. If another thread does, wait for it to have fetched some."""
        if not self._fetching.acquire(blocking=bool(minimum), timeout=_SLICE_NS / 1e9 if minimum else -1):
            return
        try:
            if not self._pending or self._queue is None:
                return
            room = (c_char * len(self._results)).from_buffer(self._results)
            n = self._ctx.lib.strait_queue_wait(self._queue, minimum, _FETCH, _SLICE_NS if minimum else 0, room)
            del room
            check(n, 'cannot fetch results', self.name)
            for k in range(n):
                number, done, status, _, routes, _, *by_route = PACKED_RESULT.unpack_from(
                    self._results, k * PACKED_RESULT.size)
                with self._lock:
                    future = self._pending.pop(number)
                future._complete(done, status, routes, by_route)
        finally:
            self._fetching.release()

    def _wait(self, future: Future, timeout: Optional[float]) -> None:
        end = None if timeout is None else time.monotonic() + timeout
        while future._value is None and future._error is None:
            self._fetch(1)
            if end is not None and time.monotonic() >= end and future._value is None and future._error is None:
                raise StraitError(errno.ETIMEDOUT, 'the transfer is not done', self.name)

    def _cancel(self, number: int) -> bool:
        with self._lock:
            if number not in self._pending:
                return False
        return self._ctx.lib.strait_queue_cancel(self._queue, number) > 0
