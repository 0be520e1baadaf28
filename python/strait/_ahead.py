# SPDX-License-Identifier: MIT
"""Reading tensors of a file ahead of a program that moves one after the other to a device.

Such a program waits for each tensor: at the beginning of a read the device has nothing to copy yet, at its end the readers have
nothing to do, and between two reads neither has. So once two tensors were moved in the order in which the program was told their
names, the next ones are read into memory of the device, and copied or handed over when the program moves them. A tensor that is
moved out of turn, or in part, ends that, as does closing the file. A tensor whose file has changed since is read again.
"""
import os
import threading
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ._counts import counts
from ._load import Source, new_batch
from ._memory import locate
from ._transfer import Batch
from .errors import StraitError

# What is read ahead at most: bytes, which are device memory, and tensors.
AHEAD_BYTES, AHEAD_TENSORS = 256 << 20, 8
# After so many tensors that were read in vain nothing is read ahead of this program any more.
WASTED = 16


class _Entry(NamedTuple):
    """A tensor that is read: its bytes on a device, the transfer, the stream of the memory, and the file before the read."""
    data: Any
    batch: Batch
    stream: Any
    state: Tuple[int, ...]


class Ahead:
    """The tensors of one open file that are read ahead."""

    def __init__(self, torch: Any, source: Source, smallest: int) -> None:
        self._torch, self._source, self._smallest = torch, source, smallest
        self._lock = threading.Lock()
        self._entries: Dict[str, _Entry] = {}
        self._bytes = self._wasted = 0
        self._next: Optional[int] = None  # the place of the tensor that follows the one that was moved last
        self.order(list(source.header.tensors))

    def order(self, names: List[str]) -> None:
        """The names as the program was told them. Short tensors are left to PyTorch, and skipped."""
        tensors = self._source.header.tensors
        self._names = [n for n in names if n in tensors and tensors[n][3] - tensors[n][2] >= self._smallest]
        self._places = {name: place for place, name in enumerate(self._names)}

    def moved(self, name: str, device: Any) -> Optional[Any]:
        """A whole tensor is to be moved to a device: its bytes there, if they were read ahead. Reads the next ones ahead."""
        with self._lock:
            place = self._places.get(name)
            in_turn = place is not None and place == self._next
            self._next = None if place is None else place + 1
            entry = self._entries.pop(name, None) if in_turn else None
            if entry is not None:
                self._bytes -= entry.data.numel()
            if not in_turn:
                self._drop()
            elif self._wasted < WASTED:
                self._fill(device)
        return None if entry is None else self._finish(entry, device)

    def stop(self, closed: bool = False) -> None:
        """The program does something else. closed: it has closed the file, and may keep tensors of it for long."""
        with self._lock:
            self._next = None
            self._drop()
            if closed:
                self._wasted = WASTED

    def _drop(self) -> None:
        self._wasted += len(self._entries)
        for entry in self._entries.values():
            entry.batch.close()
        self._entries.clear()
        self._bytes = 0

    def _state(self) -> Tuple[int, ...]:
        found = os.fstat(self._source.fd)
        return found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def _stream(self, device: Any) -> Any:
        return self._torch.cuda.current_stream(device) if device.type == 'cuda' else None

    def _fill(self, device: Any) -> None:
        """Start to read tensors, as many as there is room for."""
        tensors, new = self._source.header.tensors, {}
        for name in self._names[self._next:self._next + AHEAD_TENSORS]:
            if name in self._entries:
                continue
            count = tensors[name][3] - tensors[name][2]
            if self._bytes + count > AHEAD_BYTES:
                break
            try:
                new[name] = self._torch.empty((count,), dtype=self._torch.uint8, device=device)
            except RuntimeError:  # the device has no memory to spare
                self._wasted = WASTED
                break
            self._bytes += count
        if not new:
            return
        stream, state = self._stream(device), self._state()
        if stream is not None:
            stream.synchronize()  # work on it may still use the memory
        for name, data in new.items():
            batch = new_batch(None, self._source.path)
            self._entries[name] = _Entry(data, batch, stream, state)
            try:
                region, offset = locate(self._source.ctx, data.data_ptr(), data.numel(), stream is None)
                batch.hold(data)
                batch.add(self._source.handle, self._source.header.data + tensors[name][2], region, offset, data.numel())
                batch.flush()
            except StraitError:
                self._wasted = WASTED  # moving it fails in the same way, and says so

    def _finish(self, entry: _Entry, device: Any) -> Optional[Any]:
        try:
            with entry.batch:
                totals = entry.batch.finish()
        except StraitError:
            return None
        if entry.data.device != device or self._stream(device) != entry.stream or self._state() != entry.state or \
                totals.bytes != entry.data.numel():
            return None
        counts.add(1, totals)
        return entry.data

    def __del__(self) -> None:
        if getattr(self, '_entries', None):
            self._drop()
