# SPDX-License-Identifier: MIT
"""CPU tensors of PyTorch that know which bytes of a file they are.

Such a tensor is an ordinary one on the file's mapping, so every operation works on it. Views of it know their bytes, too. Moving
one to a GPU, or copying it into a tensor there, reads the file into the GPU's memory, without the CPU's. Everything else gives
plain tensors. An operation that may change the bytes in memory ends the knowledge for all views of them.
"""
import sys
from typing import Any, Dict, Optional, Tuple

from ._ahead import Ahead
from ._counts import counts
from ._load import Source, new_batch
from ._memory import locate
from .errors import StraitError

# Moves to devices of these kinds are served.
TARGETS = {'cuda'}
# A part whose bytes are spread over more than this many times its own, and more than BLOCK bytes, is left to PyTorch.
SPREAD = 16
BLOCK = 1 << 30

# They hand out memory that others may write to without PyTorch's knowledge.
_ESCAPES = {'numpy', '__array__', '__dlpack__', 'untyped_storage', 'storage', '_typed_storage', '_storage'}
_INPLACE = {'__setitem__', '__iadd__', '__isub__', '__imul__', '__itruediv__', '__ifloordiv__', '__imod__', '__ipow__',
            '__iand__', '__ior__', '__ixor__', '__ilshift__', '__irshift__'}


class Range:
    """The bytes of one tensor of a file: shared by all views of it."""
    __slots__ = ('source', 'offset', 'base', 'length', 'version', 'intact', 'name', 'ahead')

    def __init__(self, source: Source, offset: int, base: int, length: int, version: Optional[int], name: str = '',
                 ahead: Any = None) -> None:
        self.source, self.offset, self.base, self.length = source, offset, base, length
        self.version, self.intact, self.name, self.ahead = version, True, name, ahead

    def holds(self, tensor: Any) -> bool:
        """Whether nothing has changed the bytes in memory."""
        return self.intact and (self.version is None or _version(tensor) == self.version)


_class: Optional[type] = None
_handlers: Dict[Any, Any] = {}
_torch: Any = None
_disabled: Any = None


def tensor_class() -> Any:
    """The class of such tensors. Imports PyTorch."""
    global _class, _torch, _disabled
    if _class is not None:
        return _class
    import torch
    _torch = torch
    _disabled = getattr(torch._C, 'DisableTorchFunctionSubclass', None) or torch._C.DisableTorchFunction

    class FileTensor(torch.Tensor):
        """A tensor on the CPU that knows which bytes of a file it is."""

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return _dispatch(func, args, kwargs or {})

    for name, handler in (('to', _to), ('cuda', _cuda), ('copy_', _copy), ('__setitem__', _setitem)):
        _handlers[getattr(torch.Tensor, name)] = handler
    _keep_parameters_plain(torch)
    _note_capsules(torch)
    _class = FileTensor
    return FileTensor


def ahead(source: Source, smallest: int) -> Ahead:
    """What is read ahead of a program that moves the tensors of a file."""
    tensor_class()
    return Ahead(_torch, source, smallest)


def expect(ctx: Any) -> None:
    """Tensors of a file on the CPU are to be expected on the GPU that the program uses, if it uses one."""
    torch = sys.modules.get('torch')
    if torch is not None and torch.cuda.is_initialized():
        ctx.prepare(ctx.device(torch.cuda.current_device()))


def _keep_parameters_plain(torch: Any) -> None:
    """A parameter made of such a tensor is an ordinary one: it lives longer than the file is of interest."""
    original = torch.nn.Parameter.__new__

    def new(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        return original(cls, plain(data) if type(data) is _class else data, requires_grad)

    torch.nn.Parameter.__new__ = staticmethod(new)


def _note_capsules(torch: Any) -> None:
    """to_dlpack is a function in C that calls no __torch_function__."""
    import torch.utils.dlpack as dlpack
    original = dlpack.to_dlpack

    def to_dlpack(tensor: Any) -> Any:
        for item in _ranges(tensor):
            item.intact = False
        return original(tensor)

    to_dlpack.__doc__ = original.__doc__
    for module in (torch, dlpack):
        if getattr(module, 'to_dlpack', None) is original:
            module.to_dlpack = to_dlpack


def plain(tensor: Any) -> Any:
    """The ordinary tensor on the same memory."""
    with _disabled():
        return tensor.as_subclass(_torch.Tensor)


def wrap(tensor: Any, source: Source, offset: int, length: int, name: str = '', ahead: Any = None) -> Any:
    """A tensor that holds length bytes from an offset of the file. A whole tensor of the file has its name."""
    kind = tensor_class()
    return _attach(tensor, kind, Range(source, offset, tensor.data_ptr(), length, _version(tensor), name, ahead))


def wrap_part(part: Any, index: Any, entry: Tuple[str, Tuple[int, ...], int, int], source: Source) -> Any:
    """The part that an index gives of a tensor of the file. It is a view of a mapping, or a copy: only one whose elements lie
    in memory as in the file knows its bytes."""
    tensor_class()
    _, shape, begin, end = entry
    if type(part) is not _torch.Tensor or part.device.type != 'cpu' or not part.numel():
        return part
    whole = _torch.empty(shape, dtype=part.dtype, device='meta')
    try:
        view = whole[index]
    except (IndexError, RuntimeError, TypeError, ValueError, NotImplementedError):
        return part
    size = part.element_size()
    if whole.numel() * size != end - begin or not view._is_view() or view.shape != part.shape or \
            view.stride() != part.stride() and not (view.is_contiguous() and part.is_contiguous()):
        return part
    extent = 1 + sum((n - 1) * stride for n, stride in zip(part.shape, part.stride()))
    return wrap(part, source, source.header.data + begin + view.storage_offset() * size, extent * size)


def _attach(tensor: Any, kind: Any, known: Range) -> Any:
    with _disabled():
        result = tensor.as_subclass(kind)
    result._strait_range = known
    return result


def _version(tensor: Any) -> Optional[int]:
    try:
        return tensor._version
    except RuntimeError:  # tensors made in inference mode have none
        return None


def _dispatch(func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    handler = _handlers.get(func)
    if handler is not None:
        result = handler(*args, **kwargs)
        if result is not NotImplemented:
            return result
    known = _ranges(args, kwargs)
    name = getattr(func, '__name__', '')
    if name in _ESCAPES or name in _INPLACE or name.endswith('_') and not name.endswith('__') or 'out' in kwargs:
        for item in known if name in _ESCAPES or 'out' in kwargs else _ranges(args[:1], {}):
            item.intact = False
    with _disabled():
        result = func(*_plain(args), **_plain(kwargs))
    return _know(result, known)


def _ranges(*values: Any) -> list:
    found = []
    for value in values:
        if type(value) is _class:
            known = value.__dict__.get('_strait_range')
            if known is not None:
                found.append(known)
        elif isinstance(value, (tuple, list)):
            found += _ranges(*value)
        elif isinstance(value, dict):
            found += _ranges(*value.values())
    return found


def _plain(value: Any) -> Any:
    if type(value) is _class:
        return plain(value)
    if type(value) in (tuple, list):
        return type(value)(_plain(item) for item in value)
    if type(value) is dict:
        return {key: _plain(item) for key, item in value.items()}
    return value


def _know(result: Any, known: list) -> Any:
    """Views of the bytes know them, too."""
    if len(known) != 1 or not known[0].intact:
        return result
    if type(result) is _torch.Tensor and result.device.type == 'cpu' and result.layout == _torch.strided:
        at = result.data_ptr() - known[0].base
        if result.numel() and 0 <= at < known[0].length and not result.requires_grad:
            return _attach(result, _class, known[0])
    elif type(result) in (tuple, list):
        return type(result)(_know(item, known) for item in result)
    return result


# What is served

def _to(self: Any, *args: Any, **kwargs: Any) -> Any:
    if type(self) is not _class:
        return NotImplemented
    wanted = {key: value for key, value in kwargs.items() if key != 'copy'}
    try:
        device, dtype, _, layout = _torch._C._nn._parse_to(*_plain(args), **wanted)
    except (TypeError, RuntimeError):
        return NotImplemented  # PyTorch raises it again
    if device is None or layout is not None:
        return NotImplemented
    moved = _moved(self, device)
    return moved if moved is NotImplemented or dtype is None else moved.to(dtype)


def _cuda(self: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
    if type(self) is not _class or memory_format not in (None, _torch.preserve_format):
        return NotImplemented
    return _moved(self, _torch.device('cuda' if device is None else device if not isinstance(device, int) else f'cuda:{device}'))


def _copy(self: Any, src: Any, non_blocking: bool = False) -> Any:
    if type(src) is not _class or type(self) is _class or self.device.type not in TARGETS:
        return NotImplemented
    if self.requires_grad and _torch.is_grad_enabled():
        return NotImplemented  # PyTorch refuses it, or records it
    source = plain(src)
    if self.dtype == source.dtype and self.shape == source.shape and self.is_contiguous() and source.is_contiguous():
        ahead = _read_ahead(src, source, self.device)
        if ahead is not None:
            with _disabled():
                return self.copy_(ahead)
        if not _read(src, source, self):
            return NotImplemented
        increment = getattr(getattr(_torch.autograd, 'graph', None), 'increment_version', None)
        if increment is not None and _version(self) is not None:
            increment(self)
        return self
    moved = _moved(src, self.device)
    if moved is NotImplemented:
        return NotImplemented
    with _disabled():
        return self.copy_(moved, non_blocking)


def _setitem(self: Any, index: Any, value: Any) -> Any:
    if type(value) is not _class or type(self) is _class or self.device.type not in TARGETS:
        return NotImplemented
    parts = index if isinstance(index, tuple) else (index,)
    if not all(part is Ellipsis or isinstance(part, (int, slice)) and not isinstance(part, bool) for part in parts):
        return NotImplemented
    with _disabled():
        view = self[index]
    copied = _copy(view, value)
    return NotImplemented if copied is NotImplemented else None


def _moved(tensor: Any, device: Any) -> Any:
    """A copy on a device, read from the file."""
    if device.type not in TARGETS:
        return NotImplemented
    source = plain(tensor)
    if source.is_contiguous():
        ahead = _read_ahead(tensor, source, device)
        if ahead is not None:
            return ahead
        result = _torch.empty(source.shape, dtype=source.dtype, device=device)
        return result if _read(tensor, source, result) else NotImplemented
    # All bytes from the first element to the last, in the same order, and the part of them on the device.
    extent = 1 + sum((size - 1) * stride for size, stride in zip(source.shape, source.stride()))
    if extent > SPREAD * source.numel() and extent * source.element_size() > BLOCK:
        counts.left('a part that is spread over too many bytes')
        return NotImplemented
    flat = _torch.empty((extent,), dtype=source.dtype, device=device)
    if not _read(tensor, source, flat):
        return NotImplemented
    return _torch.as_strided(flat, source.shape, source.stride()).contiguous()


def _read_ahead(tensor: Any, source: Any, device: Any) -> Any:
    """A copy on a device that was read ahead, or None."""
    known: Range = tensor._strait_range
    if known.ahead is None:
        return None
    if source.data_ptr() != known.base or source.numel() * source.element_size() != known.length or not known.holds(source):
        known.ahead.stop()
        return None
    if device.type == 'cuda' and device.index is None:
        device = _torch.device('cuda', _torch.cuda.current_device())
    data = known.ahead.moved(known.name, device)
    return None if data is None else data.view(source.dtype).view(source.shape)


def _read(tensor: Any, source: Any, target: Any) -> bool:
    """Read the bytes from where a tensor starts into a compact one. False: PyTorch has to do it."""
    known: Range = tensor._strait_range
    count = target.numel() * target.element_size()
    at = source.data_ptr() - known.base
    if not known.holds(source):
        counts.left('its bytes were changed in memory')
        return False
    if not count:
        return True
    if at < 0 or at + count > known.length:
        counts.left('a view past the bytes of its tensor')
        return False
    try:
        if target.device.type == 'cuda':
            _torch.cuda.current_stream(target.device).synchronize()
        with new_batch(None, known.source.path) as batch:
            batch.hold(target)
            region, offset = locate(known.source.ctx, target.data_ptr(), count, target.device.type == 'cpu')
            batch.add(known.source.handle, known.offset + at, region, offset, count)
            counts.add(1, batch.finish())
    except StraitError as error:
        counts.left(error.strerror)
        return False
    return True
