# SPDX-License-Identifier: MIT
"""One file for all ranks of a process group: each byte is read once, and handed on by torch.distributed."""
import errno
import hashlib
from typing import Any, Dict, List, Optional, Tuple

from ._context import context
from ._frameworks import Torch
from ._load import Source, new_batch
from ._memory import locate
from ._transfer import Batch
from .errors import StraitError

# What one rank reads and hands on at a time. Ranks read their shares at the same time.
SHARE = 64 << 20


def load_group(filename: Any, device: Any, group: Any, route: Optional[str], stats: Optional[Dict[str, Any]],
               immutable: bool) -> Dict[str, Any]:
    """Load a file on every rank of the group. Called by all of them; an error of one is raised on all."""
    load = _Load(group)
    try:
        ctx = context()
        load.fw = Torch(ctx.device(device))
        load.source = Source(ctx, filename, immutable)
        new_batch(route).close()
        for entry in load.source.header.tensors.values():
            load.fw.check(entry[0])
        load.tensors = {name: load.fw.empty(entry[0], entry[1]) for name, entry in load.source.header.tensors.items()}
    except Exception as error:
        load.error = error
    load.agree(load.digest())
    load.run(route, stats)
    load.agree('')
    return load.tensors


class _Load:
    """One rank's part."""
    fw: Torch
    source: Source

    def __init__(self, group: Any) -> None:
        import torch.distributed as dist
        self._dist, self._group = dist, group
        self._rank, self._size = dist.get_rank(group), dist.get_world_size(group)
        self.error: Optional[BaseException] = None
        self.tensors: Dict[str, Any] = {}

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
        torch, total = self.fw.torch, self.source.header.bytes
        starts = list(range(0, total, SHARE))
        room = min(SHARE, max(total, 1))
        own, other = (torch.empty(room, dtype=torch.uint8, device=self.fw.torch_device) for _ in range(2))
        places = self._places()
        with new_batch(route, self.source.path, stats is not None) as batch:
            self._start(batch, own, self._rank * SHARE, total)
            for number, start in enumerate(starts):
                reader, count = number % self._size, min(SHARE, total - start)
                buffer = own if reader == self._rank else other
                if reader == self._rank:
                    self._finish(batch)
                # A rank that failed takes part to the end: the others wait for it here, and learn of it afterwards.
                self._dist.broadcast(buffer[:count], src=self._global(reader), group=self._group)
                self._spread(buffer, start, count, places)
                if reader == self._rank:
                    self._start(batch, own, start + self._size * SHARE, total)
            self.fw.wait()
            batch.totals.report(stats)

    def _global(self, rank: int) -> int:
        find = getattr(self._dist, 'get_global_rank', None) or self._dist.distributed_c10d._get_global_rank
        return rank if self._group is None or self._group is self._dist.group.WORLD else find(self._group, rank)

    def _start(self, batch: Batch, buffer: Any, start: int, total: int) -> None:
        """Start to read this rank's next share."""
        if start >= total or self.error is not None:
            return
        try:
            self.fw.wait()  # the share before may still be on its way from the buffer
            count = min(SHARE, total - start)
            region, offset = locate(self.source.ctx, buffer.data_ptr(), count, self.fw.device.on_cpu)
            batch.hold(buffer)
            batch.add(self.source.handle, self.source.header.data + start, region, offset, count)
            batch.flush()
        except StraitError as error:
            self.error = error

    def _finish(self, batch: Batch) -> None:
        if self.error is None:
            try:
                batch.finish()
            except StraitError as error:
                self.error = error

    def _places(self) -> List[Tuple[int, int, Any]]:
        """The bytes of each tensor: first, last, and the tensor as bytes."""
        uint8 = self.fw.torch.uint8
        return [(entry[2], entry[3], self.tensors[name].reshape(-1).view(uint8))
                for name, entry in self.source.header.tensors.items() if entry[3] > entry[2]]

    @staticmethod
    def _spread(buffer: Any, start: int, count: int, places: List[Tuple[int, int, Any]]) -> None:
        """Copy a share to the tensors that it has bytes of. Tensors of earlier shares are dropped from the list."""
        while places and places[0][1] <= start:
            places.pop(0)
        for begin, end, data in places:
            if begin >= start + count:
                break
            first, last = max(begin, start), min(end, start + count)
            data[first - begin:last - begin].copy_(buffer[first - start:last - start])
