# SPDX-License-Identifier: MIT
"""What stands in for safetensors.safe_open and its users. It asks the original first, so that errors are the original's."""
from typing import Any, Dict, List, Optional

from . import _filetensor
from ._ahead import Ahead
from ._context import context
from ._counts import counts
from ._frameworks import Torch
from ._load import Source, load, new_batch
from ._slice import Slice, parse
from .errors import StraitError

# Tensors of fewer bytes stay as they are on the CPU: a copy of so few is as fast.
SMALL = 64 << 10


def make(original: Any) -> Any:
    """A class that behaves as the original safe_open."""

    class safe_open:  # noqa: N801
        __doc__ = original.__doc__

        def __init__(self, filename: Any, framework: Any, device: Any = 'cpu', **options: Any) -> None:
            self._original = original(filename, framework, device, **options)
            self._source: Optional[Source] = None
            self._fw: Optional[Torch] = None
            self._closed = False
            self._ahead: Optional[Ahead] = None
            self._names: Optional[List[str]] = None
            if framework not in ('pt', 'torch', 'pytorch'):
                counts.left('not for PyTorch')
                return
            kind = _kind(device)
            if kind not in ('cpu', *_filetensor.TARGETS):
                counts.left(f'on the device {device}')
                return
            try:
                ctx = context()
                self._source = Source(ctx, filename, keep=kind == 'cpu')
                if kind != 'cpu':
                    self._fw = Torch(ctx.device(_cuda_name(device)))
                else:
                    _filetensor.expect(ctx)
            except (StraitError, TypeError) as error:
                self._source = None
                counts.left(getattr(error, 'strerror', None) or str(error))

        def __enter__(self) -> Any:
            self._original.__enter__()
            return self

        def __exit__(self, *exc: Any) -> Any:
            self._closed = True  # tensors that know their bytes keep the file open
            if self._ahead is not None:
                self._ahead.stop(closed=True)
            return self._original.__exit__(*exc)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._original, name)

        def keys(self) -> Any:
            return self._told(self._original.keys())

        def offset_keys(self) -> Any:
            return self._told(self._original.offset_keys())

        def _told(self, names: Any) -> Any:
            """The order in which the program will ask for the tensors, most probably."""
            if self._source is not None and self._fw is None:
                self._names = list(names)
                if self._ahead is not None:
                    self._ahead.order(self._names)
            return names

        def metadata(self) -> Any:
            return self._original.metadata()

        def _serves(self, *names: str) -> bool:
            return self._source is not None and not self._closed and all(n in self._source.header.tensors for n in names)

        def get_tensor(self, name: str) -> Any:
            if self._serves(name):
                if self._fw is None:
                    return self._know(name, self._original.get_tensor(name))
                loaded = self._load({name: self._source.header.tensors[name]})
                if loaded is not None:
                    return loaded[name]
            return self._original.get_tensor(name)

        def get_tensors(self) -> Dict[str, Any]:
            if self._serves() and self._fw is not None:
                loaded = self._load(self._source.header.tensors)
                if loaded is not None:
                    return loaded
            bulk = getattr(self._original, 'get_tensors', None)
            found = bulk() if bulk is not None else {k: self._original.get_tensor(k) for k in self._original.keys()}
            if self._serves() and self._fw is None:
                return {name: self._know(name, tensor) for name, tensor in found.items()}
            return found

        def get_slice(self, name: str) -> Any:
            inner = self._original.get_slice(name)
            return PatchedSlice(self, name, inner) if self._serves(name) else inner

        def _load(self, tensors: Any) -> Optional[Dict[str, Any]]:
            try:
                with new_batch(None, self._source.path) as batch:
                    result = load(self._source, tensors, self._fw, batch, start=False)
                    counts.add(len(tensors), batch.finish())
                return result
            except StraitError as error:
                counts.left(error.strerror, len(tensors))
                return None

        def _know(self, name: str, tensor: Any, base: Optional[int] = None) -> Any:
            """A CPU tensor of the original with its bytes of the file."""
            _, _, begin, end = self._source.header.tensors[name]
            if end - begin < SMALL or tensor.device.type != 'cpu':
                return tensor
            if self._ahead is None:
                self._ahead = _filetensor.ahead(self._source, SMALL)
                if self._names is not None:
                    self._ahead.order(self._names)
            return _filetensor.wrap(tensor, self._source, self._source.header.data + begin, end - begin, name, self._ahead)

    safe_open.__module__, safe_open.__qualname__ = original.__module__, 'safe_open'
    return safe_open


class PatchedSlice:
    """What get_slice() returns: the original's slice, whose parts know their bytes or are read to the GPU."""

    def __init__(self, file: Any, name: str, inner: Any) -> None:
        self._file, self._name, self._inner = file, name, inner

    def get_shape(self) -> Any:
        return self._inner.get_shape()

    def get_dtype(self) -> Any:
        return self._inner.get_dtype()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __getitem__(self, index: Any) -> Any:
        file, source = self._file, self._file._source
        if file._fw is None:
            _, _, begin, end = source.header.tensors[self._name]
            part = self._inner[index]
            if end - begin < SMALL or file._closed:
                return part
            return _filetensor.wrap_part(part, index, source.header.tensors[self._name], source)
        try:
            box = parse(index, source.header.tensors[self._name][1])
        except (IndexError, ValueError, TypeError):
            return self._inner[index]
        if box is None:
            counts.left('an index that is no slice')
            return self._inner[index]
        try:
            stats: Dict[str, Any] = {}
            part = Slice(source, self._name, file._fw, None, stats)[index]
            counts.add(1, _Totals(stats))
            return part
        except StraitError as error:
            counts.left(error.strerror)
            return self._inner[index]


class _Totals:
    """The dict of a load as Counts.add() takes it."""

    def __init__(self, stats: Dict[str, Any]) -> None:
        from ._lib import ROUTES
        self.bytes = stats.get('bytes', 0)
        self.routes = [stats.get('routes', {}).get(name, 0) for name in ROUTES]


def _kind(device: Any) -> str:
    if isinstance(device, int):
        return 'cuda'
    return str(getattr(device, 'type', device)).partition(':')[0]


def _cuda_name(device: Any) -> str:
    """The device with its number: the first if it has none, as of the original."""
    text = f'cuda:{device}' if isinstance(device, int) else str(device)
    return 'cuda:0' if text == 'cuda' else text


def patch_load_file(module: Any) -> None:
    """safetensors.torch.load_file of versions that read one tensor after the other."""
    inner = module.load_file

    def load_file(filename: Any, device: Any = 'cpu', **options: Any) -> Any:
        if _kind(device) not in _filetensor.TARGETS:
            return inner(filename, device=device, **options)
        with module.safe_open(filename, framework='pt', device=device, **options) as file:
            return file.get_tensors()

    load_file.__doc__, load_file.__wrapped__ = inner.__doc__, inner  # type: ignore[attr-defined]
    module.load_file = load_file
