# SPDX-License-Identifier: MIT
"""Strait for Python: loads model files directly into device memory.

    import strait
    tensors = strait.load_file("model.safetensors", device="cuda:0")

Requires libstrait.so.0 and PyTorch; there is nothing to build. All tensors of a file share one allocation in
device memory, which is freed with the last of them. PyTorch receives them through DLPack, without a copy.

STRAIT_LIBRARY is the path of the library, if the loader does not find it.
"""
import atexit
import ctypes
import errno
import os
import threading

__all__ = ["StraitError", "load_file", "version"]

_c = ctypes
_MASK = {"p2p": 1, "pagecache": 2, "staged": 4, "host": 8}
_FOREVER = (1 << 63) - 1


class StraitError(OSError):
    """A call of the library failed. errno and strerror have the reason."""


class _TensorInfo(_c.Structure):
    _fields_ = [("size", _c.c_size_t), ("name", _c.c_char_p), ("dtype", _c.c_char * 16), ("element_bits", _c.c_uint32),
                ("rank", _c.c_uint32), ("shape", _c.c_uint64 * 8), ("length", _c.c_uint64),
                ("file_offset", _c.c_uint64), ("region_offset", _c.c_uint64)]


class _RegionInfo(_c.Structure):
    _fields_ = [("size", _c.c_size_t), ("device", _c.c_void_p), ("addr", _c.c_uint64), ("length", _c.c_uint64),
                ("caps", _c.c_uint32), ("page_size", _c.c_uint32), ("identity", _c.c_uint64)]


class _Result(_c.Structure):
    _fields_ = [("user_data", _c.c_uint64), ("bytes", _c.c_uint64), ("status", _c.c_int32),
                ("device_status", _c.c_int32), ("routes", _c.c_uint32), ("reserved", _c.c_uint32),
                ("route_bytes", _c.c_uint64 * 8), ("reserved_end", _c.c_uint64 * 2)]


# The structures of DLPack version 0, which every consumer accepts.
class _DLTensor(_c.Structure):
    _fields_ = [("data", _c.c_void_p), ("device_type", _c.c_int32), ("device_id", _c.c_int32), ("ndim", _c.c_int32),
                ("code", _c.c_uint8), ("bits", _c.c_uint8), ("lanes", _c.c_uint16), ("shape", _c.c_void_p),
                ("strides", _c.c_void_p), ("byte_offset", _c.c_uint64)]


class _DLManaged(_c.Structure):
    _fields_ = [("tensor", _DLTensor), ("context", _c.c_void_p), ("deleter", _c.c_void_p)]


# DLPack type code, bits, and for types that DLPack has no code for, the PyTorch type to view the integers as.
_DTYPES = {"F64": (2, 64, None), "F32": (2, 32, None), "F16": (2, 16, None), "BF16": (4, 16, None),
           "I64": (0, 64, None), "I32": (0, 32, None), "I16": (0, 16, None), "I8": (0, 8, None),
           "U8": (1, 8, None), "BOOL": (1, 8, "bool"), "U16": (0, 16, "uint16"), "U32": (0, 32, "uint32"),
           "U64": (0, 64, "uint64"), "C64": (5, 64, None), "F8_E4M3": (1, 8, "float8_e4m3fn"),
           "F8_E5M2": (1, 8, "float8_e5m2"), "F8_E8M0": (1, 8, "float8_e8m0fnu"),
           "F8_E4M3FNUZ": (1, 8, "float8_e4m3fnuz"), "F8_E5M2FNUZ": (1, 8, "float8_e5m2fnuz")}


def _load_library():
    name = os.environ.get("STRAIT_LIBRARY") or "libstrait.so.0"
    try:
        lib = _c.CDLL(name)
    except OSError as error:
        raise StraitError(errno.ENOENT, f"{error}: install Strait, or set STRAIT_LIBRARY to the path of libstrait.so.0") from error
    p, u64, u32, i = _c.c_void_p, _c.c_uint64, _c.c_uint32, _c.c_int
    for name, args, res in (
            ("strait_version", [], _c.c_char_p), ("strait_context_open", [p, _c.POINTER(p)], i),
            ("strait_context_close", [p], None), ("strait_device_find", [p, _c.c_char_p, _c.POINTER(p)], i),
            ("strait_device_missing_reason", [p, _c.c_char_p, _c.c_char_p, _c.c_size_t], i),
            ("strait_file_open", [p, _c.c_char_p, i, u32, u32, _c.POINTER(p)], i), ("strait_endpoint_close", [p], None),
            ("strait_region_alloc", [p, _c.c_size_t, _c.POINTER(p)], i), ("strait_region_close", [p], None),
            ("strait_region_info", [p, _c.POINTER(_RegionInfo)], i), ("strait_region_map", [p, _c.POINTER(p)], i),
            ("strait_safetensors_open", [p, p, u64, _c.c_char_p, _c.c_size_t, _c.POINTER(p)], i),
            ("strait_safetensors_close", [p], None), ("strait_safetensors_count", [p], i),
            ("strait_safetensors_bytes", [p], u64),
            ("strait_safetensors_tensor", [p, _c.c_uint, _c.POINTER(_TensorInfo)], i),
            ("strait_safetensors_load", [p, p, u32, _c.c_int64, _c.POINTER(_Result)], i)):
        f = getattr(lib, name)
        f.argtypes, f.restype = args, res
    return lib


_lock = threading.Lock()
_lib = None
_context = None  # (pid, handle): a child process cannot use the context of its parent
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def _library():
    """The library, loaded at the first use."""
    global _lib
    with _lock:
        if _lib is None:
            _lib = _load_library()
    return _lib


def _open_context():
    """The library and the one context of this process, opened at the first use."""
    global _context
    lib = _library()
    with _lock:
        if _context is None or _context[0] != os.getpid():
            ctx = _c.c_void_p()
            _check(lib.strait_context_open(None, _c.byref(ctx)), "cannot open a Strait context")
            _context = (os.getpid(), ctx)
        return lib, _context[1]


def _check(rc, what, path=None):
    if rc < 0:
        raise StraitError(-rc, f"{what}: {os.strerror(-rc)}", path)
    return rc


def version():
    """The version of libstrait."""
    return _library().strait_version().decode()


class _Memory:
    """A region, closed when the last tensor in it is freed."""

    def __init__(self, lib, device, length, on_cpu):
        self._lib, self.region = lib, _c.c_void_p()
        _check(lib.strait_region_alloc(device, length, _c.byref(self.region)), f"cannot allocate {length} bytes of device memory")
        info = _RegionInfo(size=_c.sizeof(_RegionInfo))
        _check(lib.strait_region_info(self.region, _c.byref(info)), "cannot query the memory")
        self.addr = info.addr
        if on_cpu:
            cpu = _c.c_void_p()
            _check(lib.strait_region_map(self.region, _c.byref(cpu)), "cannot map the memory for the CPU")
            self.addr = cpu.value

    def __del__(self):
        if self.region:
            self._lib.strait_region_close(self.region)


# The memory of each exported tensor, by the address of its managed structure. The structures are allocated with
# malloc(), because a consumer may access them after the interpreter has exited.
_alive = {}
_leaving = False
_libc = _c.CDLL(None)
_libc.malloc.argtypes, _libc.malloc.restype = [_c.c_size_t], _c.c_void_p
_libc.free.argtypes, _libc.free.restype = [_c.c_void_p], None


# Called by the consumer on any thread; ctypes acquires the GIL.
@_c.CFUNCTYPE(None, _c.c_void_p)
def _delete(address):
    if _alive.pop(address, None) is not None:
        _libc.free(address)


@atexit.register
def _leave_tensors():
    """Tensors that outlive the interpreter must not call into it: their memory is freed when the process exits."""
    global _leaving
    _leaving = True
    for address in list(_alive):
        _DLManaged.from_address(address).deleter = None
    _c.pythonapi.Py_IncRef(_c.py_object(_alive))


_UNUSED = b"dltensor"  # a consumer renames the capsule when it takes ownership
_USED = b"used_dltensor"
_capsule_new = _c.pythonapi.PyCapsule_New
_capsule_new.argtypes, _capsule_new.restype = [_c.c_void_p, _c.c_char_p, _c.c_void_p], _c.py_object
_capsule_is = _c.pythonapi.PyCapsule_IsValid
_capsule_is.argtypes, _capsule_is.restype = [_c.py_object, _c.c_char_p], _c.c_int
_capsule_rename = _c.pythonapi.PyCapsule_SetName
_capsule_rename.argtypes, _capsule_rename.restype = [_c.py_object, _c.c_char_p], _c.c_int


def _export(memory, info, dl_device, code, bits):
    """The address of a new managed DLPack structure for one tensor in memory."""
    rank = info.rank
    address = _libc.malloc(_c.sizeof(_DLManaged) + 16 * rank)
    if not address:
        raise MemoryError
    shape = address + _c.sizeof(_DLManaged)
    dims = (_c.c_int64 * (2 * rank)).from_address(shape)
    step = 1
    for d in reversed(range(rank)):
        dims[d], dims[rank + d] = info.shape[d], step
        step *= info.shape[d]
    m = _DLManaged.from_address(address)
    m.tensor = _DLTensor(memory.addr + info.region_offset, dl_device[0], dl_device[1], rank, code, bits, 1, shape,
                         shape + 8 * rank, 0)
    m.context, m.deleter = None, None if _leaving else _c.cast(_delete, _c.c_void_p).value
    _alive[address] = memory
    return address


def _hand_over(address, from_dlpack):
    """Pass an exported tensor to from_dlpack. If that does not take ownership, free it."""
    capsule = _capsule_new(address, _UNUSED, None)
    try:
        return from_dlpack(capsule)
    finally:
        if _capsule_is(capsule, _UNUSED):
            _capsule_rename(capsule, _USED)
            _delete(address)


def _find_device(lib, ctx, device):
    """The handle of the device, and its DLPack device type and number."""
    name = f"cuda:{device}" if isinstance(device, int) else str(device)
    name = "host" if name == "cpu" else name
    dev = _c.c_void_p()
    if lib.strait_device_find(ctx, name.encode(), _c.byref(dev)):
        why = _c.create_string_buffer(512)
        lib.strait_device_missing_reason(ctx, name.encode(), why, len(why))
        raise StraitError(errno.ENODEV, f"there is no device {name}: {why.value.decode(errors='replace')}")
    kind, _, index = name.partition(":")
    return dev, (2, int(index or 0)) if kind == "cuda" else (1, 0)


def _type_of(torch, info, path):
    """The DLPack type code and bits, and the PyTorch type to view the tensor as, or None."""
    dtype, name = info.dtype.decode(), info.name.decode(errors="replace")
    code, bits, view = _DTYPES.get(dtype, (None, None, dtype))
    if code is None or (view and not hasattr(torch, view)):
        raise StraitError(errno.EOPNOTSUPP, f"tensor {name!r} has type {dtype}, which this version of PyTorch does not support", path)
    return code, bits, getattr(torch, view) if view else None


def _tensor(torch, memory, info, dl_device, path):
    code, bits, view = _type_of(torch, info, path)
    if info.length == 0:
        return torch.empty(tuple(info.shape[:info.rank]), dtype=view or _torch_dtype(torch, info.dtype.decode()),
                           device=torch.device("cuda", dl_device[1]) if dl_device[0] == 2 else "cpu")
    t = _hand_over(_export(memory, info, dl_device, code, bits), torch.utils.dlpack.from_dlpack)
    return t.view(view) if view is not None else t


def load_file(path, device="cuda:0", route=None, stats=None):
    """Load a safetensors file as a dict of PyTorch tensors on the device, like safetensors.torch.load_file.

    device: "cuda:0" or another CUDA device; "host", "cpu" or "emu:0" for CPU tensors.
    route: use only this route, "pagecache", "staged" or "host". By default Strait selects the routes.
    stats: a dict that receives the number of bytes, in total and by route.

    Raises StraitError, an OSError.
    """
    import torch
    import torch.utils.dlpack

    if route is not None and route not in _MASK:
        raise StraitError(errno.EINVAL, f"there is no route {route!r}: the routes are {', '.join(_MASK)}")
    lib, ctx = _open_context()
    path = os.fspath(path)
    dev, dl_device = _find_device(lib, ctx, device)
    ep, st = _c.c_void_p(), _c.c_void_p()
    _check(lib.strait_file_open(ctx, os.fsencode(path), os.O_RDONLY, 0, 0, _c.byref(ep)), "cannot open the file", path)
    try:
        why = _c.create_string_buffer(512)
        rc = lib.strait_safetensors_open(ctx, ep, 0, why, len(why), _c.byref(st))
        if rc:
            raise StraitError(-rc, why.value.decode(errors="replace") or os.strerror(-rc), path)
        infos = []
        for k in range(lib.strait_safetensors_count(st)):
            info = _TensorInfo(size=_c.sizeof(_TensorInfo))
            _check(lib.strait_safetensors_tensor(st, k, _c.byref(info)), "cannot read the description of a tensor", path)
            _type_of(torch, info, path)  # fails before anything is transferred
            infos.append(info)
        memory = _Memory(lib, dev, lib.strait_safetensors_bytes(st), dl_device[0] == 1)
        result = _Result()
        _check(lib.strait_safetensors_load(st, memory.region, _MASK[route] if route else 0, _FOREVER,
                                           _c.byref(result)), "cannot load the file", path)
        if stats is not None:
            stats.update(bytes=result.bytes, routes={r: result.route_bytes[k] for k, r in enumerate(_MASK)
                                                     if result.route_bytes[k]})
        return {info.name.decode(errors="surrogateescape"): _tensor(torch, memory, info, dl_device, path)
                for info in infos}
    finally:
        lib.strait_safetensors_close(st)
        lib.strait_endpoint_close(ep)


def _torch_dtype(torch, name):
    return {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
            "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
            "C64": torch.complex64}[name]
