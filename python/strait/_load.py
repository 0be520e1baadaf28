# SPDX-License-Identifier: MIT
"""Loading the tensors of open files: where each goes, and the transfers that bring it there."""
import errno
import os
import stat
from ctypes import c_void_p
from typing import Any, Dict, List, Mapping, Optional, Tuple

from . import _dlpack, _header
from ._buffer import Buffer, wait_all
from ._context import Context, context, route_mask
from ._frameworks import RESERVE, Framework, Tensors
from ._lib import FILE_UNCHANGING, READ
from ._memory import Region, locate
from ._transfer import Batch
from .errors import StraitError

ALIGN = 256
# So many bytes are allocated before their transfers start, which wait for the allocator's stream once.
_GROUP_BYTES = 256 << 20
_GROUP_TENSORS = 512
# Shorter tensors share memory in PyTorch anyway.
_SHORT = 1 << 20


def open_regular(path: str, what: str) -> int:
    """A descriptor of a regular file, for reading. An open of a pipe or a device must not wait for its other side."""
    def opened(flags: int) -> int:
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
        except OSError as error:
            raise StraitError(error.errno, f'cannot open the {what}: {error.strerror}', path) from None

    try:
        fd = opened(os.O_NONBLOCK)
    except StraitError as error:
        if error.errno != errno.EWOULDBLOCK or not os.path.isfile(path):
            raise
        fd = opened(0)  # another process has a lease on it, which the kernel breaks while this one waits
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EBADMSG
        raise StraitError(number, f'cannot read the {what}: it is {"a directory" if stat.S_ISDIR(mode) else "not a regular file"}', path)
    os.set_blocking(fd, True)  # io_uring does not wait for reads of a descriptor that is not blocking
    return fd


class Source:
    """A safetensors file, open for transfers, with its header."""

    def __init__(self, ctx: Context, path: Any, immutable: bool = False, keep: bool = False) -> None:
        """keep: .fd stays open, to ask whether the file has changed."""
        self.ctx, self.path, self.fd = ctx, os.fspath(path), -1
        self.endpoint: Optional[c_void_p] = None
        fd = open_regular(self.path, 'file')
        try:
            self.header = _header.read(self.path, fd)
            # The descriptor whose header was checked: the path may name another file by now.
            self.endpoint = ctx.import_file(fd, FILE_UNCHANGING if immutable else 0, self.path)
        except OSError as error:
            if error.filename is None:
                raise StraitError(error.errno, error.strerror, self.path) from None
            raise
        finally:
            if keep and self.endpoint is not None:
                self.fd = fd
            else:
                os.close(fd)
        self.handle: int = self.endpoint.value or 0

    def close(self) -> None:
        endpoint, self.endpoint = self.endpoint, None
        if endpoint is not None:
            self.ctx.lib.strait_endpoint_close(endpoint)
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if getattr(self, 'endpoint', None) is not None:
            self.close()


def load(source: Source, tensors: Tensors, fw: Framework, batch: Batch, start: bool = True) -> Dict[str, Any]:
    """Start the transfers of some tensors of a file. The tensors are complete after batch.finish().

    start: False leaves the last ones to batch.finish(), for callers that call it at once.
    """
    for code in {entry[0] for entry in tensors.values()}:
        fw.check(code)
    result = (_load_owned if fw.owns_memory else _load_region)(source, tensors, fw, batch)
    if start:
        batch.flush()
    return result


def _load_owned(source: Source, tensors: Tensors, fw: Framework, batch: Batch) -> Dict[str, Any]:
    """Each tensor is an allocation of the framework."""
    ctx, data, on_cpu, handle = source.ctx, source.header.data, fw.device.on_cpu, source.handle
    result: Dict[str, Any] = {}
    batch.hold(result)  # a failure must not free memory that transfers still write to
    group: List[Tuple[int, int, int]] = []
    waiting = 0

    def add() -> None:
        # After the allocation: a block may have been freed by another thread with work on the stream still queued.
        fw.wait()
        for addr, begin, count in group:
            region, offset = locate(ctx, addr, count, on_cpu)
            batch.add(handle, data + begin, region, offset, count)
        group.clear()

    blocks = _blocks(tensors)
    for name, (code, shape, begin, end) in tensors.items():
        if name in blocks:
            fw.reserve(blocks[name])
        result[name] = tensor = fw.empty(code, shape)
        if end == begin:
            continue
        group.append((fw.address(tensor), begin, end - begin))
        waiting += end - begin
        if waiting >= _GROUP_BYTES or len(group) >= _GROUP_TENSORS:
            add()
            if len(result) < len(tensors):
                batch.flush()
            waiting = 0
    if group:
        add()
    return result


def _blocks(tensors: Tensors) -> Dict[str, int]:
    """Tensors whose memory is reserved at once: the bytes of several, by the name of the first."""
    found: Dict[str, int] = {}
    first, total, number = '', 0, 0
    for name, (_, _, begin, end) in tensors.items():
        count = end - begin + 511 & -512  # as PyTorch rounds
        if count < _SHORT:
            continue
        if not number or total + count > RESERVE:
            first, total, number = name, 0, 0
        total, number = total + count, number + 1
        if number > 1:
            found[first] = total
    return found


def _load_region(source: Source, tensors: Tensors, fw: Framework, batch: Batch) -> Dict[str, Any]:
    """All tensors are parts of one region, in the order of the file, each at a multiple of ALIGN bytes."""
    _dlpack.sweep()
    places: List[int] = []
    runs: List[Tuple[int, int, int]] = []  # file offset, region offset, length: tensors with the same distances in both
    pos, run_begin, run_end, shift = 0, 0, 0, 0
    append = places.append
    for _, _, begin, end in tensors.values():
        if pos & ALIGN - 1:
            pos = pos + ALIGN - 1 & -ALIGN
        append(pos)
        if begin != run_end or pos - begin != shift:
            if run_end > run_begin:
                runs.append((run_begin, run_begin + shift, run_end - run_begin))
            run_begin, shift = begin, pos - begin
        run_end = end
        pos += end - begin
    if run_end > run_begin:
        runs.append((run_begin, run_begin + shift, run_end - run_begin))
    region = Region.allocate(source.ctx, fw.device, pos)
    handle, data = source.handle, source.header.data
    for begin, offset, count in runs:
        batch.add(handle, data + begin, region, offset, count)
    return fw.views(fw.arena(region), tensors, places)


def load_into(source: Source, targets: Mapping[str, Any], batch: Batch) -> None:
    """Start the transfers of tensors into existing arrays."""
    found = []
    for name, target in targets.items():
        _, _, begin, end = entry_of(source, name)
        buffer = Buffer(source.ctx, target, writable=True)
        if buffer.nbytes != end - begin:
            raise StraitError(errno.EINVAL, f'tensor {name!r} has {end - begin} bytes, its destination {buffer.nbytes}',
                              source.path)
        if end > begin:
            found.append((begin, buffer))
    wait_all(buffer for _, buffer in found)
    for begin, buffer in found:
        batch.hold(buffer)
        batch.add(source.handle, source.header.data + begin, buffer.region, buffer.offset, buffer.nbytes)
    batch.flush()


def entry_of(source: Source, name: str) -> Tuple[str, Tuple[int, ...], int, int]:
    try:
        return source.header.tensors[name]
    except KeyError:
        raise StraitError(errno.ENOENT, f'the file has no tensor {name!r}', source.path) from None


def new_batch(route: Optional[str], path: Optional[str] = None, explain: bool = False, progress: Any = None) -> Batch:
    """A batch of reads."""
    return Batch(context(), READ, route_mask(route), path, progress, explain)
