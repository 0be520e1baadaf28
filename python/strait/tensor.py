# SPDX-License-Identifier: MIT
"""A tensor in memory of Strait's own, for libraries that take DLPack or an array interface."""
import errno
import math
from ctypes import string_at
from typing import Any, Dict, Optional, Tuple

from . import _dlpack
from ._memory import Region
from .dtypes import BITS, DLPACK, TYPESTR
from .errors import StraitError


class Tensor:
    """A compact tensor on a device. Its memory is freed with the last tensor, or consumer, that shares it.

    dtype is the code of the safetensors format ("BF16"), shape a tuple. Consumers take it through __dlpack__
    (cupy.from_dlpack, jax.dlpack.from_dlpack, numpy.from_dlpack, torch.from_dlpack), __cuda_array_interface__ or, on the
    CPU, __array_interface__. Its bytes are complete: no stream has to be waited for.
    """
    __slots__ = ('_region', '_offset', 'dtype', 'shape', '__weakref__')

    def __init__(self, region: Region, offset: int, dtype: str, shape: Tuple[int, ...]) -> None:
        self._region, self._offset, self.dtype, self.shape = region, offset, dtype, shape

    def __repr__(self) -> str:
        return f'strait.Tensor({self.dtype}, {list(self.shape)}, {self.device})'

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError('a tensor without dimensions has no length')
        return self.shape[0]

    @property
    def device(self) -> str:
        """The device's name: "cuda:0", "emu:0", "host"."""
        return self._region.device.name if self._region.device else 'unknown'

    @property
    def nbytes(self) -> int:
        return BITS[self.dtype] * math.prod(self.shape) // 8

    @property
    def data_ptr(self) -> int:
        """The address of the first byte, on the device; on emu and host, that of the CPU."""
        return self._region.addr + self._offset

    def __dlpack_device__(self) -> Tuple[int, int]:
        device = self._region.device
        return (device.dl_type, device.index) if device else (0, 0)

    def __dlpack__(self, *, stream: Optional[Any] = None, **options: Any) -> Any:
        code_bits = DLPACK.get(self.dtype)
        if code_bits is None:
            raise StraitError(errno.EOPNOTSUPP, f'DLPack has no type for {self.dtype}')
        return _dlpack.export(self._region, self.data_ptr, self.__dlpack_device__(), *code_bits, self.shape)

    def _interface(self, **more: Any) -> Dict[str, Any]:
        typestr = TYPESTR.get(self.dtype)
        if typestr is None:
            raise AttributeError(f'an array interface has no type for {self.dtype}')
        return {'shape': self.shape, 'typestr': typestr, 'data': (self.data_ptr if self.nbytes else 0, False),
                'strides': None, 'version': 3, **more}

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        if self.__dlpack_device__()[0] != 2:
            raise AttributeError('the tensor is not on a CUDA device')
        return self._interface(stream=None)

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        if self.__dlpack_device__()[0] != 1:
            raise AttributeError('the tensor is not in memory of the CPU')
        return self._interface()

    def tobytes(self) -> bytes:
        """A copy of its bytes in host memory."""
        if self.__dlpack_device__()[0] == 1:
            return string_at(self.data_ptr, self.nbytes)
        data = bytearray(self.nbytes)
        if data:
            from ctypes import c_char
            target = (c_char * len(data)).from_buffer(data)
            rc = self._region.ctx.lib.strait_region_copy_out(self._region.handle, self._offset, target, len(data))
            del target
            if rc:
                raise StraitError(-rc, 'cannot copy from the device')
        return bytes(data)
