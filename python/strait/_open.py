# SPDX-License-Identifier: MIT
"""safe_open(): tensors of one file, as asked for."""
import errno
from typing import Any, Dict, Iterable, List, Mapping, Optional

from ._context import context
from ._frameworks import framework as find_framework
from ._load import Source, entry_of, load, load_into, new_batch
from ._progress import Progress
from ._slice import Slice
from .errors import StraitError


class safe_open:  # noqa: N801  the name of the function it stands for
    """Open a safetensors file for its tensors, like safetensors.safe_open.

        with strait.safe_open("model.safetensors", device="cuda:0") as f:
            weight = f.get_tensor("embed.weight")
            part = f.get_slice("embed.weight")[1000:2000]

    framework: "pt", "numpy", "cupy", "jax", or "strait" for strait.Tensor, which has DLPack. By default PyTorch if it is
        installed, else NumPy on the CPU, else "strait".
    device: "cuda:0" or another CUDA device, "cpu", or "emu:0" for the emulated one.
    route: require a route: "p2p", "pagecache", "staged" or "host".
    stats: a dict that receives bytes, seconds, transfers, routes and reasons, added up over all calls.
    immutable: a promise that the file does not change while it is open, which allows faster routes.
    """

    def __init__(self, filename: Any, framework: Optional[str] = None, device: Any = 'cuda:0', *,
                 route: Optional[str] = None, stats: Optional[Dict[str, Any]] = None, immutable: bool = False,
                 progress: Optional[bool] = None) -> None:
        ctx = context()
        self._fw = find_framework(framework, ctx.device(device))
        self._source: Optional[Source] = Source(ctx, filename, immutable)
        self._route, self._stats, self._progress = route, stats, progress
        new_batch(route).close()  # refuses a route that there is not

    def __enter__(self) -> 'safe_open':
        self._file()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Its tensors stay."""
        if self._source is not None:
            self._source.close()
            self._source = None

    def _file(self) -> Source:
        if self._source is None:
            raise StraitError(errno.EBADF, 'the file is closed')
        return self._source

    def keys(self) -> List[str]:
        """The names of the tensors, sorted."""
        return sorted(self._file().header.tensors)

    def offset_keys(self) -> List[str]:
        """The names of the tensors in the order of their bytes."""
        return list(self._file().header.tensors)

    def metadata(self) -> Optional[Dict[str, str]]:
        """The metadata of the file, or None."""
        found = self._file().header.metadata
        return None if found is None else dict(found)

    def __len__(self) -> int:
        return len(self._file().header.tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._file().header.tensors

    def get_tensor(self, name: str) -> Any:
        """One tensor."""
        source = self._file()
        return self._load({name: entry_of(source, name)})[name]

    def get_tensors(self, names: Optional[Iterable[str]] = None, *, into: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
        """Some tensors, or all, in the order of their bytes, read together.

        into: existing arrays by name; they receive the tensors of these names instead of new ones.
        """
        source = self._file()
        if into is not None:
            with self._batch(sum(entry_of(source, n)[3] - entry_of(source, n)[2] for n in into)) as batch:
                load_into(source, into, batch)
                batch.finish().report(self._stats)
            return dict(into)
        if names is None:
            return self._load(source.header.tensors, source.header.bytes)
        wanted = {name: entry_of(source, name) for name in names}
        return self._load(dict(sorted(wanted.items(), key=lambda item: item[1][2])))

    def get_slice(self, name: str) -> Slice:
        """A tensor to be indexed: only what the index needs is read."""
        return Slice(self._file(), name, self._fw, self._route, self._stats)

    def _batch(self, total: int) -> Any:
        source = self._file()
        return new_batch(self._route, source.path, self._stats is not None,
                         Progress(total, source.path, self._progress))

    def _load(self, tensors: Any, total: Optional[int] = None) -> Dict[str, Any]:
        total = sum(entry[3] - entry[2] for entry in tensors.values()) if total is None else total
        with self._batch(total) as batch:
            result = load(self._file(), tensors, self._fw, batch, start=False)
            batch.finish().report(self._stats)
        return result
