#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""load_file(group=): processes that load one file together, on gloo. TAP."""
import importlib.util
import os
import subprocess
import sys

from common import SOURCE, Skip, expect, folder, main, test, write

WORKER = '''
import os, sys
sys.path.insert(0, {python!r})
import torch, torch.distributed as dist
import strait
from strait import _group
_group.SHARE = 100_000
rank, size = int(sys.argv[1]), int(sys.argv[2])
dist.init_process_group('gloo', init_method='file://' + sys.argv[3], rank=rank, world_size=size)
group = dist.new_group(list(range(size))) if sys.argv[5] == 'group' else dist.group.WORLD
{before}
stats = {{}}
try:
    got = strait.load_file(sys.argv[4], 'cpu', group=group, stats=stats)
    want = strait.load_file(sys.argv[4], 'cpu', framework='pt')
    bits = lambda t: t.reshape(-1).view(torch.uint8)
    same = list(got) == list(want) and all(torch.equal(bits(got[k]), bits(want[k])) and got[k].shape == want[k].shape for k in want)
    print('same' if same else 'different', stats['bytes'])
except OSError as error:
    print('error', error.errno, str(error).replace(chr(10), ' '))
except MemoryError as error:
    print('own', error)
'''


def run(size, file, path, before='', group='world'):
    """What each rank printed."""
    if importlib.util.find_spec('torch') is None:
        raise Skip('PyTorch is not installed: package python3-torch')
    import torch.distributed
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        raise Skip('this PyTorch has no gloo')
    meet = f'{path}/meet'
    if os.path.exists(meet):
        os.unlink(meet)
    code = WORKER.format(python=SOURCE + '/python', before=before)
    ranks = [subprocess.Popen([sys.executable, '-c', code, str(rank), str(size), meet, file, group], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=dict(os.environ, GLOO_SOCKET_IFNAME='lo')) for rank in range(size)]
    said = []
    for rank in ranks:
        out, err = rank.communicate(timeout=240)
        expect(out, err.decode(errors='replace')[-1500:])
        said.append(out.decode().strip())
    return said


def sample():
    tensors = {f't{k}': ('U8', [n], os.urandom(n)) for k, n in enumerate((1, 99_999, 3, 250_000, 17, 100_000, 64, 333_333))}
    return {**tensors, 'f': ('F32', [50, 70], os.urandom(14000)), 'none': ('F32', [0], b''), 'scalar': ('I64', [], bytes(8))}


@test
def each_byte_is_read_once():
    with folder() as path:
        tensors = sample()
        file, total = write(f'{path}/m', tensors), sum(len(t[2]) for t in tensors.values())
        for size, group in ((1, 'world'), (3, 'group')):
            said = run(size, file, path, group=group)
            expect(all(line.startswith('same') for line in said), said)
            expect(sum(int(line.split()[1]) for line in said) == total, said)


@test
def an_error_of_one_is_raised_on_all():
    with folder() as path:
        file = write(f'{path}/m', sample())
        said = run(3, file, path, before='if rank == 1: sys.argv[4] += ".none"')
        expect(all(line.startswith('error 2 ') for line in said) and 'rank 1 failed' in said[0] + said[2], said)
        # The file ends early for one rank, after the headers were agreed on.
        before = f'''
if rank == 2:
    agree = _group._Load.agree
    def cut(self, text):
        agree(self, text)
        if text: self._start = lambda *a: setattr(self, 'error', strait.StraitError(5, 'the drive is gone'))
    _group._Load.agree = cut
'''
        said = run(3, file, path, before=before)
        expect(all(line.startswith('error 5 ') and 'the drive is gone' in line for line in said), said)


@test
def errors_of_other_kinds_are_raised_on_all():
    """An error that is none of Strait's, at any step of one rank: the others get it instead of waiting in broadcast."""
    with folder() as path:
        file = write(f'{path}/m', sample())
        for owner, name in (('_group._Load', '_start'), ('_group._Load', '_spread'), ('_group._Load', '_finish'),
                            ('_group', 'new_batch'), ('_group.Batch', 'finish'), ('_group.Torch', 'wait'),
                            ('_group.Torch', '__init__'), ('_group._Load', 'allocate')):
            before = f'''
if rank == 2:
    calls, original = [], {owner}.{name}
    def fails(*args, **options):
        calls.append(1)
        if len(calls) > ({name!r} == 'new_batch'): raise MemoryError('none is left')
        return original(*args, **options)
    {owner}.{name} = fails
'''
            said = run(3, file, path, before=before)
            expect(said[2] == 'own none is left' and all(line.startswith('error 5 ') and 'rank 2 failed: none is left' in line
                                                         for line in said[:2]), (name, said))


SLICED = '''
def mine(name, shape):
    if name == 'none' or name == 't4' and rank: return None
    if not shape: return ...
    dim = len(shape) - 1 if name in ('f', 'cube') else 0
    n = shape[dim]
    return (slice(None),) * dim + (slice(rank * n // size, (rank + 1) * n // size),)
whole = strait.load_file
def sliced(path, device, **options):
    if 'group' not in options:
        with strait.safe_open(path, 'pt', device) as f:
            return {name: f.get_slice(name)[mine(name, tuple(f.get_slice(name).get_shape()))] for name in f.offset_keys()
                    if mine(name, tuple(f.get_slice(name).get_shape())) is not None}
    return whole(path, device, slices=mine, **options)
strait.load_file = sliced
'''


@test
def ranks_keep_their_slices():
    with folder() as path:
        tensors = {**sample(), 'cube': ('F16', [30, 40, 333], os.urandom(30 * 40 * 333 * 2))}
        file, total = write(f'{path}/m', tensors), sum(len(t[2]) for t in tensors.values())
        said = run(3, file, path, before=SLICED)
        expect(all(line.startswith('same') for line in said), said)
        expect(sum(int(line.split()[1]) for line in said) == total, said)
        # A slice that is not possible for one rank is an error on all.
        said = run(2, file, path, before=SLICED + "\nif rank: mine = lambda name, shape: (slice(0, 1),) * len(shape)")
        expect(all(line.startswith('error 22 ') and 'one dimension' in line for line in said), said)


@test
def parts_of_rows_are_put_in_place():
    """Shares that begin and end anywhere, against PyTorch's own slices."""
    if importlib.util.find_spec('torch') is None:
        raise Skip('PyTorch is not installed: package python3-torch')
    import random

    import torch
    from strait import _group, _slice
    rng = random.Random(5)
    for _ in range(300):
        shape = [rng.randrange(1, 7) for _ in range(rng.randrange(1, 4))]
        tensor = torch.randint(0, 30000, shape, dtype=torch.int16)
        dim = rng.randrange(len(shape))
        low, high = sorted((rng.randrange(shape[dim] + 1), rng.randrange(shape[dim] + 1)))
        index = (slice(None),) * dim + (slice(low, high),)
        box = _slice.parse(index, tuple(shape))
        cut = _group.cut_of(box, tuple(shape), 16, 'x')
        flat, kept = tensor.reshape(-1).view(torch.uint8), torch.zeros(box.shape, dtype=torch.int16)
        at = 0
        while at < flat.numel() and kept.numel():
            step = rng.randrange(1, flat.numel() + 1)
            _group.spread(flat[at:at + step], at, cut, kept.reshape(-1).view(torch.uint8))
            at += step
        expect(torch.equal(kept, tensor[index]), (shape, index))


@test
def different_files_are_noticed():
    with folder() as path:
        file = write(f'{path}/m', sample())
        write(f'{path}/m.other', {'a': ('U8', [4], b'1234')})
        said = run(2, file, path, before='if rank == 1: sys.argv[4] += ".other"')
        expect(all(line.startswith('error 116 ') for line in said), said)


main()
