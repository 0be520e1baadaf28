# SPDX-License-Identifier: MIT
"""Streams of a device, on which transfers are ordered with other work."""
import errno
from ctypes import byref, c_void_p
from typing import Any, Optional

from ._context import Context, context
from ._lib import FOREVER
from .errors import StraitError, check


class Stream:
    """A stream of Strait's own, or one of the application: a torch.cuda.Stream, a cupy.cuda.Stream, a number.

        stream = strait.Stream("emu:0")
        done = file.pread(tensor, offset=4096, stream=stream)
        stream.synchronize()
    """

    def __init__(self, device: Any, native: Any = None) -> None:
        self._ctx: Context = context()
        self.device = self._ctx.device(device)
        self.handle: Optional[c_void_p] = None
        handle = c_void_p()
        if native is None:
            rc = self._ctx.lib.strait_stream_open(self.device.handle, byref(handle))
        else:
            rc = self._ctx.lib.strait_stream_import(self.device.handle, native_handle(native), byref(handle))
        check(rc, f'cannot use a stream of {self.device.name}')
        self.handle = handle

    def synchronize(self, timeout: Optional[float] = None) -> None:
        """Wait for all work on the stream, at most timeout seconds."""
        if self.handle is None:
            raise StraitError(errno.EBADF, 'the stream is closed')
        check(self._ctx.lib.strait_stream_wait(self.handle, FOREVER if timeout is None else int(timeout * 1e9)),
              'waiting for the stream')

    def close(self) -> None:
        """Wait for the work on the stream and free it."""
        handle, self.handle = self.handle, None
        if handle is not None:
            self._ctx.lib.strait_stream_close(handle)

    def __enter__(self) -> 'Stream':
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, 'handle', None) is not None:
            self.close()


def native_handle(stream: Any) -> Optional[int]:
    """The CUstream of a stream object; None is the legacy default stream."""
    for name in ('cuda_stream', 'ptr', 'handle'):
        value = getattr(stream, name, None)
        if value is not None:
            return int(value) or None
    if hasattr(stream, '__cuda_stream__'):
        protocol = stream.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1]) or None
    if isinstance(stream, int):
        return stream or None
    raise StraitError(errno.EINVAL, f'{type(stream).__name__} is not a stream')
