#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""load_file(), safe_open(), sharded models and the iterator, with NumPy and Strait's own tensors. TAP."""
import errno
import json
import os
import subprocess
import sys
import threading
import traceback

from common import (BUILD, NUMPY_CODES, SOURCE, expect, expect_error, folder, free_memory, main, needs_numpy, np, raw, sample,
                    strait, test, write)
from strait import _files, _load
from strait.dtypes import BITS


def every_type():
    tensors = {code: (code, [4, 8], os.urandom(32 * bits // 8)) for code, bits in BITS.items()}
    tensors.update({'scalar': ('F32', [], os.urandom(4)), 'empty': ('F16', [0, 7], b''), 'no bool': ('BOOL', [0], b''),
                    'nine': ('I8', [1, 2, 1, 2, 1, 2, 1, 3, 1], os.urandom(24)), 'gr\u00fc\u00dfe': ('U8', [1], b'x')})
    return tensors


@test
def version_and_devices_are_told():
    expect(strait.version().count('.') == 2, strait.version())
    expect('emu:0' in strait.devices() and 'host' in strait.devices(), strait.devices())


@test
def tensors_of_every_type():
    tensors = every_type()
    with folder() as path:
        file = write(f'{path}/m.safetensors', tensors)
        for device in ('emu:0', 'emu', 'host', 'cpu'):
            got = strait.load_file(file, device, framework='strait')
            expect(list(got) == list(tensors), list(got))
            for name, (code, shape, data) in tensors.items():
                t = got[name]
                expect(t.tobytes() == data and t.shape == tuple(shape) and t.dtype == code, f'{device}: {name}')
                expect(t.data_ptr % 256 == 0 or not data, f'{name} is aligned')


@needs_numpy
def arrays_of_numpy():
    tensors = {name: t for name, t in every_type().items() if t[0] in NUMPY_CODES}
    with folder() as path:
        file = write(f'{path}/m', tensors)
        for device in ('emu:0', 'host'):
            got = strait.load_file(file, device, framework='numpy')
            for name, (code, shape, data) in tensors.items():
                expect(got[name].tobytes() == data and got[name].shape == tuple(shape), f'{device}: {name}')
                expect(got[name].dtype == np.dtype(NUMPY_CODES[code]), f'{name} is {got[name].dtype}')
                expect(got[name].flags.writeable and got[name].flags.aligned, name)


@needs_numpy
def types_that_numpy_lacks_are_refused_before_anything_moves():
    with folder() as path:
        before = free_memory()
        for code, count in (('F4', 16), ('F6_E2M3', 24), ('F6_E3M2', 24)):
            file = write(f'{path}/m', {'a': ('U8', [4], b'1234'), 'b': (code, [32], bytes(count))})
            expect_error(errno.EOPNOTSUPP, code, strait.load_file, file, 'emu:0', framework='numpy')
        try:
            import ml_dtypes
            expect(ml_dtypes, 'it is there')
        except ImportError:
            file = write(f'{path}/m', {'b': ('BF16', [2], bytes(4))})
            expect_error(errno.EOPNOTSUPP, 'ml_dtypes', strait.load_file, file, 'emu:0', framework='numpy')
        expect(free_memory() == before, 'nothing is left allocated')


@test
def routes_stats_and_reasons():
    with folder() as path:
        tensors = {'a': ('F32', [1 << 20], os.urandom(4 << 20)), 'b': ('U8', [999], os.urandom(999))}
        file = write(f'{path}/m', tensors)
        for device, route in (('emu:0', 'staged'), ('emu:0', None), ('host', 'host'), ('host', None)):
            stats = {}
            got = strait.load_file(file, device, framework='strait', route=route, stats=stats)
            expect(all(got[k].tobytes() == tensors[k][2] for k in tensors), (device, route))
            expect(stats['bytes'] == (4 << 20) + 999 == sum(stats['routes'].values()), stats)
            expect(route is None or list(stats['routes']) == [route], stats)
            expect(stats['seconds'] > 0 and set(stats['reasons']) == {'p2p', 'pagecache', 'staged', 'host'}, stats)
            expect(device == 'host' or stats['reasons']['host'].startswith('the region is device memory'), stats)
        before = strait.stats()['routes']['staged']['read']
        strait.load_file(file, 'emu:0', framework='strait', route='staged')
        expect(strait.stats()['routes']['staged']['read'] - before == (4 << 20) + 999, 'counters of the process')


@test
def errors_have_number_text_route_and_reason():
    with folder() as path:
        file = write(f'{path}/m', sample())
        error = expect_error(errno.ENOENT, 'No such file', strait.load_file, f'{path}/none', 'host')
        expect(isinstance(error, OSError) and error.filename == f'{path}/none', error)
        expect_error(errno.ENODEV, 'emu:99', strait.load_file, file, 'emu:99')
        expect_error(errno.ENODEV, 'toaster', strait.load_file, file, 'toaster')
        expect_error(errno.EINVAL, 'scenic', strait.load_file, file, 'host', route='scenic', framework='strait')
        expect_error(errno.EINVAL, 'mxnet', strait.load_file, file, 'host', framework='mxnet')
        error = expect_error(errno.EOPNOTSUPP, 'not possible', strait.load_file, file, 'emu:0', route='host',
                             framework='strait')
        expect(error.route == 'host' and error.reason and error.filename == file, (error.route, error.reason))
        expect_error(errno.EISDIR, '', strait.load_file, path, 'host', framework='strait')
        with strait.safe_open(file, 'strait', 'host') as f:
            expect_error(errno.ENOENT, 'nothing', f.get_tensor, 'nothing')
        expect_error(errno.EBADF, 'closed', f.keys)


@test
def safe_open_gives_what_is_asked_for():
    tensors = {'b': ('U8', [3], b'abc'), 'a': ('U8', [2], b'de'), 'c': ('F32', [0], b'')}
    with folder() as path:
        file = write(f'{path}/m', tensors, {'format': 'pt', 'k': '\u00e4'})
        with strait.safe_open(file, framework='strait', device='emu:0') as f:
            expect(f.keys() == ['a', 'b', 'c'] and f.offset_keys() == ['b', 'a', 'c'], (f.keys(), f.offset_keys()))
            expect(f.metadata() == {'format': 'pt', 'k': '\u00e4'} and len(f) == 3 and 'a' in f and 'x' not in f, f.metadata())
            expect(f.get_tensor('a').tobytes() == b'de', 'one')
            expect({k: t.tobytes() for k, t in f.get_tensors().items()} == {'b': b'abc', 'a': b'de', 'c': b''}, 'all')
            expect(list(f.get_tensors(['c', 'a'])) == ['a', 'c'], 'some, in the order of their bytes')
            kept = f.get_tensor('b')
        expect(kept.tobytes() == b'abc', 'tensors outlive the file')
        with strait.safe_open(write(f'{path}/n', tensors), 'strait', 'host') as f:
            expect(f.metadata() is None, 'no metadata')


@test
def into_existing_arrays():
    with folder() as path:
        tensors = {'a': ('U8', [1000], os.urandom(1000)), 'b': ('F32', [10], os.urandom(40)), 'c': ('U8', [1], b'c')}
        file = write(f'{path}/m', tensors)
        targets = {'a': bytearray(1000), 'b': bytearray(40)}
        got = strait.load_file(file, 'host', framework='strait', into=targets)
        expect(got['a'] is targets['a'] and bytes(got['a']) == tensors['a'][2], 'the array itself')
        expect(bytes(targets['b']) == tensors['b'][2] and set(got) == {'a', 'b'}, 'only what was named')
        expect_error(errno.EINVAL, '1000 bytes', strait.load_file, file, 'host', framework='strait', into={'a': bytearray(999)})
        expect_error(errno.EINVAL, 'read-only', strait.load_file, file, 'host', framework='strait', into={'a': bytes(1000)})
        expect_error(errno.ENOENT, "'x'", strait.load_file, file, 'host', framework='strait', into={'x': bytearray(9)})
        on_device = strait.load_file(file, 'emu:0', framework='strait')
        other = write(f'{path}/n', {'a': ('U8', [1000], b'z' * 1000)})
        strait.load_file(other, 'emu:0', framework='strait', into={'a': on_device['a']})
        expect(on_device['a'].tobytes() == b'z' * 1000, 'memory of Strait itself')


def shards(path, count=3):
    tensors, weight_map = {}, {}
    for k in range(count):
        part = {f'layer.{k}.{i}': ('U8', [100 + i], os.urandom(100 + i)) for i in range(20)}
        name = f'model-{k + 1:05d}-of-{count:05d}.safetensors'
        write(f'{path}/{name}', part)
        weight_map.update({t: name for t in part})
        tensors.update(part)
    index = f'{path}/model.safetensors.index.json'
    with open(index, 'w') as file:
        json.dump({'metadata': {'total_size': 1}, 'weight_map': weight_map}, file)
    return index, tensors, weight_map


@test
def sharded_models():
    with folder() as path:
        index, tensors, weight_map = shards(path)
        for name in (index, path):
            stats = {}
            got = strait.load_sharded(name, 'emu:0', framework='strait', stats=stats)
            expect({k: t.tobytes() for k, t in got.items()} == {k: t[2] for k, t in tensors.items()}, name)
            expect(stats['bytes'] == sum(len(t[2]) for t in tensors.values()), stats)
        for text, what, number in (('[]', 'weight_map', errno.EBADMSG), ('{"weight_map": 3}', 'weight_map', errno.EBADMSG),
                                   ('{"weight_map": {"a": "../../etc/passwd"}}', 'outside', errno.EBADMSG),
                                   ('{"weight_map": {"a": "/etc/passwd"}}', 'outside', errno.EBADMSG),
                                   (json.dumps({'weight_map': {**weight_map, 'more': 'model-00001-of-00003.safetensors'}}),
                                    "'more'", errno.EBADMSG),
                                   ('{"weight_map": {"a": "none.safetensors"}}', 'No such file', errno.ENOENT)):
            with open(index, 'w') as file:
                file.write(text)
            expect_error(number, what, strait.load_sharded, index, 'host', framework='strait')
        os.unlink(index)
        expect(len(strait.load_sharded(path, 'host', framework='strait')) == 60, 'a folder of files without an index')
        write(f'{path}/model-00004.safetensors', {'layer.0.0': ('U8', [1], b'x')})
        expect_error(errno.EBADMSG, 'more than one file', strait.load_sharded, path, 'host', framework='strait')


@test
def models_in_folders():
    """An index may name files below its folder: each tensor is looked for in the file that it names."""
    with folder() as path:
        for name in ('a', 'b'):
            os.mkdir(f'{path}/{name}')
            write(f'{path}/{name}/x.safetensors', {f'{name}.0': ('U8', [4], name.encode() * 4)})
        index = f'{path}/model.safetensors.index.json'
        for weight_map, missing in (({'a.0': 'a/x.safetensors', 'b.0': 'b/x.safetensors'}, None),
                                    ({'a.0': 'a/x.safetensors', 'b.0': 'b/x.safetensors', 'c': 'b/x.safetensors'}, "'c'"),
                                    ({'a.0': 'b/x.safetensors', 'b.0': 'a/x.safetensors'}, "'b.0'")):
            with open(index, 'w') as file:
                json.dump({'weight_map': weight_map}, file)
            if missing is None:
                got = strait.load_sharded(index, 'emu:0', framework='strait')
                expect({k: t.tobytes() for k, t in got.items()} == {'a.0': b'aaaa', 'b.0': b'bbbb'}, got)
            else:
                expect_error(errno.EBADMSG, missing, strait.load_sharded, index, 'host', framework='strait')


@test
def the_iterator_is_bounded():
    with folder() as path:
        files, tensors = [], {}
        for k in range(4):
            part = {f't{k}.{i}': ('U8', [1 << 20], os.urandom(1 << 20)) for i in range(8)}
            files.append(write(f'{path}/{k}', part))
            tensors.update(part)
        before, most, seen = free_memory(), 0, []
        for name, tensor in strait.iter_tensors(files, 'emu:0', framework='strait', budget=8 << 20):
            expect(tensor.tobytes() == tensors[name][2], name)
            seen.append(name)
            most = max(most, before - free_memory())
            del tensor
        expect(seen == list(tensors), 'in order')
        # Staging memory is allocated with the first transfer on the host, not on the device.
        expect(most <= 9 << 20, f'{most} bytes at a time')
        expect(free_memory() == before, 'all given back')
        # A tensor that is longer than the budget is read alone; a loop that is left early leaves nothing.
        names = [name for name, _ in strait.iter_tensors(files[:1], 'emu:0', framework='strait', budget=1)]
        expect(names == list(tensors)[:8], names)
        for _ in strait.iter_tensors(files, 'emu:0', framework='strait', budget=8 << 20):
            break
        del _
        expect(free_memory() == before, 'all given back')
        some = [name for name, _ in strait.iter_tensors(files, 'emu:0', framework='strait', wanted=lambda name: name.endswith('.3'))]
        expect(some == ['t0.3', 't1.3', 't2.3', 't3.3'], some)
        expect_error(errno.EINVAL, 'budget', strait.iter_tensors, files, 'emu:0', budget=0)


@test
def memory_is_given_back_with_the_last_tensor():
    with folder() as path:
        file = write(f'{path}/m', {k: ('U8', [1 << 20], os.urandom(1 << 20)) for k in 'abc'})
        before = free_memory()
        got = strait.load_file(file, 'emu:0', framework='strait')
        expect(free_memory() <= before - (3 << 20), 'it is allocated')
        last, data = got['b'], got['b'].tobytes()
        del got
        expect(free_memory() < before, 'one keeps all of it')
        expect(last.tobytes() == data, 'and its bytes')
        del last
        expect(free_memory() == before, 'given back')
        for _ in range(50):
            strait.load_file(file, 'emu:0', framework='strait')
        expect(free_memory() == before, 'every time')


@test
def a_failure_half_way_leaves_nothing_behind():
    with folder() as path:
        file = write(f'{path}/m', {'a': ('U8', [8 << 20], bytes(8 << 20))})
        before = free_memory()
        with strait.safe_open(file, 'strait', 'emu:0') as f:
            os.truncate(file, 1 << 20)
            expect_error(errno.ENODATA, 'ends early', f.get_tensors)
        expect(free_memory() == before, 'given back')


@test
def loads_on_many_threads():
    with folder() as path:
        tensors = sample(8)
        file = write(f'{path}/m', tensors)
        before, problems = free_memory(), []

        def work():
            try:
                for _ in range(10):
                    got = strait.load_file(file, 'emu:0', framework='strait')
                    expect(all(got[k].tobytes() == tensors[k][2] for k in tensors), 'bytes')
            except Exception:
                problems.append(traceback.format_exc())

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        expect(not problems, ''.join(problems))
        expect(free_memory() == before, 'given back')


@test
def a_child_of_fork_opens_its_own_context():
    with folder() as path:
        file = write(f'{path}/m', sample())
        kept = strait.load_file(file, 'emu:0', framework='strait')
        pid = os.fork()
        if not pid:
            code = 1
            try:
                code = 0 if len(strait.load_file(file, 'emu:0', framework='strait')) == 3 else 2
                kept.clear()
            finally:
                os._exit(code)
        expect(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, 'the child')
        expect(all(t.tobytes() for t in kept.values()), 'the parent')


@needs_numpy
def the_work_per_tensor_does_not_grow():
    """Calls of the interpreter per tensor, which a slow machine does not change. bench/python/load.py has the time."""
    with folder() as path:
        counts = []
        for n in (500, 2000):
            file = write(f'{path}/{n}', {f'model.layers.{k}.weight': ('F16', [8, 16], bytes(256)) for k in range(n)})
            strait.load_file(file, 'emu:0', framework='numpy')
            calls = 0

            def count(frame, event, arg):
                nonlocal calls
                calls += event in ('call', 'c_call')

            before = strait.stats()['transfers']
            sys.setprofile(count)
            try:
                strait.load_file(file, 'emu:0', framework='numpy')
            finally:
                sys.setprofile(None)
            expect(strait.stats()['transfers'] - before == 1, 'adjacent tensors travel in one transfer')
            counts.append(calls)
        per_tensor = (counts[1] - counts[0]) / 1500
        expect(per_tensor <= 8, f'{per_tensor} calls per tensor')


@needs_numpy
def many_tensors_in_many_shards():
    """90,000 tensors in 160 files: each is the one that its file has. bench/python/load.py has the time."""
    with folder() as path:
        names, files, want = {}, 160, {}
        for k in range(files):
            file = f'model-{k:05d}-of-{files:05d}.safetensors'
            sizes = [(8 + (i * 7 + k) % 60) * 2 for i in range(563)]
            data = os.urandom(sum(sizes))
            header, at = {}, 0
            for i, size in enumerate(sizes):
                name = f'model.layers.{k}.mlp.experts.{i}.weight'
                header[name] = {'dtype': 'F16', 'shape': [2, size // 4] if size % 4 == 0 else [size // 2], 'data_offsets': [at, at + size]}
                names[name], want[name] = file, data[at:at + size]
                at += size
            with open(f'{path}/{file}', 'wb') as out:
                out.write(raw(header, data))
        with open(f'{path}/model.safetensors.index.json', 'w') as out:
            json.dump({'metadata': {}, 'weight_map': names}, out)
        got = strait.load_sharded(path, 'emu:0', framework='numpy')
        expect(len(got) == 90080 and got.keys() == want.keys(), len(got))
        wrong = [name for name, array in got.items() if array.tobytes() != want[name]]
        expect(not wrong, f'{len(wrong)} tensors differ: {wrong[:3]}')


@needs_numpy
def unaligned_tensors_travel_together():
    """A tensor whose place in the file is not aligned starts a transfer of its own, and no more than that."""
    with folder() as path:
        file = write(f'{path}/m', {f't{k}': ('U8', [256 if k % 10 else 255], os.urandom(256 if k % 10 else 255)) for k in range(1000)})
        before = strait.stats()['transfers']
        got = strait.load_file(file, 'emu:0', framework='numpy')
        with open(file, 'rb') as f:
            data = f.read()
        expect(b''.join(t.tobytes() for t in got.values()) == data[-len(b''.join(t.tobytes() for t in got.values())):], 'bytes')
        expect(strait.stats()['transfers'] - before <= 101, strait.stats()['transfers'] - before)


@test
def pytorch_is_found_where_it_is():
    """By default PyTorch where it is installed, NumPy on the CPU, else Strait's own tensors."""
    with folder() as path:
        file = write(f'{path}/m', {'a': ('U8', [4], b'1234')})
        code = f'import sys; sys.path[:0] = [{SOURCE + "/python"!r}]; sys.modules["torch"] = None\n' \
               f'import strait; print(type(strait.load_file({file!r}, "emu:0")["a"]).__module__, "torch" in sys.modules)'
        code = code.replace('sys.modules["torch"] = None', 'import importlib.util as u; find = u.find_spec; '
                            'u.find_spec = lambda name, *a: None if name == "torch" else find(name, *a)')
        done = subprocess.run([sys.executable, '-c', code], capture_output=True, check=True, env=dict(os.environ, STRAIT_BUILD=BUILD))
        expect(done.stdout.decode().split() == ['numpy' if np else 'strait.tensor', 'False'], done)


@test
def a_library_that_is_not_there():
    code = f'import sys; sys.path.insert(0, {SOURCE + "/python"!r}); import strait\n' \
           'try:\n    strait.version()\nexcept strait.StraitError as error:\n    print(error)\n'
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, check=True,
                          env=dict(os.environ, STRAIT_LIBRARY='/none/libstrait.so'))
    expect(b'/none/libstrait.so' in done.stdout and b'STRAIT_LIBRARY' in done.stdout, done)


@test
def importing_it_imports_no_framework():
    code = f'import sys; sys.path.insert(0, {SOURCE + "/python"!r}); import strait\n' \
           'print([m for m in ("torch", "numpy", "cupy", "jax", "safetensors") if m in sys.modules])'
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, check=True)
    expect(done.stdout == b'[]\n', done)


@test
def the_module_runs():
    env = dict(os.environ, PYTHONPATH=SOURCE + '/python', PATH='/nowhere')
    done = subprocess.run([sys.executable, '-m', 'strait'], capture_output=True, env=env)
    expect(done.returncode == 0 and strait.version().encode() in done.stdout and b'emu:0' in done.stdout, done)
    done = subprocess.run([sys.executable, '-m', 'strait', 'bench'], capture_output=True, env=env)
    expect(done.returncode == 2 and b'not installed' in done.stderr, done)


BAR = '''
import sys
sys.path.insert(0, sys.argv[1])
import strait
from strait import _progress
_progress._DELAY = _progress._EVERY = 0
strait.load_file(sys.argv[2], 'emu:0', framework='strait', progress=False if len(sys.argv) > 3 else None)
'''


@test
def a_bar_on_a_terminal_only():
    with folder() as path:
        command = [sys.executable, '-c', BAR, SOURCE + '/python', write(f'{path}/m', sample())]
        done = subprocess.run(command, stderr=subprocess.PIPE, check=True)
        expect(done.stderr == b'', f'in a pipe: {done.stderr}')
        for more, shown in ((), True), (('no',), False):
            main_end, end = os.openpty()
            child = subprocess.Popen(command + list(more), stderr=end, env=dict(os.environ, TERM='xterm', COLUMNS='120'))
            os.close(end)
            text = b''
            while True:
                try:
                    text += os.read(main_end, 4096) or b''
                except OSError:  # the other end is closed
                    break
            expect(child.wait() == 0, text)
            os.close(main_end)
            if shown:
                expect(b'100%' in text and b'GB/s' in text and b'[####' in text and text.endswith(b'\r\x1b[K'), text)
            else:
                expect(text == b'', text)


@test
def everything_public_is_documented_and_typed():
    import inspect
    for name in strait.__all__:
        thing = getattr(strait, name)
        expect(thing.__doc__, f'{name} has no text')
        for member, function in [(name, thing)] if inspect.isfunction(thing) else inspect.getmembers(thing, inspect.isfunction):
            if member.startswith('_') and member != '__init__' or not function.__module__.startswith('strait'):
                continue
            expect(member == '__init__' or function.__doc__, f'{name}.{member} has no text')
            signature = inspect.signature(function)
            bare = [p.name for p in signature.parameters.values() if p.annotation is p.empty and p.name != 'self']
            expect(not bare and signature.return_annotation is not signature.empty, f'{name}.{member} lacks types: {bare}')
    expect(os.path.exists(f'{SOURCE}/python/strait/py.typed'), 'py.typed')


@test
def limits_are_as_documented():
    expect(_files.BUDGET == 2 << 30 and _load.ALIGN == 256, 'docs/python.md states both')


@test
def memory_is_reserved_for_several_tensors():
    from strait._frameworks import RESERVE
    from strait._load import _blocks
    mib, at, tensors = 1 << 20, 0, {}
    for name, count in (('a', 600 * mib), ('b', 100 * mib - 5), ('short', 5), ('c', 800 * mib), ('d', mib + 1), ('e', 3 * RESERVE), ('f', mib)):
        tensors[name] = ('U8', (count,), at, at + count)
        at += count
    expect(_blocks(tensors) == {'a': 700 * mib, 'c': 801 * mib + 512}, _blocks(tensors))
    expect(_blocks({}) == {} and _blocks({'a': tensors['a']}) == {}, 'one tensor is allocated alone')


main()
