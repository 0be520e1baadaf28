#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The Python package on a GPU beside safetensors and NVIDIA's cuFile: one table, first and later calls, compared bit by bit.

    CUFILE_UDEV=1 bench/gpu/python.py [FILE] [SIZE_GIB] [ROUNDS]

BUILD        the folder with strait and libstrait.so.0, ../../build by default; nothing is built
CUFILE_UDEV  1: where udev does not run, write the entry about the block device without which NVIDIA's library refuses files

Each measurement is a process of its own, in turns: its first call, after CUDA has started, then the best of ROUNDS later calls.
The tensors are PyTorch's. FILE is made if it is not there, read into the page cache, and kept.
"""
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get('BUILD') or os.path.join(HERE, '..', '..', 'build'))
SLICED = 'sliced.weight'


# Measurements: each returns a function to be timed, which returns tensors by name.

def load_strait(path):
    import strait
    return lambda: strait.load_file(path, 'cuda:0')


def load_safetensors(path):
    from safetensors.torch import load_file
    return lambda: load_file(path, device='cuda')


def load_cupy(path):
    import strait
    return lambda: strait.load_file(path, 'cuda:0', framework='cupy')


def load_gds(path):
    """torch.cuda.gds on NVIDIA's library: one thread, tensor by tensor, into PyTorch's memory."""
    import torch
    from safetensors import safe_open
    with open(path, 'rb') as file:
        size = int.from_bytes(file.read(8), 'little')
        header = json.loads(file.read(size))
    header.pop('__metadata__', None)
    with safe_open(path, framework='pt') as f:
        likes = {name: (f.get_tensor(name).shape, f.get_tensor(name).dtype) for name in f.keys()}
    file = torch.cuda.gds.GdsFile(path, os.O_RDONLY)

    def load():
        result = {}
        for name, info in header.items():
            shape, dtype = likes[name]
            result[name] = tensor = torch.empty(shape, dtype=dtype, device='cuda')
            if tensor.numel():
                file.load_storage(tensor.untyped_storage(), 8 + size + info['data_offsets'][0])
        return result
    return load


def pattern_copy(path):
    """vLLM, SGLang: open on the CPU, get_tensor, copy into the parameter."""
    import torch
    from safetensors import safe_open
    with safe_open(path, framework='pt') as f:
        params = {name: torch.empty(f.get_slice(name).get_shape(), dtype=f.get_tensor(name).dtype, device='cuda') for name in f.keys()}

    def load():
        with safe_open(path, framework='pt') as f:
            for name in f.keys():
                params[name].data.copy_(f.get_tensor(name))
        return params
    return load


def pattern_threads(path):
    """transformers: get_slice on the CPU, [...], then .to(device) on four threads."""
    import concurrent.futures
    from safetensors import safe_open

    def load():
        with safe_open(path, framework='pt', device='cpu') as f, concurrent.futures.ThreadPoolExecutor(4) as pool:
            slices = {name: f.get_slice(name) for name in f.keys()}
            return dict(zip(slices, pool.map(lambda s: s[...].to('cuda'), slices.values())))
    return load


def pattern_cuda(path):
    """accelerate and direct callers: device="cuda"."""
    from safetensors import safe_open

    def load():
        with safe_open(path, framework='pt', device='cuda:0') as f:
            return {name: f.get_tensor(name) for name in f.keys()}
    return load


def part(index):
    def strait_part(path):
        import strait
        f = strait.safe_open(path, 'pt', 'cuda:0')
        return lambda: {'part': f.get_slice(SLICED)[index]}

    def safetensors_part(path):
        from safetensors import safe_open
        f = safe_open(path, framework='pt', device='cuda:0')
        return lambda: {'part': f.get_slice(SLICED)[index]}
    return strait_part, safetensors_part


def save(kind):
    def make(path):
        import strait
        from safetensors.torch import save_file
        tensors = strait.load_file(path, 'cuda:0')
        target = f'{path}.saved-{kind}'

        def run():
            (strait.save_file if kind == 'strait' else save_file)(tensors, target)
            return {}
        return run
    return make


ROWS, COLUMNS = slice(4096, 8192), (slice(None), slice(1024, 2048))
MEASURES = {'load strait': load_strait, 'load safetensors': load_safetensors, 'load gds': load_gds, 'load cupy': load_cupy,
            'copy': pattern_copy, 'threads': pattern_threads, 'cuda': pattern_cuda,
            'rows strait': part(ROWS)[0], 'rows safetensors': part(ROWS)[1], 'columns strait': part(COLUMNS)[0],
            'columns safetensors': part(COLUMNS)[1], 'save strait': save('strait'), 'save safetensors': save('safetensors')}


def digest(torch, tensors):
    """A number of all bits of all tensors, and of their names, types and shapes."""
    total = 0
    for name in sorted(tensors):
        tensor = tensors[name]
        if not isinstance(tensor, torch.Tensor):
            tensor = torch.from_dlpack(tensor)
        data = tensor.contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else tensor.reshape(-1)
        bits = 0
        for begin in range(0, data.numel(), 1 << 28):
            block = data[begin:begin + (1 << 28)].to(torch.int64)
            bits += int((block * (torch.arange(begin, begin + block.numel(), device=block.device) % 1000003 + 1)).sum())
        text = f'{name} {tuple(tensor.shape)} {bits}'
        total = (total * 31 + int.from_bytes(text.encode(), 'little')) % (1 << 61)
    return total


def child(name, path, rounds):
    import torch
    torch.zeros(1, device='cuda')
    torch.cuda.synchronize()
    function, seconds, result = MEASURES[name](path), [], None
    for _ in range(1 + rounds):
        result = None
        start = time.perf_counter()
        result = function()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    peak = torch.cuda.max_memory_allocated()
    print(json.dumps({'first': seconds[0], 'later': min(seconds[1:]), 'peak': peak, 'digest': digest(torch, result)}))


def make(path, size):
    """Tensors of the kinds a language model has, random bytes."""
    import struct
    import torch
    header, off, k = {'__metadata__': {'format': 'pt'}}, 0, 0
    shapes = [('BF16', 2, (4096, 4096)), ('BF16', 2, (14336, 4096)), ('F32', 4, (4096,)), ('BF16', 2, (1024, 4096)),
              ('I64', 8, (3, 5)), ('BF16', 2, (4097,)), ('F8_E4M3', 1, (33, 129)), ('BOOL', 1, (7,))]
    header[SLICED] = {'dtype': 'BF16', 'shape': [32768, 8192], 'data_offsets': [0, 2 * 32768 * 8192]}
    off = 2 * 32768 * 8192
    while off < size:
        dtype, width, shape = shapes[k % len(shapes)]
        count = width
        for d in shape:
            count *= d
        header[f'layer.{k}'] = {'dtype': dtype, 'shape': list(shape), 'data_offsets': [off, off + count]}
        off, k = off + count, k + 1
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    with open(path + '.tmp', 'wb') as file:
        file.write(struct.pack('<Q', len(text)) + text)
        while off:
            block = torch.randint(0, 2 if off < 1 << 10 else 256, (min(off, 1 << 28),), dtype=torch.uint8, device='cuda')
            file.write(block.cpu().numpy().tobytes())
            off -= block.numel()
    os.rename(path + '.tmp', path)


def measure(name, path, rounds, under_strait=False):
    env = dict(os.environ, STRAIT_LIBRARY=f'{BUILD}/libstrait.so.0', PYTHONPATH=os.path.join(HERE, '..', '..', 'python'))
    command = [sys.executable, os.path.abspath(__file__), '--child', name, path, str(rounds)]
    if under_strait:
        command = [f'{BUILD}/strait', 'run', '--', *command]
    done = subprocess.run(command, env=env, capture_output=True, timeout=240)
    said = [line for line in done.stderr.decode(errors='replace').splitlines() if 'safetensors:' in line]
    if done.returncode:
        wrong = [line for line in done.stderr.decode(errors='replace').splitlines() if line and not line.startswith('strait run:')]
        print(f'# {name}{" under strait run" if under_strait else ""} failed: {wrong[-1:]}')
        return None
    for line in said:
        print(f'# {name}: {line}')
    return json.loads(done.stdout.decode().splitlines()[-1])


def streams():
    """A long kernel on a tensor, del, a load into the same block: the load must win. And the memory must stay as it was."""
    code = '''
import sys, torch, strait
from strait import _cuda
path = sys.argv[1]
with strait.safe_open(path, 'pt', 'cuda:0') as f:
    want = f.get_tensor('layer.0').clone()
    moved = same = 0
    for k in range(20):
        victim = torch.zeros_like(want)
        place = victim.data_ptr()
        torch.cuda._sleep(200_000_000)
        victim.fill_(1)          # queued behind the sleep
        del victim
        got = f.get_tensor('layer.0')
        moved += got.data_ptr() == place
        torch.cuda.synchronize()
        same += bool(torch.equal(got.view(torch.uint8), want.view(torch.uint8)))
        del got
    got = f.get_tensor('layer.0')
print(f'{moved} of 20 in the same block, {same} of 20 right; SYNC_MEMOPS set on PyTorch memory: {_cuda.sync_memops(got.data_ptr())}; '
      f'segments imported: {strait.stats()["imported_segments"]}')
'''
    env = dict(os.environ, STRAIT_LIBRARY=f'{BUILD}/libstrait.so.0', PYTHONPATH=os.path.join(HERE, '..', '..', 'python'))
    done = subprocess.run([sys.executable, '-c', code, sys.argv[1]], env=env, capture_output=True, timeout=240)
    return (done.stdout or done.stderr).decode(errors='replace').strip()


def main():
    sys.argv[1:2] = sys.argv[1:2] or ['/var/tmp/strait-python.safetensors']
    path, size = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 8
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    if not os.path.exists(path):
        make(path, int(size * (1 << 30)))
    total = os.path.getsize(path)
    with open(path, 'rb') as file:  # into the page cache
        while file.read(1 << 26):
            pass
    if os.environ.get('CUFILE_UDEV') == '1':
        subprocess.run([os.path.join(HERE, 'udev-entry'), path], check=False)
    results = {}
    for name in MEASURES:
        results[name] = measure(name, path, rounds)
        if name in ('copy', 'threads', 'cuda'):
            results[f'{name} run'] = measure(name, path, rounds, under_strait=True)
    slice_bytes, cut_bytes = 2 * 4096 * 8192, 2 * 32768 * 1024
    rows = [('load_file', 'load strait', 'load safetensors', total, 6), ('load_file, torch.cuda.gds', 'load strait', 'load gds', total, 1.5),
            ('load_file for CuPy', 'load cupy', 'load safetensors', total, 0),
            ('get_tensor on CPU, copy_', 'copy run', 'copy', total, 4), ('get_slice on CPU, .to, 4 threads', 'threads run', 'threads', total, 4),
            ('safe_open on cuda', 'cuda run', 'cuda', total, 4), ('get_slice of 1/8, rows', 'rows strait', 'rows safetensors', slice_bytes, 4),
            ('get_slice of 1/8, columns', 'columns strait', 'columns safetensors', cut_bytes, 2),
            ('save_file', 'save strait', 'save safetensors', total, 1.3)]
    print(f'{path}, {total / 2**30:.2f} GiB cached; GB/s, first call / best of {rounds} later')
    print(f'{"":34s} {"Strait":>15s} {"other":>15s} {"ratio":>13s}  goal')
    for label, ours, theirs, count, goal in rows:
        a, b = results.get(ours), results.get(theirs)
        if a is None or b is None:
            print(f'{label:34s} {"failed" if a is None else "":>15s} {"failed" if b is None else "":>15s}')
            continue
        rate = [f'{count / r["first"] / 1e9:6.2f} /{count / r["later"] / 1e9:6.2f}' for r in (a, b)]
        first, later = b['first'] / a['first'], b['later'] / a['later']
        verdict = ('ok' if later >= goal else 'MISSED') if goal else ''
        print(f'{label:34s} {rate[0]:>15s} {rate[1]:>15s} {first:5.1f} /{later:5.1f}  {">= " + str(goal) if goal else "":6s} {verdict:7s}'
              f'{"bits equal" if a["digest"] == b["digest"] else "BITS DIFFER"}')
    best = results['load strait']
    if best:
        rate = total / best['later'] / 1e9
        print(f'load_file cached: {rate:.1f} GB/s, goal >= 48.5: {"ok" if rate >= 48.5 else "MISSED"}; peak device memory of PyTorch '
              f'{best["peak"] / 2**30:.2f} GiB of a model of {total / 2**30:.2f} GiB')
    saved = [f'{path}.saved-{kind}' for kind in ('strait', 'safetensors')]
    if all(os.path.exists(name) for name in saved):
        same = subprocess.run(['cmp', '-s', *saved]).returncode == 0
        print(f'the saved files are {"the same" if same else "different"}')
    for name in saved:
        if os.path.exists(name):
            os.unlink(name)
    print('stream order:', streams())


if len(sys.argv) > 1 and sys.argv[1] == '--child':
    child(sys.argv[2], sys.argv[3], int(sys.argv[4]))
else:
    main()
