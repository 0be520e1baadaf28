#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The Python module, with a small stand-in for PyTorch that takes tensors through DLPack as PyTorch does. TAP."""
import contextlib
import ctypes
import errno
import gc
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
import types

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath((sys.argv[1:] or [os.environ.get('STRAIT_BUILD') or os.environ.get('BUILD') or
                                          os.path.join(SOURCE, 'build')])[0])
os.environ['STRAIT_LIBRARY'] = os.path.join(BUILD, 'libstrait.so.0')
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(SOURCE, 'python'))

# Each with DLPack's code and bits, as the consumer sees them, and the type it is viewed as.
DTYPES = {'F64': (2, 64, 'float64'), 'F32': (2, 32, 'float32'), 'F16': (2, 16, 'float16'), 'BF16': (4, 16, 'bfloat16'),
          'I64': (0, 64, 'int64'), 'I32': (0, 32, 'int32'), 'I16': (0, 16, 'int16'), 'I8': (0, 8, 'int8'),
          'U8': (1, 8, 'uint8'), 'BOOL': (1, 8, 'bool'), 'U16': (0, 16, 'uint16'), 'U32': (0, 32, 'uint32'),
          'U64': (0, 64, 'uint64'), 'C64': (5, 64, 'complex64'), 'F8_E4M3': (1, 8, 'float8_e4m3fn'),
          'F8_E5M2': (1, 8, 'float8_e5m2'), 'F8_E8M0': (1, 8, 'float8_e8m0fnu'),
          'F8_E4M3FNUZ': (1, 8, 'float8_e4m3fnuz'), 'F8_E5M2FNUZ': (1, 8, 'float8_e5m2fnuz')}
NATIVE = {(2, 64): 'float64', (2, 32): 'float32', (2, 16): 'float16', (4, 16): 'bfloat16', (0, 64): 'int64',
          (0, 32): 'int32', (0, 16): 'int16', (0, 8): 'int8', (1, 8): 'uint8', (5, 64): 'complex64'}
TESTS = []


class Managed(ctypes.Structure):
    """DLManagedTensor, laid out as dlpack.h has it, not as the module has it."""
    _fields_ = [('data', ctypes.c_void_p), ('device', ctypes.c_int32 * 2), ('ndim', ctypes.c_int32),
                ('code', ctypes.c_uint8), ('bits', ctypes.c_uint8), ('lanes', ctypes.c_uint16),
                ('shape', ctypes.POINTER(ctypes.c_int64)), ('strides', ctypes.POINTER(ctypes.c_int64)),
                ('byte_offset', ctypes.c_uint64), ('manager', ctypes.c_void_p), ('deleter', ctypes.c_void_p)]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
api = ctypes.pythonapi
api.PyCapsule_GetPointer.argtypes, api.PyCapsule_GetPointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
USED = b'used_dltensor'


class Storage:
    """Owns what it took over, and gives it back when the last tensor on it goes."""

    def __init__(self, address):
        self.address, self.managed = address, Managed.from_address(address)

    def __del__(self):
        if self.managed.deleter:
            DELETER(self.managed.deleter)(self.address)


class Tensor:
    def __init__(self, storage, dtype, shape, data):
        self.storage, self.dtype, self.shape, self._data = storage, dtype, shape, data

    def view(self, dtype):
        return Tensor(self.storage, dtype, self.shape, self._data)

    def bytes(self):
        if self.storage is None:
            return b''
        count = self.storage.managed.bits // 8
        for n in self.shape:
            count *= n
        return ctypes.string_at(self._data, count)


def from_dlpack(capsule):
    torch = sys.modules['torch']
    if torch.refuse:
        raise RuntimeError('refused')
    address = api.PyCapsule_GetPointer(capsule, b'dltensor')
    m = Managed.from_address(address)
    shape = tuple(m.shape[d] for d in range(m.ndim))
    step = 1
    for d in reversed(range(m.ndim)):
        assert m.strides[d] == step, 'compact, row by row'
        step *= shape[d]
    assert m.lanes == 1 and m.byte_offset == 0 and tuple(m.device) == (1, 0), 'fields'
    assert m.deleter or strait._leaving, 'a way to give it back'
    assert m.data % 256 == 0, 'aligned'
    api.PyCapsule_SetName(capsule, USED)
    return Tensor(Storage(address), NATIVE[m.code, m.bits], shape, m.data)


def fake_torch():
    torch = types.ModuleType('torch')
    torch.refuse = False
    for name in {view for _, _, view in DTYPES.values()}:
        setattr(torch, name, name)
    torch.empty = lambda shape, dtype, device: Tensor(None, dtype, shape, 0)
    torch.utils = types.ModuleType('torch.utils')
    torch.utils.dlpack = types.ModuleType('torch.utils.dlpack')
    torch.utils.dlpack.from_dlpack = from_dlpack
    sys.modules.update({'torch': torch, 'torch.utils': torch.utils, 'torch.utils.dlpack': torch.utils.dlpack})
    return torch


torch = fake_torch()
import strait  # noqa: E402  its library is named above


class Skip(Exception):
    """What the test needs is not there; the text says what."""


def test(function):
    TESTS.append(function)
    return function


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


def write(path, tensors):
    """tensors: name to (dtype, shape, bytes)."""
    header, at = {'__metadata__': {'format': 'pt'}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, 'wb') as file:
        file.write(struct.pack('<Q', len(text)) + text + b''.join(data for _, _, data in tensors.values()))
    return path


def sample(count=3):
    return {f'layer.{k}': ('U8', [k + 1, 1000], os.urandom((k + 1) * 1000)) for k in range(count)}


class DeviceInfo(ctypes.Structure):
    _fields_ = [('size', ctypes.c_size_t), ('name', ctypes.c_char * 32), ('provider', ctypes.c_char * 16),
                ('model', ctypes.c_char * 96), ('pci', ctypes.c_char * 16), ('caps', ctypes.c_uint32),
                ('index', ctypes.c_uint32), ('numa_node', ctypes.c_int32), ('page_size', ctypes.c_uint32),
                ('mem_total', ctypes.c_uint64), ('mem_free', ctypes.c_uint64)]


def free_memory(name=b'emu:0'):
    gc.collect()
    lib, ctx = strait._open_context()
    dev, info = ctypes.c_void_p(), DeviceInfo(size=ctypes.sizeof(DeviceInfo))
    expect(lib.strait_device_find(ctx, name, ctypes.byref(dev)) == 0, name)
    lib.strait_device_info.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    expect(lib.strait_device_info(dev, ctypes.byref(info)) == 0, 'device info')
    return info.mem_free


@test
def version_is_told():
    expect(strait.version().count('.') == 2, strait.version())


@test
def tensors_of_every_type():
    tensors = {dtype: (dtype, [3, 5], os.urandom(15 * bits // 8)) for dtype, (_, bits, _) in DTYPES.items()}
    tensors.update({'scalar': ('F32', [], os.urandom(4)), 'empty': ('F16', [0, 7], b''), 'no bool': ('BOOL', [0], b''),
                    'eight': ('I8', [1, 2, 1, 2, 1, 2, 1, 3], os.urandom(24)), 'gr\u00fc\u00dfe': ('U8', [1], b'x')})
    with folder() as path:
        file = write(f'{path}/m.safetensors', tensors)
        for device in ('emu:0', 'emu', 'host', 'cpu'):
            got = strait.load_file(file, device=device)
            expect(list(got) == list(tensors) or set(got) == set(tensors), list(got))
            for name, (dtype, shape, data) in tensors.items():
                t = got[name]
                expect(t.bytes() == data and t.shape == tuple(shape), f'{device}: {name}')
                expect(t.dtype == DTYPES[dtype][2], f'{name} is {t.dtype}')


@test
def routes_and_stats():
    with folder() as path:
        tensors = {'a': ('F32', [1 << 20], os.urandom(4 << 20)), 'b': ('U8', [999], os.urandom(999))}
        file = write(f'{path}/m', tensors)
        for device, route in (('emu:0', 'staged'), ('emu:0', None), ('host', 'host'), ('host', None)):
            stats = {}
            got = strait.load_file(file, device=device, route=route, stats=stats)
            expect(all(got[k].bytes() == tensors[k][2] for k in tensors), (device, route))
            expect(stats['bytes'] == (4 << 20) + 999 == sum(stats['routes'].values()), stats)
            expect(route is None or list(stats['routes']) == [route], stats)


@test
def memory_is_given_back_with_the_last_tensor():
    with folder() as path:
        file = write(f'{path}/m', {k: ('U8', [1 << 20], os.urandom(1 << 20)) for k in 'abc'})
        before = free_memory()
        got = strait.load_file(file, device='emu:0')
        expect(free_memory() <= before - (3 << 20), 'it is allocated')
        last = got['b'].view('int8')
        data = got['b'].bytes()
        del got
        expect(free_memory() < before, 'one view keeps all of it')
        expect(last.bytes() == data, 'and its bytes')
        del last
        expect(free_memory() == before and not strait._alive, 'given back')
        for _ in range(50):
            strait.load_file(file, device='emu:0')
        expect(free_memory() == before, 'every time')


@test
def a_consumer_that_refuses_leaves_nothing_behind():
    with folder() as path:
        file = write(f'{path}/m', sample())
        before = free_memory()
        torch.refuse = True
        try:
            strait.load_file(file, device='emu:0')
            raise AssertionError('not refused')
        except RuntimeError as error:
            expect(str(error) == 'refused', error)
        finally:
            torch.refuse = False
        expect(free_memory() == before and not strait._alive, 'given back')


@test
def a_failure_half_way_leaves_nothing_behind():
    with folder() as path:
        file = write(f'{path}/m', {'a': ('U8', [4], b'1234'), 'b': ('F4', [2], b'x')})
        before = free_memory()
        expect_error(errno.EOPNOTSUPP, 'F4', strait.load_file, file, device='emu:0')
        del torch.uint16
        file = write(f'{path}/m', {'a': ('U8', [4], b'1234'), 'b': ('U16', [1], b'xx')})
        try:
            expect_error(errno.EOPNOTSUPP, 'U16', strait.load_file, file, device='emu:0')
        finally:
            torch.uint16 = 'uint16'
        expect(free_memory() == before and not strait._alive, 'given back')


@test
def errors_have_text():
    with folder() as path:
        file = write(f'{path}/m', sample())
        error = expect_error(errno.ENOENT, 'No such file', strait.load_file, f'{path}/none', device='host')
        expect(isinstance(error, OSError) and error.filename == f'{path}/none', error)
        expect_error(errno.ENODEV, 'emu:99', strait.load_file, file, device='emu:99')
        expect_error(errno.ENODEV, 'toaster', strait.load_file, file, device='toaster')
        expect_error(errno.EINVAL, 'scenic', strait.load_file, file, device='host', route='scenic')
        expect_error(errno.EOPNOTSUPP, 'load', strait.load_file, file, device='emu:0', route='host')
        for name, data, text in (('short', b'1234', 'too short'), ('noise', b'\xff' * 100, 'not a safetensors file'),
                                 ('text', struct.pack('<Q', 4) + b'nope', 'JSON'),
                                 ('cut', None, 'truncated')):
            if data is None:
                with open(file, 'rb') as whole:
                    data = whole.read()[:-100]
            with open(f'{path}/{name}', 'wb') as bad:
                bad.write(data)
            error = expect_error(errno.EBADMSG, text, strait.load_file, f'{path}/{name}', device='host')
            expect(error.filename == f'{path}/{name}', error)


@test
def tensors_die_on_any_thread():
    with folder() as path:
        tensors = sample(8)
        file = write(f'{path}/m', tensors)
        before, problems = free_memory(), []

        def work():
            try:
                for _ in range(10):
                    got = strait.load_file(file, device='emu:0')
                    expect(all(got[k].bytes() == tensors[k][2] for k in tensors), 'bytes')
                    kept.extend(got.values())
            except Exception:
                problems.append(traceback.format_exc())

        kept = []
        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        expect(not problems, ''.join(problems))
        # As a C++ destructor would: without the interpreter's lock, on a thread Python does not know.
        addresses = [t.storage.address for t in kept]
        deleter = kept[0].storage.managed.deleter
        for t in kept:
            t.storage.managed = Managed()
        kept.clear()
        libc = ctypes.CDLL(None)
        for address in addresses:
            thread = ctypes.c_ulong()
            expect(libc.pthread_create(ctypes.byref(thread), None, ctypes.c_void_p(deleter),
                                       ctypes.c_void_p(address)) == 0, 'thread')
            expect(libc.pthread_join(thread, None) == 0, 'join')
        expect(free_memory() == before and not strait._alive, 'given back')


CHILD = '''
import atexit, ctypes, sys
late = []
atexit.register(lambda: [act() for act in late])  # runs after what the module does at the end
sys.argv[1:] = []
sys.path.insert(0, {here!r})
import python_test as t
import strait
kept = strait.load_file({file!r}, device='emu:0')
{more}
print('end')
'''

# A consumer that drops its tensors when the interpreter is gone, as static objects of C++ do.
CONSUMER = '''
#include <stdlib.h>

struct managed {
	void *data;
	int device[2], ndim;
	unsigned char type[4];
	void *shape, *strides;
	unsigned long long byte_offset;
	void *manager;
	void (*deleter)(struct managed *);
};

static struct managed *kept[100];
static int n;

static void drop(void)
{
	while (n--) {
		*(volatile char *)kept[n]->data = 1; /* it is still there */
		if (kept[n]->deleter)
			kept[n]->deleter(kept[n]);
	}
}

void keep(struct managed *m)
{
	if (!n)
		atexit(drop);
	kept[n++] = m;
}
'''
KEEP = '''
consumer = ctypes.CDLL({library!r})
def keep(tensors):
    for tensor in tensors.values():
        consumer.keep(ctypes.c_void_p(tensor.storage.address))
        tensor.storage.managed = t.Managed()
'''


def run_child(file, more):
    code = CHILD.format(here=os.path.dirname(os.path.abspath(__file__)), file=file, more=more)
    done = subprocess.run([sys.executable, '-X', 'faulthandler', '-c', code], capture_output=True, timeout=60,
                          env=dict(os.environ, STRAIT_BUILD=BUILD), check=False)
    expect(done.returncode == 0 and done.stdout == b'end\n' and not done.stderr, done)


@test
def tensors_may_be_left_to_the_end():
    with folder() as path:
        file = write(f'{path}/m', sample(20))
        run_child(file, '')
        run_child(file, 'import builtins; builtins.kept_for_ever = kept')
        run_child(file, 'ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))')


@test
def tensors_may_outlive_the_interpreter():
    if not shutil.which('cc'):
        raise Skip('no C compiler')
    with folder() as path:
        file = write(f'{path}/m', sample(20))
        with open(f'{path}/consumer.c', 'w') as source:
            source.write(CONSUMER)
        subprocess.run(['cc', '-shared', '-fPIC', '-o', f'{path}/consumer.so', f'{path}/consumer.c'], check=True)
        more = KEEP.format(library=f'{path}/consumer.so')
        run_child(file, more + 'keep(kept)')
        run_child(file, more + f'late.append(lambda: keep(strait.load_file({file!r}, device="emu:0")))')


@test
def a_child_of_fork_opens_its_own_context():
    with folder() as path:
        file = write(f'{path}/m', sample())
        run_child(file, f'''
import os
pid = os.fork()
if not pid:
    good = len(strait.load_file({file!r}, device='emu:0')) == 3
    kept.clear()
    os._exit(0 if good else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert all(t.bytes() for t in kept.values())
''')


@test
def a_library_that_is_not_there():
    code = f'import sys; sys.path.insert(0, {SOURCE + "/python"!r}); import strait\n' \
           'try:\n    strait.version()\nexcept strait.StraitError as error:\n    print(error)\n'
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, check=True,
                          env=dict(os.environ, STRAIT_LIBRARY='/none/libstrait.so'))
    expect(b'/none/libstrait.so' in done.stdout and b'STRAIT_LIBRARY' in done.stdout, done)


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


if __name__ == '__main__':
    main()
