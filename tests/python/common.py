# SPDX-License-Identifier: MIT
"""Shared by the tests of the Python package: its library, files to load, and TAP."""
import contextlib
import gc
import importlib.util
import json
import os
import shutil
import struct
import sys
import tempfile
import traceback

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get('STRAIT_BUILD') or os.path.join(SOURCE, 'build'))
# Another Python in PATH may lack NumPy, which is installed for the system's.
if importlib.util.find_spec('numpy') is None and not os.environ.get('STRAIT_TEST_PYTHON') and \
        os.access('/usr/bin/python3', os.X_OK) and os.path.realpath(sys.executable) != os.path.realpath('/usr/bin/python3'):
    os.environ['STRAIT_TEST_PYTHON'] = '/usr/bin/python3'
    os.execv('/usr/bin/python3', ['/usr/bin/python3', *sys.argv])

os.environ['STRAIT_LIBRARY'] = os.path.join(BUILD, 'libstrait.so.0')
sys.dont_write_bytecode = True
os.environ['PYTHONDONTWRITEBYTECODE'] = '1'
sys.path.insert(0, os.path.join(SOURCE, 'python'))

import strait  # noqa: E402  its library is named above
from strait import _dlpack  # noqa: E402
from strait._context import context  # noqa: E402

try:
    import numpy as np
except ImportError:
    np = None

TESTS = []
NUMPY_CODES = {'F64': 'f8', 'F32': 'f4', 'F16': 'f2', 'I64': 'i8', 'I32': 'i4', 'I16': 'i2', 'I8': 'i1', 'U8': 'u1',
               'BOOL': '?', 'U16': 'u2', 'U32': 'u4', 'U64': 'u8', 'C64': 'c8'}


class Skip(Exception):
    """What the test needs is not there; the text says what."""


def test(function):
    TESTS.append(function)
    return function


def needs_numpy(function):
    """A test that is skipped without NumPy."""
    def run():
        if np is None:
            raise Skip('NumPy is not installed: package python3-numpy')
        function()
    run.__name__ = function.__name__
    TESTS.append(run)
    return run


def expect(condition, what):
    assert condition, what


def expect_error(number, text, function, *args, **options):
    try:
        function(*args, **options)
    except strait.StraitError as error:
        expect(error.errno == number and text in str(error), f'{error!r}, not {number} with {text!r}')
        return error
    raise AssertionError(f'no error, not {number} with {text!r}')


@contextlib.contextmanager
def folder():
    path = tempfile.mkdtemp(prefix='strait-python.', dir='/var/tmp' if os.access('/var/tmp', os.W_OK) else None)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def raw(header, data=b'', length=None):
    """The bytes of a file with that header, a dict or bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack('<Q', len(text) if length is None else length) + text + data


def write(path, tensors, metadata=None):
    """tensors: name to (code, shape, bytes)."""
    header, at = {} if metadata is None else {'__metadata__': metadata}, 0
    for name, (code, shape, data) in tensors.items():
        header[name] = {'dtype': code, 'shape': shape, 'data_offsets': [at, at + len(data)]}
        at += len(data)
    with open(path, 'wb') as file:
        file.write(raw(header, b''.join(data for _, _, data in tensors.values())))
    return path


def sample(count=3):
    return {f'layer.{k}': ('U8', [k + 1, 1000], os.urandom((k + 1) * 1000)) for k in range(count)}


def free_memory(name='emu:0'):
    """Bytes of a device's memory that are free."""
    gc.collect()
    _dlpack.sweep()
    return context().device_info(context().device(name)).mem_free


def main():
    print(f'1..{len(TESTS)}', flush=True)
    failed = 0
    for number, function in enumerate(TESTS, 1):
        problem, skip = '', ''
        try:
            function()
        except Skip as reason:
            skip = f' # SKIP {reason}'
        except Exception:  # whatever it is: the test has failed, and the others still run
            problem = traceback.format_exc()
        print(f'{"not " if problem else ""}ok {number} - {function.__name__}{skip}')
        for line in problem.splitlines():
            print(f'# {line}')
        sys.stdout.flush()
        failed += bool(problem)
    sys.exit(1 if failed else 0)
