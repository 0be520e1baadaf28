# SPDX-License-Identifier: MIT
"""What a loader needs of PyTorch, NumPy, CuPy and JAX. Each is imported only when tensors for it are asked for."""
import errno
import importlib.util
import math
import os
import sys
from ctypes import c_char
from typing import Any, Dict, Iterable, Mapping, Optional, Tuple

from ._context import Device, context
from ._memory import Region
from .dtypes import BITS, ML_DTYPES, NUMPY, TORCH
from .errors import StraitError
from .tensor import Tensor

# How much memory tensors of a file share at most.
RESERVE = 1 << 30
_ALLOCATOR = ('PYTORCH_CUDA_ALLOC_CONF', 'PYTORCH_ALLOC_CONF', 'PYTORCH_NO_CUDA_MEMORY_CACHING')

Shape = Tuple[int, ...]
Tensors = Mapping[str, Tuple[str, Shape, int, int]]


class Framework:
    """Tensors of Strait's own: the base of the others."""
    name = 'strait'
    # It allocates each tensor itself, instead of taking a part of a region of Strait's.
    owns_memory = False
    # Its arrays can be indexed on the device.
    can_index = False
    # Parts of its arrays can be assigned.
    can_assign = True

    def __init__(self, device: Device) -> None:
        self.device = device
        context().prepare(device)

    def check(self, code: str) -> None:
        """Raise if there is no type for the code, before anything is transferred."""

    def arena(self, region: Region) -> Any:
        """A region as view() takes it."""
        return region

    def view(self, arena: Any, offset: int, code: str, shape: Shape) -> Any:
        """The tensor at an offset of a region, which it keeps alive."""
        return Tensor(arena, offset, code, shape)

    def views(self, arena: Any, tensors: Tensors, places: Iterable[int]) -> Dict[str, Any]:
        """The tensors of a header at their offsets of a region."""
        view = self.view
        return {name: view(arena, place, entry[0], entry[1]) for (name, entry), place in zip(tensors.items(), places)}

    def empty(self, code: str, shape: Shape) -> Any:
        """A tensor of the framework's own memory, uninitialized."""
        raise NotImplementedError

    def reserve(self, count: int) -> None:
        """Tensors of so many bytes are to be allocated."""

    def address(self, tensor: Any) -> int:
        raise NotImplementedError

    def wait(self) -> None:
        """Wait for the work that the caller has queued on its current stream: it may still use a fresh tensor."""

    def _refuse(self, code: str, why: str) -> StraitError:
        return StraitError(errno.EOPNOTSUPP, f'tensors of type {code} {why}')


class NumPy(Framework):
    """Arrays on the CPU, parts of one region."""
    name = 'numpy'
    can_index = True

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        if not device.on_cpu:
            raise StraitError(errno.EINVAL, f'NumPy has no arrays on {device.name}: use framework="cupy", "jax" or "strait"')
        import numpy
        self._np = numpy
        self._ndarray = numpy.ndarray
        self._dtypes: Dict[str, Any] = {}

    def check(self, code: str) -> None:
        if code not in self._dtypes:
            self._dtypes[code] = self._dtype(code)

    def _dtype(self, code: str) -> Any:
        if code in NUMPY:
            return self._np.dtype(NUMPY[code])
        if code in ML_DTYPES:
            try:
                import ml_dtypes
                return self._np.dtype(getattr(ml_dtypes, ML_DTYPES[code]))
            except (ImportError, AttributeError):
                raise self._refuse(code, 'need the package ml_dtypes in NumPy') from None
        raise self._refuse(code, 'have no equivalent in NumPy')

    def arena(self, region: Region) -> Any:
        buffer = (c_char * max(region.length, 1)).from_address(region.addr)
        buffer.region = region  # freed with the last array on the buffer
        return memoryview(buffer)  # NumPy takes it in a third of the time

    def view(self, arena: Any, offset: int, code: str, shape: Shape) -> Any:
        return self._ndarray(shape, self._dtypes[code], arena, offset)

    def views(self, arena: Any, tensors: Tensors, places: Iterable[int]) -> Dict[str, Any]:
        array, dtypes = self._ndarray, self._dtypes
        return {name: array(shape, dtypes[code], arena, place)
                for (name, (code, shape, _, _)), place in zip(tensors.items(), places)}


class Torch(Framework):
    """Tensors of PyTorch's allocator; on emu parts of one region, whose memory only Strait has."""
    name = 'pt'
    can_index = True

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        import torch
        self.torch = torch
        self.owns_memory = device.dl_type == 2 or device.is_host
        self.torch_device = torch.device('cuda', device.index) if device.dl_type == 2 else torch.device('cpu')
        self._dtypes: Dict[str, Any] = {}

    def check(self, code: str) -> None:
        if code not in self._dtypes:
            self._dtypes[code] = self.dtype(code)

    def dtype(self, code: str) -> Any:
        dtype = getattr(self.torch, TORCH.get(code, ''), None)
        if dtype is None:
            raise self._refuse(code, 'are not supported by this version of PyTorch')
        return dtype

    def _shape(self, code: str, shape: Shape) -> Shape:
        if code != 'F4':
            return shape
        if not shape or shape[-1] % 2:
            raise self._refuse(code, f'of shape {list(shape)} have no equivalent in PyTorch: it stores two values per element')
        return shape[:-1] + (shape[-1] // 2,)

    def empty(self, code: str, shape: Shape) -> Any:
        return self.torch.empty(self._shape(code, shape), dtype=self._dtypes[code], device=self.torch_device)

    def reserve(self, count: int) -> None:
        """PyTorch gets the memory of each tensor from the driver, which takes 0.15 ms and holds up copies. Freeing a block of all
        leaves it to PyTorch, which divides it. It stays divided, so this is for blocks of at most RESERVE bytes."""
        torch, device = self.torch, self.torch_device
        if device.type != 'cuda' or any(os.environ.get(name) for name in _ALLOCATOR):
            return  # a program that has set up the allocator has its reasons
        stats = torch.cuda.memory_stats(device)
        unused = stats.get('reserved_bytes.all.current', 0) - stats.get('allocated_bytes.all.current', 0)
        if unused < count // 2 and torch.cuda.mem_get_info(device)[0] > 2 * count:
            try:
                torch.empty((count,), dtype=torch.uint8, device=device)
            except RuntimeError:
                pass

    def address(self, tensor: Any) -> int:
        return tensor.data_ptr()

    def wait(self) -> None:
        if self.device.dl_type == 2:
            self.torch.cuda.current_stream(self.torch_device).synchronize()

    def arena(self, region: Region) -> Any:
        return self.torch.utils.dlpack.from_dlpack(Tensor(region, 0, 'U8', (max(region.length, 1),)).__dlpack__())

    def view(self, arena: Any, offset: int, code: str, shape: Shape) -> Any:
        dtype, count = self._dtypes[code], BITS[code] * math.prod(shape) // 8
        if not count:
            return self.torch.empty(self._shape(code, shape), dtype=dtype)
        return arena[offset:offset + count].view(dtype).view(self._shape(code, shape))


class _Through(Framework):
    """Arrays of a library that takes Strait's tensors through DLPack."""
    can_index = True

    def _from_dlpack(self, tensor: Tensor) -> Any:
        raise NotImplementedError

    def check(self, code: str) -> None:
        if code in ('F4', 'F6_E2M3', 'F6_E3M2'):
            raise self._refuse(code, f'have no equivalent in {self.name}')

    def view(self, arena: Any, offset: int, code: str, shape: Shape) -> Any:
        return self._from_dlpack(Tensor(arena, offset, code, shape))


class CuPy(_Through):
    """Arrays of CuPy in memory of Strait's own."""
    name = 'cupy'

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        if device.dl_type != 2:
            raise StraitError(errno.EINVAL, f'CuPy has no arrays on {device.name}')
        import cupy
        self._cupy = cupy

    def check(self, code: str) -> None:
        super().check(code)
        if code == 'BF16' and not self._has_bfloat16():
            raise self._refuse(code, 'need CuPy 14 and the package ml_dtypes')

    def _has_bfloat16(self) -> bool:
        # Versions before 14 crash on this type.
        if int(self._cupy.__version__.partition('.')[0]) < 14:
            return False
        try:
            self._from_dlpack(Tensor(Region.allocate(context(), self.device, 2), 0, 'BF16', (1,)))
            return True
        except (NotImplementedError, TypeError, ValueError, BufferError):
            return False

    def _from_dlpack(self, tensor: Tensor) -> Any:
        return self._cupy.from_dlpack(tensor)


class JAX(_Through):
    """Arrays of JAX in memory of Strait's own."""
    name = 'jax'
    can_assign = False

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        import jax.dlpack
        self._take = jax.dlpack.from_dlpack

    def _from_dlpack(self, tensor: Tensor) -> Any:
        return self._take(tensor)


_NAMES = {'pt': Torch, 'torch': Torch, 'pytorch': Torch, 'np': NumPy, 'numpy': NumPy, 'cupy': CuPy, 'jax': JAX,
          'flax': JAX, 'strait': Framework, 'dlpack': Framework}


def framework(name: Optional[str], device: Device) -> Framework:
    """The framework of a name. None: PyTorch if it is installed, else NumPy on the CPU, else tensors of Strait's own."""
    if name is None:
        if 'torch' in sys.modules or importlib.util.find_spec('torch') is not None:
            name = 'pt'
        else:
            name = 'numpy' if device.on_cpu and importlib.util.find_spec('numpy') is not None else 'strait'
    kind = _NAMES.get(name)
    if kind is None:
        raise StraitError(errno.EINVAL, f'there is no framework {name!r}: there are {", ".join(sorted(_NAMES))}')
    return kind(device)
