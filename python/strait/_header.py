# SPDX-License-Identifier: MIT
"""The header of a safetensors file. It is not trusted: every length is checked before it is used."""
import errno
import json
import math
import os
from typing import Any, Dict, List, NoReturn, Optional, Tuple

from .dtypes import BITS
from .errors import StraitError

MAX_HEADER = 100_000_000  # the limit of the format's own library
_METADATA = '__metadata__'


class Header:
    """The tensors of a file in the order of their bytes: name to (code, shape, begin, end)."""

    def __init__(self, tensors: Dict[str, Tuple[str, Tuple[int, ...], int, int]], metadata: Optional[Dict[str, str]],
                 data: int, length: int) -> None:
        self.tensors, self.metadata, self.data, self.length = tensors, metadata, data, length

    @property
    def bytes(self) -> int:
        return self.length - self.data


def _refuse_number(text: str) -> NoReturn:
    raise ValueError(f'{text} is not a whole number')


def read(path: str, fd: int) -> Header:
    """Read and check the header of an open file. Raises StraitError with EBADMSG for one that is damaged."""
    def bad(text: str) -> StraitError:
        return StraitError(errno.EBADMSG, text, path)

    length = os.fstat(fd).st_size
    if length < 8:
        raise bad(f'the file has {length} bytes: too short for a safetensors file')
    size = int.from_bytes(os.pread(fd, 8, 0), 'little')
    if size > MAX_HEADER or size > length - 8 or size < 2:
        raise bad(f'its first eight bytes give a header length of {size} bytes: not a safetensors file, or damaged')
    text = os.pread(fd, size, 8)
    if len(text) != size:
        raise bad('the file ends inside its header')
    if text[:1] != b'{':
        raise bad('the header is not JSON: it does not start with {')
    try:
        # str() refuses what is not UTF-8; json would accept UTF-16 from bytes.
        header = json.loads(str(text, 'utf-8'), parse_float=_refuse_number, parse_constant=_refuse_number)
    except (ValueError, RecursionError) as error:
        raise bad(f'the header is not JSON: {error}') from None
    return _check(header, 8 + size, length, b'true' not in text and b'false' not in text, bad)


def _check(header: Any, data: int, length: int, plain: bool, bad: Any) -> Header:
    """plain: no value is true or false, which Python takes for 1 and 0."""
    metadata = header.pop(_METADATA, None)
    if metadata is not None and not (isinstance(metadata, dict) and
                                     all(isinstance(value, str) for value in metadata.values())):
        raise bad('__metadata__ is not an object of strings')
    at, in_order, tensors = 0, True, {}
    # Models have few types and shapes: each pair is checked once. Its bytes, and the shape as a tuple.
    known: Dict[Tuple[Any, ...], Tuple[int, Tuple[int, ...]]] = {}
    for name, info in header.items():
        try:
            code, shape = info['dtype'], info['shape']
            begin, end = info['data_offsets']
            count, sizes = known[(code, *shape)]
            right = type(shape) is list and end - begin == count and plain
        except (TypeError, KeyError, ValueError):
            right = False
        if not right:
            count, sizes = _check_tensor(name, info, length - data, bad)
            if plain:
                known[(code, *sizes)] = (count, sizes)
        if begin != at:
            in_order = False
        at = end
        tensors[name] = (code, sizes, begin, end)
    if not in_order:
        tensors = dict(sorted(tensors.items(), key=lambda item: item[1][2:]))
        at, last = 0, None
        for name, (_, _, begin, end) in tensors.items():
            if begin != at:
                _bad_place(name, begin, at, last, bad)
            at, last = end, name
    if at > length - data:
        raise bad(f'the tensors have {at} bytes, the file {length - data} data bytes: the file is truncated or damaged')
    if at != length - data:
        raise bad(f'{length - data - at} bytes at the end belong to no tensor')
    return Header(tensors, metadata, data, length)


def _check_tensor(name: str, info: Any, room: int, bad: Any) -> Tuple[int, Tuple[int, ...]]:
    """The bytes and the shape of one tensor. Raises if its type, shape or offsets are wrong."""
    try:
        code, shape = info['dtype'], info['shape']
        begin, end = info['data_offsets']
    except (TypeError, KeyError, ValueError):
        raise bad(f'tensor {name!r} lacks its dtype, shape or data_offsets') from None
    bits = BITS.get(code) if type(code) is str else None
    if bits is None:
        raise bad(f'tensor {name!r} has the unknown type {code!r}')
    if type(shape) is not list or type(begin) is not int or type(end) is not int:
        raise bad(f'the shape or the offsets of tensor {name!r} are not whole numbers')
    if any(type(size) is not int or not 0 <= size < 1 << 63 for size in shape):
        raise bad(f'the shape of tensor {name!r} is not of whole numbers')
    wanted = bits * math.prod(shape)
    if (end - begin) * 8 == wanted:
        return end - begin, tuple(shape)
    if wanted >> 67:
        raise bad(f'the shape of tensor {name!r} overflows')
    if begin < 0 or begin > end or end > room:
        raise bad(f'tensor {name!r} lies at {begin} to {end} of {room} data bytes: the file is truncated or damaged')
    raise bad(f'tensor {name!r} has {end - begin} bytes, but its type and shape require {wanted / 8:g}')


def _bad_place(name: str, begin: int, at: int, last: Optional[str], bad: Any) -> NoReturn:
    if begin < at:
        raise bad(f'tensors {last!r} and {name!r} overlap' if last is not None else
                  f'tensor {name!r} starts before the data')
    raise bad(f'{begin - at} bytes before tensor {name!r} belong to no tensor')


def build(tensors: List[Tuple[str, str, Tuple[int, ...], int]], metadata: Optional[Dict[str, str]]) -> bytes:
    """The first bytes of a file: length and header, for (name, code, shape, bytes) in the order of their data."""
    header: Dict[str, Any] = {}
    if metadata is not None:
        header[_METADATA] = metadata
    at = 0
    for name, code, shape, count in tensors:
        header[name] = {'dtype': code, 'shape': list(shape), 'data_offsets': [at, at + count]}
        at += count
    text = json.dumps(header, ensure_ascii=False, separators=(',', ':')).encode('utf-8', 'surrogatepass')
    text += b' ' * (-len(text) % 8)
    if len(text) > MAX_HEADER:
        raise StraitError(errno.E2BIG, f'the header would have {len(text)} bytes, more than {MAX_HEADER}')
    return len(text).to_bytes(8, 'little') + text
