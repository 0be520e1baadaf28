#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch's torch.cuda.gds on whatever libcufile it gets: saves and loads storages, bit by bit the same.

    strait run -- python3 bench/gpu/torch_gds.py [FILE] [MIB]      # on Strait
    python3 bench/gpu/torch_gds.py [FILE] [MIB]                    # on the library that PyTorch brings

Says which library the process has, what each step gave, and ends with 0 if all bytes came back, 1 if not, and
77 where there is no PyTorch with a GPU. FILE is made, and removed at the end.
"""
import os
import sys
import time
import traceback

MIB = 1 << 20


def library():
    with open('/proc/self/maps') as maps:
        found = sorted({line.split()[-1] for line in maps if 'libcufile' in line and '.so' in line})
    return ', '.join(found) or 'none is loaded yet'


def pattern(torch, size, seed):
    generator = torch.Generator(device='cuda').manual_seed(seed)
    return torch.randint(0, 256, (size,), dtype=torch.uint8, device='cuda', generator=generator)


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else '/var/tmp/strait-torch-gds.data'
    size = (int(sys.argv[2]) if len(sys.argv) > 2 else 1024) * MIB
    try:
        import torch
    except ImportError as error:
        print(f'no PyTorch: {error}')
        return 77
    if not torch.cuda.is_available() or not hasattr(torch.cuda, 'gds'):
        print(f'PyTorch {torch.__version__}: no GPU, or no torch.cuda.gds')
        return 77
    print(f'PyTorch {torch.__version__}, {torch.cuda.get_device_name(0)}, {size // MIB} MiB, {path}')
    print('libcufile:', library())
    failed = 0

    def step(name, function):
        nonlocal failed
        start = time.perf_counter()
        try:
            said = function()
            torch.cuda.synchronize()
            seconds = time.perf_counter() - start
            print(f'ok      {name}: {said or ""} {size / seconds / 1e9:.2f} GB/s')
        except Exception as error:  # pylint: disable=broad-except
            failed += 1
            print(f'FAILED  {name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else error!r}')
            if os.environ.get('TORCH_GDS_TRACE'):
                traceback.print_exc()

    src = pattern(torch, size, 1)
    dst = torch.zeros_like(src)
    state = {}

    def same(a, b):
        if not torch.equal(a, b):
            raise AssertionError(f'{int((a != b).sum())} of {a.numel()} bytes differ')

    def register():
        torch.cuda.gds.gds_register_buffer(src.untyped_storage())
        torch.cuda.gds.gds_register_buffer(dst.untyped_storage())
        state['registered'] = True

    def open_file():
        state['file'] = torch.cuda.gds.GdsFile(path, os.O_CREAT | os.O_RDWR)

    def save():
        state['file'].save_storage(src.untyped_storage(), 0)

    def load():
        dst.zero_()
        state['file'].load_storage(dst.untyped_storage(), 0)
        same(src, dst)
        return 'the same bytes,'

    def as_the_file_has_it():
        with open(path, 'rb') as file:
            raw = bytearray(file.read(size))
        same(src.cpu(), torch.frombuffer(raw, dtype=torch.uint8))
        return 'the file has them,'

    def offsets():
        """Storages that lie one after the other in a file, of other types, at any offset."""
        parts = [torch.randn(12345, device='cuda'), torch.randn(999, 7, device='cuda', dtype=torch.float64),
                 torch.arange(4097, device='cuda', dtype=torch.int16)]
        at, places = 4096 + 3, []
        for part in parts:
            state['file'].save_storage(part.untyped_storage(), at)
            places.append(at)
            at += part.untyped_storage().nbytes() + 5
        for part, place in zip(parts, places):
            back = torch.empty_like(part)
            state['file'].load_storage(back.untyped_storage(), place)
            same(part.view(torch.uint8), back.view(torch.uint8))
        return 'odd offsets,'

    def deregister():
        torch.cuda.gds.gds_deregister_buffer(src.untyped_storage())
        torch.cuda.gds.gds_deregister_buffer(dst.untyped_storage())

    step('gds_register_buffer', register)
    step('GdsFile', open_file)
    if 'file' in state:
        step('save_storage', save)
        step('load_storage', load)
        step('load_storage again', load)
        step('read as a file', as_the_file_has_it)
        step('several storages', offsets)
    if 'registered' in state:
        step('gds_deregister_buffer', deregister)
    state.clear()
    print('libcufile:', library())
    if os.path.exists(path):
        os.unlink(path)
    print('torch.cuda.gds works here' if not failed else f'{failed} steps failed')
    return failed > 0


if __name__ == '__main__':
    sys.exit(main())
