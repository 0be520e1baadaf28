#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The Python package on a GPU, with PyTorch, safetensors and CuPy: streams, memory, unchanged programs, groups. TAP."""
import ctypes
import importlib.util
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'python'))

from common import SOURCE, Skip, expect, folder, main, strait, test  # noqa: E402

DEVICE = 'cuda:0'
LONG = 200_000_000  # cycles of a kernel that runs for about a tenth of a second


def torch():
    if importlib.util.find_spec('torch') is None:
        raise Skip('PyTorch is not installed')
    import torch as found
    if not found.cuda.is_available():
        raise Skip('there is no GPU')
    return found


def needs(name):
    if importlib.util.find_spec(name) is None:
        raise Skip(f'{name} is not installed')
    return importlib.import_module(name)


def same(a, b):
    t = torch()
    return a.shape == b.shape and a.dtype == b.dtype and t.equal(a.contiguous().reshape(-1).view(t.uint8), b.contiguous().reshape(-1).view(t.uint8))


def stored(path, count=6, rows=1024):
    """A file with tensors of PyTorch, and what is in it, on the GPU."""
    t = torch()
    t.manual_seed(3)
    tensors = {f'w{k}': t.randn(rows, 512, device=DEVICE).to(t.bfloat16) for k in range(count)}
    tensors.update(small=t.arange(7, device=DEVICE), cube=t.randn(16, 64, 128, device=DEVICE), flags=t.tensor([True, False], device=DEVICE))
    strait.save_file(tensors, path, {'format': 'pt'})
    return tensors


@test
def loads_wait_for_the_current_stream():
    """A long kernel on a tensor, del, a load into the same block: what is loaded is there afterwards."""
    t = torch()
    with folder() as path:
        want = stored(f'{path}/m')['w0']
        blocks = 0
        for stream in (t.cuda.current_stream(), t.cuda.Stream()):
            with t.cuda.stream(stream), strait.safe_open(f'{path}/m', 'pt', DEVICE) as f:
                for _ in range(5):
                    victim = t.zeros_like(want)
                    place = victim.data_ptr()
                    t.cuda._sleep(LONG)
                    victim.fill_(1)
                    del victim
                    got = f.get_tensor('w0')
                    blocks += got.data_ptr() == place
                    t.cuda.synchronize()
                    expect(same(got, want), 'a queued kernel wrote to the loaded tensor')
                    del got
        expect(blocks, 'the block was never the same: nothing was tested')
        # An existing tensor, with work queued on it.
        target = t.zeros_like(want)
        t.cuda._sleep(LONG)
        target.fill_(1)
        strait.load_file(f'{path}/m', DEVICE, into={'w0': target})
        t.cuda.synchronize()
        expect(same(target, want), 'into')


@test
def saves_wait_for_the_current_stream():
    t = torch()
    with folder() as path:
        tensor = t.zeros(1 << 20, device=DEVICE)
        for value, stream in ((1, t.cuda.current_stream()), (2, t.cuda.Stream())):
            with t.cuda.stream(stream):
                stream.wait_stream(t.cuda.default_stream())
                t.cuda._sleep(LONG)
                tensor.fill_(value)
                strait.save_file({'t': tensor}, f'{path}/m')
            expect(bool((strait.load_file(f'{path}/m', 'cpu', framework='pt')['t'] == value).all()), f'{value}: saved too early')
        t.cuda.synchronize()


@test
def files_wait_and_are_ordered():
    t = torch()
    with folder() as path, strait.File(f'{path}/data', 'w+') as file:
        tensor, back = t.zeros(1 << 20, device=DEVICE), t.zeros(1 << 20, device=DEVICE)
        back.add_(1)  # the driver loads a kernel at its first launch, which must not be behind a transfer on a stream
        t.cuda._sleep(LONG)
        tensor.fill_(3)
        expect(file.pwrite(tensor) == 4 << 20, 'written')
        t.cuda._sleep(LONG)
        back.fill_(9)
        expect(file.pread(back) == 4 << 20, 'read')
        t.cuda.synchronize()
        expect(bool((back == 3).all()), 'synchronous calls')
        stream = t.cuda.Stream()
        stream.wait_stream(t.cuda.current_stream())
        with t.cuda.stream(stream):
            t.cuda._sleep(LONG)
            tensor.fill_(4)
            first = file.pwrite(tensor, stream=stream)
            second = file.pread(back, stream=stream)
            back.add_(1)
        stream.synchronize()
        expect(first.result() == second.result() == 4 << 20, 'results')
        expect(bool((back == 5).all()), 'on a stream')


@test
def arrays_of_cupy():
    t, cupy = torch(), needs('cupy')
    with folder() as path:
        want = {'cube': t.randn(16, 64, 128, device=DEVICE), 'half': t.randn(300, device=DEVICE).half(), 'flags': t.tensor([True, False], device=DEVICE)}
        strait.save_file(want, f'{path}/m')
        got = strait.load_file(f'{path}/m', DEVICE, framework='cupy')
        expect(isinstance(got['cube'], cupy.ndarray) and got['cube'].dtype == cupy.float32, type(got['cube']))
        expect(all(same(t.from_dlpack(got[name]), want[name]) for name in ('cube', 'half')), 'values')
        expect(got['flags'].dtype == cupy.bool_ and got['flags'].tolist() == [True, False], got['flags'].dtype)
        brain = {'b': t.randn(300, device=DEVICE).bfloat16()}
        strait.save_file(brain, f'{path}/b')
        try:
            got = strait.load_file(f'{path}/b', DEVICE, framework='cupy')['b']
            expect(str(got.dtype) == 'bfloat16' and same(t.from_dlpack(got), brain['b']), got.dtype)
        except strait.StraitError as error:
            expect('ml_dtypes' in str(error), error)
        with strait.File(f'{path}/data', 'w+') as file:
            stream = cupy.cuda.Stream(non_blocking=True)
            with stream:
                array = cupy.zeros(1 << 22, dtype=cupy.float32)
                for value in range(50):
                    array.fill(value)
                expect(file.pwrite(array) == 16 << 20, 'written')
            back = cupy.empty_like(array)
            file.pread(back)
            expect(bool((back == 49).all()), 'the write did not wait for the stream of the array')
            strait.save_file({'a': array}, f'{path}/c')
        expect(bool((strait.load_file(f'{path}/c', DEVICE, framework='pt')['a'] == 49).all()), 'saved')


@test
def memory_is_imported_once_and_left_as_it_was():
    t = torch()
    cuda = ctypes.CDLL('libcuda.so.1')

    def sync_memops(tensor):
        value = ctypes.c_uint(7)
        expect(cuda.cuPointerGetAttribute(ctypes.byref(value), 6, ctypes.c_uint64(tensor.data_ptr())) == 0, 'the attribute')
        return value.value

    with folder() as path:
        stored(f'{path}/m', 40)
        t.cuda.synchronize()
        t.cuda.empty_cache()
        before = strait.stats()['imported_segments']
        got = strait.load_file(f'{path}/m', DEVICE)
        first = strait.stats()['imported_segments'] - before
        expect(0 < first <= len(t.cuda.memory_snapshot()), f'{first} imports, {len(t.cuda.memory_snapshot())} segments')
        expect(all(sync_memops(tensor) == 0 for tensor in got.values()), 'SYNC_MEMOPS was set')
        del got
        again = strait.load_file(f'{path}/m', DEVICE)
        expect(strait.stats()['imported_segments'] - before == first, 'imported again')
        # Freed, and allocated anew: found out.
        del again
        t.cuda.empty_cache()
        want = stored(f'{path}/m', 40)
        got = strait.load_file(f'{path}/m', DEVICE)
        expect(all(same(got[name], want[name]) for name in want), 'after the segments were freed')


@test
def peak_memory_is_the_model():
    t = torch()
    with folder() as path:
        stored(f'{path}/m', 2)
        strait.load_file(f'{path}/m', DEVICE)
        stored(f'{path}/m', 512, 2048)
        total = os.path.getsize(f'{path}/m')
        t.cuda.synchronize()
        t.cuda.empty_cache()
        t.cuda.reset_peak_memory_stats()
        start, free = t.cuda.memory_allocated(), t.cuda.mem_get_info()[0]
        got = strait.load_file(f'{path}/m', DEVICE)
        peak, used = t.cuda.max_memory_allocated() - start, free - t.cuda.mem_get_info()[0]
        expect(len(got) == 515 and peak <= total * 1.02 + (1 << 20), f'{peak} bytes of PyTorch, {total} of the model')
        expect(used <= total * 1.05 + (256 << 20), f'{used} bytes of the device, {total} of the model')


EXPANDABLE = '''
import sys, torch, strait
got = strait.load_file(sys.argv[1], 'cuda:0')
want = strait.load_file(sys.argv[1], 'cpu', framework='pt')
print(all(torch.equal(got[k].cpu().reshape(-1).view(torch.uint8), want[k].reshape(-1).view(torch.uint8)) for k in want), len(got))
'''


def run(code, *args, **env):
    done = subprocess.run([sys.executable, '-c', code, *args], capture_output=True, timeout=120,
                          env=dict(os.environ, PYTHONPATH=f'{SOURCE}/python', **env))
    expect(done.returncode == 0, done.stderr.decode(errors='replace')[-1500:])
    return done.stdout.decode().strip()


@test
def segments_that_grow():
    torch()
    with folder() as path:
        stored(f'{path}/m', 60)
        for conf in ('expandable_segments:True', 'backend:cudaMallocAsync'):
            text = run(EXPANDABLE, f'{path}/m', PYTORCH_CUDA_ALLOC_CONF=conf)
            expect(text == 'True 63', f'{conf}: {text}')


PATCHED = '''
import random, sys
import strait.patch
import torch, safetensors, safetensors.torch
path, original = sys.argv[1], safetensors._strait_original
counts = strait.patch.counts
def same(a, b):
    return type(a) is type(b) is torch.Tensor and a.device == b.device and a.dtype == b.dtype and a.shape == b.shape and \
        torch.equal(a.contiguous().reshape(-1).view(torch.uint8), b.contiguous().reshape(-1).view(torch.uint8))
def outcome(function):
    try:
        return function()
    except Exception as error:
        return type(error), str(error)
rng = random.Random(1)
wrong = []
def compare(what, a, b):
    equal = same(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a == b
    if not equal: wrong.append((what, a if not isinstance(a, torch.Tensor) else a.shape, b if not isinstance(b, torch.Tensor) else b.shape))
with safetensors.safe_open(path, 'pt', 'cuda:0') as f, original(path, 'pt', 'cuda:0') as g:
    compare('keys', list(f.keys()), list(g.keys()))
    compare('offset_keys', list(f.offset_keys()), list(g.offset_keys()))
    compare('metadata', f.metadata(), g.metadata())
    for name in g.keys():
        compare(name, f.get_tensor(name), g.get_tensor(name))
    compare('missing', outcome(lambda: f.get_tensor('none')), outcome(lambda: g.get_tensor('none')))
    def one(size):
        kind = rng.randrange(7)
        a, b = rng.randrange(-size - 2, size + 3), rng.randrange(-size - 2, size + 3)
        return (slice(a, b), slice(None), slice(a, None), slice(None, b), a, slice(a, b, rng.randrange(1, 4)), Ellipsis)[kind]
    for _ in range(300):
        index = tuple(one(size) for size in (16, 64, 128)[:rng.randrange(1, 4)])
        index = index[0] if len(index) == 1 and rng.random() < .5 else index
        compare(index, outcome(lambda: f.get_slice('cube')[index]), outcome(lambda: g.get_slice('cube')[index]))
    for index in ([1, 2], torch.tensor([0, 3]), None, True, 'a', (0, 0, 0, 0), 1.5):
        compare(index, outcome(lambda: f.get_slice('cube')[index]), outcome(lambda: g.get_slice('cube')[index]))
on_cuda = counts.tensors
whole = safetensors.torch.load_file(path, device='cuda:0')
with safetensors.safe_open(path, 'pt') as f, original(path, 'pt') as g:
    for name in g.keys():
        want = g.get_tensor(name).to('cuda:0')
        compare('to ' + name, f.get_tensor(name).to('cuda:0'), want)
        compare('cuda ' + name, f.get_tensor(name).cuda(), want)
        compare('slice ' + name, f.get_slice(name)[...].to('cuda:0', non_blocking=True), want)
        compare('load_file ' + name, whole[name], want)
        target = torch.zeros_like(want)
        target.copy_(f.get_tensor(name))
        compare('copy_ ' + name, target, want)
    for _ in range(50):
        a, b = sorted(rng.randrange(65) for _ in range(2))
        compare(('part', a, b), f.get_tensor('cube')[:, a:b].to('cuda:0'), g.get_tensor('cube')[:, a:b].to('cuda:0').contiguous())
print(len(wrong), wrong[:5], on_cuda > 100, counts.tensors > on_cuda + 50)
'''


@test
def unchanged_programs_get_what_safetensors_gives():
    torch()
    needs('safetensors')
    with folder() as path:
        stored(f'{path}/m')
        text = run(PATCHED, f'{path}/m')
        expect(text == '0 [] True True', text)


@test
def files_are_those_of_safetensors():
    t = torch()
    needs('safetensors')
    import safetensors.torch
    with folder() as path:
        tensors = stored(f'{path}/m')
        safetensors.torch.save_file(tensors, f'{path}/theirs', {'format': 'pt'})
        expect(open(f'{path}/m', 'rb').read() == open(f'{path}/theirs', 'rb').read(), 'the bytes')
        got = safetensors.torch.load_file(f'{path}/m', device=DEVICE)
        expect(all(same(got[name], tensors[name]) for name in tensors), 'loaded')

        def refusal(function, *args):
            try:
                function(*args)
            except Exception as error:
                return type(error)
            return None

        big = t.zeros(100, 100, device=DEVICE)
        for bad in ({'a': big, 'b': big}, {'a': big[:50], 'b': big}, {'a': big.t()[:7]}, {'a': big.to_sparse()}, {'a': [1]}, [big], {1: big}):
            ours, theirs = refusal(strait.save_file, bad, f'{path}/x'), refusal(safetensors.torch.save_file, bad, f'{path}/x')
            expect(ours is not None and (ours is theirs or theirs is None or issubclass(ours, theirs)), f'{ours}, {theirs}: {type(bad)}')


GROUP = '''
import os, sys, torch, torch.distributed as dist, strait
from strait import _group
_group.SHARE = 1 << 20
rank, size, backend = int(sys.argv[1]), int(sys.argv[2]), sys.argv[4]
torch.cuda.set_device(0)
dist.init_process_group(backend, init_method='file://' + sys.argv[3], rank=rank, world_size=size)
got = strait.load_file(sys.argv[5], 'cuda:0', group=dist.group.WORLD)
want = strait.load_file(sys.argv[5], 'cuda:0')
same = all(torch.equal(got[k].reshape(-1).view(torch.uint8), want[k].reshape(-1).view(torch.uint8)) for k in want)
try:
    strait.load_file(sys.argv[5] + ('.none' if rank == size - 1 else ''), 'cuda:0', group=dist.group.WORLD)
    failed = None
except OSError as error:
    failed = error.errno
print(same, failed)
dist.destroy_process_group()
'''


@test
def ranks_load_together():
    t = torch()
    with folder() as path:
        stored(f'{path}/m')
        for backend, size in (('gloo', 2), ('nccl', 1)):
            if not getattr(t.distributed, f'is_{backend}_available')():
                continue
            ranks = [subprocess.Popen([sys.executable, '-c', GROUP, str(rank), str(size), f'{path}/meet-{backend}', backend, f'{path}/m'],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      env=dict(os.environ, PYTHONPATH=f'{SOURCE}/python', GLOO_SOCKET_IFNAME='lo', NCCL_SOCKET_IFNAME='lo'))
                     for rank in range(size)]
            for rank in ranks:
                out, err = rank.communicate(timeout=100)
                expect(out.decode().strip().endswith('True 2'), f'{backend}: {out.decode()} {err.decode(errors="replace")[-1500:]}')


main()
