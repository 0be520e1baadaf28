# SPDX-License-Identifier: MIT
"""One file for all ranks of a process group: each byte is read once, and handed on by torch.distributed."""
import contextlib
import errno
import hashlib
import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ._context import context
from ._frameworks import Torch
from ._load import Source, new_batch
from ._memory import locate
from ._slice import Box, parse
from ._transfer import Batch
from .dtypes import BITS
from .errors import StraitError

# What one rank reads and hands on at a time. Ranks read their shares at the same time.
SHARE = 64 << 20


def load_group(filename: Any, device: Any, group: Any, route: Optional[str], stats: Optional[Dict[str, Any]],
               immutable: bool, slices: Any = None) -> Dict[str, Any]:
    """Load a file on every rank of the group. Called by all of them; an error of one is raised on all."""
    load = _Load(group)
    try:
        ctx = context()
        load.fw = Torch(ctx.device(device))
        load.use_device(device)
        load.source = Source(ctx, filename, immutable)
        new_batch(route).close()
        load.allocate(slices)
    except Exception as error:
        load.error = error
    load.agree(load.digest())
    load.run(route, stats)
    load.agree('')
    return load.tensors


class Cut(NamedTuple):
    """The part of a tensor that a rank keeps: rows of the same length, and from each the same bytes."""
    row: int    # bytes of a row
    first: int  # first byte of each row that is kept
    last: int   # past the last one


def cut_of(box: Box, shape: Tuple[int, ...], bits: int, name: str) -> Cut:
    """How a part of one dimension lies in the bytes of the tensor."""
    dims = [d for d, (a, b) in enumerate(zip(box.start, box.stop)) if (a, b) != (0, shape[d])]
    if box.rest is not None or len(dims) > 1:
        raise StraitError(errno.EINVAL, f'the slice of tensor {name!r} must be a range of one dimension')
    dim = dims[0] if dims else 0
    inner = math.prod(shape[dim + 1:]) * bits
    first, last, row = ((box.start[dim] * inner, box.stop[dim] * inner, shape[dim] * inner) if shape else (0, bits, bits))
    if first % 8 or last % 8 or row % 8:
        raise StraitError(errno.EOPNOTSUPP, f'the slice of tensor {name!r} starts or ends inside a byte')
    return Cut(row // 8, first // 8, last // 8)


class Place(NamedTuple):
    """Where the bytes of a tensor go."""
    begin: int  # of the tensor, in the file's data
    end: int
    cut: Cut
    data: Any   # what the rank keeps, as bytes


class _Load:
    """One rank's part."""
    fw: Torch
    source: Source

    def __init__(self, group: Any) -> None:
        import torch
        import torch.distributed as dist
        self._torch, self._dist, self._group = torch, dist, group
        self._rank, self._size = dist.get_rank(group), dist.get_world_size(group)
        self.error: Optional[BaseException] = None
        self.tensors: Dict[str, Any] = {}
        self._places: List[Place] = []
        self._buffers: Tuple[Any, Any]
        self._batch: Batch
        self._on_device: Any = contextlib.nullcontext()

    def use_device(self, device: Any) -> None:
        """Objects travel through the current GPU: another rank's must not get a context of this process."""
        text = f'cuda:{device}' if isinstance(device, int) else str(device)
        if text.startswith('cuda:'):
            self._on_device = self._torch.cuda.device(text)

    def allocate(self, slices: Any) -> None:
        """All memory of the load: nothing that may fail for one rank alone is left for later."""
        header, fw, torch = self.source.header, self.fw, self._torch
        wanted = _wanted(slices, header.tensors, self.source.path)
        for name, (code, shape, begin, end) in header.tensors.items():
            if name not in wanted:
                continue
            fw.check(code)
            box = parse(wanted[name], shape)
            if box is None:
                raise StraitError(errno.EINVAL, f'the slice of tensor {name!r} must be a range of one dimension')
            cut = cut_of(box, shape, BITS[code], name)
            self.tensors[name] = tensor = fw.empty(code, box.shape)
            if end > begin and cut.last > cut.first:
                self._places.append(Place(begin, end, cut, tensor.reshape(-1).view(torch.uint8)))
        room = min(SHARE, max(header.bytes, 1))
        own, other = (torch.empty(room, dtype=torch.uint8, device=fw.torch_device) for _ in range(2))
        self._buffers = own, other

    def digest(self) -> str:
        """What all ranks must have in common."""
        if self.error is not None:
            return ''
        header = self.source.header
        return hashlib.sha256(repr((list(header.tensors.items()), header.data, header.length)).encode()).hexdigest()

    def agree(self, text: str) -> None:
        """Raise on all ranks if one has failed, or has another file."""
        said: List[Any] = [None] * self._size
        own = None if self.error is None else (getattr(self.error, 'errno', None) or errno.EIO, str(self.error))
        with self._on_device:
            self._dist.all_gather_object(said, (own, text), group=self._group)
        if self.error is not None:
            raise self.error
        for rank, (wrong, _) in enumerate(said):
            if wrong is not None:
                raise StraitError(wrong[0], f'rank {rank} failed: {wrong[1]}')
        different = [rank for rank, (_, other) in enumerate(said) if other != said[0][1]]
        if different:
            raise StraitError(errno.ESTALE, f'the file of rank {different[0]} differs from that of rank 0', self.source.path)

    def run(self, route: Optional[str], stats: Optional[Dict[str, Any]]) -> None:
        """Read this rank's shares and receive the others. A rank that failed takes part to the end: the others wait for it in
        broadcast, and learn of it afterwards."""
        total = self.source.header.bytes
        own, other = self._buffers
        try:
            self._guarded(self._open, route, stats is not None)
            self._guarded(self._start, own, self._rank * SHARE, total)
            for number, start in enumerate(range(0, total, SHARE)):
                reader, count = number % self._size, min(SHARE, total - start)
                buffer = own if reader == self._rank else other
                if reader == self._rank:
                    self._guarded(self._finish)
                self._dist.broadcast(buffer[:count], src=self._global(reader), group=self._group)
                self._guarded(self._spread, buffer, start, count)
                if reader == self._rank:
                    self._guarded(self._start, own, start + self._size * SHARE, total)
            self._guarded(self._end, stats)
        finally:
            if hasattr(self, '_batch'):
                self._batch.close()

    def _guarded(self, function: Any, *args: Any) -> None:
        """Call a function that may fail on this rank alone, unless this rank has failed."""
        if self.error is None:
            try:
                function(*args)
            except Exception as error:  # whatever it is: the other ranks must not wait for ever
                self.error = error

    def _open(self, route: Optional[str], explain: bool) -> None:
        self._batch = new_batch(route, self.source.path, explain)

    def _end(self, stats: Optional[Dict[str, Any]]) -> None:
        self.fw.wait()
        self._batch.totals.report(stats)

    def _global(self, rank: int) -> int:
        find = getattr(self._dist, 'get_global_rank', None) or self._dist.distributed_c10d._get_global_rank
        return rank if self._group is None or self._group is self._dist.group.WORLD else find(self._group, rank)

    def _start(self, buffer: Any, start: int, total: int) -> None:
        """Start to read this rank's next share."""
        if start >= total:
            return
        self.fw.wait()  # the share before may still be on its way from the buffer
        count = min(SHARE, total - start)
        region, offset = locate(self.source.ctx, buffer.data_ptr(), count, self.fw.device.on_cpu)
        self._batch.hold(buffer)
        self._batch.add(self.source.handle, self.source.header.data + start, region, offset, count)
        self._batch.flush()

    def _finish(self) -> None:
        self._batch.finish()

    def _spread(self, buffer: Any, start: int, count: int) -> None:
        """Copy a share to the tensors that it has bytes of. Tensors of earlier shares are dropped from the list."""
        done = 0
        for place in self._places:
            if place.begin >= start + count:
                break
            first, last = max(place.begin, start) - place.begin, min(place.end, start + count) - place.begin
            if first < last:
                spread(buffer[first + place.begin - start:last + place.begin - start], first, place.cut, place.data)
            done += place.end <= start + count
        del self._places[:done]


def spread(share: Any, first: int, cut: Cut, data: Any) -> None:
    """Copy what is kept of the bytes of a tensor from first on. data: all bytes that are kept, one row after the other."""
    row, kept = cut.row, cut.last - cut.first
    last = first + share.numel()
    if kept == row:
        data[first:last].copy_(share)
        return
    at = first
    while at < last:
        number, inside = divmod(at, row)
        whole = (last - at) // row
        if inside == 0 and whole:
            rows = share[at - first:at - first + whole * row].view(whole, row)
            data[number * kept:(number + whole) * kept].view(whole, kept).copy_(rows[:, cut.first:cut.last])
            at += whole * row
            continue
        end = min(last, at + row - inside)
        begin, stop = max(inside, cut.first), min(inside + end - at, cut.last)
        if begin < stop:
            to = number * kept + begin - cut.first
            data[to:to + stop - begin].copy_(share[at - first + begin - inside:at - first + stop - inside])
        at = end


def _wanted(slices: Any, tensors: Any, path: str) -> Dict[str, Any]:
    """What this rank keeps of each tensor, by name. A name that is missing in the result is not kept."""
    if slices is None:
        return {name: ... for name in tensors}
    if callable(slices):
        found = {name: slices(name, entry[1]) for name, entry in tensors.items()}
    else:
        unknown = [name for name in slices if name not in tensors]
        if unknown:
            raise StraitError(errno.ENOENT, f'the file has no tensor {unknown[0]!r}', path)
        found = {name: slices.get(name, ...) for name in tensors}
    return {name: index for name, index in found.items() if index is not None}
