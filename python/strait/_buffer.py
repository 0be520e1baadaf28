# SPDX-License-Identifier: MIT
"""Any array as the memory of a transfer: PyTorch, DLPack, __cuda_array_interface__, the buffer protocol."""
import errno
import math
import sys
from ctypes import POINTER, PyDLL, Structure, byref, c_char_p, c_int, c_ssize_t, c_void_p, py_object
from typing import Any, Dict, Iterable, Optional, Set, Tuple

from ._context import Context
from ._dlpack import Imported
from ._lib import FOREVER
from ._memory import locate
from .errors import StraitError, check
from .tensor import Tensor

# DLPack's kinds of devices: CPU, CUDA, pinned host memory, managed memory.
_ON_CPU, _ON_CUDA = (1, 3), (2, 13)


class Buffer:
    """The memory of an array: a region and an offset in it. It references the array."""

    def __init__(self, ctx: Context, source: Any, writable: bool) -> None:
        self.ctx, self.source, self.addr, self.nbytes, self.on_cpu = ctx, source, 0, 0, True
        self.device_index: Optional[int] = None
        self._stream: Optional[int] = None
        self._keep: Any = None
        self._torch: Any = None
        torch = sys.modules.get('torch')
        if isinstance(source, Tensor):
            self.nbytes, self.region, self.offset = source.nbytes, source._region, source._offset
            self.addr = source.data_ptr
            return
        if torch is not None and isinstance(source, torch.Tensor):
            self._take_torch(torch, source)
        elif hasattr(source, '__cuda_array_interface__'):
            self._take_interface(source.__cuda_array_interface__, False, writable)
        elif hasattr(source, '__array_interface__'):
            self._take_interface(source.__array_interface__, True, writable)
        elif hasattr(source, '__dlpack__'):
            self._take_dlpack(source)
        else:
            self._take_buffer(source, writable)
        self.offset = 0
        if self.nbytes:
            self.region, self.offset = locate(ctx, self.addr, self.nbytes, self.on_cpu)

    def _take_torch(self, torch: Any, tensor: Any) -> None:
        if tensor.device.type not in ('cpu', 'cuda'):
            raise StraitError(errno.EINVAL, f'cannot transfer to or from a tensor on {tensor.device}')
        if tensor.layout != torch.strided or not tensor.is_contiguous():
            raise _not_compact()
        self.addr, self.nbytes = tensor.data_ptr(), tensor.numel() * tensor.element_size()
        self.on_cpu = tensor.device.type == 'cpu'
        if not self.on_cpu:
            self.device_index, self._torch = tensor.device.index, torch
            self._stream = torch.cuda.current_stream(tensor.device).cuda_stream

    def _take_interface(self, interface: Dict[str, Any], on_cpu: bool, writable: bool) -> None:
        data = interface.get('data')
        if not isinstance(data, tuple):
            self._take_buffer(self.source, writable)
            return
        if data[1] and writable:
            raise StraitError(errno.EINVAL, 'the array is read-only')
        item, shape, strides = int(interface['typestr'][2:]), tuple(interface['shape']), interface.get('strides')
        step = item
        for size, stride in zip(reversed(shape), reversed(strides or ())):
            if size != 1 and stride != step and 0 not in shape:
                raise _not_compact()
            step *= size
        self.addr, self.nbytes, self.on_cpu = data[0] or 0, item * math.prod(shape), on_cpu
        if not on_cpu:
            # Before version 3 an interface names no stream: the default one.
            self._stream = interface.get('stream', 1 if interface.get('version', 0) < 3 else None)

    def _take_dlpack(self, source: Any) -> None:
        kind = source.__dlpack_device__()[0]
        # The producer makes its legacy default stream wait for the array; wait() waits for that stream.
        self._stream = 1 if kind in _ON_CUDA else None
        taken = self._keep = Imported(source, self._stream)
        if kind not in _ON_CPU + _ON_CUDA:
            raise StraitError(errno.EINVAL, f'cannot transfer to or from memory of DLPack device type {int(kind)}')
        if not taken.compact:
            raise _not_compact()
        self.addr, self.nbytes, self.on_cpu = taken.addr, taken.bytes, kind in _ON_CPU
        self.device_index = taken.device_id

    def _take_buffer(self, source: Any, writable: bool) -> None:
        try:
            view = memoryview(source)
        except TypeError:
            raise StraitError(errno.EINVAL, f'{type(source).__name__} is not an array: it has neither DLPack nor an '
                                            'array interface nor the buffer protocol') from None
        if not view.c_contiguous:
            raise _not_compact()
        if view.readonly and writable:
            raise StraitError(errno.EINVAL, 'the array is read-only')
        self.nbytes, self._keep = view.nbytes, view
        self.addr = _address_of(view)

    def wait(self) -> None:
        """Wait for the work on the stream that the array is used on."""
        if self._stream is None or not self.nbytes:
            return
        if self._torch is not None:
            self._torch.cuda.current_stream(self.device_index).synchronize()
            return
        device, stream = self.ctx.region_device(self.region), c_void_p()
        # 1 and 2 are CUDA's legacy and per-thread default streams, 0 the legacy one, too.
        check(self.ctx.lib.strait_stream_import(device, self._stream or None, byref(stream)), 'cannot use the stream')
        try:
            check(self.ctx.lib.strait_stream_wait(stream, FOREVER), 'the work on the stream failed')
        finally:
            self.ctx.lib.strait_stream_close(stream)


def wait_all(buffers: Iterable[Buffer]) -> None:
    """Wait once for each stream that the arrays are used on."""
    seen: Set[Tuple[Optional[int], Optional[int]]] = set()
    for buffer in buffers:
        key = (buffer.device_index, buffer._stream)
        if key not in seen and buffer.nbytes:
            seen.add(key)
            buffer.wait()


def _not_compact() -> StraitError:
    return StraitError(errno.EINVAL, 'the array is not contiguous')


class _PyBuffer(Structure):
    _fields_ = [('buf', c_void_p), ('obj', py_object), ('len', c_ssize_t), ('itemsize', c_ssize_t), ('readonly', c_int),
                ('ndim', c_int), ('format', c_char_p), ('shape', c_void_p), ('strides', c_void_p),
                ('suboffsets', c_void_p), ('internal', c_void_p)]


_api = PyDLL(None)
_api.PyObject_GetBuffer.argtypes = [py_object, POINTER(_PyBuffer), c_int]
_api.PyBuffer_Release.argtypes, _api.PyBuffer_Release.restype = [POINTER(_PyBuffer)], None


def _address_of(view: memoryview) -> int:
    """The address of a buffer, writable or not."""
    info = _PyBuffer()
    _api.PyObject_GetBuffer(view, byref(info), 0)
    addr = info.buf or 0
    _api.PyBuffer_Release(byref(info))
    return addr
