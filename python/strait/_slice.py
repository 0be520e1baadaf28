# SPDX-License-Identifier: MIT
"""Parts of a tensor: which bytes of the file an index needs."""
import contextlib
import errno
import math
import operator
import os
import time
from ctypes import byref
from typing import Any, Iterator, List, NamedTuple, Optional, Tuple

from ._frameworks import Framework
from ._lib import Result, Rows
from ._load import Source, entry_of, load, new_batch
from ._transfer import Totals
from .dtypes import BITS
from .errors import StraitError

# Pieces of the file of at least this length are transfers of their own: one costs about as much as copying 32 KiB.
PIECE = 32 << 10
# Shorter ones that are at least this far apart, and at most half of the bytes, are read by several threads if the file is in
# the page cache. The others are read together with the bytes between them, in blocks of at most BLOCK bytes, and cut out on
# the device.
PITCH = 8 << 10
BLOCK = 256 << 20


class Box(NamedTuple):
    """What an index asks for: bounds for each dimension, and the index that makes the result of them."""
    start: Tuple[int, ...]
    stop: Tuple[int, ...]
    rest: Optional[Tuple[Any, ...]]  # None: the box is the result

    @property
    def shape(self) -> Tuple[int, ...]:
        return tuple(b - a for a, b in zip(self.start, self.stop))


def parse(index: Any, shape: Tuple[int, ...]) -> Optional[Box]:
    """The box of an index of whole numbers, slices, Ellipsis and None. None for any other index."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if any(not (p is None or p is Ellipsis or isinstance(p, slice) or _is_number(p)) for p in parts):
        return None
    used = sum(p is not None and p is not Ellipsis for p in parts)
    dots = sum(p is Ellipsis for p in parts)
    if used > len(shape) or dots > 1:
        raise IndexError(f'too many indices for a tensor of {len(shape)} dimensions')
    at = parts.index(Ellipsis) if dots else len(parts)
    parts[at:at + dots] = [slice(None)] * (len(shape) - used)
    start, stop, rest, plain, dim = [], [], [], True, 0
    for part in parts:
        if part is None:
            rest.append(None)
            plain = False
            continue
        size = shape[dim]
        if isinstance(part, slice):
            if part.step is not None and operator.index(part.step) < 0:
                raise ValueError('a step must be greater than zero')
            first, last, step = part.indices(size)
            # The last element that a step reaches ends the box.
            last = first + (last - first - 1) // step * step + 1 if last > first else first
            rest.append(slice(None, None, step))
            plain = plain and step == 1
        else:
            first = operator.index(part)
            if not -size <= first < size:
                raise IndexError(f'index {first} is out of range for dimension {dim} of size {size}')
            first, last = first % size, first % size + 1
            rest.append(0)
            plain = False
        start.append(first)
        stop.append(last)
        dim += 1
    return Box(tuple(start), tuple(stop), None if plain else tuple(rest))


def _is_number(part: Any) -> bool:
    if isinstance(part, bool):
        return False
    # Arrays without dimensions are numbers, too, but of the framework's rules.
    return isinstance(part, int) or type(part).__module__ == 'numpy' and hasattr(part, '__index__') and \
        getattr(part, 'shape', None) == () and type(part).__name__ != 'ndarray'


class Pieces(NamedTuple):
    """The bytes of a box in the file: (offset in the tensor, length) of each piece, all of one length."""
    count: int
    length: int
    split: int  # the pieces are along this dimension: the later ones are whole


def pieces(box: Box, shape: Tuple[int, ...], bits: int) -> Optional[Pieces]:
    """How a box lies in the file. None if it starts or ends inside a byte."""
    split = len(shape)
    while split > 0 and box.start[split - 1] == 0 and box.stop[split - 1] == shape[split - 1]:
        split -= 1
    split = max(split - 1, 0)
    inner = math.prod(shape[split + 1:]) * bits
    extent = box.shape
    first = (box.start[split] if shape else 0) * inner
    length = (extent[split] if shape else 1) * inner
    # Each outer step must be whole bytes as well, or later pieces start inside one.
    if first % 8 or length % 8 or (split and math.prod(shape[split:]) * bits % 8):
        return None
    return Pieces(math.prod(extent[:split]), length // 8, split)


def offsets(box: Box, shape: Tuple[int, ...], bits: int, split: int) -> Iterator[int]:
    """The offset in the tensor of each piece, in bytes."""
    steps = [math.prod(shape[d + 1:]) * bits for d in range(len(shape))]
    base = box.start[split] * steps[split] if shape else 0

    def walk(dim: int, at: int) -> Iterator[int]:
        if dim == split:
            yield (at + base) // 8
            return
        for k in range(box.start[dim], box.stop[dim]):
            yield from walk(dim + 1, at + k * steps[dim])

    return walk(0, 0)


class Slice:
    """A tensor of a file that is read when it is indexed, and only as far as needed. As safetensors' PySafeSlice."""

    def __init__(self, source: Source, name: str, fw: Framework, route: Optional[str] = None,
                 stats: Optional[dict] = None) -> None:
        self._source, self._name, self._fw, self._route, self._stats = source, name, fw, route, stats
        self._code, self._shape, self._begin, self._end = entry_of(source, name)

    def get_shape(self) -> List[int]:
        """The shape of the whole tensor."""
        return list(self._shape)

    def get_dtype(self) -> str:
        """The type of the tensor as the format names it: "BF16"."""
        return self._code

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError('a tensor without dimensions has no length')
        return self._shape[0]

    def __getitem__(self, index: Any) -> Any:
        if self._source.endpoint is None:
            raise StraitError(errno.EBADF, 'the file is closed', self._source.path)
        box = parse(index, self._shape)
        if box is None:
            return self._all()[index]
        how = pieces(box, self._shape, BITS[self._code])
        if BITS[self._code] < 8 and self._shape and box.shape[-1:] != self._shape[-1:]:
            raise StraitError(errno.EOPNOTSUPP, f'the last dimension of a tensor of type {self._code} cannot be cut: '
                                                'its values are smaller than a byte', self._source.path)
        if how is None or (box.rest is not None and not self._fw.can_index):
            if not self._fw.can_index:
                raise StraitError(errno.EOPNOTSUPP, f'a {self._fw.name} tensor cannot be indexed by {index!r}')
            return self._all()[index]
        if how.count > 1 and how.length < PIECE and self._fw.can_index:
            part = self._read_rows(box, how)
            part = self._cut(box) if part is None else part
        else:
            part = self._read_pieces(box, how)
        return part if box.rest is None else _indexed(part, box.rest)

    def _all(self) -> Any:
        return self._read({self._name: (self._code, self._shape, self._begin, self._end)})

    def _read(self, tensors: Any) -> Any:
        with new_batch(self._route, self._source.path) as batch:
            result = load(self._source, tensors, self._fw, batch, start=False)
            batch.finish().report(self._stats)
        return result[self._name]

    def _read_pieces(self, box: Box, how: Pieces) -> Any:
        """Each piece to its place in a tensor of the box's shape."""
        if how.count == 1 or how.length == 0 or how.count == 0:
            begin = self._begin + (next(offsets(box, self._shape, BITS[self._code], how.split)) if how.count else 0)
            return self._read({self._name: (self._code, box.shape, begin, begin + how.count * how.length)})
        with new_batch(self._route, self._source.path) as batch:
            part, region, base = place(self._source.ctx, self._fw, self._code, box.shape)
            batch.hold(part)
            for k, at in enumerate(offsets(box, self._shape, BITS[self._code], how.split)):
                batch.add(self._source.handle, self._source.header.data + self._begin + at, region,
                          base + k * how.length, how.length)
            batch.finish().report(self._stats)
        return part

    def _read_rows(self, box: Box, how: Pieces) -> Any:
        """The pieces, read by several threads. None: they are too close together, or not in memory."""
        shape, bits = self._shape, BITS[self._code]
        pitch = math.prod(shape[how.split:]) * bits // 8
        # Dimensions between the first and the one that is cut must be whole, or the pieces are not at equal distances.
        whole = all((box.start[d], box.stop[d]) == (0, shape[d]) for d in range(1, how.split))
        if self._fw.device.is_host or self._route not in (None, 'staged') or not whole or pitch < PITCH or \
                not 0 < how.length <= pitch // 2:
            return None
        ctx, start = self._source.ctx, time.monotonic()
        part, region, base = place(ctx, self._fw, self._code, box.shape)
        first = self._source.header.data + self._begin + next(offsets(box, shape, bits, how.split))
        step = max(1, BLOCK // how.length)
        totals, result = Totals(), Result()
        totals.start = start
        for at in range(0, how.count, step):
            rows = Rows(first + at * pitch, pitch, how.length, min(step, how.count - at))
            rc = ctx.lib.strait_read_rows(self._source.endpoint, byref(rows), region.handle, base + at * how.length, byref(result))
            if rc == -errno.EAGAIN:
                return None
            if rc:
                raise StraitError(-rc, f'the transfer failed: {os.strerror(-rc)}', self._source.path, route='staged')
            totals.bytes += result.bytes
            totals.transfers += 1
            totals.routes = [a + b for a, b in zip(totals.routes, result.route_bytes)]
        totals.report(self._stats)
        return part

    def _cut(self, box: Box) -> Any:
        """The rows of the box, whole, in blocks, and the part of each block that is asked for. A block is read while the one
        before is cut."""
        row = (self._end - self._begin) // self._shape[0]
        rows = max(1, BLOCK // max(row, 1)) if self._fw.can_assign else self._shape[0]
        inner = (slice(None),) + tuple(slice(a, b) for a, b in zip(box.start[1:], box.stop[1:]))
        first, last = box.start[0], box.stop[0]
        result, before = None, None
        if first + rows < last:
            result = place(self._source.ctx, self._fw, self._code, box.shape)[0]
        with contextlib.ExitStack() as stack:
            for at in [*range(first, last, rows), last]:
                block = None
                if at < last:
                    end = min(at + rows, last)
                    begin = self._begin + at * row
                    batch = stack.enter_context(new_batch(self._route, self._source.path))
                    block = load(self._source, {self._name: (self._code, (end - at,) + self._shape[1:], begin,
                                                             begin + (end - at) * row)}, self._fw, batch)[self._name]
                if before is not None:
                    done, start, cut = before
                    done.finish().report(self._stats)
                    done.close()
                    cut = cut[inner]
                    if result is None:
                        return _compact(cut)
                    result[start:start + len(cut)] = cut
                before = (batch, at - first, block)
        return result


def place(ctx: Any, fw: Framework, code: str, shape: Tuple[int, ...]) -> Tuple[Any, Any, int]:
    """An uninitialized tensor, its region, and its offset there."""
    from ._memory import Region, locate
    fw.check(code)
    count = BITS[code] * math.prod(shape) // 8
    if fw.owns_memory:
        tensor = fw.empty(code, shape)
        fw.wait()
        region, offset = locate(ctx, fw.address(tensor), count, fw.device.on_cpu)
        return tensor, region, offset
    region = Region.allocate(ctx, fw.device, count)
    return fw.view(fw.arena(region), 0, code, shape), region, 0


def _compact(part: Any) -> Any:
    """A copy without the memory around it."""
    if hasattr(part, 'contiguous'):
        return part.clone() if part.is_contiguous() else part.contiguous()
    return part.copy()


def _indexed(part: Any, rest: Tuple[Any, ...]) -> Any:
    """The rest of an index. A part of a larger tensor is copied, so that the rest of that is freed."""
    result = part[rest]
    if not hasattr(result, '__setitem__') and hasattr(part, 'dtype') and hasattr(part, 'reshape'):
        return part[tuple(slice(0, 1) if k == 0 else k for k in rest)].reshape(()).copy()  # NumPy makes a scalar of it
    full = math.prod(getattr(part, 'shape', ()))
    return result if math.prod(getattr(result, 'shape', ())) == full else _compact(result)
