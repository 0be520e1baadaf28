# SPDX-License-Identifier: MIT
"""The types of the safetensors format, and what each framework calls them.

BF16, the FP8 types and FP4 in a framework that lacks them:

    PyTorch   its own type of that name; FP4 as float4_e2m1fn_x2, two values per element; FP6 is refused
    NumPy     the type of ml_dtypes if that is installed, else refused
    CuPy, JAX through DLPack: BF16 as bfloat16, FP8 as uint8, bool as bool; FP4 and FP6 are refused
"""
from typing import Dict, Optional

BITS: Dict[str, int] = {
    'BOOL': 8, 'U8': 8, 'I8': 8, 'F8_E5M2': 8, 'F8_E4M3': 8, 'F8_E8M0': 8, 'F8_E4M3FNUZ': 8, 'F8_E5M2FNUZ': 8,
    'I16': 16, 'U16': 16, 'F16': 16, 'BF16': 16, 'I32': 32, 'U32': 32, 'F32': 32, 'C64': 64, 'F64': 64, 'I64': 64,
    'U64': 64, 'F4': 4, 'F6_E2M3': 6, 'F6_E3M2': 6}

# The format's own library stores tensors in the reverse of this order, and by name within a type.
ORDER = {code: k for k, code in enumerate((
    'BOOL', 'F4', 'F6_E2M3', 'F6_E3M2', 'U8', 'I8', 'F8_E5M2', 'F8_E4M3', 'F8_E8M0', 'F8_E4M3FNUZ', 'F8_E5M2FNUZ',
    'I16', 'U16', 'F16', 'BF16', 'I32', 'U32', 'F32', 'C64', 'F64', 'I64', 'U64'))}

TORCH: Dict[str, str] = {
    'F64': 'float64', 'F32': 'float32', 'F16': 'float16', 'BF16': 'bfloat16', 'I64': 'int64', 'I32': 'int32',
    'I16': 'int16', 'I8': 'int8', 'U8': 'uint8', 'BOOL': 'bool', 'U16': 'uint16', 'U32': 'uint32', 'U64': 'uint64',
    'C64': 'complex64', 'F8_E4M3': 'float8_e4m3fn', 'F8_E5M2': 'float8_e5m2', 'F8_E8M0': 'float8_e8m0fnu',
    'F8_E4M3FNUZ': 'float8_e4m3fnuz', 'F8_E5M2FNUZ': 'float8_e5m2fnuz', 'F4': 'float4_e2m1fn_x2'}

NUMPY: Dict[str, str] = {
    'F64': 'float64', 'F32': 'float32', 'F16': 'float16', 'I64': 'int64', 'I32': 'int32', 'I16': 'int16',
    'I8': 'int8', 'U8': 'uint8', 'BOOL': 'bool', 'U16': 'uint16', 'U32': 'uint32', 'U64': 'uint64',
    'C64': 'complex64'}
ML_DTYPES: Dict[str, str] = {
    'BF16': 'bfloat16', 'F8_E4M3': 'float8_e4m3fn', 'F8_E5M2': 'float8_e5m2', 'F8_E8M0': 'float8_e8m0fnu',
    'F8_E4M3FNUZ': 'float8_e4m3fnuz', 'F8_E5M2FNUZ': 'float8_e5m2fnuz'}

# DLPack's type code and bits. Types of one byte that it has no code for are handed over as bytes.
DLPACK = {'F64': (2, 64), 'F32': (2, 32), 'F16': (2, 16), 'BF16': (4, 16), 'I64': (0, 64), 'I32': (0, 32),
          'I16': (0, 16), 'I8': (0, 8), 'U8': (1, 8), 'BOOL': (6, 8), 'U16': (1, 16), 'U32': (1, 32), 'U64': (1, 64),
          'C64': (5, 64), 'F8_E4M3': (1, 8), 'F8_E5M2': (1, 8), 'F8_E8M0': (1, 8), 'F8_E4M3FNUZ': (1, 8),
          'F8_E5M2FNUZ': (1, 8)}

# The type string of __cuda_array_interface__ and __array_interface__.
TYPESTR = {'F64': '<f8', 'F32': '<f4', 'F16': '<f2', 'I64': '<i8', 'I32': '<i4', 'I16': '<i2', 'I8': '|i1',
           'U8': '|u1', 'BOOL': '|b1', 'U16': '<u2', 'U32': '<u4', 'U64': '<u8', 'C64': '<c8'}

_BY_NAME = {**{name: code for code, name in TORCH.items()}, **{name: code for code, name in NUMPY.items()},
            **{name: code for code, name in ML_DTYPES.items()}, 'bool_': 'BOOL'}


def code_of(name: str) -> Optional[str]:
    """The format's code of a framework's type name ("bfloat16", "torch.bfloat16"), or None."""
    return _BY_NAME.get(name.rpartition('.')[2])
