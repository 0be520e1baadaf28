# SPDX-License-Identifier: MIT
"""DLPack, version 0, which every consumer accepts: handing out memory of a region, and taking memory of others."""
import atexit
import ctypes
import errno
import sys
from ctypes import c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint64, c_void_p, py_object
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .errors import StraitError


class DLTensor(ctypes.Structure):
    _fields_ = [('data', c_void_p), ('device_type', c_int32), ('device_id', c_int32), ('ndim', c_int32),
                ('code', c_uint8), ('bits', c_uint8), ('lanes', c_uint16), ('shape', c_void_p),
                ('strides', c_void_p), ('byte_offset', c_uint64)]


class DLManaged(ctypes.Structure):
    _fields_ = [('tensor', DLTensor), ('context', c_void_p), ('deleter', c_void_p)]


# The memory of each exported tensor, by the address of its managed structure. The structures are allocated with
# malloc(), because a consumer may access them after the interpreter has exited.
alive: Dict[int, Any] = {}
leaving = False
_libc = ctypes.CDLL(None)
_libc.malloc.argtypes, _libc.malloc.restype = [c_size_t], c_void_p
_libc.free.argtypes, _libc.free.restype = [c_void_p], None

_UNUSED = b'dltensor'  # a consumer renames the capsule when it takes ownership
_USED = b'used_dltensor'
_api = ctypes.PyDLL(None)  # not ctypes.pythonapi, whose functions get their types from all modules
_capsule_new = _api.PyCapsule_New
_capsule_new.argtypes, _capsule_new.restype = [c_void_p, c_char_p, c_void_p], py_object
_capsule_is = _api.PyCapsule_IsValid
_capsule_is.argtypes, _capsule_is.restype = [c_void_p, c_char_p], c_int
_capsule_pointer = _api.PyCapsule_GetPointer
_capsule_pointer.argtypes, _capsule_pointer.restype = [c_void_p, c_char_p], c_void_p
_capsule_rename = _api.PyCapsule_SetName
_capsule_rename.argtypes, _capsule_rename.restype = [c_void_p, c_char_p], c_int


# Called by the consumer on any thread; ctypes acquires the GIL.
@ctypes.CFUNCTYPE(None, c_void_p)
def _delete(address: int) -> None:
    if alive.pop(address, None) is not None:
        _libc.free(address)


# Capsules that were handed out. One that its receiver dropped unused still owns its tensor. It cannot have a destructor in
# Python, because capsules are also freed while an exception is raised: sweep() finds it later.
_handed_out: List[Any] = []


def sweep() -> None:
    """Free the tensors of capsules that were dropped unused."""
    capsules, _handed_out[:] = _handed_out[:], []
    while capsules:
        capsule = capsules.pop()
        if not _capsule_is(id(capsule), _UNUSED):
            continue
        if sys.getrefcount(capsule) > 2:
            _handed_out.append(capsule)
            continue
        address = _capsule_pointer(id(capsule), _UNUSED)
        _capsule_rename(id(capsule), _USED)
        _delete(address)


@atexit.register
def _leave_tensors() -> None:
    """Tensors that outlive the interpreter must not call into it: their memory is freed when the process exits."""
    global leaving
    leaving = True
    for address in list(alive):
        DLManaged.from_address(address).deleter = None
    _api.Py_IncRef(py_object(alive))


def export(owner: Any, addr: int, device: Tuple[int, int], code: int, bits: int, shape: Sequence[int]) -> Any:
    """A capsule for a compact tensor at addr. owner is referenced until the consumer, or the capsule, lets go."""
    rank = len(shape)
    address = _libc.malloc(ctypes.sizeof(DLManaged) + 16 * rank)
    if not address:
        raise MemoryError
    dims = address + ctypes.sizeof(DLManaged)
    numbers = (c_int64 * (2 * rank)).from_address(dims)
    step = 1
    for d in reversed(range(rank)):
        numbers[d], numbers[rank + d] = shape[d], step
        step *= shape[d]
    managed = DLManaged.from_address(address)
    managed.tensor = DLTensor(addr, device[0], device[1], rank, code, bits, 1, dims, dims + 8 * rank, 0)
    managed.context, managed.deleter = None, None if leaving else ctypes.cast(_delete, c_void_p).value
    alive[address] = owner
    capsule = _capsule_new(address, _UNUSED, None)
    sweep()
    _handed_out.append(capsule)
    return capsule


class Imported:
    """A tensor of another library, taken through DLPack: what it is, and its memory until close()."""

    def __init__(self, source: Any, stream: Optional[int] = None) -> None:
        capsule = source.__dlpack__() if stream is None else source.__dlpack__(stream=stream)
        if not _capsule_is(id(capsule), _UNUSED):
            raise StraitError(errno.EINVAL, f'{type(source).__name__}.__dlpack__() returned no DLPack capsule')
        self._address = _capsule_pointer(id(capsule), _UNUSED)
        _capsule_rename(id(capsule), _USED)
        tensor = DLManaged.from_address(self._address).tensor
        self.device_type, self.device_id = tensor.device_type, tensor.device_id
        self.addr = (tensor.data or 0) + tensor.byte_offset
        self.shape = tuple((c_int64 * tensor.ndim).from_address(tensor.shape)) if tensor.ndim else ()
        self.bytes = tensor.bits * tensor.lanes // 8
        for size in self.shape:
            self.bytes *= size
        self.compact = not tensor.strides or _is_compact(
            self.shape, tuple((c_int64 * tensor.ndim).from_address(tensor.strides)) if tensor.ndim else ())

    def close(self) -> None:
        if self._address:
            address, self._address = self._address, None
            deleter = DLManaged.from_address(address).deleter
            if deleter:
                ctypes.CFUNCTYPE(None, c_void_p)(deleter)(address)

    def __del__(self) -> None:
        if getattr(self, '_address', None):
            self.close()


def _is_compact(shape: Tuple[int, ...], strides: Tuple[int, ...]) -> bool:
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1 and stride != step:
            return 0 in shape
        step *= size
    return True
