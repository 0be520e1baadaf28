# SPDX-License-Identifier: MIT
"""libstrait.so.0 through ctypes: its structures and functions."""
import ctypes
import errno
import os
import struct
import threading
from ctypes import (POINTER, byref, c_char, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint, c_uint8, c_uint32, c_uint64, c_void_p,
                    sizeof)
from typing import Any, Optional

from .errors import StraitError

ROUTES = ('p2p', 'pagecache', 'staged', 'host')
READ, WRITE = 0, 1
FOREVER = (1 << 63) - 1
IMPORT_ORDERED = 1
FILE_BUFFERED, FILE_DIRECT, FILE_UNCHANGING, FILE_LEASE = 1, 2, 4, 8


LOG_FUNCTION = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)


class ContextOpts(ctypes.Structure):
    _fields_ = [('size', c_size_t), ('flags', c_uint32), ('threads', c_uint32), ('pool_bytes', c_uint64),
                ('chunk_bytes', c_uint64), ('pinned_budget', c_uint64), ('queue_depth', c_uint32),
                ('log_level', c_uint32), ('log', LOG_FUNCTION), ('log_arg', c_void_p)]


class RegionInfo(ctypes.Structure):
    _fields_ = [('size', c_size_t), ('device', c_void_p), ('addr', c_uint64), ('length', c_uint64),
                ('caps', c_uint32), ('page_size', c_uint32), ('identity', c_uint64)]


class DeviceInfo(ctypes.Structure):
    _fields_ = [('size', c_size_t), ('name', c_char * 32), ('provider', c_char * 16), ('model', c_char * 96),
                ('pci', c_char * 16), ('caps', c_uint32), ('index', c_uint32), ('numa_node', c_int32),
                ('page_size', c_uint32), ('mem_total', c_uint64), ('mem_free', c_uint64)]


class FileInfo(ctypes.Structure):
    _fields_ = [('size', c_size_t), ('length', c_uint64), ('caps', c_uint32), ('dio_align', c_uint32),
                ('dio_mem_align', c_uint32), ('fs', c_char * 20), ('direct_reason', c_uint32),
                ('direct_error', c_int32)]


class Transfer(ctypes.Structure):
    _fields_ = [('op', c_uint32), ('routes', c_uint32), ('endpoint', c_void_p), ('region', c_void_p),
                ('endpoint_offset', c_uint64), ('region_offset', c_uint64), ('length', c_uint64),
                ('flags', c_uint32), ('reserved', c_uint32), ('user_data', c_uint64), ('reserved_end', c_uint64 * 2)]


class Result(ctypes.Structure):
    _fields_ = [('user_data', c_uint64), ('bytes', c_uint64), ('status', c_int32), ('device_status', c_int32),
                ('routes', c_uint32), ('reserved', c_uint32), ('route_bytes', c_uint64 * 8),
                ('reserved_end', c_uint64 * 2)]


class Rows(ctypes.Structure):
    _fields_ = [('offset', c_uint64), ('pitch', c_uint64), ('length', c_uint64), ('count', c_uint64)]


class RouteVerdict(ctypes.Structure):
    _fields_ = [('usable', c_uint32), ('code', c_int32), ('reason', c_uint32), ('because', c_uint32),
                ('error', c_int32), ('reserved', c_uint32 * 3)]


class RouteReport(ctypes.Structure):
    _fields_ = [('size', c_size_t), ('route', c_int32), ('mask', c_uint32), ('cached_bytes', c_uint64),
                ('verdict', RouteVerdict * 8), ('plan', c_uint32), ('reserved', c_uint32)]


class RouteStats(ctypes.Structure):
    _fields_ = [('read_bytes', c_uint64), ('write_bytes', c_uint64), ('transfers', c_uint64), ('reserved', c_uint64)]


class Stats(ctypes.Structure):
    _fields_ = [('size', c_size_t)] + [(name, c_uint64) for name in (
        'transfers', 'errors', 'canceled', 'small', 'coalesced', 'coalesced_copies', 'stream', 'direct_bytes',
        'registrations', 'registration_hits', 'registered_bytes', 'pool_bytes', 'pool_waits')] + [('route', RouteStats * 8)]


class QueueOpts(ctypes.Structure):
    _fields_ = [('size', c_size_t), ('entries', c_uint32), ('flags', c_uint32)]


class StreamTransfer(ctypes.Structure):
    _fields_ = [('size', c_size_t), ('op', c_uint32), ('routes', c_uint32), ('endpoint', c_void_p),
                ('region', c_void_p), ('endpoint_offset', POINTER(c_uint64)), ('region_offset', POINTER(c_uint64)),
                ('length', POINTER(c_uint64)), ('result', POINTER(c_int64)), ('region_base', c_uint64),
                ('done', c_void_p), ('done_arg', c_void_p), ('flags', c_uint32), ('reserved', c_uint32)]


class MappingOpts(ctypes.Structure):
    _fields_ = [('size', c_size_t), ('flags', c_uint32), ('reserved', c_uint32), ('device_budget', c_uint64),
                ('pinned_budget', c_uint64), ('copy_budget', c_uint64)]


class MappingInfo(ctypes.Structure):
    _fields_ = [('size', c_size_t), ('addr', c_void_p), ('length', c_uint64), ('offset', c_uint64),
                ('tracking', c_uint32), ('flags', c_uint32), ('acquired', c_uint32), ('error', c_int32)] + \
               [(name, c_uint64) for name in ('to_device_bytes', 'to_host_bytes', 'copies', 'conflicts', 'declared',
                                              'evictions', 'device_bytes', 'twin_bytes', 'pinned_bytes')] + \
               [('backing', c_uint32), ('reserved', c_uint32)] + \
               [(name, c_uint64) for name in ('copy_bytes', 'faults', 'copy_evictions', 'protect_ns', 'scan_ns', 'walk_ns',
                                              'stage_ns', 'device_ns', 'between_bytes')]


# The structures of the C interface that this module declares: a test compares them with the headers.
STRUCTS = {'strait_context_opts': ContextOpts, 'strait_region_info': RegionInfo, 'strait_device_info': DeviceInfo, 'strait_file_info': FileInfo,
           'strait_transfer': Transfer, 'strait_result': Result, 'strait_rows': Rows, 'strait_route_verdict': RouteVerdict,
           'strait_route_report': RouteReport, 'strait_route_stats': RouteStats, 'strait_stats': Stats,
           'strait_queue_opts': QueueOpts, 'strait_stream_transfer': StreamTransfer, 'strait_mapping_opts': MappingOpts,
           'strait_mapping_info': MappingInfo}

# Transfer and Result for struct.pack_into() and unpack_from(), which take a fifth of the time of ctypes.
PACKED_TRANSFER = struct.Struct('=II5QIIQ2Q')
PACKED_RESULT = struct.Struct('=QQiiII8Q2Q')
assert PACKED_TRANSFER.size == ctypes.sizeof(Transfer) and PACKED_RESULT.size == ctypes.sizeof(Result)

_p, _pp = c_void_p, POINTER(c_void_p)
_FUNCTIONS = (
    ('strait_version', [], c_char_p),
    ('strait_context_open', [POINTER(ContextOpts), _pp], c_int),
    ('strait_context_close', [_p], None),
    ('strait_device_count', [_p], c_int),
    ('strait_device_at', [_p, c_uint, _pp], c_int),
    ('strait_device_find', [_p, c_char_p, _pp], c_int),
    ('strait_device_info', [_p, POINTER(DeviceInfo)], c_int),
    ('strait_device_missing_reason', [_p, c_char_p, c_char_p, c_size_t], c_int),
    ('strait_device_prepare', [_p], c_int),
    ('strait_file_open', [_p, c_char_p, c_int, c_uint32, c_uint32, _pp], c_int),
    ('strait_file_import', [_p, c_int, c_uint32, _pp], c_int),
    ('strait_file_info', [_p, POINTER(FileInfo)], c_int),
    ('strait_endpoint_sync', [_p], c_int),
    ('strait_endpoint_close', [_p], None),
    ('strait_region_alloc', [_p, c_size_t, _pp], c_int),
    ('strait_region_import', [_p, _p, _p, c_size_t, _pp], c_int),
    ('strait_region_import_flags', [_p, _p, _p, c_size_t, c_uint32, _pp], c_int),
    ('strait_region_extent', [_p, _p, _pp, POINTER(c_uint64)], c_int),
    ('strait_region_check', [_p], c_int),
    ('strait_region_close', [_p], None),
    ('strait_region_info', [_p, POINTER(RegionInfo)], c_int),
    ('strait_region_lookup', [_p, _p, POINTER(c_uint64), _pp], c_int),
    ('strait_region_map', [_p, _pp], c_int),
    ('strait_region_copy_in', [_p, c_uint64, _p, c_size_t], c_int),
    ('strait_region_copy_out', [_p, c_uint64, _p, c_size_t], c_int),
    ('strait_read_rows', [_p, POINTER(Rows), _p, c_uint64, POINTER(Result)], c_int),
    ('strait_transfer_run', [POINTER(Transfer), c_int64, POINTER(Result)], c_int),
    ('strait_queue_open', [_p, POINTER(QueueOpts), _pp], c_int),
    ('strait_queue_submit', [_p, _p, c_uint], c_int),
    ('strait_queue_wait', [_p, c_uint, c_uint, c_int64, _p], c_int),
    ('strait_queue_cancel', [_p, c_uint64], c_int),
    ('strait_queue_close', [_p], None),
    ('strait_route_query', [POINTER(Transfer), POINTER(RouteReport)], c_int),
    ('strait_route_verdict_text', [POINTER(RouteVerdict), c_char_p, c_size_t], c_int),
    ('strait_route_verdict_fix', [POINTER(RouteVerdict)], c_char_p),
    ('strait_stats_get', [_p, POINTER(Stats)], c_int),
    ('strait_stream_open', [_p, _pp], c_int),
    ('strait_stream_import', [_p, _p, _pp], c_int),
    ('strait_stream_close', [_p], None),
    ('strait_stream_call', [_p, _p, _p], c_int),
    ('strait_stream_transfer', [_p, POINTER(StreamTransfer)], c_int),
    ('strait_stream_wait', [_p, c_int64], c_int),
    ('strait_context_shared', [_pp], c_int),
    ('strait_mapping_open', [_p, _p, c_uint64, c_uint64, POINTER(MappingOpts), _pp], c_int),
    ('strait_mapping_close', [_p], None),
    ('strait_mapping_info', [_p, POINTER(MappingInfo)], c_int),
    ('strait_mapping_acquire', [_p, _p, c_uint64, c_uint64, c_uint32, _pp], c_int),
    ('strait_mapping_release', [_p, _p, c_uint64, c_uint64, c_uint32], c_int),
    ('strait_mapping_acquire_on', [_p, _p, c_uint64, c_uint64, c_uint32, _pp, POINTER(c_int)], c_int),
    ('strait_mapping_release_on', [_p, _p, c_uint64, c_uint64, c_uint32, POINTER(c_int)], c_int),
    ('strait_mapping_refresh', [_p, c_uint64, c_uint64], c_int),
    ('strait_mapping_flush', [_p, c_uint64, c_uint64], c_int),
    ('strait_mapping_sync', [_p, c_uint64, c_uint64], c_int),
    ('strait_mapping_prefetch', [_p, _p, c_uint64, c_uint64], c_int),
    ('strait_mapping_advise', [_p, c_uint64, c_uint64, c_uint32], c_int),
    ('strait_mapping_evict', [_p, _p, c_uint64, c_uint64], c_int),
)

_lock = threading.Lock()
_lib: Optional[Any] = None
# A child made by fork() must find the lock free.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def bundled() -> str:
    """The folder of the libraries and the command that a wheel brings along. It may not exist."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), '_bundle')


def _open() -> Any:
    beside = os.path.join(bundled(), 'lib', 'libstrait.so.0')
    name = os.environ.get('STRAIT_LIBRARY') or (beside if os.path.exists(beside) else 'libstrait.so.0')
    try:
        lib = ctypes.CDLL(name)
    except OSError as error:
        raise StraitError(errno.ENOENT, f'{error}: install Strait, or set STRAIT_LIBRARY to the path of libstrait.so.0') from error
    for function, args, res in _FUNCTIONS:
        f = getattr(lib, function)
        f.argtypes, f.restype = args, res
    return lib


def library() -> Any:
    """The library, loaded at the first use."""
    global _lib
    if _lib is None:
        with _lock:
            if _lib is None:
                _lib = _open()
    return _lib


def version() -> str:
    """The version of libstrait."""
    return library().strait_version().decode()


__all__ = ['byref', 'c_uint8', 'library', 'sizeof', 'version']
