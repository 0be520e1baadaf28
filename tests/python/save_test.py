#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""save_file(): round trips, refusals, attributes of the file, and a kill in the middle. TAP."""
import contextlib
import errno
import json
import os
import signal
import stat
import subprocess
import sys
import time

from common import NUMPY_CODES, SOURCE, expect, expect_error, folder, main, needs_numpy, np, strait, test, write


def read(path):
    with open(path, 'rb') as file:
        return file.read()


@needs_numpy
def what_is_saved_is_loaded():
    rng = np.random.default_rng(3)
    arrays = {f'{code} {shape}': rng.integers(0, 2, shape).astype(kind) for code, kind in NUMPY_CODES.items()
              for shape in ((), (0, 3), (17,), (5, 7), (300, 1000))}
    with folder() as path:
        stats = {}
        strait.save_file(arrays, f'{path}/m', {'format': 'np', 'k': '\u00fc'}, stats=stats)
        expect(stats['bytes'] == sum(a.nbytes for a in arrays.values()), stats)
        for device in ('emu:0', 'host'):
            got = strait.load_file(f'{path}/m', device, framework='numpy')
            expect(set(got) == set(arrays), 'names')
            expect(all(got[k].dtype == a.dtype and got[k].shape == a.shape and np.array_equal(got[k], a)
                       for k, a in arrays.items()), device)
            strait.save_file(got, f'{path}/{device}', {'format': 'np', 'k': '\u00fc'})
            expect(read(f'{path}/{device}') == read(f'{path}/m'), 'the same bytes')
        expect(sorted(os.listdir(path)) == ['emu:0', 'host', 'm'], os.listdir(path))


@needs_numpy
def the_file_is_the_one_that_safetensors_writes():
    """Its order of tensors, its JSON, its padding."""
    arrays = {'b': np.zeros(3, 'u1'), 'a': np.zeros(1, 'u1'), 'z': np.arange(2, dtype='<f4'), 'y': np.ones((1, 2), '<f2'),
              'c': np.zeros((), '<i8')}
    with folder() as path:
        strait.save_file(arrays, f'{path}/m', {'k': 'v'})
        data = read(f'{path}/m')
        size = int.from_bytes(data[:8], 'little')
        want = '{"__metadata__":{"k":"v"},"c":{"dtype":"I64","shape":[],"data_offsets":[0,8]},' \
               '"z":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},"y":{"dtype":"F16","shape":[1,2],"data_offsets":[16,20]},' \
               '"a":{"dtype":"U8","shape":[1],"data_offsets":[20,21]},"b":{"dtype":"U8","shape":[3],"data_offsets":[21,24]}}'
        expect(size % 8 == 0 and data[8:8 + size].decode().rstrip(' ') == want, data[8:8 + size])
        expect(len(data) == 8 + size + 24, 'length')


@test
def types_that_only_the_format_has():
    with folder() as path:
        tensors = {code: (code, [4], bytes(n)) for code, n in (('BF16', 8), ('F8_E4M3', 4), ('F4', 2), ('F6_E2M3', 3))}
        file = write(f'{path}/m', tensors)
        strait.save_file(strait.load_file(file, 'emu:0', framework='strait'), f'{path}/n')
        with strait.safe_open(f'{path}/n', 'strait', 'host') as f:
            expect({k: f.get_slice(k).get_dtype() for k in f.keys()} == {k: k for k in tensors}, f.keys())


def refused(kind, text, *args, **options):
    try:
        strait.save_file(*args, **options)
    except kind as error:
        expect(text in str(error), error)
        return
    raise AssertionError(f'not refused: {text}')


@needs_numpy
def what_safetensors_refuses_is_refused():
    a = np.arange(20, dtype='<f4').reshape(4, 5)
    with folder() as path:
        file = f'{path}/m'
        refused(ValueError, 'Expected a dict', [a], file)
        refused(ValueError, 'expected a tensor', {'a': 3}, file)
        refused(TypeError, 'expected str', {3: a}, file)
        refused(ValueError, 'non contiguous', {'a': a.T}, file)
        refused(ValueError, 'non contiguous', {'a': a[:, :2]}, file)
        refused(ValueError, 'big-endian', {'a': a.astype('>f4')}, file)
        refused(RuntimeError, 'share memory', {'a': a, 'b': a}, file)
        refused(RuntimeError, 'share memory', {'a': a[:3], 'b': a[2:]}, file)
        refused(RuntimeError, "'b'", {'c': a[3:].copy(), 'a': a[:3], 'b': a[2:]}, file)
        refused(TypeError, 'strings', {'a': a}, file, {'k': 1})
        refused(OSError, 'complex128', {'a': a.astype('c16')}, file)
        expect(os.listdir(path) == [], 'nothing is left')
        strait.save_file({'a': a[:2], 'b': a[2:]}, file)
        expect(len(strait.load_file(file, 'host', framework='numpy')) == 2, 'parts that do not overlap')


@needs_numpy
def mode_and_links_are_kept():
    a = {'a': np.arange(10)}
    with folder() as path:
        old = os.umask(0o027)
        try:
            strait.save_file(a, f'{path}/new')
        finally:
            os.umask(old)
        expect(stat.S_IMODE(os.stat(f'{path}/new').st_mode) == 0o640, 'a new file has the mode that umask leaves')
        os.chmod(f'{path}/new', 0o604)
        before = os.stat(f'{path}/new').st_ino
        os.symlink('new', f'{path}/link')
        strait.save_file({'b': np.arange(3)}, f'{path}/link', durable=True)
        expect(os.path.islink(f'{path}/link') and os.readlink(f'{path}/link') == 'new', 'the link stays')
        expect(stat.S_IMODE(os.stat(f'{path}/new').st_mode) == 0o604 and os.stat(f'{path}/new').st_ino != before, 'the mode stays')
        expect(list(strait.load_file(f'{path}/new', 'host', framework='numpy')) == ['b'], 'the file is the new one')
        os.symlink('later', f'{path}/dangling')
        strait.save_file(a, f'{path}/dangling')
        expect(os.path.isfile(f'{path}/later') and os.path.islink(f'{path}/dangling'), 'a link to nothing yet')
        os.mkfifo(f'{path}/pipe')
        expect_error(errno.EINVAL, 'regular file', strait.save_file, a, f'{path}/pipe')
        expect_error(errno.ENOENT, '', strait.save_file, a, f'{path}/none/m')
        expect(sorted(os.listdir(path)) == ['dangling', 'later', 'link', 'new', 'pipe'], os.listdir(path))


@needs_numpy
def a_failure_leaves_the_old_file():
    a = {'a': np.arange(1 << 20)}
    with folder() as path:
        strait.save_file({'old': np.arange(3)}, f'{path}/m')
        before = read(f'{path}/m')
        expect_error(errno.EOPNOTSUPP, 'pagecache', strait.save_file, a, f'{path}/m', route='pagecache')
        expect(read(f'{path}/m') == before and os.listdir(path) == ['m'], os.listdir(path))
        if os.path.exists('/dev/full') and os.access('/dev/shm', os.W_OK):
            import resource
            limit = resource.getrlimit(resource.RLIMIT_FSIZE)
            old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limit[1]))
            try:
                expect_error(errno.EFBIG, '', strait.save_file, a, f'{path}/m')
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limit)
                signal.signal(signal.SIGXFSZ, old)
            expect(read(f'{path}/m') == before and os.listdir(path) == ['m'], os.listdir(path))


@needs_numpy
def a_file_may_replace_the_one_it_was_loaded_from():
    with folder() as path:
        strait.save_file({'a': np.arange(1 << 18)}, f'{path}/m')
        with strait.safe_open(f'{path}/m', 'numpy', 'host') as f:
            strait.save_file({k: t + 1 for k, t in f.get_tensors().items()}, f'{path}/m')
            expect(f.get_tensor('a')[0] == 0, 'the open file is still the old one')
        expect(strait.load_file(f'{path}/m', 'host', framework='numpy')['a'][0] == 1, 'the new one')


SAVER = '''
import sys
sys.path.insert(0, {python!r})
import numpy as np, strait
k = 0
while True:
    strait.save_file({{f't{{i}}': np.full(1 << 18, k, '<i4') for i in range(8)}}, {file!r})
    k += 1
    print(k, flush=True)
'''


def is_saving(pid, path):
    """Has the process, which is stopped, a temporary file open in the folder: with or without a name?"""
    links = []
    for fd in os.listdir(f'/proc/{pid}/fd'):
        with contextlib.suppress(OSError):
            links.append(os.readlink(f'/proc/{pid}/fd/{fd}'))
    return any(link.startswith((f'{path}/#', f'{path}/.m.')) for link in links)


@needs_numpy
def a_kill_leaves_the_old_file_or_the_new_one():
    delays = [0, 1, 2, 5, 8, 12, 17, 23, 30, 40]
    with folder() as path:
        file, states, in_the_middle = f'{path}/m', set(), 0
        # More rounds until a kill comes while a file is being written.
        for round_, delay in enumerate(delays * 10):
            if round_ >= len(delays) and in_the_middle:
                break
            saver = subprocess.Popen([sys.executable, '-c', SAVER.format(python=SOURCE + '/python', file=file)], stdout=subprocess.PIPE)
            saver.stdout.readline()
            time.sleep(delay / 1000)
            saver.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, saver.pid, os.WSTOPPED)
            in_the_middle += is_saving(saver.pid, path)
            saver.kill()
            saver.wait()
            saver.stdout.close()
            got = strait.load_file(file, 'host', framework='numpy')
            values = {int(v) for t in got.values() for v in (t[0], t[-1])}
            expect(len(got) == 8 and len(values) == 1, (delay, values))
            states |= values
            left = [name for name in os.listdir(path) if name != 'm']
            expect(all(name.startswith('.m.') and name.endswith('.tmp') for name in left) and len(left) <= 1, left)
            for name in left:
                os.unlink(f'{path}/{name}')
        expect(states and in_the_middle, f'{len(states)} states, {in_the_middle} kills while a file was written')


@needs_numpy
def names_of_any_kind():
    names = ['', ' ', '"', '\\', '\n', '\u00fc', '\U0001f600', 'a/b', 'x' * 1000]
    with folder() as path:
        strait.save_file({name: np.array([k]) for k, name in enumerate(names)}, f'{path}/m')
        got = strait.load_file(f'{path}/m', 'host', framework='numpy')
        expect({name: int(t[0]) for name, t in got.items()} == {name: k for k, name in enumerate(names)}, list(got))
        json.loads(read(f'{path}/m')[8:8 + int.from_bytes(read(f'{path}/m')[:8], 'little')])


main()
