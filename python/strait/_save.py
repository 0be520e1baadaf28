# SPDX-License-Identifier: MIT
"""save_file(): tensors of any device to a safetensors file, which appears at once and whole."""
import contextlib
import errno
import os
import secrets
import stat
import sys
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from . import _header
from ._buffer import Buffer, wait_all
from ._context import context, route_mask
from ._lib import WRITE
from ._progress import Progress
from ._transfer import Batch
from .dtypes import BITS, ORDER, code_of
from .errors import StraitError, check

Item = Tuple[str, str, Tuple[int, ...], Any]  # name, code, shape, array


def save_file(tensors: Mapping[str, Any], filename: Any, metadata: Optional[Dict[str, str]] = None, *,
              durable: bool = False, route: Optional[str] = None, stats: Optional[Dict[str, Any]] = None,
              progress: Optional[bool] = None) -> None:
    """Save a dict of tensors as a safetensors file, like safetensors.torch.save_file.

    The tensors may be PyTorch's, NumPy's, CuPy's, Strait's own, or any with DLPack or an array interface, on any
    device. Work that is queued on their current stream is waited for. Tensors that share memory, are not contiguous, or
    are sparse are refused as by safetensors.

    The file is written beside its destination and renamed, so that a crash leaves the old file or the new one. An
    existing file keeps its mode and, where permitted, its owner; a symbolic link stays, and the file it names is replaced.

    durable: the new file is on the disk when the call returns, and stays there after a power failure.
    """
    items = _items(tensors)
    if metadata is not None and not (isinstance(metadata, dict) and all(
            isinstance(k, str) and isinstance(v, str) for k, v in metadata.items())):
        raise TypeError('metadata must be a dict of strings')
    ctx, path = context(), os.fspath(filename)
    buffers = [Buffer(ctx, array, writable=False) for _, _, _, array in items]
    head = _header.build([(name, code, shape, buffer.nbytes) for (name, code, shape, _), buffer in zip(items, buffers)],
                         metadata)
    total = sum(buffer.nbytes for buffer in buffers)
    wait_all(buffers)
    with _replacement(path, durable) as fd:
        try:
            os.posix_fallocate(fd, 0, len(head) + total)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
        _write(fd, head)
        endpoint = ctx.import_file(fd, 0, path)
        try:
            with Batch(ctx, WRITE, route_mask(route), path, Progress(total, path, progress), stats is not None) as batch:
                at = len(head)
                for buffer in buffers:
                    batch.hold(buffer)
                    if buffer.nbytes:
                        batch.add(endpoint.value or 0, at, buffer.region, buffer.offset, buffer.nbytes)
                        at += buffer.nbytes
                batch.finish().report(stats)
            if durable:
                check(ctx.lib.strait_endpoint_sync(endpoint), 'cannot make the file durable', path)
                os.fsync(fd)
        finally:
            ctx.lib.strait_endpoint_close(endpoint)


def _items(tensors: Mapping[str, Any]) -> List[Item]:
    """The tensors in the order of the format's own library: the widest types first, then by name."""
    if not isinstance(tensors, dict):
        raise ValueError(f'Expected a dict of [str, tensor] but received {type(tensors)}')
    torch = sys.modules.get('torch')
    items: List[Item] = []
    sparse = []
    for name, array in tensors.items():
        if not isinstance(name, str):
            raise TypeError(f'Key `{name}` is invalid, expected str but received {type(name)}')
        if torch is not None and isinstance(array, torch.Tensor):
            if array.layout != torch.strided:
                sparse.append(name)
                continue
            code = code_of(str(array.dtype))
            shape = tuple(array.shape)
        elif hasattr(array, 'dtype') and hasattr(array, 'shape'):
            text = str(array.dtype)
            code = text if text in BITS else code_of(getattr(array.dtype, 'name', text))
            shape = tuple(array.shape)
            if getattr(array.dtype, 'byteorder', '=') == '>':
                raise ValueError(f'Key `{name}` is invalid: its values are big-endian')
        else:
            raise ValueError(f'Key `{name}` is invalid, expected a tensor but received {type(array)}')
        if code is None:
            raise StraitError(errno.EOPNOTSUPP, f'tensor {name!r} has type {array.dtype}, which the format has not')
        if code == 'F4' and torch is not None and isinstance(array, torch.Tensor):
            shape = shape[:-1] + (shape[-1] * 2,) if shape else (2,)
        if not _contiguous(array):
            raise ValueError(f'You are trying to save a non contiguous tensor: `{name}` which is not allowed. It either '
                             'means you are trying to save tensors which are reference of each other in which case it\'s '
                             'recommended to save only the full tensors, and reslice at load time, or simply call '
                             '`.contiguous()` on your tensor to pack it before saving.')
        items.append((name, code, shape, array))
    if sparse:
        raise ValueError(f'You are trying to save a sparse tensors: `{sparse}` which this library does not support. You '
                         'can make it a dense tensor before saving with `.to_dense()` but be aware this might make a '
                         'much larger file than needed.')
    _refuse_shared(items)
    items.sort(key=lambda item: (-ORDER[item[1]], item[0].encode('utf-8', 'surrogatepass')))
    return items


def _contiguous(array: Any) -> bool:
    if hasattr(array, 'is_contiguous'):
        return bool(array.is_contiguous())
    flags = getattr(array, 'flags', None)
    return bool(flags.c_contiguous) if flags is not None and hasattr(flags, 'c_contiguous') else True


def _place(array: Any) -> Optional[Tuple[Any, int]]:
    """Where an array lies: its device, and its address."""
    data_ptr = getattr(array, 'data_ptr', None)
    if data_ptr is not None:
        return str(array.device), data_ptr() if callable(data_ptr) else data_ptr
    for name in ('__cuda_array_interface__', '__array_interface__'):
        interface = getattr(array, name, None)
        if interface is not None and isinstance(interface.get('data'), tuple):
            return name, interface['data'][0] or 0
    return None


def _refuse_shared(items: List[Item]) -> None:
    areas = []
    for name, code, shape, array in items:
        count = BITS[code]
        for size in shape:
            count *= size
        place = _place(array)
        if place is not None and place[1] and count:
            areas.append((place[0], place[1], place[1] + count // 8, name))
    areas.sort()
    failing: List[set] = []
    device, stop, last = None, 0, ''
    for where, start, end, name in areas:
        if where == device and start < stop:
            if failing and last in failing[-1]:
                failing[-1].add(name)
            else:
                failing.append({last, name})
        else:
            device, stop = where, 0
        stop, last = max(stop, end), name
    if failing:
        raise RuntimeError(f'Some tensors share memory, this will lead to duplicate memory on disk and potential '
                           f'differences when loading them again: {failing}. Save one of them, or copies.')


def _write(fd: int, data: bytes) -> None:
    at = 0
    while at < len(data):
        at += os.pwrite(fd, data[at:], at)


@contextlib.contextmanager
def _replacement(path: str, durable: bool) -> Iterator[int]:
    """A new file that takes the place of path when the block ends well, and is gone otherwise."""
    target = os.path.realpath(path)
    folder, name = os.path.split(target)
    try:
        old: Optional[os.stat_result] = os.stat(target)
    except FileNotFoundError:
        old = None
    except OSError as error:
        raise StraitError(error.errno, f'cannot save: {error.strerror}', path) from None
    if old is not None and not stat.S_ISREG(old.st_mode):
        raise StraitError(errno.EINVAL, 'it is not a regular file, and is not replaced', path)
    temporary = os.path.join(folder, f'.{name[:200]}.{secrets.token_hex(6)}.tmp')
    try:
        fd, named = _new_file(folder, temporary)
    except OSError as error:
        raise StraitError(error.errno, f'cannot create a file in {folder}: {error.strerror}', path) from None
    try:
        try:
            yield fd
            _take_attributes(fd, old)
            if not named:
                _give_name(fd, folder, temporary)
                named = True
            os.replace(temporary, target)
            named = False
            if durable:
                _sync_folder(folder)
        finally:
            os.close(fd)
            if named:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
    except StraitError:
        raise
    except OSError as error:
        raise StraitError(error.errno, f'cannot save: {error.strerror}', path) from None


def _new_file(folder: str, temporary: str) -> Tuple[int, bool]:
    """A file without a name, which vanishes with the process, or where there is no such thing one of that name."""
    try:
        if os.path.exists('/proc/self/fd'):
            return os.open(folder or '.', os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666), False
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            raise
    return os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o666), True


def _give_name(fd: int, folder: str, temporary: str) -> None:
    at = os.open(folder or '.', os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # With a folder's descriptor os.link() calls linkat() and follows the link in /proc; otherwise it does not.
        os.link(f'/proc/self/fd/{fd}', temporary, src_dir_fd=at, follow_symlinks=True)
    finally:
        os.close(at)


def _take_attributes(fd: int, old: Optional[os.stat_result]) -> None:
    if old is None:
        return
    now = os.fstat(fd)
    if (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid):
        with contextlib.suppress(OSError):  # not the owner of both: the file is the caller's then
            os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, stat.S_IMODE(old.st_mode))


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
