#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tensors that are read ahead of a program that moves one after the other. TAP. In place of a GPU the CPU is the device."""
import importlib.util
import os
import sys

from common import Skip, expect, folder, main, strait, test

HERE = os.path.dirname(os.path.abspath(__file__))
if importlib.util.find_spec('safetensors') is None:
    sys.path.insert(0, f'{HERE}/fake')
HAVE_TORCH = importlib.util.find_spec('torch') is not None
COUNT = 12
state = {}


def torch():
    """PyTorch with a patched safetensors, the CPU served, and the reads ahead noted."""
    if not HAVE_TORCH:
        raise Skip('PyTorch is not installed: package python3-torch')
    if not state:
        import strait.patch
        from strait import _ahead, _filetensor
        import safetensors
        import torch as found
        _filetensor.TARGETS.add('cpu')
        state.update(torch=found, open=safetensors.safe_open, module=_ahead, patch=strait.patch, begun=[], taken=0)
        fill, finish = _ahead.Ahead._fill, _ahead.Ahead._finish

        def noted_fill(self, device):
            before = set(self._entries)
            fill(self, device)
            state['begun'] += [name for name in self._entries if name not in before]

        def noted_finish(self, entry, device):
            data = finish(self, entry, device)
            state['taken'] += data is not None
            return data

        _ahead.Ahead._fill, _ahead.Ahead._finish = noted_fill, noted_finish
    state.update(begun=[], taken=0)
    return state['torch']


def stored(path, count=COUNT):
    """A file of tensors of some types, with short ones between."""
    t = torch()
    tensors = {}
    for k in range(count):
        tensors[f'w{k:02d}'] = t.randn(100 + k, 512).to((t.float32, t.bfloat16, t.float16)[k % 3])
        tensors[f'w{k:02d}.bias'] = t.randn(7)
    strait.save_file(tensors, path, {'format': 'pt'})
    return tensors


@test
def tensors_in_turn_are_read_ahead():
    t = torch()
    with folder() as path:
        want = stored(f'{path}/m')
        for _ in range(2):
            torch()
            served = state['patch'].counts.tensors
            with state['open'](f'{path}/m', framework='pt') as f:
                params = {name: t.zeros_like(want[name]) for name in f.keys()}
                for name in f.keys():
                    params[name].copy_(f.get_tensor(name))
            expect(all(t.equal(params[name], want[name]) for name in want), 'copied')
            long = [name for name in sorted(want) if want[name].numel() > 100]
            expect(state['begun'] == long[2:], state['begun'])
            expect(state['taken'] == COUNT - 2, state['taken'])
            expect(state['patch'].counts.tensors - served == COUNT, 'each is counted once')


@test
def in_the_order_that_the_program_was_told():
    t = torch()
    with folder() as path:
        want = stored(f'{path}/m')
        with state['open'](f'{path}/m', framework='pt') as f:
            names = f.offset_keys()
            got = {name: f.get_tensor(name).to('cpu') for name in names}
        expect(all(type(got[name]) is t.Tensor and t.equal(got[name], want[name]) for name in want), 'moved')
        expect(state['taken'] == COUNT - 2, state['taken'])
        addresses = {got[name].data_ptr() for name in names}
        expect(len(addresses) == len(names), 'each has memory of its own')


@test
def not_more_than_the_budget():
    t = torch()
    module = state['module']
    whole = module.AHEAD_BYTES
    with folder() as path:
        want = stored(f'{path}/m')
        try:
            module.AHEAD_BYTES = 3 * want['w00'].numel() * 4
            most = 0
            with state['open'](f'{path}/m', framework='pt') as f:
                for name in f.keys():
                    expect(t.equal(f.get_tensor(name).to('cpu'), want[name]), name)
                    entries = f._ahead._entries if f._ahead is not None else {}
                    held = sum(entry.data.numel() for entry in entries.values())
                    expect(f._ahead is None or held == f._ahead._bytes, 'the bytes are counted')
                    most = max(most, held)
            expect(0 < most <= module.AHEAD_BYTES, most)
            torch()
            module.AHEAD_BYTES = 1000
            with state['open'](f'{path}/m', framework='pt') as f:
                for name in f.keys():
                    expect(t.equal(f.get_tensor(name).to('cpu'), want[name]), name)
            expect(not state['begun'], 'longer tensors are not read ahead')
        finally:
            module.AHEAD_BYTES = whole


@test
def another_order_ends_it():
    t = torch()
    with folder() as path:
        want = stored(f'{path}/m')
        with state['open'](f'{path}/m', framework='pt') as f:
            f.keys()
            for k in (0, 1, 2):
                expect(t.equal(f.get_tensor(f'w{k:02d}').to('cpu'), want[f'w{k:02d}']), k)
            expect(f._ahead._entries, 'some are read ahead')
            expect(t.equal(f.get_tensor('w11').to('cpu'), want['w11']), 'out of turn')
            expect(not f._ahead._entries and not f._ahead._bytes, 'the others are dropped')
            for k in (3, 4, 5):
                expect(t.equal(f.get_tensor(f'w{k:02d}').to('cpu'), want[f'w{k:02d}']), k)
            expect(f._ahead._entries, 'and later some again')
            expect(t.equal(f.get_tensor('w06')[3:9].to('cpu'), want['w06'][3:9]), 'a part')
            expect(not f._ahead._entries, 'a part ends it, too')
            for _ in range(4):
                for k in (0, 1, 2, 0):
                    expect(t.equal(f.get_tensor(f'w{k:02d}').to('cpu'), want[f'w{k:02d}']), k)
            torch()
            for k in (0, 1, 2):
                expect(t.equal(f.get_tensor(f'w{k:02d}').to('cpu'), want[f'w{k:02d}']), k)
            expect(not state['begun'], 'after many in vain no more')


@test
def a_file_that_changes_is_read_again():
    t = torch()
    with folder() as path:
        want = stored(f'{path}/m')
        with state['open'](f'{path}/m', framework='pt') as f:
            names = [name for name in f.keys() if want[name].numel() > 100]
            for name in names[:3]:
                expect(t.equal(f.get_tensor(name).to('cpu'), want[name]), name)
            expect(names[3] in f._ahead._entries, 'it is read ahead')
            f._ahead._entries[names[3]].batch.finish()
            begin, end = f._source.header.tensors[names[3]][2:]
            with open(f'{path}/m', 'r+b') as file:
                file.seek(f._source.header.data + begin)
                file.write(bytes(end - begin))
            moved = f.get_tensor(names[3]).to('cpu')
            expect(not moved.float().any() and not state['taken'] > 1, 'the new bytes')


@test
def closing_the_file_frees_the_memory():
    t = torch()
    with folder() as path:
        want = stored(f'{path}/m')
        with state['open'](f'{path}/m', framework='pt') as f:
            got = [f.get_tensor(name) for name in f.keys()]
            for x in got[:6]:
                x.to('cpu')
            ahead = f._ahead
            expect(ahead._entries, 'some are read ahead')
        expect(not ahead._entries, 'none is left')
        begun = len(state['begun'])
        for x, name in zip(got, sorted(want)):
            expect(t.equal(x.to('cpu'), want[name]), name)
        expect(len(state['begun']) == begun, 'tensors of a closed file are read when they are moved')
        del f, got, x
        fds = len(os.listdir('/proc/self/fd'))
        with state['open'](f'{path}/m', framework='pt') as f:
            f.get_tensor('w00')
        del f
        expect(len(os.listdir('/proc/self/fd')) == fds, 'no descriptor is left')


@test
def no_memory_and_no_transfer():
    t = torch()
    module = state['module']
    with folder() as path:
        want = stored(f'{path}/m')
        locate, empty = module.locate, t.empty

        def refuse(*args):
            raise strait.StraitError(5, 'no')

        def full(*args, **options):
            raise RuntimeError('out of memory')

        for replace in ('locate', 'empty'):
            with state['open'](f'{path}/m', framework='pt') as f:
                for name in f.keys():
                    x = f.get_tensor(name)
                    if replace == 'locate':
                        module.locate = refuse
                    elif f._ahead is not None:
                        f._ahead._torch = type('Full', (), {'empty': staticmethod(full), 'uint8': t.uint8})
                    try:
                        moved = x.to('cpu')
                    finally:
                        module.locate = locate
                    expect(t.equal(moved, want[name]), name)
        expect(t.empty is empty, 'nothing was left behind')


if __name__ == '__main__':
    main()
