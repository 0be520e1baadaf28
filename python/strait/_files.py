# SPDX-License-Identifier: MIT
"""Whole files: load_file(), load_sharded(), and the iterator over many files."""
import collections
import errno
import json
import os
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, List, Mapping, Optional, Set, Tuple, Union

from ._context import context
from ._frameworks import Framework
from ._frameworks import framework as find_framework
from ._load import Source, load, new_batch, open_regular
from ._open import safe_open
from ._progress import Progress
from .errors import StraitError

BUDGET = 2 << 30


def load_file(filename: Any, device: Any = 'cuda:0', *, framework: Optional[str] = None, route: Optional[str] = None,
              stats: Optional[Dict[str, Any]] = None, into: Optional[Mapping[str, Any]] = None, immutable: bool = False,
              progress: Optional[bool] = None, group: Any = None, slices: Any = None) -> Dict[str, Any]:
    """Load a safetensors file as a dict of tensors, like safetensors.torch.load_file.

    device: "cuda:0" or another CUDA device, "cpu", or "emu:0" for CPU tensors in memory of the emulated device.
    framework: "pt", "numpy", "cupy", "jax" or "strait"; see safe_open.
    route: use only this route, "p2p", "pagecache", "staged" or "host". By default Strait selects the routes.
    stats: a dict that receives bytes, seconds, transfers, routes and reasons.
    into: existing arrays by name, which receive the tensors; only these are loaded.
    immutable: a promise that the file does not change while it is loaded.
    progress: False for no bar; by default there is one on a terminal.
    group: a torch.distributed process group, all of whose ranks load this file: each byte is read once in the group.
    slices: with group, what this rank keeps: a dict of indices by name, or a function of name and shape that returns one.
        An index is a range of one dimension, as of get_slice; None: the tensor is not kept. Without slices, all of it.

    PyTorch's tensors are allocated by PyTorch. Arrays of other libraries, and all on emu, share one allocation of
    Strait's, which is freed with the last of them. Raises StraitError, an OSError.
    """
    if group is not None:
        if into is not None or framework not in (None, 'pt', 'torch'):
            raise StraitError(errno.EINVAL, 'a group loads new tensors of PyTorch: neither into nor another framework is possible')
        from ._group import load_group
        return load_group(filename, device, group, route, stats, immutable, slices)
    if slices is not None:
        raise StraitError(errno.EINVAL, 'slices are of a group: use safe_open().get_slice()')
    with safe_open(filename, framework, device, route=route, stats=stats, immutable=immutable, progress=progress) as f:
        return f.get_tensors(into=into)


def shard_names(index: Any) -> Tuple[List[str], Dict[str, str]]:
    """The files of a sharded model, and the path of each tensor's file. index: its index.json, or the folder that has one."""
    path = os.fspath(index)
    if os.path.isdir(path):
        found = sorted(name for name in os.listdir(path) if name.endswith('.safetensors.index.json'))
        if not found:
            single = sorted(name for name in os.listdir(path) if name.endswith('.safetensors'))
            if not single:
                raise StraitError(errno.ENOENT, 'the folder has neither an index.json nor a safetensors file', path)
            return [os.path.join(path, name) for name in single], {}
        if len(found) > 1:
            raise StraitError(errno.EINVAL, f'the folder has several index files: {", ".join(found)}', path)
        path = os.path.join(path, found[0])
    try:
        with open(open_regular(path, 'index'), encoding='utf-8') as file:
            weight_map = json.load(file)['weight_map']
        names = {str(tensor): str(name) for tensor, name in weight_map.items()}
    except StraitError:
        raise
    except OSError as error:
        raise StraitError(error.errno, f'cannot read the index: {error.strerror}', path) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise StraitError(errno.EBADMSG, 'not an index of a sharded model: it has no "weight_map" of names', path) from None
    folder = os.path.dirname(path)
    for name in names.values():
        # An index is data from elsewhere: it names files of its own folder, not of the system.
        if os.path.isabs(name) or '..' in name.split('/'):
            raise StraitError(errno.EBADMSG, f'the index names a file outside its folder: {name!r}', path)
    paths = {tensor: os.path.join(folder, name) for tensor, name in names.items()}
    return sorted(set(paths.values())), paths


def load_sharded(index: Any, device: Any = 'cuda:0', *, framework: Optional[str] = None, route: Optional[str] = None,
                 stats: Optional[Dict[str, Any]] = None, immutable: bool = False,
                 progress: Optional[bool] = None) -> Dict[str, Any]:
    """Load a model of several files as one dict of tensors.

    index: its model.safetensors.index.json, or the folder that has one.
    """
    paths, named = shard_names(index)
    ctx = context()
    fw = find_framework(framework, ctx.device(device))
    sources = [Source(ctx, path, immutable) for path in paths]
    _check_index(sources, named)
    result: Dict[str, Any] = {}
    total = sum(source.header.bytes for source in sources)
    with new_batch(route, os.fspath(index), stats is not None, Progress(total, os.fspath(index), progress)) as batch:
        for source in sources:
            batch.hold(source)
            result.update(load(source, source.header.tensors, fw, batch))
        batch.finish().report(stats)
    return result


def _check_index(sources: List[Source], paths: Dict[str, str]) -> None:
    """Every tensor of the index is in the file that it names, and no name is in two files."""
    seen: Set[str] = set()
    for source in sources:
        tensors = source.header.tensors.keys()
        if not seen.isdisjoint(tensors):
            twice = sorted(seen.intersection(tensors))[0]
            raise StraitError(errno.EBADMSG, f'tensor {twice!r} is in more than one file', source.path)
        seen.update(tensors)
    by_file: Dict[str, Set[str]] = collections.defaultdict(set)
    for tensor, path in paths.items():
        by_file[path].add(tensor)
    for source in sources:
        missing = by_file.get(source.path, set()) - source.header.tensors.keys()
        if missing:
            raise StraitError(errno.EBADMSG, f'the index names tensor {sorted(missing)[0]!r}, which the file has not',
                              source.path)


def iter_tensors(files: Union[Any, Iterable[Any]], device: Any = 'cuda:0', *, framework: Optional[str] = None,
                 budget: int = BUDGET, route: Optional[str] = None, stats: Optional[Dict[str, Any]] = None,
                 immutable: bool = False, wanted: Optional[Callable[[str], bool]] = None) -> Iterator[Tuple[str, Any]]:
    """The tensors of many files, one after the other, as (name, tensor).

    files: paths, or the index.json or folder of a sharded model.
    budget: bytes of device memory for tensors that are read ahead of the caller, 2 GiB by default. A tensor that is
        longer than the budget is read alone. What the caller keeps is not counted.
    wanted: which tensors, by name; the others are not read.
    """
    paths = shard_names(files)[0] if isinstance(files, (str, bytes, os.PathLike)) and _is_model(files) else \
        [files] if isinstance(files, (str, bytes, os.PathLike)) else list(files)
    if budget < 1:
        raise StraitError(errno.EINVAL, f'the budget is {budget} bytes: it must be at least 1')
    ctx = context()
    fw = find_framework(framework, ctx.device(device))
    return _iterate(_groups([os.fspath(path) for path in paths], budget, immutable, wanted), fw, budget, route, stats)


def _is_model(path: Any) -> bool:
    return os.path.isdir(path) or os.fsdecode(path).endswith('.json')


def _groups(paths: List[str], budget: int, immutable: bool,
            wanted: Optional[Callable[[str], bool]]) -> Iterator[Tuple[Source, Dict[str, Any], int]]:
    """The tensors of the files in parts of a quarter of the budget, so that some are read while others are used."""
    for path in paths:
        source = Source(context(), path, immutable)
        group: Dict[str, Any] = {}
        total = 0
        for name, entry in source.header.tensors.items():
            if wanted is not None and not wanted(name):
                continue
            count = entry[3] - entry[2]
            if group and total + count > budget // 4:
                yield source, group, total
                group, total = {}, 0
            group[name] = entry
            total += count
        if group:
            yield source, group, total


def _iterate(groups: Iterator[Tuple[Source, Dict[str, Any], int]], fw: Framework, budget: int, route: Optional[str],
             stats: Optional[Dict[str, Any]]) -> Iterator[Tuple[str, Any]]:
    ahead: Deque[Tuple[Any, Dict[str, Any], int]] = collections.deque()
    following = next(groups, None)
    held = 0
    try:
        while ahead or following is not None:
            while following is not None and (not ahead or held + following[2] <= budget):
                source, group, count = following
                batch = new_batch(route, source.path, stats is not None)
                ahead.append((batch, {}, count))
                batch.hold(source)
                ahead[-1][1].update(load(source, group, fw, batch))
                held += count
                following = next(groups, None)
            batch, tensors, count = ahead[0]
            batch.finish().report(stats)
            batch.close()
            ahead.popleft()
            for name in list(tensors):
                yield name, tensors.pop(name)
            held -= count
    finally:
        for batch, _, _ in ahead:
            batch.close()
