# SPDX-License-Identifier: MIT
"""Strait from Python: model files straight into device memory.

    import strait
    tensors = strait.load_file("model.safetensors", device="cuda:0")

Needs libstrait.so.0 and, for tensors, PyTorch; there is nothing to build. The tensors share one
allocation of the device, which is given back when the last of them is gone. No byte is copied
on the way from Strait to PyTorch: they are handed over through DLPack.

STRAIT_LIBRARY names the library if the loader does not find it by itself.
"""
import ctypes
import os

__all__ = ["StraitError", "load_file", "version"]

_c = ctypes
_MASK = {"p2p": 1, "pagecache": 2, "staged": 4, "host": 8}
_FOREVER = (1 << 63) - 1


class StraitError(OSError):
    """A call of the library failed; errno and strerror say how."""


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
                ("route_bytes", _c.c_uint64 * 4)]


# DLPack's structs, version 0: what every consumer takes.
class _DLTensor(_c.Structure):
    _fields_ = [("data", _c.c_void_p), ("device_type", _c.c_int32), ("device_id", _c.c_int32), ("ndim", _c.c_int32),
                ("code", _c.c_uint8), ("bits", _c.c_uint8), ("lanes", _c.c_uint16),
                ("shape", _c.POINTER(_c.c_int64)), ("strides", _c.POINTER(_c.c_int64)), ("byte_offset", _c.c_uint64)]


class _DLManaged(_c.Structure):
    pass


_Deleter = _c.CFUNCTYPE(None, _c.POINTER(_DLManaged))
_DLManaged._fields_ = [("tensor", _DLTensor), ("context", _c.c_void_p), ("deleter", _Deleter)]

# (DLPack type code, bits); types DLPack has no code for travel as bytes or words and are viewed as what they are.
_DTYPES = {"F64": (2, 64, None), "F32": (2, 32, None), "F16": (2, 16, None), "BF16": (4, 16, None),
           "I64": (0, 64, None), "I32": (0, 32, None), "I16": (0, 16, None), "I8": (0, 8, None),
           "U8": (1, 8, None), "BOOL": (1, 8, "bool"), "U16": (0, 16, "uint16"), "U32": (0, 32, "uint32"),
           "U64": (0, 64, "uint64"), "C64": (5, 64, None), "F8_E4M3": (1, 8, "float8_e4m3fn"),
           "F8_E5M2": (1, 8, "float8_e5m2"), "F8_E8M0": (1, 8, "float8_e8m0fnu"),
           "F8_E4M3FNUZ": (1, 8, "float8_e4m3fnuz"), "F8_E5M2FNUZ": (1, 8, "float8_e5m2fnuz")}


def _load_library():
    lib = _c.CDLL(os.environ.get("STRAIT_LIBRARY", "libstrait.so.0"))
    p, u64, u32, i = _c.c_void_p, _c.c_uint64, _c.c_uint32, _c.c_int
    for name, args, res in (
            ("strait_version", [], _c.c_char_p), ("strait_context_open", [p, _c.POINTER(p)], i),
            ("strait_context_close", [p], None), ("strait_device_find", [p, _c.c_char_p, _c.POINTER(p)], i),
            ("strait_device_why", [p, _c.c_char_p, _c.c_char_p, _c.c_size_t], i),
            ("strait_file_open", [p, _c.c_char_p, i, u32, u32, _c.POINTER(p)], i), ("strait_endpoint_close", [p], None),
            ("strait_region_alloc", [p, _c.c_size_t, _c.POINTER(p)], i), ("strait_region_close", [p], None),
            ("strait_region_info", [p, _c.POINTER(_RegionInfo)], i),
            ("strait_safetensors_open", [p, p, u64, _c.c_char_p, _c.c_size_t, _c.POINTER(p)], i),
            ("strait_safetensors_close", [p], None), ("strait_safetensors_count", [p], i),
            ("strait_safetensors_bytes", [p], u64),
            ("strait_safetensors_tensor", [p, _c.c_uint, _c.POINTER(_TensorInfo)], i),
            ("strait_safetensors_load", [p, p, u32, _c.c_int64, _c.POINTER(_Result)], i)):
        f = getattr(lib, name)
        f.argtypes, f.restype = args, res
    return lib


_lib = None
_context = None


def _library():
    """The library and one context for the life of the process, opened when first needed."""
    global _lib, _context
    if _context is None:
        _lib = _load_library()
        ctx = _c.c_void_p()
        _check(_lib.strait_context_open(None, _c.byref(ctx)), "opening a context")
        _context = ctx
    return _lib, _context


def _check(rc, what, path=None):
    if rc < 0:
        raise StraitError(-rc, f"{what}: {os.strerror(-rc)}", path)
    return rc


def version():
    """The version of the library."""
    return _library()[0].strait_version().decode()


class _Memory:
    """A region, given back when the last tensor in it is."""

    def __init__(self, lib, device, length):
        self._lib, self.region = lib, _c.c_void_p()
        _check(lib.strait_region_alloc(device, length, _c.byref(self.region)), f"allocating {length} bytes")
        info = _RegionInfo(size=_c.sizeof(_RegionInfo))
        _check(lib.strait_region_info(self.region, _c.byref(info)), "region")
        self.addr = info.addr

    def __del__(self):
        if self.region:
            self._lib.strait_region_close(self.region)


# What each exported tensor needs to live, by the address of its managed struct.
_alive = {}


@_Deleter
def _delete(managed):
    _alive.pop(_c.addressof(managed.contents), None)


_capsule_new = _c.pythonapi.PyCapsule_New
_capsule_new.argtypes, _capsule_new.restype = [_c.c_void_p, _c.c_char_p, _c.c_void_p], _c.py_object


def _export(memory, info, dl_device, code, bits):
    """A DLPack capsule for one tensor in memory."""
    shape = (_c.c_int64 * max(info.rank, 1))(*info.shape[:info.rank])
    m = _DLManaged(_DLTensor(memory.addr + info.region_offset, dl_device[0], dl_device[1], info.rank, code, bits, 1,
                             _c.cast(shape, _c.POINTER(_c.c_int64)), None, 0), None, _delete)
    _alive[_c.addressof(m)] = (m, shape, memory)
    return _capsule_new(_c.addressof(m), b"dltensor", None)


def load_file(path, device="cuda:0", route=None, stats=None):
    """Load a safetensors file: a dict of PyTorch tensors on the device, as safetensors.torch.load_file gives.

    device: a device of Strait's whose memory PyTorch can use: "cuda:0", or "host" or "emu:0" for CPU tensors.
    route: require "pagecache" or "staged"; by default the best mixture is used.
    stats: a dict to fill with bytes and bytes by route.
    """
    import torch
    from torch.utils.dlpack import from_dlpack

    lib, ctx = _library()
    path = os.fspath(path)
    dev, ep, st = _c.c_void_p(), _c.c_void_p(), _c.c_void_p()
    if lib.strait_device_find(ctx, device.encode(), _c.byref(dev)):
        why = _c.create_string_buffer(256)
        lib.strait_device_why(ctx, device.encode(), why, len(why))
        raise StraitError(19, f"no device {device}: {why.value.decode()}")
    kind, _, index = device.partition(":")
    dl_device = (2, int(index or 0)) if kind == "cuda" else (1, 0)
    _check(lib.strait_file_open(ctx, os.fsencode(path), os.O_RDONLY, 0, 0, _c.byref(ep)), "open", path)
    try:
        why = _c.create_string_buffer(256)
        rc = lib.strait_safetensors_open(ctx, ep, 0, why, len(why), _c.byref(st))
        if rc:
            raise StraitError(-rc, why.value.decode() or os.strerror(-rc), path)
        memory = _Memory(lib, dev, lib.strait_safetensors_bytes(st))
        result = _Result()
        _check(lib.strait_safetensors_load(st, memory.region, _MASK[route] if route else 0, _FOREVER,
                                           _c.byref(result)), "load", path)
        if stats is not None:
            stats.update(bytes=result.bytes, routes={r: result.route_bytes[k] for k, r in enumerate(_MASK)
                                                     if result.route_bytes[k]})
        tensors = {}
        for k in range(lib.strait_safetensors_count(st)):
            info = _TensorInfo(size=_c.sizeof(_TensorInfo))
            _check(lib.strait_safetensors_tensor(st, k, _c.byref(info)), "tensor", path)
            dtype = info.dtype.decode()
            if dtype not in _DTYPES:
                raise StraitError(95, f"tensor {info.name.decode()!r} has type {dtype}, which PyTorch does not have", path)
            code, bits, view = _DTYPES[dtype]
            if info.length == 0:
                tensors[info.name.decode()] = torch.empty(
                    tuple(info.shape[:info.rank]), dtype=getattr(torch, view) if view else _torch_dtype(torch, dtype),
                    device=torch.device("cuda", dl_device[1]) if dl_device[0] == 2 else "cpu")
                continue
            t = from_dlpack(_export(memory, info, dl_device, code, bits))
            tensors[info.name.decode()] = t.view(getattr(torch, view)) if view else t
        return tensors
    finally:
        lib.strait_safetensors_close(st)
        lib.strait_endpoint_close(ep)


def _torch_dtype(torch, name):
    return {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
            "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
            "C64": torch.complex64}[name]
