# SPDX-License-Identifier: MIT
"""The one Strait context of the process, and its devices."""
import errno
import os
import threading
from ctypes import byref, c_void_p, create_string_buffer, sizeof
from typing import Any, Dict, List, NamedTuple, Optional, Union

from . import _log
from ._lib import ROUTES, DeviceInfo, FileInfo, QueueOpts, RegionInfo, library
from .errors import StraitError, check

# DLPack's numbers of the kinds of devices that tensors are on.
DL_CPU, DL_CUDA = 1, 2
QUEUE_ENTRIES = 1024


class Device(NamedTuple):
    """A device: the handle of the library, its name, DLPack's type and number."""
    handle: c_void_p
    name: str
    dl_type: int
    index: int

    @property
    def on_cpu(self) -> bool:
        """Its memory is read by the CPU: host and emu."""
        return self.dl_type == DL_CPU

    @property
    def is_host(self) -> bool:
        return self.name == 'host'


class Context:
    """An open context, with what is opened once per context: devices and queues."""

    def __init__(self) -> None:
        self.lib, self.pid, self.handle = library(), os.getpid(), c_void_p()
        check(self.lib.strait_context_open(_log.options(), byref(self.handle)), 'cannot open a Strait context')
        self._devices: Dict[str, Device] = {}
        self._queues: List[c_void_p] = []

    def device(self, name: Union[str, int, Any]) -> Device:
        """The device of a name, of a number (a CUDA device), or of a torch.device."""
        text = f'cuda:{name}' if isinstance(name, int) else str(name)
        text = 'host' if text == 'cpu' else text
        found = self._devices.get(text)
        if found is None:
            found = self._devices[text] = self._find(text)
        return found

    def _find(self, name: str) -> Device:
        handle = c_void_p()
        if self.lib.strait_device_find(self.handle, name.encode(), byref(handle)):
            why = create_string_buffer(512)
            self.lib.strait_device_missing_reason(self.handle, name.encode(), why, len(why))
            text = why.value.decode(errors='replace')
            raise StraitError(errno.ENODEV, f'there is no device {name}: {text}', reason=text)
        kind, _, index = name.partition(':')
        if kind == 'cuda':
            return Device(handle, f'cuda:{index or 0}', DL_CUDA, int(index or 0))
        return Device(handle, 'host' if kind == 'host' else f'{kind}:{index or 0}', DL_CPU, 0)

    def prepare(self, device: Device) -> None:
        """Have what the first transfer with a device needs made in the background. Without a thread the transfer makes it."""
        self.lib.strait_device_prepare(device.handle)

    def device_info(self, device: Device) -> DeviceInfo:
        info = DeviceInfo(size=sizeof(DeviceInfo))
        check(self.lib.strait_device_info(device.handle, byref(info)), f'cannot query {device.name}')
        return info

    def region_device(self, region: Any) -> c_void_p:
        """The handle of the device that has a region."""
        info = RegionInfo(size=sizeof(RegionInfo))
        check(self.lib.strait_region_info(region.handle, byref(info)), 'cannot query the memory')
        return c_void_p(info.device)

    def take_queue(self) -> c_void_p:
        """An idle queue, for the calling thread alone until put_queue()."""
        try:
            return self._queues.pop()
        except IndexError:
            queue, opts = c_void_p(), QueueOpts(size=sizeof(QueueOpts), entries=QUEUE_ENTRIES)
            check(self.lib.strait_queue_open(self.handle, byref(opts), byref(queue)), 'cannot open a queue')
            return queue

    def put_queue(self, queue: c_void_p, idle: bool) -> None:
        """Give a queue back. One with transfers in flight is closed, which cancels them and waits."""
        if idle and len(self._queues) < 8:
            self._queues.append(queue)
        else:
            self.lib.strait_queue_close(queue)

    def open_file(self, path: str, oflags: int, mode: int = 0o666, flags: int = 0) -> c_void_p:
        endpoint = c_void_p()
        check(self.lib.strait_file_open(self.handle, os.fsencode(path), oflags, mode, flags, byref(endpoint)),
              'cannot open the file', path)
        return endpoint

    def import_file(self, fd: int, flags: int, path: str) -> c_void_p:
        endpoint = c_void_p()
        check(self.lib.strait_file_import(self.handle, fd, flags, byref(endpoint)), 'cannot open the file', path)
        return endpoint

    def file_info(self, endpoint: c_void_p) -> FileInfo:
        info = FileInfo(size=sizeof(FileInfo))
        check(self.lib.strait_file_info(endpoint, byref(info)), 'cannot query the file')
        return info


_lock = threading.Lock()
_context: Optional[Context] = None
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def context() -> Context:
    """The context of this process, opened at the first use. A child made by fork() opens its own."""
    global _context
    found = _context
    if found is not None and found.pid == os.getpid():
        return found
    with _lock:
        if _context is None or _context.pid != os.getpid():
            _context = Context()
        return _context


def route_mask(route: Optional[str]) -> int:
    """The mask of a required route; 0: any."""
    if route is None:
        return 0
    if route not in ROUTES:
        raise StraitError(errno.EINVAL, f'there is no route {route!r}: the routes are {", ".join(ROUTES)}')
    return 1 << ROUTES.index(route)


def devices() -> List[str]:
    """The names of the devices of this machine, the best first."""
    ctx, names = context(), []
    for k in range(ctx.lib.strait_device_count(ctx.handle)):
        handle = c_void_p()
        check(ctx.lib.strait_device_at(ctx.handle, k, byref(handle)), 'cannot list the devices')
        info = DeviceInfo(size=sizeof(DeviceInfo))
        check(ctx.lib.strait_device_info(handle, byref(info)), 'cannot list the devices')
        names.append(info.name.decode())
    return names
